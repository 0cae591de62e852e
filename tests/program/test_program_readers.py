"""Programs with named sizes, and the programs of their gradients, against torch."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import pytest
import torch

from matgrad import matrix_operations as table
from matgrad.program import Program, record
from matgrad.program.adjoint import adjoint
from matgrad.program.entries import entry_at, symbols
from matgrad.program.shapes import BoundSize, Questions, Size, quotient, size_name
from matgrad.softmax_functions import stable_log_softmax, stable_softmax
from program_support import outputs

QUESTIONS = Questions()
N, D, K = (Size(name, QUESTIONS) for name in "NDK")
NUMBERS = {"N": 5, "D": 3, "K": 4}
SHAPES = {"X": (N, D), "W": (K, D), "b": (1, K)}

FEEDFORWARDS = {
    "linear": lambda X, W, b: X @ W.T + table.row_repeat(b, X.shape[0]),
    "softmax": lambda X, W, b: stable_softmax(X @ W.T),
    "log-softmax": lambda X, W, b: stable_log_softmax(table.tanh(X @ W.T)),
    "mean": lambda X, W, b: table.columns_mean(X) / X.shape[0] @ W.T - b,
    "normalized": lambda X, W, b: X * (1 / table.elements_sum(table.exp(X))) ** 2 @ W.T,
    "product of sizes": lambda X, W, b: table.sqrt(1 + table.hadamard(X, X)) / (X.shape[0] * X.shape[1]) @ W.T,
    "largest": lambda X, W, b: table.rows_max(X) @ b,
    "scalar": lambda X, W, b: X @ W.T - table.dot(b, b),
}


def with_numbers(program: Program) -> Program:
    """The same program with numbers in place of the sizes."""

    def number(n: Any) -> Any:
        return prod(NUMBERS[name] for name in n.factors) if isinstance(n, Size) else n

    return program.mapped(lambda _, x: replace(x, shape=tuple(map(number, x.shape)), number=number(x.number)))


@pytest.mark.parametrize("name", FEEDFORWARDS)
def test_the_adjoint_of_a_program_has_the_gradients_of_torch(name: str):
    f = FEEDFORWARDS[name]
    program = record(lambda _, m: {"Y": f(**m)}, {key: (shape, "float64") for key, shape in SHAPES.items()})
    rng = np.random.default_rng(3)
    given = {key: rng.normal(size=tuple(NUMBERS.get(str(n), 1) for n in shape)) for key, shape in SHAPES.items()}
    leaves = {key: torch.tensor(A, requires_grad=True) for key, A in given.items()}
    Y = f(**leaves)
    DY = torch.tensor(rng.normal(size=Y.shape))
    expected = torch.autograd.grad((DY * Y).sum(), list(leaves.values()), allow_unused=True)
    np.testing.assert_allclose(outputs(with_numbers(program), given)["Y"], Y.detach(), rtol=1e-12)
    found = outputs(with_numbers(adjoint(program)), {**given, "DY": DY.numpy()})
    for key, gradient in zip(leaves, expected, strict=True):
        if gradient is not None:
            np.testing.assert_allclose(found[f"D{key}"], gradient, rtol=1e-9, atol=1e-12, err_msg=key)


def test_a_program_with_named_sizes_has_entries():
    program = record(lambda _, m: {"Y": m["X"] @ m["W"].T}, {name: (SHAPES[name], "float64") for name in "XW"})
    X, W = symbols("X", N, D), symbols("W", K, D)
    assert str(entry_at(program.outputs["Y"])) == str((X @ W.T).entry)
    assert str(program) == "given X N×D, W K×D\n\nY = X Wᵀ"


def test_shapes_ask_no_questions_about_sizes():
    asked = Questions()
    X, b = symbols("X", Size("N", asked), Size("K", asked)), symbols("b", 1, Size("K", asked))
    assert str((X + table.row_repeat(b, X.shape[0])).entry)
    with pytest.raises(TypeError, match="expected shapes"):
        X @ X
    assert not asked.ones
    assert not asked.others
    assert (X.shape[0] * X.shape[1] == 1) is False
    assert asked.ones == {"N", "K"}


def test_products_of_sizes():
    assert str(N * D) == "N·D"
    assert N * D == Size("N·D")


def test_the_number_of_examples_is_no_part_of_a_stack():
    rows = BoundSize(24, "N·12", 12)
    assert [size_name(quotient(rows, n)) for n in (BoundSize(2, "N"), 12, 4, 2)] == [12, "N", "N·3", "N·6"]
