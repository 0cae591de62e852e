"""Typed equations of all kinds: what `mg.derive` takes is right, and of the rest it says in one line what to do."""

from __future__ import annotations

import inspect
import re

import pytest
import torch
from odd_equations import odd_equations

import matgrad as mg
from matgrad.program import adjoint

# what Python says, and nobody who types equations should have to read
PYTHON = re.compile(
    r"\n|object|argument|unsupported|NoneType|recursion|Traceback|Invalid literal|subscriptable|callable|builtins"
)
SIZES = {"N": 3, "D": 4, "K": 5, "1": 1}
OTHER = 7  # all other sizes


def said(text: str) -> str:
    """What is wrong with equations, in a line that a user understands."""
    with pytest.raises(ValueError) as raised:  # noqa: PT011
        mg.derive(text)
    message = str(raised.value)
    assert not PYTHON.search(message.rpartition("': ")[2]), f"{text!r}: {message}"
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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Y = 1e400 * X", "'Y = 1e400 * X': expected real and finite numbers, found inf"),
        ("Y = 1e300 * 1e300 * X", "expected real and finite numbers, found inf"),
        ("Y = 10 ** 10 ** 10 * X", "**: expected a number from -1000 to 1000 as exponent, found 10000000000"),
        ("Y = X ** 1e9", "**: expected a number from -1000 to 1000 as exponent, found 1000000000.0"),
        ("Y = X ** N", "**: expected a number from -1000 to 1000 as exponent, found N"),
        ("Y = 2 ** X", "**: expected a number from -1000 to 1000 as exponent, found a matrix of size N × D"),
        ("Y = (-1) ** 0.5 * X", "expected real and finite numbers, found (6.1"),
        ("Y = X / (1 - 1)", "/: expected a number other than 0 to divide by"),
        ("Y = 0 ** -1 * X", "**: "),
        ("DX: 1 D; Y = X", "'DX: 1 D': DX has a meaning already"),
        ("DW: 1 D; W: K D; Y = X", "'W: K D': W has a meaning already"),
        ("training: 1 D; Y = X", "training is the name of a size or a function, or of something in a layer"),
        ("lambda: 1 D; Y = X", "expected a name that begins with a letter and is no word of Python, found lambda"),
        ("P: P P; Y = X", "P: P P: P is no size, as it means something else"),
        ("W: K None; Y = X", "expected two sizes, each 1 or a name such as N, D or K, found 'None'"),
        ("b: 1 D = nan; Y = X", "expected a number of float32 after =, at most 3.4e+38, found nan"),
        ("b: 1 D = 1e39; Y = X", "expected a number of float32 after =, at most 3.4e+38, found 1e39"),
        ("Y = ones(N, K)", "K is not defined; known: D, N, X"),
        ("Y = ReLU(N) * X", "ReLU: expected a matrix, found N"),
        ("Y = N.T * X", ".T: expected a matrix, found N"),
        ("Y = N @ X", "@: expected a matrix, found N"),
        ("Y = exp + X", "+: expected a matrix, a size or a number, found exp"),
        ("Y = log(0) * X", "log: expected a matrix, found 0"),
        ("Y = hadamard(X)", "hadamard(X, Y): expected 2 of them, found a matrix of size N × D"),
        ("Y = exp(X, epsilon=1)", "exp(X): expected 1 of them, found a matrix of size N × D, epsilon=…"),
        ("Y = " + "-" * 3000 + "X", "nested too deeply; give its parts names, in equations of their own"),
        ("Y = " + "tanh(" * 60 + "X" + ")" * 60, "the equation is more than 50 levels deep; give its parts names"),
        ("Y = " + "hadamard(X, X) * hadamard(X, X) * " * 200 + "X", "the equation is more than 50 levels deep"),
        ("Y = X\0", "null bytes"),
        ("Y = " + "9" * 5000 + " * X", "limit"),
    ],
)
def test_what_is_said_of_odd_equations(text, message):
    assert message in said(text)


@pytest.mark.parametrize(
    "text",
    [
        "Y = rows_sum(X)",  # the gradient needs a size that the output does not have
        "Y = ones(N)",
        "Y = row_repeat(columns_sum(X), N * D)",
        "Y = X ** 1000",
        "Y = X ** -1000",
        "Y = (X + 1) ** 50",
        "Y = elements_sum(X) ** 100 * X",
        "A: 1 E; Y = X + elements_sum(exp(A) + exp(A) + tanh(A)) * X",  # E, A and s are names that derived code has
        "ﬁ: 1 D; Y = X + row_repeat(fi, N)",  # the same name for Python
        "; ".join(["V0 = X", *(f"V{k} = tanh(V{k - 1})" for k in range(1, 5)), "Y = V4"]),
    ],
)
def test_odd_equations_that_are_derived(text):
    found = mg.derive(text)
    check_honest(found)
    assert found.is_proved, found.problems
    assert error_of(found, text) < 1e-9


def test_what_is_written_is_what_was_proved(monkeypatch):
    monkeypatch.setitem(adjoint.ADJOINTS, "tanh", lambda DY, Y, X: (DY,))
    found = mg.derive("W: K D; Y = tanh(X) @ W.T")
    claim = "NOT PROVED: DX; proved for all sizes: Y, DW"
    assert found.code.startswith(f'"""NewLayer: gradients derived by matgrad; {claim}."""')
    check_honest(found)


def test_a_proof_that_is_too_long_is_none(monkeypatch):
    monkeypatch.setattr("matgrad.derivation.proving.MOST_TERMS", 100)
    found = mg.derive("V = tanh(X); Y = tanh(hadamard(V, V) + V)")
    assert "too many terms" in " ".join(found.problems)
    assert not found.is_proved
    check_honest(found)


def test_some_odd_equations():
    check(range(100))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 5000, 500))
def test_many_odd_equations(first):
    check(range(first, first + 500))
