"""The arrays of a support on a device, in memory that stays where it is when the support changes."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from matgrad.sparse.support import Support

SHORT = 512  # elements of a line that are never cut
PARTS = 1024  # that a support is cut into at least, if nnz ≥ PARTS · SHORT


class Lines:
    """The elements of a support by rows, or by columns.

    Those of line i are from ``starts[i]`` up to ``starts[i + 1]``; `others` has their columns or rows, and `places`
    their places in row order, which is None for rows. One program of a kernel sums at most `length` elements of a
    line. A longer line continues in segments of that length: ``segments`` has the line of each, its first element,
    and for the first segment of a line their number, else 0. There is room for as many as nnz elements can need;
    those that are not needed have the line -1 and begin at 0, where no element is left to add.
    """

    def __init__(self, arrays: tuple[np.ndarray, ...], device: torch.device) -> None:
        lines, nnz = len(arrays[0]) - 1, len(arrays[1])
        self.length = segment_length(lines, nnz)
        self.starts, self.others, *places = (torch.empty(len(A), dtype=torch.int32, device=device) for A in arrays)
        self.places = places[0] if places else None
        self.segments = torch.empty((3, nnz // self.length), dtype=torch.int32, device=device)
        self.update(arrays)

    def update(self, arrays: tuple[np.ndarray, ...]) -> None:
        """Go on with other elements, as many as before."""
        tensors = [self.starts, self.others] + ([] if self.places is None else [self.places])
        for tensor, A in zip(tensors, arrays, strict=True):
            tensor.copy_(torch.tensor(A, dtype=torch.int32))
        self.segments.copy_(torch.from_numpy(_segments(arrays[0], self.length, self.segments.shape[1])))


def segment_length(lines: int, nnz: int) -> int:
    """The most elements of a line that one program sums: several times those of a mean line, unless lines are few."""
    return max(SHORT, -(-nnz // max(lines // 8, PARTS)))


def _segments(starts: np.ndarray, length: int, room: int) -> np.ndarray:
    """The segments of all lines with more than `length` elements, see `Lines`."""
    more = np.maximum(-(-np.diff(starts) // length) - 1, 0)  # segments of each line, after its first elements
    lines = np.repeat(np.arange(len(more)), more)
    number = np.arange(len(lines)) - np.repeat(np.cumsum(more) - more, more)  # of a segment within its line
    result = np.zeros((3, room), dtype=np.int32)
    result[0] = -1
    result[:, : len(lines)] = lines, starts[lines] + (number + 1) * length, np.where(number == 0, more[lines], 0)
    return result


class Index:
    """The positions of a K×D support on a device, in row order and in column order.

    The sizes of all tensors depend on K, D and nnz only: `update` puts another such support into the same memory, so
    that a captured graph of kernels uses it. Arrays are copied to the device when a kernel first needs them.
    """

    def __init__(self, S: Support, device: torch.device) -> None:
        self.shape, self.nnz, self.device, self._support = S.shape, S.nnz, device, S

    def update(self, S: Support) -> None:
        """Go on with another support of the same size and number of elements, in the same memory."""
        if (S.shape, S.nnz) != (self.shape, self.nnz):
            (K, D), nnz = self.shape, self.nnz
            raise ValueError(f"{S}: expected a support of size {K} × {D} with {nnz} elements, as before")
        if S is self._support:
            return
        self._support, known = S, vars(self)
        if "by_rows" in known:
            self.by_rows.update(_rows_of(S))
        if "by_columns" in known:
            self.by_columns.update(_columns_of(S))
        if "row_indices" in known:
            self.row_indices.copy_(torch.from_numpy(S.row_indices()))

    @cached_property
    def by_rows(self) -> Lines:
        """The elements in row order."""
        return Lines(_rows_of(self._support), self.device)

    @cached_property
    def by_columns(self) -> Lines:
        """The elements in column order."""
        return Lines(_columns_of(self._support), self.device)

    @cached_property
    def row_indices(self) -> torch.Tensor:
        """The row of every element, in row order."""
        return torch.from_numpy(self._support.row_indices()).to(self.device)


def _rows_of(S: Support) -> tuple[np.ndarray, ...]:
    return S.starts, S.columns


def _columns_of(S: Support) -> tuple[np.ndarray, ...]:
    return S.column_starts, S.rows, S.positions


def index_of(S: Support | Index, device: torch.device) -> Index:
    """S itself, or the index of a support on a device, to which it is copied once and where it never changes."""
    if isinstance(S, Index):
        return S
    return S.cached(("index", device), lambda: Index(S, device))
