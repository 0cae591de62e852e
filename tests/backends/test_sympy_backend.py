"""The table, activations, softmax functions and losses on SymPy: equal to NumPy, with derivatives that SymPy finds."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import sympy as sp

from matgrad import matrix_operations as mo
from matgrad import softmax_functions as sf
from matgrad.activation_functions import (
    HyperbolicTangentActivation,
    SigmoidActivation,
    SiLUActivation,
    SoftplusActivation,
    SReLUActivation,
)
from matgrad.backends import get_backend
from matgrad.backends.base import Backend
from matgrad.backends.sympy_backend import SympyMatrix
from support import assert_close, to_numpy
from test_activation_functions import AL, AR, TL, TR
from test_activation_functions import ALL as ACTIVATIONS
from test_loss_functions import CASES as LOSSES
from test_loss_functions import batch
from test_matrix_operations import TABLE

JACOBIANS = {
    sf.softmax: sf.softmax_jacobian,
    sf.stable_softmax: sf.stable_softmax_jacobian,
    sf.log_softmax: sf.log_softmax_jacobian,
    sf.stable_log_softmax: sf.stable_log_softmax_jacobian,
}


def rational(A: np.ndarray) -> sp.Matrix:
    """A, whose elements have small denominators, as a matrix of rational numbers."""
    return SympyMatrix(*A.shape, [sp.Rational(Fraction(x)) for x in A.reshape(-1).tolist()])


def symbols(name: str, m: int, n: int) -> sp.Matrix:
    return SympyMatrix(m, n, lambda i, j: sp.Symbol(f"{name}_{i + 1}{j + 1}", real=True))


def at(expression, *pairs: tuple[sp.Matrix, np.ndarray]) -> np.ndarray:
    """The expression or matrix with the numbers of A for the symbols of X, for each pair (X, A)."""
    values = {x: a for X, A in pairs for x, a in zip(X, rational(A), strict=True)}
    return to_numpy(expression.subs(values).evalf(30))


def points(m: int, n: int, seed: int) -> np.ndarray:
    """Odd multiples of 1/8 between -3 and 3: on no corner of an activation."""
    return (2 * np.random.default_rng(seed).integers(-12, 12, (m, n)) + 1) / 8


# -- the table ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("m", "n"), [(2, 3), (1, 3), (3, 1)])
@pytest.mark.parametrize("name", TABLE)
def test_operation_equals_numpys(name, m, n):
    row = TABLE[name]
    arguments = row.arguments(m, n, seed=0)
    Y = row.operation(*(rational(A) for A in arguments))
    assert_close(Y, row.operation(*arguments), context=f"{name} on sympy, {m} × {n}, seed 0")


def test_log_sigmoid_equals_its_derived_definition():
    X = rational(np.array([[-3, -0.5, 0, 0.25, 2]]))
    backend = get_backend("sympy")
    assert_close(mo.log_sigmoid(X), to_numpy(Backend.log_sigmoid(backend, X)), context="log_sigmoid")


def test_matrices_stay_exact():
    X = sp.Matrix([[sp.Rational(1, 3), 2], [0, -1]])
    assert mo.columns_mean(X) == sp.Matrix([[sp.Rational(1, 6), sp.Rational(1, 2)]])
    assert mo.rows_mean(X) == sp.Matrix([sp.Rational(7, 6), -sp.Rational(1, 2)])
    assert mo.exp(X) == sp.Matrix([[sp.exp(sp.Rational(1, 3)), sp.exp(2)], [1, sp.exp(-1)]])
    assert mo.inv_sqrt(sp.Matrix([[2]]), sp.Rational(1, 4)) == sp.Matrix([[sp.Rational(2, 3)]])
    assert mo.positive(X) == X


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        (lambda X: mo.hadamard(X, X.T), "hadamard: expected equal sizes, found 2 × 3 and 3 × 2"),
        (lambda X: mo.diag(X), "diag: expected a square matrix, found 2 × 3"),
        (lambda X: mo.Diag(X), "Diag: expected a row or a column vector, found 2 × 3"),
        (lambda X: mo.row_repeat(X, 2), "row_repeat: expected a row vector, found 2 × 3"),
        (lambda X: mo.column_repeat(X, 2), "column_repeat: expected a column vector, found 2 × 3"),
    ],
)
def test_wrong_sizes_are_named(operation, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        operation(symbols("x", 2, 3))


def test_numpy_and_sympy_do_not_mix():
    with pytest.raises(TypeError, match="mixed backends: sympy and numpy"):
        mo.hadamard(symbols("x", 2, 3), np.ones((2, 3)))


# -- activations -------------------------------------------------------------------------------


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=repr)
def test_activation_of_symbols_equals_numpys(activation):
    X, A = symbols("x", 2, 3), points(2, 3, seed=0)
    A[0, 0] = 0  # a corner
    assert_close(at(activation(X), (X, A)), activation(A), context=f"{activation!r}, 2 × 3, seed 0")
    assert_close(at(activation.gradient(X), (X, A)), activation.gradient(A), context=f"gradient of {activation!r}")


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=repr)
def test_gradient_of_an_activation_is_sympys_derivative(activation):
    X, A = symbols("x", 2, 3), points(2, 3, seed=1)
    derivative = sp.Matrix(2, 3, [y.diff(x) for y, x in zip(activation(X), X, strict=True)])
    gradient = at(activation.gradient(X), (X, A))
    assert_close(gradient, at(derivative, (X, A)), context=f"{activation!r}, 2 × 3, seed 1")


# GELU is left out: its √2 is a floating-point number
@pytest.mark.parametrize(
    "activation",
    [HyperbolicTangentActivation(), SigmoidActivation(), SiLUActivation(), SoftplusActivation()],
    ids=repr,
)
def test_gradient_of_a_smooth_activation_is_its_derivative_as_a_formula(activation):
    X = symbols("x", 1, 1)
    difference = activation.gradient(X)[0] - activation(X)[0].diff(X[0])
    assert sp.simplify(difference.rewrite(sp.exp)) == 0


def test_srelu_of_symbols_equals_numpys():
    parameters = [symbols(name, 1, 4) for name in ("al", "tl", "ar", "tr")]
    rows = [AL, TL, AR, TR]
    X, A = symbols("x", 3, 4), points(3, 4, seed=0)
    A[0], A[1] = TL, TR  # the corners
    pairs = [(X, A), *zip(parameters, rows, strict=True)]
    symbolic, numeric = SReLUActivation(*parameters), SReLUActivation(*rows)
    assert_close(at(symbolic(X), *pairs), numeric(A), context="SReLU, 3 × 4, seed 0")
    assert_close(at(symbolic.gradient(X), *pairs), numeric.gradient(A), context="gradient of SReLU, 3 × 4, seed 0")


# -- softmax functions -------------------------------------------------------------------------


@pytest.mark.parametrize("f", JACOBIANS, ids=lambda f: f.__name__)
@pytest.mark.parametrize(("N", "D"), [(2, 3), (1, 3), (3, 1)])
def test_softmax_of_symbols_equals_numpys(f, N, D):
    X, A = symbols("x", N, D), points(N, D, seed=0)
    assert_close(at(f(X), (X, A)), f(A), noise=1e-14, context=f"{f.__name__}, {N} × {D}, seed 0")


@pytest.mark.parametrize("f", JACOBIANS, ids=lambda f: f.__name__)
def test_jacobian_is_sympys(f):
    jacobian = JACOBIANS[f]
    x, a = symbols("x", 1, 3), np.array([[0.5, -1.25, 2.0]])
    J = at(jacobian(x), (x, a))
    assert_close(J, at(f(x).jacobian(x), (x, a)), context=f.__name__)
    assert_close(J, jacobian(a), context=f"{f.__name__} on numpy")


# -- losses ------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", LOSSES, ids=[repr(case.loss) for case in LOSSES])
def test_loss_of_symbols_equals_numpys_and_has_sympys_gradient(case):
    loss, (N, K) = case.loss, (2, 3)
    Y, T = symbols("y", N, K), symbols("t", N, K)
    A, B = batch(case.kind, N, K, seed=0, one_hot=False)
    pairs = (Y, A), (T, B)
    value = loss(Y, T)
    derivative = sp.Matrix(N, K, [value.diff(y) for y in Y])
    context = f"{loss!r}, {N} × {K}, seed 0"
    assert_close(at(value, *pairs), loss(A, B), context=context)
    gradient = at(loss.gradient(Y, T), *pairs)
    assert_close(gradient, at(derivative, *pairs), context=f"gradient of {context}")
    assert_close(gradient, loss.gradient(A, B), context=f"gradient of {context} on numpy")
    assert_close(at(loss.mean_gradient(Y, T), *pairs), loss.mean_gradient(A, B), context=f"mean of {context}")
