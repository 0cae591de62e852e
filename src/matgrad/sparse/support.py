"""The support of a sparse matrix: the positions of the elements that it stores."""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterator
from functools import cached_property
from typing import Any

import numpy as np

LARGEST = 2**31 - 1  # size or number of elements: the indices have 32 bits
CHUNK = 2**20  # elements of a temporary matrix in a kernel


class Support:
    """The positions of the nnz stored elements of a K×D matrix, in row order and in column order.

    The elements of row i are those from ``starts[i]`` up to ``starts[i + 1]``; their `columns` increase.
    The elements of column j are those from ``column_starts[j]`` up to ``column_starts[j + 1]`` in column
    order; `rows` has their rows, and `positions` their places in row order. The arrays are read-only.
    """

    def __init__(self, shape: tuple[int, ...], starts: Any, columns: Any) -> None:
        self.shape = K, D = _check_shape(shape)
        starts, columns = _integers("starts", starts), _integers("columns", columns)
        _check_starts(starts, K, len(columns))
        if len(columns) and not 0 <= columns.min() <= columns.max() < D:
            outside = columns[(columns < 0) | (columns >= D)]
            raise ValueError(f"columns: expected numbers from 0 to {D - 1}, found {outside[0]}")
        self.starts, self.columns = _fixed(starts.astype(np.int64), columns.astype(np.int32))
        is_wrong = self.columns[1:] <= self.columns[:-1]
        first = self.starts[(self.starts > 0) & (self.starts < self.nnz)]  # elements of rows but for the first row
        is_wrong[first - 1] = False
        if is_wrong.any():
            k = int(np.argmax(is_wrong))
            i, (before, after) = np.searchsorted(self.starts, k, side="right") - 1, self.columns[k : k + 2]
            problem = "twice" if before == after else f"after column {before}; expected increasing columns"
            raise ValueError(f"columns: row {i} has column {after} {problem}")

    # -- column order, which is found when it is first needed -----------------------------------
    @cached_property
    def _by_columns(self) -> tuple[np.ndarray, ...]:
        """`column_starts`, `rows` and `positions`, in linear time."""
        from scipy.sparse import csr_array  # SciPy takes 0.1 s to import

        places = np.arange(self.nnz, dtype=np.int32)
        by_columns = csr_array((places, self.columns, self.starts.astype(np.int32)), shape=self.shape).tocsc()
        return _fixed(by_columns.indptr.astype(np.int64), by_columns.indices, by_columns.data)

    column_starts = property(lambda self: self._by_columns[0], doc="Where the elements of each column start.")
    rows = property(lambda self: self._by_columns[1], doc="The row of every element, in column order.")
    positions = property(lambda self: self._by_columns[2], doc="The place in row order of every element.")

    # -- other ways to make one ---------------------------------------------------------------
    @classmethod
    def from_flat(cls, shape: tuple[int, ...], flat: np.ndarray) -> Support:
        """The support of the positions (i, j) whose numbers i·D + j are given, in increasing order."""
        K, D = _check_shape(shape)
        starts = np.searchsorted(flat, np.arange(K + 1) * D)
        _check_starts(starts, K, len(flat))
        columns = np.repeat(np.arange(K) * D, np.diff(starts))  # the numbers of the first positions of the rows
        return cls(shape, starts, np.subtract(flat, columns, out=columns))

    @classmethod
    def from_mask(cls, mask: np.ndarray) -> Support:
        """The positions where a matrix of booleans is True."""
        mask = np.asarray(mask)
        if mask.ndim != 2 or mask.dtype != bool:
            raise ValueError(f"mask: expected a matrix of booleans, found {mask.dtype} of shape {mask.shape}")
        return cls.from_flat(mask.shape, np.flatnonzero(mask))

    @classmethod
    def from_scipy(cls, A: Any) -> Support:
        """The positions that a SciPy matrix stores, also those of stored zeros."""
        return cls.from_flat(A.shape, elements(A)[0])

    @classmethod
    def random(cls, K: int, D: int, nnz: int, rng: np.random.Generator) -> Support:
        """A random support with exactly nnz elements, all equally likely; takes memory for nnz elements."""
        K, D = _check_shape((K, D))
        if not 0 <= nnz <= min(K * D, LARGEST):
            raise ValueError(f"nnz: expected a number from 0 to {min(K * D, LARGEST)}, found {nnz}")
        return cls.from_flat((K, D), distinct(K * D, nnz, rng))

    def of_rows(self, rows: slice | np.ndarray) -> tuple[Support, slice | np.ndarray]:
        """The support of some of the rows, in that order, and the places of its elements in this one."""
        if isinstance(rows, slice):
            starts = self.starts[rows.start : rows.stop + 1]
            places: slice | np.ndarray = slice(int(starts[0]), int(starts[-1]))
            starts = starts - starts[0]
        else:
            counts = self.starts[rows + 1] - self.starts[rows]
            starts = np.concatenate([[0], np.cumsum(counts)])
            places = np.repeat(self.starts[rows] - starts[:-1], counts) + np.arange(starts[-1])
        part = object.__new__(Support)  # without the checks, which the rows have passed
        part.shape, part.starts, part.columns = (len(starts) - 1, self.shape[1]), starts, self.columns[places]
        return part, places

    # -- properties ---------------------------------------------------------------------------
    @property
    def nnz(self) -> int:
        """The number of stored elements."""
        return len(self.columns)

    @property
    def density(self) -> float:
        """nnz / (K·D), the fraction of the elements that is stored."""
        K, D = self.shape
        return self.nnz / (K * D)

    def row_indices(self) -> np.ndarray:
        """The row of every element, in row order."""
        return np.repeat(np.arange(self.shape[0], dtype=np.int32), np.diff(self.starts))

    def flat(self) -> np.ndarray:
        """The numbers i·D + j of the positions (i, j), in row order."""
        return self.row_indices().astype(np.int64) * self.shape[1] + self.columns

    def kept_flat(self) -> np.ndarray:
        """`flat()`, which is kept for the next time: 8 bytes per element."""
        return self.cached("flat", self.flat)

    def is_same(self, other: Support) -> bool:
        """Whether both have the same positions."""
        have_same = self.shape == other.shape and np.array_equal(self.starts, other.starts)
        return self is other or (have_same and np.array_equal(self.columns, other.columns))

    # -- for kernels --------------------------------------------------------------------------
    def cached(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """``make()``, called only once per key; the index on a device is kept in this way."""
        cache = self.__dict__.setdefault("_cache", {})
        if key not in cache:
            cache[key] = make()
        return cache[key]

    def chunks(self, N: int) -> Iterator[slice]:
        """Slices of the elements, so short that a matrix with N columns and a row per element stays small."""
        size = max(1, CHUNK // max(N, 1))
        return (slice(k, min(k + size, self.nnz)) for k in range(0, self.nnz, size))

    def __reduce__(self) -> Any:
        return Support, (self.shape, self.starts, self.columns)  # without what is cached, such as tensors on a device

    def __copy__(self, memo: Any = None) -> Support:
        return self  # it is immutable

    __deepcopy__ = __copy__

    def __repr__(self) -> str:
        K, D = self.shape
        return f"Support({K} × {D}, nnz={self.nnz}, density={self.density:.4g})"


def as_support(A: Any) -> Support:
    """A itself, the positions where a matrix of booleans is True, or those that a SciPy matrix stores."""
    if isinstance(A, Support):
        return A
    return Support.from_scipy(A) if hasattr(A, "tocoo") else Support.from_mask(A)


def elements(A: Any) -> tuple[np.ndarray, np.ndarray]:
    """The numbers i·D + j of the positions that a SciPy matrix stores, in increasing order, and the values there."""
    triples = A.tocoo()  # which keeps duplicates
    flat = triples.row.astype(np.int64) * A.shape[1] + triples.col
    order = np.argsort(flat, kind="stable")
    return flat[order], triples.data[order]


def distinct(total: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """`count` distinct numbers below `total` in increasing order; all such sets are equally likely."""
    if count > total // 8:
        return np.sort(rng.choice(total, count, replace=False, shuffle=False))  # needs memory for all of them
    found = np.empty(0, dtype=np.int64)
    while len(found) < count:  # no number is favored, so no set is
        drawn = rng.integers(total, size=count - len(found))
        drawn.sort()
        found = np.concatenate([found, drawn])
        found.sort(kind="stable")  # which merges two sorted parts in linear time
        found = found[np.append(True, found[1:] > found[:-1])]
    return found


def _fixed(*arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    """The arrays, now read-only."""
    for A in arrays:
        A.setflags(write=False)
    return arrays


def _check_shape(shape: Any) -> tuple[int, int]:
    """(K, D), after a check that both are sizes."""
    sizes = tuple(shape)
    if len(sizes) != 2 or not all(hasattr(n, "__index__") and 1 <= n <= LARGEST for n in sizes):
        raise ValueError(f"shape: expected two integers from 1 to {LARGEST}, found {shape}")
    return operator.index(sizes[0]), operator.index(sizes[1])


def _integers(name: str, numbers: Any) -> np.ndarray:
    A = np.asarray(numbers)
    if A.ndim != 1 or (A.dtype.kind not in "iu" and A.size):
        raise ValueError(f"{name}: expected a vector of integers, found {A.dtype} of shape {A.shape}")
    if len(A) > LARGEST + 1:
        raise ValueError(f"{name}: expected at most {LARGEST} elements, found {len(A)}")
    return A if A.size else A.astype(np.int64)


def _check_starts(starts: np.ndarray, K: int, nnz: int) -> None:
    """Raise if the starts do not cut nnz elements into K rows."""
    if len(starts) != K + 1:
        raise ValueError(f"starts: expected {K + 1} numbers for {K} rows, found {len(starts)}")
    if starts[0] != 0 or starts[-1] != nnz:
        raise ValueError(f"starts: expected the first to be 0 and the last {nnz}, found {starts[0]} and {starts[-1]}")
    decreasing = np.flatnonzero(starts[1:] < starts[:-1])
    if len(decreasing):
        raise ValueError(f"starts: row {decreasing[0]} ends before it begins")
