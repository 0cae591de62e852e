"""The table on NumPy: the column "NumPy + JAX" of the paper's second table."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import cache, reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from matgrad.backends.base import ELEMENTWISE, Array, Backend, Scalar, sum_in_blocks

if TYPE_CHECKING:
    from matgrad.sparse.support import Support


def _of_elements(name: str) -> Callable[..., Any]:
    """The operation that is the module's function of this name: e^1000 is inf, without a warning, as elsewhere."""

    def operation(self: ArrayBackend, X: Any) -> Any:
        with np.errstate(over="ignore", under="ignore", divide="ignore"):
            return getattr(self.xp, name)(X)

    return operation


class ArrayBackend(Backend):
    """Arrays of a framework whose functions have NumPy's names, most of them."""

    xp: Any  # the framework

    def full(self, value: float, m: int, n: int, like: Array) -> Array:
        return self.xp.full((m, n), value, like.dtype)

    def identity(self, n: int, like: Array) -> Array:
        return self.xp.eye(n, dtype=like.dtype)

    def hadamard(self, X: Array, Y: Array) -> Array:
        return X * Y

    def diag(self, X: Array) -> Array:
        return self.xp.diagonal(X)[:, None]

    def Diag(self, x: Array) -> Array:
        return self.xp.diag(x.reshape(-1))

    def elements_sum(self, X: Array) -> Array:
        return self.xp.sum(self.columns_sum(X))

    def column_repeat(self, x: Array, n: int) -> Array:
        return self.xp.broadcast_to(x, (x.shape[0], n))

    def row_repeat(self, x: Array, m: int) -> Array:
        return self.xp.broadcast_to(x, (m, x.shape[1]))

    def columns_sum(self, X: Array) -> Array:
        return sum_in_blocks(X, lambda A: self.xp.sum(A, axis=-2), self.xp.concatenate)

    def rows_sum(self, X: Array) -> Array:
        return self.columns_sum(X.T).T

    def columns_max(self, X: Array) -> Array:
        return self.xp.amax(X, axis=0, keepdims=True)

    def rows_max(self, X: Array) -> Array:
        return self.xp.amax(X, axis=1, keepdims=True)

    # -- blocks, and products with 0-1 matrices --------------------------------------------------
    def stack(self, X: Array, P: int) -> Array:
        _check_multiple("stack", "columns", X.shape[1], P)
        return self.xp.reshape(X, (X.shape[0] * P, X.shape[1] // P))

    def unstack(self, U: Array, P: int) -> Array:
        _check_multiple("unstack", "rows", U.shape[0], P)
        return self.xp.reshape(U, (U.shape[0] // P, U.shape[1] * P))

    def block_product(self, A: Array, B: Array, p: int) -> Array:
        b = _blocks("Diag", A.shape[0], p)
        _check_equal("Diag(A, p) B", B.shape[0], b * A.shape[1])
        C = self.xp.matmul(self._blocks(A, b), self._blocks(B, b))
        return self.xp.reshape(C, (A.shape[0], B.shape[1]))

    def block_transposed_product(self, A: Array, B: Array, p: int) -> Array:
        b = _blocks("Diag", A.shape[0], p)
        _check_equal("Diag(A, p)ᵀ B", B.shape[0], b * p)
        C = self.xp.matmul(self._turned(self._blocks(A, b)), self._blocks(B, b))
        return self.xp.reshape(C, (b * A.shape[1], B.shape[1]))

    def diag_product(self, A: Array, B: Array, p: int) -> Array:
        b = _blocks("diag_product", A.shape[0], p)
        _check_multiple("diag_product", "columns of B", B.shape[1], b)
        C = self.xp.matmul(self._blocks(A, b), self._turned(self._blocks(B.T, b)))
        return self.xp.reshape(C, (A.shape[0], B.shape[1] // b))

    def _blocks(self, A: Array, b: int) -> Array:
        """A as b blocks of rows, b×p×q."""
        return self.xp.reshape(A, (b, A.shape[0] // b, A.shape[1]))

    def _turned(self, A: Array) -> Array:
        """Each block transposed."""
        return self.xp.swapaxes(A, 1, 2)

    def one_hot_product(self, x: Array, W: Array) -> Array:
        return self.taken(W, self.places(x, W.shape[0]), 0)

    def gather(self, S: Support, X: Array) -> Array:
        (index,) = S.cached("places of columns", lambda: _places(S.starts, S.columns, S.shape[1], 1))
        return self.taken(X, self.index(S, ("gather", 0), index, X), 1)

    def scatter(self, S: Support, U: Array) -> Array:
        found = S.cached("places of rows", lambda: _places(S.column_starts, S.rows, S.shape[0]))
        parts = [self.taken(U, self.index(S, ("scatter", k), index, U), 1) for k, index in enumerate(found)]
        return reduce(operator.add, parts)

    def places(self, x: Array, n: int) -> Array:
        """The whole numbers from 0 to n - 1 in a column, as indices; n for all others."""
        x = self.xp.reshape(x, (-1,))
        is_place = (x >= 0) & (x < n) & (x == self.xp.floor(x))
        return self.xp.where(is_place, x, n).astype("int32")

    def index(self, S: Support, key: Any, index: np.ndarray, like: Array) -> Array:
        """An index of a support beside matrices such as `like`, where it is kept."""
        return index

    def taken(self, X: Array, index: Array, axis: int) -> Array:
        """The rows (axis 0) or columns (axis 1) of X with these indices; zeros for an index that is their number."""
        return self.xp.take(X, index, axis, mode="fill", fill_value=0)

    exp: Any  # with the others
    locals().update({name: _of_elements(name) for name in ELEMENTWISE})

    def step(self, X: Array) -> Array:
        return (X >= 0).astype(X.dtype)

    def uniform(self, m: int, n: int, seed: Scalar, count: Scalar, like: np.ndarray) -> np.ndarray:
        position = self.xp.arange(m * n, dtype=self.xp.uint32).reshape(m, n)
        return self._hashed(position, seed, count, like)

    def _hashed(self, position: np.ndarray, seed: Scalar, count: Scalar, like: np.ndarray) -> np.ndarray:
        """Numbers from [0, 1) of `like`'s dtype, one per 32-bit position."""
        unsigned = self.xp.uint32
        seed, count = (self.xp.asarray(x).astype(unsigned).reshape(1, 1) for x in (seed, count))
        H = uniform(position, seed, count, times=lambda x, c: x * unsigned(c))
        return H.astype(like.dtype) / 2**24

    def to_numpy(self, X: Array) -> np.ndarray:
        return np.asarray(X)

    def dtype(self, X: Array) -> str:
        return _name(X.dtype)


class NumpyBackend(ArrayBackend):
    """NumPy arrays."""

    name = "numpy"
    xp = np

    def erf(self, X: Array) -> Array:
        from scipy.special import erf  # NumPy has none; SciPy takes 0.1 s to import

        return erf(X)

    def taken(self, X: Array, index: Array, axis: int) -> Array:
        n = X.shape[axis]
        Y = np.take(X, index, axis, mode="clip")
        if (is_zero := index == n).any():
            Y[(slice(None), is_zero) if axis else is_zero] = 0
        return Y

    def one_hot_transposed_product(self, x: Array, G: Array, n: int) -> Array:
        from scipy.sparse import csr_array

        index, m = self.places(x, n), len(x)
        E = csr_array((np.ones(m, G.dtype), index, np.arange(m + 1)), shape=(m, n + 1))
        return (E.T @ G)[:n]

    # -- sparse matrices ----------------------------------------------------------------------
    has_sparse = True

    def sparse_product(self, S: Support, w: np.ndarray, B: np.ndarray) -> np.ndarray:
        return _scipy_matrix(S, w) @ B

    def sparse_transposed_product(self, S: Support, w: np.ndarray, B: np.ndarray) -> np.ndarray:
        return _scipy_matrix(S, w).T @ B

    def sampled_product(self, S: Support, A: np.ndarray, B: np.ndarray) -> np.ndarray:
        A, B = np.ascontiguousarray(A), np.ascontiguousarray(B)
        w, rows = np.empty((1, S.nnz), A.dtype), S.cached("numpy rows", S.row_indices)
        for k in S.chunks(A.shape[1]):
            w[:, k] = self.rows_sum(A[rows[k]] * B[S.columns[k]]).T
        return w

    def uniform_on(self, S: Support, seed: Scalar, count: Scalar, like: np.ndarray) -> np.ndarray:
        position = S.cached("numpy positions", lambda: S.flat().astype(np.uint32)[None])
        return self._hashed(position, seed, count, like)

    # -- in and out ---------------------------------------------------------------------------
    def from_numpy(self, A: np.ndarray, device: str | None = None) -> Array:
        return np.array(A)

    def shown(self, A: np.ndarray, device: str | None = None) -> Array:
        return A

    def take_rows(self, X: Array, indices: np.ndarray) -> Array:
        return X[indices]

    def shares_memory(self, X: Array, Y: Array) -> bool:
        return np.shares_memory(X, Y)


# -- the indices of supports, and sizes of blocks ---------------------------------------------------------------


def _places(starts: np.ndarray, columns: np.ndarray, n: int, most: int = 0) -> list[np.ndarray]:
    """The k-th column in each row of a support, for every k; n where a row has fewer, at most `most` of them."""
    counts = np.diff(starts)
    longest = max(1, int(counts.max(initial=0)))
    if most and longest > most:
        raise ValueError(f"expected a support with at most {most} element in each row, found {longest}")
    found = []
    for k in range(longest):
        index, has = np.full(len(counts), n, np.int32), counts > k
        index[has] = columns[starts[:-1][has] + k]
        found.append(index)
    return found


def _blocks(name: str, rows: int, p: int) -> int:
    """The number of blocks of p rows."""
    _check_multiple(name, "rows", rows, p)
    return rows // p


def _check_equal(name: str, rows: int, expected: int) -> None:
    """Raise ValueError if B has another number of rows than the product needs."""
    if rows != expected:
        raise ValueError(f"{name}: expected {expected} rows of B, found {rows}")


def _check_multiple(name: str, what: str, n: int, p: int) -> None:
    """Raise ValueError if p does not divide n."""
    if p < 1 or n % p:
        raise ValueError(f"{name}: expected a number of {what} that {p} divides, found {n}")


# -- the integer hash behind dropout: equal on every backend, without the state of a generator ---------------


def mix(x: Any, times: Callable[[Any, int], Any]) -> Any:
    """A permutation of the integers below 2^32 that scatters them (Wellons' lowbias32); `times` is modulo 2^32."""
    x = x ^ x // 2**16
    x = times(x, 0x7FEB352D)
    x = x ^ x // 2**15
    x = times(x, 0x846CA68B)
    return x ^ x // 2**16


def uniform(position: Any, seed: Any, count: Any, times: Callable[[Any, int], Any]) -> Any:
    """Integers below 2^24, scattered by a hash of (seed, count, position)."""
    key = mix(mix(times(count, 1), times) ^ times(seed, 1), times)
    return mix(mix(position, times) ^ key, times) // 2**8


def times_64(x: Any, c: int) -> Any:
    """x·c modulo 2^32, computed in 64-bit integers."""
    return x * c & 0xFFFFFFFF


@cache
def _name(dtype: np.dtype) -> str:
    """The name of a dtype, which takes NumPy microseconds; '>f4' is not float32."""
    return dtype.name if dtype.isnative else dtype.str


def _scipy_matrix(S: Support, w: np.ndarray) -> Any:
    """The values w on the support S in SciPy's CSR format, without a copy of the columns or of w."""
    from scipy.sparse import csr_array  # SciPy takes 0.1 s to import

    starts = S.cached("scipy starts", lambda: S.starts.astype(np.int32))
    return csr_array((w[0], S.columns, starts), shape=S.shape)
