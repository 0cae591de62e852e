"""Softmax functions and their Jacobians against SciPy, PyTorch's autograd and mpmath."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
import scipy.special
import torch

from matgrad import softmax_functions as sf
from matgrad.backends.base import DTYPES
from support import TOLERANCE, assert_close, to_numpy

BACKENDS = ("numpy", "torch", "jax", "tensorflow")

SHAPES = [(3, 4), (1, 6), (7, 2)]

FUNCTIONS = {
    "softmax": (sf.softmax, scipy.special.softmax),
    "stable_softmax": (sf.stable_softmax, scipy.special.softmax),
    "log_softmax": (sf.log_softmax, scipy.special.log_softmax),
    "stable_log_softmax": (sf.stable_log_softmax, scipy.special.log_softmax),
}
JACOBIANS = {
    "softmax": (sf.softmax_jacobian, torch.softmax),
    "stable_softmax": (sf.stable_softmax_jacobian, torch.softmax),
    "log_softmax": (sf.log_softmax_jacobian, torch.log_softmax),
    "stable_log_softmax": (sf.stable_log_softmax_jacobian, torch.log_softmax),
}


def logits(N: int, D: int, seed: int) -> np.ndarray:
    """Multiples of 1/16 between -4 and 4, exact in both dtypes."""
    return np.random.default_rng(seed).integers(-64, 65, (N, D)) / 16


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_softmax_functions_equal_scipys(backend, name, dtype):
    f, oracle = FUNCTIONS[name]
    for seed, (N, D) in enumerate(SHAPES):
        A = logits(N, D, seed)
        Y = backend.compiled(f)(backend.matrix(A, dtype))
        context = f"{name} on {backend}, {N} × {D}, seed {seed}"
        assert_close(Y, oracle(A, axis=1), dtype=dtype, context=context)


@pytest.mark.few(6)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("D", [1, 2, 5])
@pytest.mark.parametrize("name", JACOBIANS)
def test_jacobians_equal_autograds(backend, name, dtype, D):
    jacobian, f = JACOBIANS[name]
    x = logits(1, D, seed=D)
    expected = torch.autograd.functional.jacobian(lambda v: f(v, dim=0), torch.tensor(x[0])).numpy()
    J = backend.compiled(jacobian)(backend.matrix(x, dtype))
    context = f"jacobian of {name} on {backend}, 1 × {D}, seed {D}"
    assert_close(J, expected, noise=TOLERANCE[dtype], dtype=dtype, context=context)


# -- extreme values ----------------------------------------------------------------------------

EXTREMES = np.array(
    [
        [1e4, -1e4, 0, 100],
        [-1e4, -1e4, -1e4, -1e4],
        [1e4, 1e4, 1e4, 1e4 - 1],
        [-1e4, 9999, 1e4, 9990],
        [0, -30, -60, -80],
        [1e4, 1e4, -1e4, -1e4],
    ]
)


def log_softmax_50_digits(row: list[float]) -> list[mpmath.mpf]:
    with mpmath.workdps(50):
        total = mpmath.log(mpmath.fsum(mpmath.exp(x) for x in row))
        return [x - total for x in row]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["stable_softmax", "stable_log_softmax"])
def test_softmax_functions_of_extreme_logits(backend, name, dtype):
    """Relative to every element; log(1 + δ) is as precise as 1 + δ."""
    value, noise = (float, TOLERANCE[dtype]) if "log" in name else (mpmath.exp, np.finfo(dtype).tiny)
    expected = np.array([[float(value(y)) for y in log_softmax_50_digits(row)] for row in EXTREMES.tolist()])
    Y = to_numpy(backend.compiled(FUNCTIONS[name][0])(backend.matrix(EXTREMES, dtype)))
    assert Y.dtype == dtype
    np.testing.assert_allclose(Y, expected, rtol=TOLERANCE[dtype], atol=noise, err_msg=f"{backend}")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", JACOBIANS)
def test_jacobians_of_extreme_logits(backend, name, dtype):
    # the second and the fourth of five logits share all probability
    y = np.array([[0, 0.5, 0, 0.5, 0]])
    expected = np.eye(5) - y if "log" in name else np.diag(y[0]) - y.T @ y
    J = backend.compiled(JACOBIANS[name][0])(backend.matrix([[-1e4, 1e4, 0, 1e4, 100]], dtype))
    assert_close(J, expected, dtype=dtype, context=f"jacobian of {name} on {backend}")


@pytest.mark.parametrize(("dtype", "x"), [("float32", 3e38), ("float64", 1.7e308)])
def test_softmax_functions_of_huge_logits(backend, dtype, x):
    X = backend.matrix([[x, -x, 0], [x, x, x], [-x, -x, -x], [x / 4, -x / 4, x / 4]], dtype)
    with np.errstate(over="ignore"):
        S, L = backend.compiled(lambda X: (sf.stable_softmax(X), sf.half_log_softmax(X)))(X)
        full = to_numpy(backend.compiled(sf.stable_log_softmax)(X))
    third, half = 1 / 3, 0.5
    expected = np.array([[1, 0, 0], [third] * 3, [third] * 3, [half, 0, half]])
    assert_close(S, expected, dtype=dtype, context=f"{backend}")
    halves = np.array(
        [[0, -x, -x / 2], [-np.log(3) / 2] * 3, [-np.log(3) / 2] * 3, [-np.log(2) / 2, -x / 4, -np.log(2) / 2]]
    )
    for A, E in ((to_numpy(L), halves), (full[1:], 2 * halves[1:])):
        np.testing.assert_allclose(A, E, rtol=TOLERANCE[dtype], err_msg=f"{backend}")
    np.testing.assert_array_equal(full[0], [0, -np.inf, np.array(-x, dtype)])  # -2x is no number of the dtype
