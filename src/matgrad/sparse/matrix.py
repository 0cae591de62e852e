"""Sparse matrices: a support and a dense matrix of values, on any backend.

>>> W = SparseMatrix(Support.random(K, D, nnz, rng), values)  # values is 1×nnz
>>> Y = X @ W.T
"""

from __future__ import annotations

import abc
from typing import Any

import numpy as np

from matgrad.backends import Backend, backend_of, register_matrix_type
from matgrad.backends.base import DTYPES, ELEMENTWISE, Array, Scalar, size_of
from matgrad.foundation.imports import deferred
from matgrad.foundation.numbers import as_number
from matgrad.sparse.support import Support, elements


class Operand:
    """What is good for products with dense matrices only, as a sparse matrix and its transpose."""

    __array_ufunc__ = None  # so that NumPy's operators defer to ours
    _op_priority = 100  # and SymPy's

    support: Support
    values: Array
    shape: tuple[int, int]
    T: Any

    def __rmatmul__(self, A: Array) -> Array:
        """A W, for a dense matrix A"""
        return (self.T @ A.T).T

    def _backend(self, B: Array) -> Backend:
        """The backend of the values and of B, after a check that B fits."""
        backend = backend_of(self.values, B)
        m, n = self.shape
        if len(B.shape) != 2 or B.shape[0] != n:
            raise ValueError(f"a sparse {m} × {n} matrix times one of size {size_of(B)}: the inner sizes differ")
        return backend

    def __array__(self, *arguments: Any, **options: Any) -> np.ndarray:
        raise TypeError("a sparse matrix is not an array: use its values, or to_dense()")


class SparseMatrix(Operand):
    """W, a K×D matrix that is 0 outside its support.

    `values`, a 1×nnz matrix of any backend, has its elements row by row; they may be 0. It supports
    W Y, Wᵀ Y, Y W and Y Wᵀ for dense Y, and sums and scalar multiples of matrices on one support.
    """

    def __init__(self, support: Support, values: Array) -> None:
        backend_of(values)
        if tuple(values.shape) != (1, support.nnz):
            raise ValueError(f"values: expected size 1 × {support.nnz} for {support}, found {size_of(values)}")
        self.support, self.values, self.shape = support, values, support.shape

    @classmethod
    def from_dense(cls, A: Array, support: Support | None = None) -> SparseMatrix:
        """The elements of A at the support, by default the positions where A is not 0."""
        backend = backend_of(A)
        B = backend.to_numpy(A)
        support = Support.from_mask(B != 0) if support is None else support
        if support.shape != tuple(A.shape):
            raise ValueError(f"{support}: expected a support of size {size_of(A)}")
        return cls(support, backend.from_numpy(B[support.row_indices(), support.columns][None], backend.device(A)))

    @classmethod
    def from_scipy(cls, A: Any) -> SparseMatrix:
        """All elements that a SciPy matrix stores, as NumPy values; a position that is stored twice is an error."""
        if A.dtype.name not in DTYPES:
            raise ValueError(f"dtype: expected one of {', '.join(DTYPES)}, found {A.dtype}")
        flat, values = elements(A)
        return cls(Support.from_flat(A.shape, flat), values[None])

    def to_dense(self) -> Array:
        """W as a dense matrix of its backend."""
        return backend_of(self.values).dense(self.support, self.values)

    def to_scipy(self) -> Any:
        """W as a SciPy matrix in CSR format, with its stored zeros."""
        from scipy.sparse import csr_array

        values = backend_of(self.values).to_numpy(self.values)
        return csr_array((values[0], self.support.columns, self.support.starts), shape=self.shape, copy=True)

    def with_values(self, values: Array) -> SparseMatrix:
        """The matrix with these values on the same support."""
        return SparseMatrix(self.support, values)

    def __len__(self) -> int:
        return self.shape[0]

    _repr_html_ = deferred("matgrad.explanation.html", "matrix_html")

    # -- products -----------------------------------------------------------------------------
    @property
    def T(self) -> TransposedSparseMatrix:
        """Wᵀ"""
        return TransposedSparseMatrix(self)

    def __matmul__(self, B: Array) -> Array:
        """W B, K×N, for a D×N matrix B; of two sparse matrices, the left one becomes dense"""
        if isinstance(B, Operand):
            return self.to_dense() @ B
        return self._backend(B).sparse_product(self.support, self.values, B)

    def product_on(self, A: Array, B: Array) -> SparseMatrix:
        """A B at the stored positions, for dense matrices A, K×N, and B, N×D"""
        return self.with_values(backend_of(self.values).sampled_product(self.support, A, B.T))

    # -- element by element -------------------------------------------------------------------
    @property
    def dtype(self) -> Any:
        """The element type, as the framework of the values names it."""
        return self.values.dtype

    def __add__(self, other: SparseMatrix) -> SparseMatrix:
        return self.with_values(self.values + self.values_on_same_support(other))

    def __sub__(self, other: SparseMatrix) -> SparseMatrix:
        return self.with_values(self.values - self.values_on_same_support(other))

    def __neg__(self) -> SparseMatrix:
        return self.with_values(-self.values)

    def __mul__(self, c: Scalar) -> SparseMatrix:
        return self.with_values(_scalar(c) * self.values)

    __rmul__ = __mul__

    def __truediv__(self, c: Scalar) -> SparseMatrix:
        return self.with_values(self.values / _scalar(c))

    def values_on_same_support(self, other: Any) -> Array:
        """The values of another sparse matrix, which must have the same support and backend."""
        if not isinstance(other, SparseMatrix):
            raise TypeError(f"expected another sparse matrix to combine with {self}, found {type(other).__name__}")
        backend_of(self.values, other.values)
        if not self.support.is_same(other.support):
            raise ValueError(f"{self} and {other}: expected matrices on the same support")
        return other.values

    def __repr__(self) -> str:
        K, D = self.shape
        where = backend_of(self.values).name
        return f"SparseMatrix({K} × {D}, nnz={self.support.nnz}, density={self.support.density:.4g}, {where})"


class WatchedSparseMatrix(SparseMatrix):
    """A sparse matrix W that keeps, in `factors`, the pair (A, B) of each ``product_on(W, A, B)``, without multiplying.

    So one sees the gradient that W would have if it were dense, without computing it.
    """

    def __init__(self, W: SparseMatrix) -> None:
        super().__init__(W.support, W.values)
        self.factors: list[tuple[Array, Array]] = []

    def product_on(self, A: Array, B: Array) -> SparseMatrix:
        """0, instead of A B"""
        self.factors.append((A, B))
        return 0 * self


class TransposedSparseMatrix(Operand):
    """Wᵀ, a D×K matrix that supports only products."""

    def __init__(self, W: SparseMatrix) -> None:
        self.T, self.support, self.values, self.shape = W, W.support, W.values, W.shape[::-1]

    def __matmul__(self, B: Array) -> Array:
        """Wᵀ B, D×N, for a dense K×N matrix B"""
        return self._backend(B).sparse_transposed_product(self.support, self.values, B)


# -- what is trained: dense matrices, and the values of sparse ones ----------------------------


def values_of(X: Array) -> Array:
    """The values of a sparse matrix; a dense matrix is returned as it is."""
    return X.values if isinstance(X, SparseMatrix) else X


def with_values(X: Array, values: Array) -> Array:
    """X with these values in place of its own: sparse on X's support if X is sparse, else the values themselves."""
    return X.with_values(values) if isinstance(X, SparseMatrix) else values


def restricted(X: Array, support: Support) -> SparseMatrix:
    """The elements of a dense or a sparse matrix at the support; 0 where a sparse one stores none."""
    if not isinstance(X, SparseMatrix):
        return SparseMatrix.from_dense(X, support)
    if support.shape != X.shape:
        raise ValueError(f"{support}: expected a support of size {size_of(X)}")
    backend = backend_of(X.values)
    values = backend.to_numpy(X.values)[0]
    _, place, from_place = np.intersect1d(support.flat(), X.support.flat(), assume_unique=True, return_indices=True)
    moved = np.zeros((1, support.nnz), dtype=values.dtype)
    moved[0, place] = values[from_place]
    return SparseMatrix(support, backend.from_numpy(moved, backend.device(X.values)))


def _scalar(c: Any) -> Scalar:
    """c, after a check that it is a number or a 0-d array."""
    if isinstance(c, Operand) or tuple(getattr(c, "shape", ())) != ():
        raise TypeError(f"expected a scalar as factor of a sparse matrix, found {type(c).__name__}; use hadamard")
    return as_number(c)


# -- the backend: the operations that layers use on sparse matrices, which all work on the values --


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


_backend = SparseBackend()  # type: ignore[abstract]  # the operations it lacks raise TypeError
for _kind in (SparseMatrix, TransposedSparseMatrix, WatchedSparseMatrix):
    register_matrix_type(_kind, _backend)
