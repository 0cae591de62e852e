"""The collectives of a program: the matrices that ranks exchange, and what they do with them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np

from matgrad.backends import backend_of
from matgrad.backends.base import Matrix
from matgrad.distributed.group import REQUESTS, Collectives, part
from matgrad.program.buffers import exchanged
from matgrad.program.program import Program, Value
from matgrad.program.schedule import messages
from matgrad.program.shapes import Shape

Empty = Callable[[Shape, str], Matrix]  # makes a matrix of this shape and dtype
LINE = 64  # bytes of a cache line, at which the matrices of a message begin: products are written there a third faster
FAR = 32  # messages after which the requests in one on another device are read, for which the host has to wait


class Exchange:
    """The collectives of a rank's program; `arrays` has their operands and results, by the names of their buffers.

    What is sent together lies side by side in one message, which ends with the requests of this rank to stop.
    """

    def __init__(self, program: Program, group: Collectives, empty: Empty) -> None:
        self.group = group
        self.arrays: dict[str, Matrix] = {}
        self.seconds = 0.0  # spent on waiting for other ranks
        self._received = 0  # messages
        self._names = exchanged(program)
        self._actions: dict[Value, Callable[[], None]] = {}
        for message in messages(program.values):
            self._add_message(message, program, empty)
        for value, name in self._names.items():
            if name not in self.arrays:
                self.arrays[name] = empty(value.shape, value.dtype)
        for value in program.values:
            if value.kind == "collective" and value.operation not in ("send", "receive"):
                self._actions[value] = partial(self._run, value)

    def perform(self, value: Value) -> None:
        """Do what there is to do now for a collective: the last `send` sends a message, the first `receive` waits."""
        if value in self._actions:
            start = time.perf_counter()
            self._actions[value]()
            self.seconds += time.perf_counter() - start

    def _add_message(self, message: list[Value], program: Program, empty: Empty) -> None:
        """Put the sums of a message into one row, and send and receive it at the right moments."""
        sizes = [math.prod(value.shape) for value in message]
        *starts, end = accumulate((_in_lines(value) for value in message), initial=0)
        row = empty((end + len(REQUESTS),), message[0].dtype)
        row[...] = 0  # also between the matrices
        for value, start, size in zip(message, starts, sizes, strict=True):
            self.arrays[self._names[value]] = row[start : start + size].reshape(tuple(map(int, value.shape)))
        sent: list[Any] = []  # the work of sending it, one at most
        self._actions[message[-1]] = partial(self._send, row, sent)
        first = next(x for x in program.values if x.operation == "receive" and x.operands[0] in message)
        is_near = backend_of(row).device(row) in (None, "cpu")
        self._actions[first] = partial(self._receive, row, sent, is_near)

    def _send(self, row: Matrix, sent: list[Any]) -> None:
        for i, is_asked in enumerate(self.group.requests(), len(row) - len(REQUESTS)):
            row[i] = is_asked
        sent.append(self.group.start_sum(row))

    def _receive(self, row: Matrix, sent: list[Any], is_near: bool) -> None:
        self.group.wait(sent.pop())
        self._received += 1
        if is_near or self._received % FAR == 0:
            self.group.hear(row[-len(REQUESTS) :].tolist())

    def _run(self, value: Value) -> None:
        """A collective that all ranks wait for."""
        X, out = (self.arrays[self._names[x]] for x in (value.operands[0], value))
        name, _, axis = value.operation.rpartition("_")
        if value.operation == "all_max":
            self.group.maximum(X)
        elif name == "all_gather":
            parts = [_part(value.shape, axis, rank, self.group.size) for rank in range(self.group.size)]
            for own, Y in zip(parts, self.group.gather(X, [out[own].shape for own in parts]), strict=True):
                out[own] = Y
        else:
            if name == "reduce_scatter":  # of which each rank keeps its part: gloo's own sends as many bytes
                self.group.wait(self.group.start_sum(X))
            out[...] = X[_part(tuple(X.shape), axis, self.group.rank, self.group.size)]


def _in_lines(value: Value) -> int:
    """The number of elements in the cache lines that a value takes."""
    return -(-value.nbytes // LINE) * LINE // np.dtype(value.dtype).itemsize


def _part(shape: Shape, axis: str, rank: int, size: int) -> tuple[slice, ...]:
    """The index of the rows or columns that a rank has of a matrix of this shape."""
    n = shape[0] if axis == "rows" else shape[1]
    own = part(n, rank, size)
    return (own,) if axis == "rows" else (slice(None), own)
