"""The training step of a rank: its rows of every batch, and the matrices that the ranks exchange."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Mapping
from itertools import accumulate
from typing import Any

import numpy as np

from matgrad.backends import backend_of
from matgrad.backends.base import Array, Scalar
from matgrad.distributed.group import REQUESTS, Collectives, part
from matgrad.engines.engine import OwnRows, signature
from matgrad.engines.kernels import Kernels
from matgrad.engines.program import ProgramStep
from matgrad.layers.state import State, matrices_of, sized_by_supports, supports_of
from matgrad.program.buffers import exchanged
from matgrad.program.computations import Step
from matgrad.program.description import value_as_dictionary
from matgrad.program.program import Program, Value
from matgrad.program.schedule import executable, messages
from matgrad.program.shapes import Shape
from matgrad.program.sharding import data_parallel, sharded
from matgrad.sparse.matrix import SparseMatrix
from matgrad.sparse.support import Support

Empty = Callable[[Shape, str], Array]  # makes a matrix of this shape and dtype
LINE = 64  # bytes of a cache line, at which the matrices of a message begin: products are written there a third faster
FAR = 32  # messages after which the requests in one on another device are read, for which the host has to wait


class Exchange:
    """The collectives of a rank's program; `arrays` has their operands and results, by the names of their buffers.

    What is sent together lies side by side in one message, which ends with the requests of this rank to stop.
    """

    def __init__(self, program: Program, group: Collectives, empty: Empty) -> None:
        self.group = group
        self.arrays: dict[str, Array] = {}
        self.seconds = 0.0  # spent on waiting for other ranks
        self._received = 0  # messages
        self._names = exchanged(program)
        self._messages: dict[Value, Array] = {}  # by their last `send`, which sends them, and their first `receive`
        self._sent: dict[int, Any] = {}  # the work of sending each message
        for message in messages(program.values):
            first = next(x for x in program.values if x.operation == "receive" and x.operands[0] in message)
            self._messages[message[-1]] = self._messages[first] = self._in_one_row(message, empty)
        for value, name in self._names.items():
            if name not in self.arrays:
                self.arrays[name] = empty(value.shape, value.dtype)

    def perform(self, value: Value) -> None:
        """Do what there is to do now for a collective: the last `send` sends a message, the first `receive` waits."""
        start, row = time.perf_counter(), self._messages.get(value)
        if value.operation not in ("send", "receive"):
            self._run(value)
        elif row is not None and value.operation == "send":
            for i, is_asked in enumerate(self.group.requests(), len(row) - len(REQUESTS)):
                row[i] = is_asked
            self._sent[id(row)] = self.group.start_sum(row)
        elif row is not None:
            self.group.wait(self._sent.pop(id(row)))
            self._received += 1
            if self._received % FAR == 0 or backend_of(row).device(row) in (None, "cpu"):
                self.group.hear(row[-len(REQUESTS) :].tolist())
        self.seconds += time.perf_counter() - start

    def _in_one_row(self, message: list[Value], empty: Empty) -> Array:
        """Put the sums of a message into one row."""
        sizes, dtype = [math.prod(value.shape) for value in message], message[0].dtype
        line = LINE // np.dtype(dtype).itemsize
        *starts, end = accumulate((-(-size // line) * line for size in sizes), initial=0)
        row = empty((end + len(REQUESTS),), dtype)
        row[...] = 0  # also between the matrices
        for value, start, size in zip(message, starts, sizes, strict=True):
            self.arrays[self._names[value]] = row[start : start + size].reshape(tuple(map(int, value.shape)))
        return row

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
            out[...] = X[_part(value.operands[0].shape, axis, self.group.rank, self.group.size)]


def _part(shape: Shape, axis: str, rank: int, size: int) -> tuple[slice, ...]:
    """The index of the rows or columns that a rank has of a matrix of this shape."""
    return (part(shape[0], rank, size),) if axis == "rows" else (slice(None), part(shape[1], rank, size))


class ShardedStep(OwnRows, ProgramStep):
    """A training step of which every rank of a group does its rows.

    It is given whole batches. One with fewer rows than there are ranks is not shared out: all ranks compute all of it.
    """

    def __init__(self, step: Step, kernels: Kernels, executor_class: Callable[..., Any], group: Collectives) -> None:
        super().__init__(step, kernels, executor_class)
        self.group = group
        self.exchanges: list[Exchange] = []  # one for each program

    # -- the state, which all ranks have --------------------------------------------------------------
    def load(self, state: Mapping[str, Array]) -> None:
        """Go on from the state of rank 0."""
        of_elements = sized_by_supports(state)
        sizes = {name: "one per element" if name in of_elements else str(tuple(X.shape)) for name, X in state.items()}
        self.group.agree(sizes, "the start of an epoch")
        super().load(self._with_common_supports(state))
        for X in matrices_of(self.matrices).values():
            self.group.broadcast(X)

    def _with_common_supports(self, state: Mapping[str, Array]) -> State:
        """The state with the supports of rank 0, and matrices of their sizes."""
        supports, common = supports_of(state), dict(state)
        first, *others = self.group.exchange(
            {name: [S.nnz, _hash(S.starts.tobytes() + S.columns.tobytes())] for name, S in supports.items()},
            "the supports",
        )
        for name, S in supports.items():
            if any(other[name] != first[name] for other in others):
                starts, columns = S.starts.copy(), np.resize(S.columns, first[name][0])
                self.group.broadcast(starts)
                self.group.broadcast(columns)
                common[name] = Support(S.shape, starts, columns)
        for name, support in sized_by_supports(state).items():
            X, shape = state[name], (1, common[support].nnz)
            if tuple(X.shape) != shape:
                common[name] = self.kernels.empty(shape, self.kernels.backend.dtype(X), X)
        return common

    # -- batches ----------------------------------------------------------------------------------------
    def prepare(self, X: Array, T: Array, *s: Array) -> Any:
        return self._prepare(X.shape[0], *self.own_rows(X, T, *s))

    def rows(self, N: int) -> slice:
        return self.group.part(N) if N >= self.group.size else slice(0, N)

    def run(self, N: int, eta: Scalar, *own: Array) -> None:
        X, T, *s = own
        self._execute(self._prepare(N, *own), X, T, eta, *s)

    # -- the program of a rank ----------------------------------------------------------------------------
    def _prepare(self, N: int, *own: Array) -> Any:
        """The executor for these rows of a batch of N."""
        if self.is_shared:
            self.load(self._present())
        key = N, signature(own)
        if key in self.current and key in self.executors:
            return self.executors[key]
        X, T, *s = (self._of_size(N, A) for A in own)
        return self.executor_for(X, T, None, *s, key=key)

    def _of_size(self, N: int, A: Array) -> Array:
        """A matrix like A with N rows, which only stands for its shape."""
        if isinstance(A, SparseMatrix):
            return SparseMatrix(Support((N, A.shape[1]), [0] * (N + 1), []), A.values[:, :0])
        return self.kernels.repeat(self.kernels.empty((1, 1), self.kernels.backend.dtype(A), A), (N, A.shape[1]))

    def _optimized(self, program: Program) -> Program:
        """The program of this rank, after a check that all ranks have recorded the same."""
        indices = {value: i for i, value in enumerate(program.values)}
        lines = json.dumps([value_as_dictionary(value, indices) for value in program.values])
        self.group.agree({"what it computes": f"sha256 {_hash(lines.encode())}"}, "a new program")
        return executable(sharded(program, data_parallel(program, self.group.size), self.group.rank, self.group.size))

    def _made(self, program: Program) -> Any:
        like = next(iter(self.matrices.values()))
        exchange = Exchange(program, self.group, lambda shape, dtype: self.kernels.empty(shape, dtype, like))
        self.exchanges.append(exchange)
        return self.executor_class(program, self.kernels, self.matrices, exchange)


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
