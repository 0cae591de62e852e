"""The operations that layers use on sparse matrices; all of them work on the values."""

from __future__ import annotations

import abc
from typing import Any

import numpy as np

from matgrad.backends import Backend, backend_of
from matgrad.backends.base import ELEMENTWISE, Array, Scalar, size_of


def _undefined(*arguments: Any, **options: Any) -> Any:
    raise TypeError(
        "a sparse matrix has no such operation: it has products, + and -, scalar multiples, "
        "hadamard, step, uniform, ones and zeros; use its values, or to_dense()"
    )


class SparseBackend(Backend):
    """`matgrad.sparse.matrix.SparseMatrix`, whose values belong to another backend."""

    name = "sparse"

    def full(self, value: float, m: int, n: int, like: Array) -> Array:
        """The value at every stored position of `like`."""
        _check_size(m, n, like)
        return like.with_values(_inner(like).full(value, 1, like.support.nnz, like.values))

    def hadamard(self, X: Array, Y: Array) -> Array:
        return X.with_values(_inner(X).hadamard(X.values, X.values_on_same_support(Y)))

    def step(self, X: Array) -> Array:
        """1 where x_ij ≥ 0 is stored; the elements that are not stored stay 0."""
        return X.with_values(_inner(X).step(X.values))

    def uniform(self, m: int, n: int, seed: Scalar, count: Scalar, like: Array) -> Array:
        """The numbers of the dense matrix at the stored positions."""
        _check_size(m, n, like)
        return like.with_values(_inner(like).uniform_on(like.support, seed, count, like.values))

    def product_on(self, W: Array, A: Array, B: Array) -> Array:
        (K, D), N = W.shape, A.shape[1]
        if (A.shape[0], *B.shape) != (K, N, D):
            found = f"{size_of(A)} and {size_of(B)}"
            raise ValueError(f"product_on: expected {K} × N and N × {D} matrices for {W}, found {found}")
        return W.product_on(A, B.to_dense() if backend_of(B) is self else B)

    # -- in and out ---------------------------------------------------------------------------
    def dtype(self, X: Array) -> str:
        return _inner(X).dtype(X.values)

    def device(self, X: Array) -> str | None:
        return _inner(X).device(X.values)

    def scalar(self, value: float, like: Array) -> Scalar:
        return _inner(like).scalar(value, like.values)

    def take_rows(self, X: Array, indices: np.ndarray) -> Array:
        support, places = X.support.of_rows(indices)
        return type(X)(support, _inner(X).take_rows(X.values.T, places).T)

    def rows(self, X: Array, start: int, stop: int) -> Array:
        support, places = X.support.of_rows(slice(start, stop))
        return type(X)(support, _inner(X).rows(X.values.T, places.start, places.stop).T)

    def to_numpy(self, X: Array) -> np.ndarray:
        """A dense array."""
        return _inner(X).to_numpy(X.to_dense())


for _name in (*SparseBackend.__abstractmethods__, *ELEMENTWISE):  # the operations that it lacks
    setattr(SparseBackend, _name, staticmethod(_undefined))
abc.update_abstractmethods(SparseBackend)  # type: ignore[type-abstract]


def _check_size(m: int, n: int, like: Any) -> None:
    """Raise if the size is not that of a sparse matrix."""
    if (m, n) != like.shape:
        raise ValueError(f"like: expected size {m} × {n}, found {like}; for a dense matrix use its values")


def _inner(X: Any) -> Backend:
    """The backend of the values of a sparse matrix."""
    return backend_of(X.values)
