"""The README: its commands and its example work as printed, its code is the source, and it is short."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import matgrad as mg
from page_support import ROOT, blocks
from support import PATIENCE

README = ROOT / "README.md"
SOURCE = Path(mg.__file__).parent
SHELL, EXAMPLE = (next(b for b in blocks(README) if b.language == language) for language in ("sh", "python"))
COMMANDS = [" ".join(line.split("#")[0].split()) for line in SHELL.text.splitlines()]


def run(command: str, folder: Path) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "OMP_NUM_THREADS": "1"}
    result = subprocess.run(
        command, shell=True, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE
    )
    assert result.returncode == 0, f"{command}\n{result.stdout}\n{result.stderr}"
    return result.stdout


def recipe(target: str) -> list[str]:
    """The commands of a target in the Makefile."""
    lines = (ROOT / "Makefile").read_text().partition(f"\n{target}:")[2].splitlines()[1:]
    return [line.strip() for line in lines[: lines.index("")]]


def test_three_commands_lead_from_a_clone_to_an_explained_batch(tmp_path):
    """They need only what `make train` installs, which has SymPy and matplotlib, but no other framework."""
    assert (COMMANDS[0], COMMANDS[3]) == ("make train", "make test")
    (train,) = recipe("train")
    assert any("--editable '.[symbolic,plot]'" in line for line in recipe("$(VENV)/train.done"))
    others = ("torch", "jax", "tensorflow", "keras", "sklearn", "hypothesis", "pytest", "mkdocs")
    code = f"import sys; sys.modules |= dict.fromkeys({others}); from matgrad.cli import main; main()"
    matgrad = f'{shlex.quote(sys.executable)} -c "{code}"'
    outputs = [run(re.sub(r"^\S+/matgrad", lambda _: matgrad, c), tmp_path) for c in (train, *COMMANDS[1:3])]
    assert re.search(r"^test accuracy 0\.9\d\d$", outputs[0], re.MULTILINE)
    assert (tmp_path / "plot.png").stat().st_size > 10_000
    assert "<math" in (tmp_path / "explain.html").read_text()


def test_the_example_works(tmp_path):
    (tmp_path / "example.py").write_text(EXAMPLE.text)
    output = run(f"{shlex.quote(sys.executable)} example.py", tmp_path)
    assert float(output.splitlines()[0]) > 0.9, "the accuracy"
    assert "layer 3 LinearLayer.Db" in output
    assert mg.load(tmp_path / "digits.npz").layers[-1].output_size == 10


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_the_code_beside_the_equations_is_the_source(page):
    text = (ROOT / page).read_text()
    lines = re.findall(r"^\$\$\\mathsf.*\$\$\n\n    (.*?)(?: +# .*)?$", text, re.MULTILINE)
    source = "\n".join(path.read_text() for path in (SOURCE / "layers").glob("*.py"))
    assert len(lines) == {"README.md": 1, "docs/index.md": 2}[page]
    for line in lines:
        assert line in source


def test_it_is_short():
    """One and a half screens to the first result."""
    lines = README.read_text().splitlines()
    assert len(lines) <= 80
    assert lines.index("```sh") < 25


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_knows_its_targets():
    targets = ["train", "test", "test-all", "test-smoke", "test-gpu", "test-rest-symbolic", "docs"]
    result = subprocess.run(["make", "-n", *targets], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)
    assert result.returncode == 0, result.stderr
