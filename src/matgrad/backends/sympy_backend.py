"""The table on SymPy matrices: the same equations, evaluated symbolically."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import sympy as sp

from matgrad.backends.base import Array, Backend, Scalar
from matgrad.backends.numpy_backend import NumpyBackend

if TYPE_CHECKING:
    from matgrad.sparse.support import Support


class SympyMatrix(sp.Matrix):  # type: ignore[misc]
    """A SymPy matrix, with ``c + X`` and ``c - X`` for a number c, which SymPy's own do not have."""

    _op_priority = sp.Matrix._op_priority + 0.01  # so that results with SymPy's own matrices are of this class
    _class_priority = sp.Matrix._class_priority + 1

    def __add__(self, other: Any) -> SympyMatrix:
        return super().__add__(self._lifted(other))

    def __sub__(self, other: Any) -> SympyMatrix:
        return super().__sub__(self._lifted(other))

    def __radd__(self, other: Any) -> SympyMatrix:
        return self._lifted(other) + self

    def __rsub__(self, other: Any) -> SympyMatrix:
        return self._lifted(other) - self

    def _lifted(self, x: Any) -> Any:
        """A number or an expression as a matrix; a matrix is returned as one of this class."""
        if isinstance(x, sp.MatrixBase):
            return x if isinstance(x, SympyMatrix) else SympyMatrix(x)
        return SympyMatrix(*self.shape, lambda i, j: sp.sympify(x))


def _of_elements(f: Callable[[Any], Any]) -> Callable[..., SympyMatrix]:
    """The operation that gives the matrix with elements f(x_ij)."""
    return lambda self, X: SympyMatrix(X.applyfunc(f))


def _block_diagonal(A: Array, p: int) -> SympyMatrix:
    """Diag(A, p)"""
    return SympyMatrix(sp.diag(*(A[i : i + p, :] for i in range(0, A.rows, p))))


def _one_hot(x: Array, n: int) -> Array:
    """The matrix with elements [x_i = j]; x has numbers."""
    return sp.Matrix(x.rows, n, lambda i, j: int(x[i] == j))


def _ones_on(S: Support) -> SympyMatrix:
    """The matrix that is 1 on a support."""
    E = np.zeros(S.shape, int)
    E[S.row_indices(), S.columns] = 1
    return SympyMatrix(E)


class SympyBackend(Backend):
    """SymPy matrices with numbers or expressions as elements."""

    name = "sympy"

    def full(self, value: float, m: int, n: int, like: Array) -> Array:
        return SympyMatrix(m, n, lambda i, j: sp.sympify(value))

    def identity(self, n: int, like: Array) -> Array:
        return SympyMatrix.eye(n)

    def hadamard(self, X: Array, Y: Array) -> Array:
        return SympyMatrix(X.multiply_elementwise(Y))

    def diag(self, X: Array) -> Array:
        return SympyMatrix(X.diagonal()).T

    def Diag(self, x: Array) -> Array:
        return SympyMatrix.diag(*x)

    def elements_sum(self, X: Array) -> Array:
        return sp.Add(*X)

    def column_repeat(self, x: Array, n: int) -> Array:
        return x * SympyMatrix.ones(1, n)

    def row_repeat(self, x: Array, m: int) -> Array:
        return SympyMatrix.ones(m, 1) * x

    def columns_sum(self, X: Array) -> Array:
        return SympyMatrix.ones(1, X.rows) * X

    def rows_sum(self, X: Array) -> Array:
        return X * SympyMatrix.ones(X.cols, 1)

    def columns_max(self, X: Array) -> Array:
        return SympyMatrix([[sp.Max(*X.col(j)) for j in range(X.cols)]])

    def rows_max(self, X: Array) -> Array:
        return SympyMatrix([sp.Max(*X.row(i)) for i in range(X.rows)])

    def apply(self, f: Callable[[Any], Any], X: Array) -> Array:
        return SympyMatrix(X.applyfunc(f))

    exp, log, sqrt, tanh, erf = map(_of_elements, (sp.exp, sp.log, sp.sqrt, sp.tanh, sp.erf))
    reciprocal = _of_elements(lambda x: 1 / x)
    step = _of_elements(lambda x: sp.Piecewise((1, x >= 0), (0, True)))
    log_sigmoid = _of_elements(lambda x: -sp.log(1 + sp.exp(-x)))

    # -- blocks, and products with 0-1 matrices: the definitions ---------------------------------
    def stack(self, X: Array, P: int) -> Array:
        return SympyMatrix(X.reshape(X.rows * P, X.cols // P))

    def unstack(self, U: Array, P: int) -> Array:
        return SympyMatrix(U.reshape(U.rows // P, U.cols * P))

    def block_product(self, A: Array, B: Array, p: int) -> Array:
        return _block_diagonal(A, p) * B

    def block_transposed_product(self, A: Array, B: Array, p: int) -> Array:
        return _block_diagonal(A, p).T * B

    def diag_product(self, A: Array, B: Array, p: int) -> Array:
        r = B.cols * p // A.rows
        return SympyMatrix.vstack(*(A[i : i + p, :] * B[:, i // p * r : i // p * r + r] for i in range(0, A.rows, p)))

    def one_hot_product(self, x: Array, W: Array) -> Array:
        return SympyMatrix(_one_hot(x, W.rows)) * W

    def one_hot_transposed_product(self, x: Array, G: Array, n: int) -> Array:
        return SympyMatrix(_one_hot(x, n)).T * G

    def gather(self, S: Support, X: Array) -> Array:
        return X * _ones_on(S).T

    def scatter(self, S: Support, U: Array) -> Array:
        return U * _ones_on(S)

    def uniform(self, m: int, n: int, seed: Scalar, count: Scalar, like: Array) -> Array:
        U = NumpyBackend().uniform(m, n, int(float(seed)), int(float(count)), like=np.zeros((1, 1)))
        return SympyMatrix(m, n, lambda i, j: sp.Rational(float(U[i, j])))

    def from_numpy(self, A: np.ndarray, device: str | None = None) -> Array:
        return sp.sympify(A.item()) if A.ndim == 0 else SympyMatrix(A)

    def to_numpy(self, X: Array) -> np.ndarray:
        return np.array(X, dtype=float)

    def take_rows(self, X: Array, indices: np.ndarray) -> Array:
        return X.extract([int(i) for i in indices], list(range(X.cols)))

    def dtype(self, X: Array) -> str:
        return "symbolic"

    def tiny(self, X: Array) -> float:
        return 0

    def scalar(self, value: float, like: Array) -> Scalar:
        return sp.sympify(value)
