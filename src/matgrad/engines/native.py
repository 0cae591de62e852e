"""The engine in the C++ core: matrices are NumPy arrays, and computations run as programs in C++."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import numpy as np

import matgrad._native as _native  # not `from matgrad import`: so the error names the missing module
from matgrad.datasets.loader import DataLoader
from matgrad.engines.engine import CompiledStep, Poll, throttled
from matgrad.engines.kernels import Kernels
from matgrad.engines.program import ProgramEngine, ProgramStep
from matgrad.engines.sharded import Exchange, ShardedStep
from matgrad.foundation.machine import threads
from matgrad.layers.state import State, matrices_of
from matgrad.program.computations import Step
from matgrad.program.description import as_dictionary
from matgrad.program.program import EXAMPLES, Program, Value
from matgrad.program.rules import with_separate_outputs
from matgrad.sparse.matrix import values_of
from matgrad.sparse.support import Support


class NativeExecutor:
    """A program in the C++ core: ``execute(X=X, T=T, eta=eta)`` changes the arrays of `state` in place."""

    def __init__(self, program: Program, kernels: Kernels, state: State, exchange: Exchange | None = None) -> None:
        self.program = with_separate_outputs(program)
        self.values = self.program.all_values
        # a rank waits for the others while it runs: where they are threads of one process, they cannot take turns
        pool = thread_pool(threads()) if exchange is None else _native.ThreadPool(threads())
        self.core = _native.Executor(json.dumps(as_dictionary(self.program)), pool)
        self.bind(state)
        if exchange is not None:
            values = self.values
            for name, X in exchange.arrays.items():
                self.core.bind(name, X)
            self.core.collective = lambda i: exchange.perform(values[i])  # without a reference to itself
        self.outputs = {name: value for name, value in program.outputs.items() if name not in program.inputs}

    def bind(self, state: State) -> None:
        for name in self.program.inputs.keys() & state.keys():
            self.core.bind(name, state[name])
        for name, value in self.program.supports.items():
            if name != EXAMPLES:
                S: Support = value.support or state[name]
                self.core.bind_support(name, S.starts, S.columns, S.column_starts, S.rows, S.positions)

    def execute(self, **inputs: Any) -> State:
        """Run the program once; the outputs are new matrices, so that several threads may do so."""
        outputs: State = {name: np.empty(value.shape, value.dtype) for name, value in self.outputs.items()}
        matrices = {name: np.ascontiguousarray(X).reshape(X.shape) for name, X in matrices_of(inputs).items()}
        self.core.run(matrices, outputs, *_rows(inputs.get(EXAMPLES)))
        return outputs

    @property
    def runs(self) -> int:
        return self.core.runs

    def time(self) -> None:
        self.core.timed = True

    @property
    def seconds(self) -> dict[Value, float]:
        """The seconds of every value so far; of values computed in one pass, the first has them all."""
        return dict(zip(self.values, self.core.seconds, strict=True))


class NativeEngine(ProgramEngine):
    """Runs programs, and whole epochs of a training step, in the C++ core."""

    executor_class = NativeExecutor

    def step(self, step: Step, group: Any = None) -> CompiledStep:
        if group is not None:
            return ShardedNativeStep(step, self.kernels, NativeExecutor, group)
        return NativeStep(step, self.kernels, NativeExecutor)

    def largest_products(self, A: np.ndarray, B: np.ndarray, taken: Support, count: int) -> np.ndarray:
        A, B = np.ascontiguousarray(A), np.ascontiguousarray(B)
        return _native.largest_products(A, B, taken.starts, taken.columns, count, thread_pool(threads()))


class NativeStep(ProgramStep):
    """A training step in the C++ core, which can run whole epochs by itself."""

    polls_every_batch = False  # and not ten times per second

    def takes_loader(self, loader: DataLoader) -> bool:
        return values_of(loader.X).flags.c_contiguous

    def train_epoch(self, loader: DataLoader, rates: list[float], poll: Poll) -> None:
        full, order = loader.size // loader.batch_size, loader.order()
        if full:
            self._train(loader, order, np.array(rates[:full], values_of(loader.X).dtype), poll)
        if full < len(loader):
            X, T, *s = loader.batch(full * loader.batch_size, order)
            self(X, T, rates[full], *s)
            poll(full + 1)

    def _train(self, loader: DataLoader, order: np.ndarray | None, rates: np.ndarray, poll: Poll) -> None:
        """Train on full batches, one for each learning rate."""
        arrays = values_of(loader.X), np.ascontiguousarray(loader.T), rates, order, loader.labels, loader.weights
        core, rows = self.prepare(*loader.batch(0)).core, _rows(getattr(loader.X, "support", None))
        core.train(*arrays, poll, self.polls_every_batch, *rows)


class ShardedNativeStep(NativeStep, ShardedStep):
    """The training step of a rank in the C++ core, where messages are tasks of the program."""

    polls_every_batch = True

    def _train(self, loader: DataLoader, order: np.ndarray | None, rates: np.ndarray, poll: Poll) -> None:
        N, rows = loader.batch_size, self.rows(loader.batch_size)
        order = np.arange(loader.size) if order is None else order
        own = order[: N * len(rates)].reshape(-1, N)[:, rows].reshape(-1)
        padded = np.concatenate([own, np.zeros(loader.X.shape[0] - len(own), own.dtype)])  # an order has all rows
        super()._train(loader, padded, rates, throttled(poll, len(rates), lambda: self.group.heard))


def _rows(S: Support | None) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Where the elements of sparse examples are: the starts of the rows, and the columns of the elements."""
    return (None, None) if S is None else (S.starts, S.columns)


@cache
def thread_pool(size: int) -> _native.ThreadPool:
    """The threads that all programs share."""
    return _native.ThreadPool(size)
