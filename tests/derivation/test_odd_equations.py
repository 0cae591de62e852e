"""Typed equations of all kinds: what `mg.derive` takes is right, and of the rest it says in one line what to do."""

from __future__ import annotations

import inspect
import re

import pytest
import torch
from odd_equations import odd_equations

import matgrad as mg

# what Python says, and nobody who types equations should have to read
PYTHON = re.compile(
    r"\n|object|argument|unsupported|NoneType|recursion|Traceback|Invalid literal|subscriptable|callable|builtins|'int'"
)
SIZES = {"N": 3, "D": 4, "K": 5, "1": 1}
OTHER = 7  # all other sizes


def said(text: str) -> str:
    """What is wrong with equations, in a line that a user understands."""
    with pytest.raises(ValueError) as raised:  # noqa: PT011
        mg.derive(text)
    message = str(raised.value)
    assert not PYTHON.search(message.replace(repr(text), "")), f"{text!r}: {message}"
    return message


def check_honest(found: mg.Derivation) -> None:
    """What is printed and saved says what is proved, and nothing else."""
    first = found.code.splitlines()[0]
    proved = re.search(r"proved for all sizes: ([\w, ]+)", first)
    assert (proved[1].split(", ") if proved else []) == [x.name for x in found.verdicts if x.ok], first
    assert ("NOT PROVED" in first) == (not found.is_proved) == ("NOT PROVED" in str(found)) == bool(found.problems)


def error_of(found: mg.Derivation, text: str) -> float:
    """The greatest difference between a derived gradient and that of torch's autograd; 0 where there is none."""
    options = list(inspect.signature(found.layer.__init__).parameters)[3:]
    sizes = SIZES | {"K": SIZES["D"] if found.layer.keeps_size else SIZES["K"]}
    layer = found.layer(sizes["D"], sizes["K"], **{n: sizes.get(n, OTHER) for n in options})
    declared = re.search(r"(?:^|[\n;])\s*X\s*:\s*(\w+)(?:\s*[x×,]\s*|\s+)(\w+)", text)
    shape = [sizes.get(n, OTHER) for n in (declared.groups() if declared else ("N", "D"))]
    rng = torch.Generator().manual_seed(1)

    def random(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, dtype=torch.float64, generator=rng) + 0.1

    leaves = {"X": random(*shape)} | {name: random(*getattr(layer, name).shape) for name in layer.parameters}
    for x in leaves.values():
        x.requires_grad_(True)
    vars(layer).update({name: x for name, x in leaves.items() if name != "X"})
    Y = layer.feedforward(leaves["X"])
    DY, expected = random(*Y.shape), [None] * len(leaves)
    if Y.requires_grad:
        expected = list(torch.autograd.grad((DY * Y).sum(), list(leaves.values()), allow_unused=True))
    with torch.no_grad():
        layer.backpropagate(Y, DY)
    errors = [0.0]
    for (name, x), e in zip(leaves.items(), expected, strict=True):
        e = torch.zeros_like(x) if e is None else e
        D = getattr(layer, f"D{name}")
        assert D.shape == x.shape, f"{name}: {D.shape}, expected {x.shape}: {text}"
        if torch.isfinite(e).all() and torch.isfinite(Y).all():
            errors.append(float(((D - e).abs() / (1 + e.abs())).max()))
    return max(errors)


def check(seeds: range) -> None:
    """No traceback, nothing dishonest and no wrong gradient."""
    derived = 0
    for seed in seeds:
        text = odd_equations(seed)
        try:
            found = mg.derive(text)
        except ValueError:
            said(text)
            continue
        derived += 1
        check_honest(found)
        if found.is_proved:
            assert error_of(found, text) < 1e-9, f"seed {seed}: {text!r}\n{found}"
    assert derived > len(seeds) / 10


def test_some_odd_equations():
    check(range(100))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 5000, 500))
def test_many_odd_equations(first):
    check(range(first, first + 500))
