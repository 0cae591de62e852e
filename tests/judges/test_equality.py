"""Equality of symbolic matrices, and which exact number a floating-point one stands for."""

from __future__ import annotations

import math

import pytest
import sympy as sp

import matgrad as mg
from matgrad.judges.equality import compare, exact_number, symbols
from matgrad.judges.sympy_judge import check_activation
from matgrad.matrix_operations import hadamard, ones


def is_equal(A: sp.Matrix, B: sp.Matrix) -> bool:
    problem = compare(A, B)
    return not problem


# -- exact numbers -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (1 / 3, sp.Rational(1, 3)),
        (1 / 3 - 1, -sp.Rational(2, 3)),
        (0.1 + 0.2, sp.Rational(3, 10)),
        (3 * 0.044715, sp.Rational("0.134145")),
        (1e-5, sp.Rational(1, 10**5)),
        (1.41421, sp.Rational("1.41421")),
        (1 / math.sqrt(2), sp.sqrt(2) / 2),
        (math.sqrt(2 / math.pi), sp.sqrt(2 / sp.pi)),
        (0.0, sp.S.Zero),
        (-1e300, -(sp.Integer(10) ** 300)),
    ],
)
def test_what_a_number_stands_for(x: float, expected: sp.Expr):
    assert sp.simplify(exact_number(x) - expected) == 0
    assert not exact_number(x).has(sp.Float)


def test_other_numbers_are_compared_as_precisely_as_they_are():
    root = math.sqrt(5)
    assert exact_number(root) == sp.Float(root)
    assert is_equal(sp.Matrix([[root * x]]), sp.Matrix([[sp.sqrt(5) * x]]))
    assert not is_equal(sp.Matrix([[(root + 1e-9) * x]]), sp.Matrix([[sp.sqrt(5) * x]]))


class ThirdsActivation(mg.ActivationFunction):
    """x³/3 + x·√5"""

    def __init__(self, wrong: float = 0) -> None:
        self.wrong = int(wrong)

    def __call__(self, X):
        return 1 / 3 * hadamard(X, hadamard(X, X)) + math.sqrt(5) * X

    def gradient(self, X):
        m, n = X.shape
        return (1 + self.wrong) * hadamard(X, X) + 5 / math.sqrt(5) * ones(m, n, like=X)


def test_a_right_equation_with_fractions_and_roots_is_right():
    assert all(check.ok for check in check_activation(ThirdsActivation()))
    assert not all(check.ok for check in check_activation(ThirdsActivation(1)))


# -- equality ----------------------------------------------------------------------------------

x, y = sp.symbols("x y", real=True)


@pytest.mark.parametrize(
    ("a", "b", "equal"),
    [
        ((x + y) ** 2, x**2 + 2 * x * y + y**2, True),
        (sp.exp(x + y), sp.exp(x) * sp.exp(y), True),
        (sp.tanh(x), (sp.exp(x) - sp.exp(-x)) / (sp.exp(x) + sp.exp(-x)), True),
        (sp.Piecewise((x, x >= 0), (0, True)), sp.Max(x, 0), True),
        (sp.sqrt(x**2), sp.Abs(x), True),
        (sp.sqrt(x**2), x, False),
        (x, x + sp.Rational(1, 10**20), False),
        (sp.erf(x), sp.tanh(x), False),
        (1 / (x - x), x, False),
    ],
)
def test_equality(a, b, equal: bool):
    assert is_equal(sp.Matrix([[x, a]]), sp.Matrix([[x, b]])) == equal


def test_the_first_difference_is_told():
    A, B = symbols("a", 2, 3), symbols("a", 2, 3)
    B[1, 2] = 0
    problem = compare(A, B)
    assert problem == "is wrong at row 2, column 3:\n  found     a_23\n  expected  0"
