"""Activation functions and their derivatives against PyTorch, its autograd, mpmath and the paper's corners."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
import torch
import torch.nn.functional as F

from matgrad.activation_functions import (
    ACTIVATIONS,
    AllReLUActivation,
    ELUActivation,
    GELUActivation,
    HyperbolicTangentActivation,
    LeakyReLUActivation,
    ReLUActivation,
    SigmoidActivation,
    SiLUActivation,
    SoftplusActivation,
    SReLUActivation,
    TReLUActivation,
)
from matgrad.backends.base import DTYPES
from support import TOLERANCE, Framework, assert_close, to_numpy

BACKENDS = ("numpy", "torch", "jax", "tensorflow")

SHAPES = [(3, 5), (1, 6), (6, 1), (1, 1)]

# an activation, and the same function in PyTorch
CASES = [
    (ReLUActivation(), F.relu),
    (LeakyReLUActivation(), F.leaky_relu),
    (LeakyReLUActivation(0.3), lambda X: F.leaky_relu(X, 0.3)),
    (LeakyReLUActivation(0), F.relu),
    (LeakyReLUActivation(1), lambda X: X),
    (LeakyReLUActivation(1.5), lambda X: torch.maximum(1.5 * X, X)),
    (AllReLUActivation(), lambda X: torch.where(X < 0, 0.01 * X, X)),
    (AllReLUActivation(-0.6), lambda X: torch.where(X < 0, -0.6 * X, X)),
    (AllReLUActivation(1.5), lambda X: torch.where(X < 0, 1.5 * X, X)),
    (TReLUActivation(), lambda X: F.threshold(X, 0.01, 0)),
    (TReLUActivation(0.5), lambda X: F.threshold(X, 0.5, 0)),
    (TReLUActivation(-0.5), lambda X: F.threshold(X, -0.5, 0)),
    (HyperbolicTangentActivation(), torch.tanh),
    (SigmoidActivation(), torch.sigmoid),
    (GELUActivation(), F.gelu),
    (SiLUActivation(), F.silu),
    (ELUActivation(), F.elu),
    (ELUActivation(1.7), lambda X: F.elu(X, 1.7)),
    (SoftplusActivation(), F.softplus),
]
ALL = [activation for activation, _ in CASES]


def inputs(m: int, n: int, seed: int) -> np.ndarray:
    """Odd multiples of 1/16 between -4 and 4: exact in both dtypes and on no corner."""
    return (2 * np.random.default_rng(seed).integers(-32, 32, (m, n)) + 1) / 16


def value_and_gradient(f, A: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """f(A) in PyTorch, and its derivatives by autograd."""
    X = torch.tensor(A, requires_grad=True)
    Y = f(X)
    Y.sum().backward()
    return Y.detach().numpy(), X.grad.numpy()


def check(activation, oracle, backend: Framework, dtype: str, m: int, n: int, seed: int) -> None:
    A = inputs(m, n, seed)
    Y, DY = backend.compiled(lambda X: (activation(X), activation.gradient(X)))(backend.matrix(A, dtype))
    expected, gradient = value_and_gradient(oracle, A)
    context = f"{activation!r} on {backend}, {m} × {n}, seed {seed}"
    assert_close(Y, expected, dtype=dtype, context=context)
    # 1 - tanh² is as precise as 1
    assert_close(DY, gradient, noise=TOLERANCE[dtype], dtype=dtype, context=f"gradient of {context}")


@pytest.mark.few(12)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("activation", "oracle"), CASES, ids=map(repr, ALL))
def test_value_and_gradient_equal_pytorchs(backend, activation, oracle, dtype):
    for seed, (m, n) in enumerate(SHAPES):
        check(activation, oracle, backend, dtype, m, n, seed)


def test_every_activation_is_tested():
    assert set(ACTIVATIONS.values()) == {type(activation) for activation in ALL}


# -- corners -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("activation", "x", "y", "gradient"),
    [
        (ReLUActivation(), 0.0, 0, 1),
        (ReLUActivation(), -0.0, 0, 1),
        (LeakyReLUActivation(0.25), 0.0, 0, 1),
        (LeakyReLUActivation(2), 0.0, 0, 1),
        (LeakyReLUActivation(2), 3.0, 6, 2),
        (LeakyReLUActivation(2), -3.0, -3, 1),
        (LeakyReLUActivation(1), -3.0, -3, 1),
        (AllReLUActivation(-0.5), 0.0, 0, 1),
        (AllReLUActivation(2), 0.0, 0, 1),
        (TReLUActivation(0.5), 0.5, 0.5, 1),
        (TReLUActivation(0), 0.0, 0, 1),
        (ELUActivation(2), 0.0, 0, 1),
    ],
    ids=repr,
)
def test_a_corner_belongs_to_the_right_hand_piece(backend, activation, x, y, gradient, dtype):
    Y, DY = backend.compiled(lambda X: (activation(X), activation.gradient(X)))(backend.matrix([[x]], dtype))
    assert_close(Y, [[y]], tolerance=0, dtype=dtype, context=f"{activation!r} on {backend}")
    assert_close(DY, [[gradient]], tolerance=0, dtype=dtype, context=f"gradient of {activation!r} on {backend}")


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_corner_of_trelu_is_epsilon_rounded_to_the_dtype(backend, dtype):
    epsilon = np.array(0.01, dtype)
    X = np.array([[np.nextafter(epsilon, -np.inf, dtype=dtype), epsilon]])
    Y = backend.compiled(TReLUActivation(0.01))(backend.matrix(X, dtype))
    assert_close(Y, [[0, epsilon]], tolerance=0, dtype=dtype, context=f"{backend}")


# -- SReLU -------------------------------------------------------------------------------------

# one column each: the usual order, steep pieces, touching pieces, overlapping pieces
AL, TL, AR, TR = [
    np.array([row])
    for row in ([0.25, 2.0, 0.5, 0.5], [-1.0, 0.0, 0.5, 2.0], [0.5, -1.0, 3.0, 3.0], [1.0, 0.25, 0.5, -1.0])
]


def srelu(x: float, al: float, tl: float, ar: float, tr: float) -> tuple[float, float]:
    """The value and the derivative of one element, by cases."""
    if x <= tl:
        return al * (x - tl) + tl, al
    if x >= tr:
        return ar * (x - tr) + tr, ar
    return x, 1


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("N", [1, 9])
def test_srelu_is_its_definition_by_cases(backend, dtype, N):
    A = np.random.default_rng(N).integers(-12, 13, (N, 4)) / 4
    A[0] = TL  # the corners
    A[-1] = TR
    columns = list(zip(*AL, *TL, *AR, *TR, strict=True))
    expected = np.array([[srelu(x, *column) for x, column in zip(row, columns, strict=True)] for row in A])

    def run(X, *parameters):
        activation = SReLUActivation(*parameters)
        return activation(X), activation.gradient(X)

    Y, DY = backend.compiled(run)(*(backend.matrix(B, dtype) for B in (A, AL, TL, AR, TR)))
    assert_close(Y, expected[..., 0], dtype=dtype, context=f"{backend}, {N} × 4")
    assert_close(DY, expected[..., 1], dtype=dtype, context=f"gradient on {backend}, {N} × 4")


# -- extreme values ----------------------------------------------------------------------------

EXTREMES = [-1e4, -745, -100, -60, -30, -8, -1, -1e-3, -1e-30, 0, 1e-30, 1e-3, 1, 8, 30, 60, 100, 745, 1e4]


def logistic(x):
    return 1 / (1 + mpmath.exp(-x))


# an activation, the function and the derivative at 50 digits, whether tiny values are right relative to themselves
PRECISE = [
    (SigmoidActivation(), logistic, lambda x: logistic(x) * logistic(-x), True),
    (SoftplusActivation(), lambda x: mpmath.log1p(mpmath.exp(x)), logistic, True),
    (SiLUActivation(), lambda x: x * logistic(x), lambda x: logistic(x) * (1 + x * logistic(-x)), True),
    (HyperbolicTangentActivation(), mpmath.tanh, lambda x: mpmath.sech(x) ** 2, True),
    (ELUActivation(), lambda x: x if x >= 0 else mpmath.expm1(x), lambda x: 1 if x >= 0 else mpmath.exp(x), True),
    (GELUActivation(), lambda x: x * mpmath.ncdf(x), lambda x: mpmath.ncdf(x) + x * mpmath.npdf(x), False),
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("activation", "f", "df", "relative"), PRECISE, ids=[repr(case[0]) for case in PRECISE])
def test_extreme_values_are_finite_and_right(backend, dtype, activation, f, df, relative):
    X = np.array([EXTREMES], dtype)
    Y, DY = backend.compiled(lambda X: (activation(X), activation.gradient(X)))(backend.matrix(X, dtype))
    with mpmath.workdps(50):
        expected = [[float(f(mpmath.mpf(x))) for x in X[0].tolist()]]
        gradient = [[float(df(mpmath.mpf(x))) for x in X[0].tolist()]]
    precision, tiny = TOLERANCE[dtype], np.finfo(dtype).tiny
    context = f"{activation!r} on {backend}"
    assert to_numpy(Y).dtype == to_numpy(DY).dtype == dtype, context
    atol = tiny if relative else precision
    np.testing.assert_allclose(to_numpy(Y), expected, rtol=precision, atol=atol, err_msg=context)
    np.testing.assert_allclose(to_numpy(DY), gradient, rtol=precision, atol=precision, err_msg=f"gradient of {context}")


# -- huge values -------------------------------------------------------------------------------

HUGE = {"float32": (1e30, 3e38), "float64": (1e300, 1.7e308)}

# an activation, and its value and slope at a huge x and at -x
AT_HUGE = [
    (ReLUActivation(), lambda x: (x, 1), lambda x: (0, 0)),
    (LeakyReLUActivation(0.25), lambda x: (x, 1), lambda x: (-x / 4, 0.25)),
    (LeakyReLUActivation(2), lambda x: (2 * x, 2), lambda x: (-x, 1)),
    (LeakyReLUActivation(-2), lambda x: (x, 1), lambda x: (2 * x, -2)),
    (AllReLUActivation(-0.5), lambda x: (x, 1), lambda x: (x / 2, -0.5)),
    (TReLUActivation(0.5), lambda x: (x, 1), lambda x: (0, 0)),
    (HyperbolicTangentActivation(), lambda x: (1, 0), lambda x: (-1, 0)),
    (SigmoidActivation(), lambda x: (1, 0), lambda x: (0, 0)),
    (GELUActivation(), lambda x: (x, 1), lambda x: (0, 0)),
    (SiLUActivation(), lambda x: (x, 1), lambda x: (0, 0)),
    (ELUActivation(1.5), lambda x: (x, 1), lambda x: (-1.5, 0)),
    (SoftplusActivation(), lambda x: (x, 1), lambda x: (0, 0)),
]


def test_every_activation_is_tested_at_huge_values():
    assert {type(activation) for activation, *_ in AT_HUGE} == set(ACTIVATIONS.values())


@pytest.mark.few(8)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("activation", "right", "left"), AT_HUGE, ids=[repr(case[0]) for case in AT_HUGE])
def test_huge_values(backend, dtype, activation, right, left):
    """Infinite only where the value cannot be represented, and never nan."""
    check_huge(backend, dtype, activation, right, left)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("al", "ar"), [(2, 0.5), (0.5, 2), (2, 3), (-2, -3)])
def test_an_unused_piece_of_srelu_does_not_overflow(backend, dtype, al, ar):
    activation = SReLUActivation(*(backend.matrix(np.full((1, 2), p), dtype) for p in (al, -1, ar, 1)))
    check_huge(backend, dtype, activation, lambda x: (ar * x, ar), lambda x: (-al * x, al))


def check_huge(backend, dtype, activation, right, left) -> None:
    for x in HUGE[dtype]:
        with np.errstate(over="ignore"):
            X = backend.matrix([[x, -x]], dtype)
            Y, DY = backend.compiled(lambda X: (activation(X), activation.gradient(X)))(X)
            value, gradient = np.array([[right(x), left(x)]], dtype).transpose(2, 0, 1)
        np.testing.assert_allclose(to_numpy(Y), value, rtol=TOLERANCE[dtype], err_msg=f"{activation} at ±{x}")
        np.testing.assert_allclose(
            to_numpy(DY), gradient, rtol=TOLERANCE[dtype], err_msg=f"slope of {activation} at ±{x}"
        )
