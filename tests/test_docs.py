"""The documentation: every example in Python, and every command on embedded data, works as printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from cli_support import succeed
from page_support import DOCS, PAGES, ROOT, blocks, commands, runs_here
from support import PATIENCE

REFERENCE = ("equations.md", "api.md", "architecture.md", "differences.md", "limits.md")  # nothing to run


def run_page(page: str, folder) -> str:
    """The output of a page's blocks, in a process of its own: frameworks do not share one."""
    (folder / "docs").symlink_to(DOCS)
    path = os.pathsep.join(str(ROOT / name) for name in ("tests", "src"))
    environment = os.environ | {"PYTHONPATH": path, "KERAS_BACKEND": "torch", "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, ROOT / "tests" / "page_support.py", DOCS / page]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, f"{page}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("page", [page for page in PAGES if page not in REFERENCE])
def test_the_blocks_of_a_page_work_in_order(page, tmp_path):
    output = run_page(page, tmp_path)
    expected = sum(1 for command in commands(DOCS / page) if runs_here(command))
    assert len(re.findall(r"^\$ matgrad", output, re.MULTILINE)) == expected
    assert expected or any(block.language == "python" for block in blocks(DOCS / page)), "nothing was run"


def test_all_commands_have_options_that_exist():
    for page in PAGES:
        for program, *arguments in commands(DOCS / page):
            if program == "matgrad":
                arguments = arguments[: arguments.index("|")] if "|" in arguments else arguments
                shown = succeed(*(x for x in arguments[:2] if x.isalpha()), "--help")
                assert {x for x in arguments if x.startswith("--")} <= {*re.findall(r"--[\w-]+", shown)}, arguments


def test_every_block_says_what_it_is():
    """A language that is run, a file with a title, or output without a language; pages of reference run nothing."""
    for page in PAGES:
        fences = re.findall(r"^```(.*)$", (DOCS / page).read_text(), re.MULTILINE)[::2]
        assert {re.sub(r' title=".*"', "", fence) for fence in fences} <= {"bash", "python", ""}, page
    assert not [page for page in REFERENCE if blocks(DOCS / page)]
