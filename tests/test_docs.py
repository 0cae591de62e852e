"""The documentation: every example in Python, and every command on embedded data, works as printed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

import matgrad as mg
from cli_support import succeed

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted(page.name for page in DOCS.glob("*.md"))
ELSEWHERE = ("bench", "mnist", "cifar", "svmlight")  # what needs data or time


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


def commands(page: str) -> list[list[str]]:
    """The arguments of every command in the shell blocks."""
    lines = "".join(blocks(page, "bash")).replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True) for line in lines if line.strip()]


@pytest.fixture
def files(tmp_path, monkeypatch) -> None:
    """The files that the commands read: masks, and a pruned model with zeros."""
    monkeypatch.chdir(tmp_path)
    rng, sizes = np.random.default_rng(0), (64, 128, 64, 10)
    names = [(f"W{i + 1}", (sizes[i + 1], sizes[i])) for i in range(3)]
    np.savez("masks.npz", **{name: rng.random(shape) < 0.2 for name, shape in names})
    M = mg.create_model("ReLU;ReLU;Linear", sizes)
    for layer in M.layers:
        layer.W = layer.W * (rng.random(layer.W.shape) < 0.2).astype(np.float32)
    M.save("zeros.npz", information={"classes": 10})


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.usefixtures("files")
def test_the_commands_on_embedded_data_work_in_order(page):
    own = [x for x in commands(page) if not any(word in part for word in ELSEWHERE for part in x)]
    assert len(own) > 2 or blocks(page, "python")
    for program, *arguments in own:
        assert program == "matgrad"
        last = succeed(*arguments, *(("--quiet",) if arguments[0] == "train" else ())).splitlines()[-1]
        if arguments[0] == "train":
            assert re.fullmatch(r"test accuracy 0\.\d{3}", last), arguments


@pytest.mark.parametrize("page", PAGES)
def test_all_commands_have_options_that_exist(page):
    for program, *arguments in commands(page):
        assert program == "matgrad"
        names = re.findall(r"--[\w-]+", succeed(*(x for x in arguments[:2] if x.isalpha() or x in BENCHES), "--help"))
        assert {x for x in arguments if x.startswith("--")} <= {*names}, arguments


BENCHES = ("sparse-methods", "brain")


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.usefixtures("files")
def test_the_examples_in_python_work_in_order(page):
    namespace: dict = {}
    for block in blocks(page, "python"):
        exec(block, namespace)
