"""Matrices for products only, which are never formed: block-diagonal matrices, and 0-1 matrices.

>>> Z = Diag(A, p) @ V  # A_i V_i for each block A_i of p rows of A
>>> Y = one_hot(x, n) @ W  # row x_i of W for each i
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from matgrad.backends import backend_of
from matgrad.backends.base import Array
from matgrad.sparse.matrix import Operand
from matgrad.sparse.support import Support


class BlockDiagonal(Operand):
    """Diag(A, p), or its transpose: the blocks of A, each of p rows, on the diagonal."""

    def __init__(self, A: Array, p: Any, is_transposed: bool = False) -> None:
        self.A, self.p, self.is_transposed = A, p, is_transposed

    @property
    def T(self) -> BlockDiagonal:
        """Diag(A, p)ᵀ"""
        return BlockDiagonal(self.A, self.p, not self.is_transposed)

    def __matmul__(self, B: Array) -> Array:
        """A_i B_i, or A_iᵀ B_i, for each block A_i"""
        backend = backend_of(self.A, B)
        product = backend.block_transposed_product if self.is_transposed else backend.block_product
        return product(self.A, B, self.p)


class OneHot(Operand):
    """E = one_hot(x, n), for a column x: E W takes rows of W, and Eᵀ U adds up rows of U."""

    def __init__(self, x: Array, n: Any) -> None:
        self.x, self.n, self.shape = x, n, (x.shape[0], n)

    @property
    def T(self) -> TransposedOneHot:
        """Eᵀ"""
        return TransposedOneHot(self)

    def __matmul__(self, W: Array) -> Array:
        _check_inner(self, W)
        return backend_of(self.x, W).one_hot_product(self.x, W)


class TransposedOneHot(Operand):
    """The transpose of `one_hot(x, n)`."""

    def __init__(self, E: OneHot) -> None:
        self.T, self.shape = E, (E.n, E.shape[0])

    def __matmul__(self, U: Array) -> Array:
        _check_inner(self, U)
        return backend_of(self.T.x, U).one_hot_transposed_product(self.T.x, U, self.T.n)


class Selection(Operand):
    """E = one_hot(x, n) for a fixed vector x, which belongs to no backend: X Eᵀ takes columns of X, and U E adds up."""

    def __init__(self, x: np.ndarray, n: int) -> None:
        x = np.asarray(x).reshape(-1)
        if x.dtype.kind not in "iu" or (len(x) and not -1 <= x.min() <= x.max() < n):
            raise ValueError(f"one_hot: expected integers from -1 to {n - 1}, found {x}")
        is_one = x >= 0
        self.support = Support((len(x), n), np.concatenate([[0], np.cumsum(is_one)]), x[is_one])
        self.shape = self.support.shape

    @cached_property
    def T(self) -> TransposedSelection:
        """Eᵀ"""
        return TransposedSelection(self)

    def __matmul__(self, B: Array) -> Array:
        backend_of(B)
        return (B.T @ self.T).T

    def __rmatmul__(self, U: Array) -> Array:
        backend = backend_of(U)
        _check_inner(U, self)
        return backend.scatter(self.support, U)

    def __deepcopy__(self, memo: Any) -> Selection:
        return self  # it never changes


class TransposedSelection(Operand):
    """The transpose of a `Selection`."""

    def __init__(self, E: Selection) -> None:
        self.T, self.support, self.shape = E, E.support, E.shape[::-1]

    def __matmul__(self, B: Array) -> Array:
        backend_of(B)
        return (B.T @ self.T).T

    def __rmatmul__(self, X: Array) -> Array:
        backend = backend_of(X)
        _check_inner(X, self)
        return backend.gather(self.support, X)


def _check_inner(A: Any, B: Any) -> None:
    """Raise ValueError if the columns of A are not as many as the rows of B, where both are numbers."""
    n, m = A.shape[1], B.shape[0]
    if isinstance(n, int) and isinstance(m, int) and n != m:
        sizes = " and ".join(" × ".join(map(str, X.shape)) for X in (A, B))
        raise ValueError(f"a product of matrices of size {sizes}: the inner sizes differ")
