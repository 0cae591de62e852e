"""The arrays of a support on a device, in memory that stays where it is when the support changes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

if TYPE_CHECKING:
    from matgrad.sparse.support import Support

SHORT = 512  # elements of a line that are never cut
PARTS = 1024  # that a support is cut into at least, if nnz ≥ PARTS · SHORT


class Lines(NamedTuple):
    """The elements of a support by rows, or by columns.

    Those of line i are from ``starts[i]`` up to ``starts[i + 1]``; `others` has their columns or rows, and `places`
    their places in row order, which is None for rows. One program of a kernel sums at most `length` elements of a
    line. A longer line continues in segments of that length: ``segments`` has the line of each, its first element,
    and for the first segment of a line their number, else 0. There is room for as many as nnz elements can need;
    those that are not needed have the line -1 and begin at 0, where no element is left to add.
    """

    starts: torch.Tensor
    others: torch.Tensor
    places: torch.Tensor | None
    segments: torch.Tensor
    length: int


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
        self._kept: list[tuple[torch.Tensor, Callable[[Support], np.ndarray]]] = []  # what is there, and what it is of

    def update(self, S: Support) -> None:
        """Go on with another support of the same size and number of elements, in the same memory."""
        if S is not self._support:
            self._support = S
            for tensor, array in self._kept:
                tensor.copy_(torch.tensor(array(S), dtype=torch.int32))

    @cached_property
    def by_rows(self) -> Lines:
        return self._lines(lambda S: S.starts, lambda S: S.columns)

    @cached_property
    def by_columns(self) -> Lines:
        return self._lines(lambda S: S.column_starts, lambda S: S.rows, lambda S: S.positions)

    @cached_property
    def row_indices(self) -> torch.Tensor:
        return self._put(lambda S: S.row_indices())

    def _lines(self, starts: Callable[[Support], np.ndarray], *others: Callable[[Support], np.ndarray]) -> Lines:
        length = segment_length(len(starts(self._support)) - 1, self.nnz)
        segments = self._put(lambda S: _segments(starts(S), length, self.nnz // length))
        of_elements, *places = map(self._put, others)
        return Lines(self._put(starts), of_elements, places[0] if places else None, segments, length)

    def _put(self, array: Callable[[Support], np.ndarray]) -> torch.Tensor:
        """What an array of the support is, on the device."""
        tensor = torch.tensor(array(self._support), dtype=torch.int32, device=self.device)
        self._kept.append((tensor, array))
        return tensor


def index_of(S: Support | Index, device: torch.device) -> Index:
    """S itself, or the index of a support on a device, to which it is copied once and where it never changes."""
    if isinstance(S, Index):
        return S
    return S.cached(("index", device), lambda: Index(S, device))
