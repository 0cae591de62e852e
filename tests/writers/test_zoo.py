"""The zoo in PyTorch: its page is what its files and the proofs say, and its gradients are those of autograd."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from mutants import is_right

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs/site"))
import zoo  # noqa: E402

TORCH, JAX = (zoo.claims(path) for path in zoo.FILES.values())


def test_both_files_have_the_same_functions():
    assert list(TORCH) == list(JAX)
    assert len(TORCH) >= 17


def test_the_page_has_all_proofs_of_pytorch():
    page = "".join(zoo.parts())
    assert (ROOT / "docs/zoo.md").read_text() == page, "run python docs/site/zoo.py"
    assert page.count("**Proved** for all sizes") == len(TORCH)


@pytest.mark.parametrize("name", TORCH)
def test_pytorch_on_the_page_is_autograd(name: str):
    space: dict = {"__name__": "zoo"}
    exec(zoo.torch_code(name), space)
    assert is_right(space[name], TORCH[name])
