"""The table on NumPy: the column "NumPy + JAX" of the paper's second table."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from matgrad.backends.base import Array, Backend, Scalar, sum_in_blocks

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

    exp, log, log1p, reciprocal, sqrt, tanh = map(_of_elements, ("exp", "log", "log1p", "reciprocal", "sqrt", "tanh"))

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
