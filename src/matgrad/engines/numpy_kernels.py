"""Kernels for NumPy arrays; products and large sums use SciPy's BLAS.

BLAS skips a term with the factor 0, though 0·nan is nan, and may skip one with the factor nan: there we use NumPy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import special
from scipy.linalg import blas

from matgrad.backends.base import Array
from matgrad.engines.kernels import Kernels, into

GEMM = {np.dtype("float32"): blas.sgemm, np.dtype("float64"): blas.dgemm}
AXPY = {np.dtype("float32"): blas.saxpy, np.dtype("float64"): blas.daxpy}
LARGE = 10_000  # number of elements above which BLAS, which has threads, adds faster than NumPy


class NumpyKernels(Kernels):
    """The instructions of a program on NumPy arrays; `out` is always contiguous."""

    @staticmethod
    def framework(name: str) -> Callable[..., Any]:
        return getattr(np, name, None) or getattr(special, name)

    step = into(lambda X, out: np.greater_equal(X, 0, out=out))
    columns_max, rows_max = into(np.max, axis=0, keepdims=True), into(np.max, axis=1, keepdims=True)

    def empty(self, shape, dtype, like):
        return np.empty(shape, dtype)

    def repeat(self, x, shape):
        return np.broadcast_to(x, shape)

    def readable(self, X):
        return np.asarray(X, order="C")  # for the C++ core

    def copied(self, X):
        return np.array(X, order="C")

    def run(self, calls):
        with np.errstate(over="ignore", under="ignore", divide="ignore"):
            super().run(calls)

    def copy(self, out, X):
        np.copyto(out, X)

    def power(self, out, X, c):
        self.copy(out, X**c)  # not np.power: X**0.5 is a square root, also of -inf

    def add(self, out, X, Y):
        if out is X and out.size > LARGE:
            self.add_scaled(out, X, 1, Y)
        else:
            np.add(X, Y, out=out)

    def add_scaled(self, out, Y, c, X):
        if out is Y and out.size > LARGE and X.flags.c_contiguous and c != 0:
            AXPY[out.dtype](X.reshape(-1), out.reshape(-1), a=c)
        elif out is Y:
            out += c * X
        else:
            np.multiply(X, c, out=out)
            out += Y

    def gate(self, out, A, Z):
        np.multiply(A, Z >= 0, out=out)

    def matmul(self, out, A, B):
        _add_product(out, 0, 1, A, B)

    def product_sum(self, out, beta, C, alpha, A, B):
        if not (abs(alpha) > 0 and abs(beta) > 0):
            np.add(beta * C, alpha * (A @ B), out=out)
            return
        if out is not C:
            np.multiply(C, beta, out=out)
            beta = 1
        _add_product(out, beta, alpha, A, B)


def _add_product(out: Array, beta: float, alpha: float, A: Array, B: Array) -> None:
    """β·out + α·A B, which BLAS, whose matrices are stored by columns, computes as β·outᵀ + α·Bᵀ Aᵀ."""
    (a, a_is_transposed), (b, b_is_transposed) = _by_columns(B), _by_columns(A)
    GEMM[out.dtype](alpha, a, b, beta, out.T, a_is_transposed, b_is_transposed, overwrite_c=True)


def _by_columns(X: Array) -> tuple[Array, bool]:
    """A and t, with A stored by columns and Xᵀ = Aᵀ if t, else Xᵀ = A."""
    if X.flags.f_contiguous and not X.flags.c_contiguous:
        return X, True
    return np.ascontiguousarray(X).T, False
