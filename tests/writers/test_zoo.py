"""The zoo in PyTorch: its page is what its files and the proofs say, and its gradients are those of autograd."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from latex_numbers import equations, evaluated
from mutants import Nothing, is_right

from matgrad.writers.specifications import specification

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


VARIABLES = {
    "eps": "\\varepsilon",
    "smoothing": "\\alpha",
    "angles": "\\theta",
    "scale": "c",
    "chosen": "c",
    "rejected": "r",
}
VARIABLES |= {name: f"\\{name}" for name in ("gamma", "beta", "delta")}


@pytest.mark.parametrize("name", TORCH)
def test_equations_on_the_page_are_autograd(name: str):
    """As they are printed, entry by entry."""
    cls = getattr(zoo.module(zoo.FILES["PyTorch"]), name)
    _, _, text = cls.__doc__.split("\n", 2)
    shapes = {n: specification(s) for n, s in TORCH[name].items()}
    names = sorted({a for s in shapes.values() for a in s.names} - {"B", "H"})
    sizes = dict(zip(names, (3, 4, 2, 5), strict=False)) | {"B": 1, "H": 1}
    rng = np.random.default_rng(0)
    arrays = {n: np.asarray(s.sample(sizes, rng)) for n, s in shapes.items()}
    if "mask" in arrays:
        arrays["mask"] = np.zeros_like(arrays["mask"])
    arguments = {n: torch.tensor(x) if x.ndim else x.item() for n, x in arrays.items()}
    own = {n: x.requires_grad_() for n, x in arguments.items() if torch.is_tensor(x) and x.is_floating_point()}
    y = cls.forward(Nothing(), *arguments.values())
    g = torch.randn(y.shape, dtype=y.dtype)
    gradients = dict(zip(own, torch.autograd.grad(y, list(own.values()), g), strict=True))

    def plain(n: str, x: torch.Tensor) -> np.ndarray:
        """With batches and heads as rows, and groups apart."""
        if name == "GroupNorm":
            parts = [part for dim in shapes.get(n, shapes["x"]).dims for part in dim]
            return x.detach().numpy().reshape([sizes[part] for part in parts])
        return x.detach().numpy().reshape(-1, x.shape[-1]) if x.ndim > 2 else x.detach().numpy()

    output = "L" if not y.ndim else "c" if name == "CosineSimilarity" else "y"
    defined = {x for e in equations(text) for x in e.names} | {n.upper() for n in arguments} | {"B", "H"}
    values = {n: float(x) for n, x in sizes.items() if n not in defined}
    values |= {"\\pi": np.pi, "I": np.eye(sizes.get("N", 1)), "[]": np.zeros(sizes.get("K", 1))}
    values |= {VARIABLES.get(n, n): plain(n, x) if torch.is_tensor(x) else x for n, x in arguments.items()}
    values |= {f"D{output}": plain("y", g)}
    if name == "RotaryEmbedding":
        half = sizes["F"]
        values |= {"u": values["x"][:, :half], "v": values["x"][:, half:]}
        values |= {"Du'": values["Dy"][:, :half], "Dv'": values["Dy"][:, half:]}
    found = evaluated(text, values)
    if name == "RotaryEmbedding":
        found |= {"y": np.hstack([found["u'"], found["v'"]]), "Dx": np.hstack([found["Du"], found["Dv"]])}
        del gradients["angles"]
    np.testing.assert_allclose(found.get(output, found.get(output.upper())), plain("y", y))
    for n, d in gradients.items():
        symbol = f"D{VARIABLES.get(n, n)}"
        if symbol in found or symbol.swapcase() in found or f"D{n.upper()}" in found:
            np.testing.assert_allclose(found.get(symbol, found.get(f"D{n.upper()}")), plain(n, d), err_msg=n)
    assert {*gradients} - {"t"} <= {
        n for n in gradients if f"D{VARIABLES.get(n, n)}" in found or f"D{n.upper()}" in found
    }
