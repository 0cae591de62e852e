"""The table on SymPy matrices: the same equations, evaluated symbolically."""

from __future__ import annotations

import numpy as np
import sympy as sp

from matgrad.backends.base import Backend
from matgrad.backends.numpy_backend import NumpyBackend


class SympyBackend(Backend):
    """SymPy matrices with numbers or expressions as elements."""

    name = "sympy"

    def full(self, value, m, n, like):
        return sp.Matrix(m, n, lambda i, j: sp.sympify(value))

    def identity(self, n, like):
        return sp.eye(n)

    def hadamard(self, X, Y):
        return X.multiply_elementwise(Y)

    def diag(self, X):
        return sp.Matrix(X.diagonal()).T

    def Diag(self, x):
        return sp.diag(*x)

    def elements_sum(self, X):
        return sp.Add(*X)

    def column_repeat(self, x, n):
        return x * sp.ones(1, n)

    def row_repeat(self, x, m):
        return sp.ones(m, 1) * x

    def columns_sum(self, X):
        return sp.ones(1, X.rows) * X

    def rows_sum(self, X):
        return X * sp.ones(X.cols, 1)

    def columns_max(self, X):
        return sp.Matrix([[sp.Max(*X.col(j)) for j in range(X.cols)]])

    def rows_max(self, X):
        return sp.Matrix([sp.Max(*X.row(i)) for i in range(X.rows)])

    def apply(self, f, X):
        return X.applyfunc(f)

    def exp(self, X):
        return X.applyfunc(sp.exp)

    def log(self, X):
        return X.applyfunc(sp.log)

    def log1p(self, X):
        return X.applyfunc(lambda x: sp.log(1 + x))

    def reciprocal(self, X):
        return X.applyfunc(lambda x: 1 / x)

    def sqrt(self, X):
        return X.applyfunc(sp.sqrt)

    def tanh(self, X):
        return X.applyfunc(sp.tanh)

    def erf(self, X):
        return X.applyfunc(sp.erf)

    def step(self, X):
        return X.applyfunc(lambda x: sp.Piecewise((1, x >= 0), (0, True)))

    def log_sigmoid(self, X):
        return X.applyfunc(lambda x: -sp.log(1 + sp.exp(-x)))

    def uniform(self, m, n, seed, count, like):
        U = NumpyBackend().uniform(m, n, int(seed), int(count), like=np.zeros((1, 1)))
        return sp.Matrix(m, n, lambda i, j: sp.Rational(float(U[i, j])))

    def from_numpy(self, A, device=None):
        return sp.sympify(A.item()) if A.ndim == 0 else sp.Matrix(A)

    def to_numpy(self, X):
        return np.array(X, dtype=float)

    def take_rows(self, X, indices):
        return X.extract([int(i) for i in indices], list(range(X.cols)))

    def dtype(self, X):
        return "symbolic"

    def tiny(self, X):
        return 0

    def scalar(self, value, like):
        return sp.sympify(value)
