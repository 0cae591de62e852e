"""The C++ core: matrices are NumPy arrays, and training steps run as programs in C++."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import numpy as np

import matgrad._native as _native  # not from matgrad: a missing module is told of by its name
from matgrad.backends.base import Matrix, Scalar
from matgrad.backends.numpy_backend import NumpyBackend
from matgrad.engines.program import Kernels, ProgramStep, State
from matgrad.foundation.machine import cores
from matgrad.program.program import Program, Value
from matgrad.storage.programs import as_dictionary


class NativeBackend(NumpyBackend):
    """NumPy's table, and compiled steps in the C++ core."""

    name = "native"

    def compile(self, step):
        from matgrad.engines.numpy_kernels import NumpyKernels

        return NativeStep(step, NumpyKernels(self), NativeExecutor)


class NativeStep(ProgramStep):
    """A training step in the C++ core, which also goes through the batches of an epoch."""

    takes_epochs = True

    def train(self, batches: Iterable[tuple[Matrix, Matrix]], rate: Callable[[int], Scalar]) -> None:
        from matgrad.datasets import DataLoader

        if type(batches) is not DataLoader or not batches.X.flags.c_contiguous:
            return super().train(batches, rate)
        whole, order, rates = batches.size // batches.batch_size, batches.order(), []
        try:
            for i in range(whole):
                rates.append(rate(i))
        finally:  # where there is no rate for a batch, those before it are trained on
            if rates:
                executor = self.prepare(*batches.batch(0))
                executor.train(batches.X, batches.T, np.array(rates, batches.X.dtype), order, batches.labels)
        if whole < len(batches):
            self(*batches.batch(whole * batches.batch_size, order), rate(whole))


class NativeExecutor:
    """A program in the C++ core: ``execute(X=X, T=T, eta=eta)`` changes the arrays of `state` in place."""

    def __init__(self, program: Program, kernels: Kernels, state: State) -> None:
        self.program = program
        self.core = _native.Executor(json.dumps(as_dictionary(program)), thread_pool(threads()))
        for name, X in state.items():
            self.core.bind(name, X)
        for name, S in program.supports.items():
            self.core.bind_support(name, S.starts, S.columns, S.column_starts, S.rows, S.positions)

    def execute(self, **inputs: Any) -> None:
        """Run the program once."""
        for name, X in inputs.items():
            self.core.bind_constant(name, np.ascontiguousarray(X).reshape(X.shape))
        self.core.run()

    def train(
        self, X: Matrix, T: Matrix, rates: np.ndarray, order: np.ndarray | None, labels: np.ndarray | None
    ) -> None:
        """Run the program for whole batches, one for each of the learning rates; see `DataLoader`."""
        self.core.train(X, np.ascontiguousarray(T), rates, order, labels)

    @property
    def runs(self) -> int:
        """How often the program ran so far."""
        return self.core.runs

    def time(self) -> None:
        """From now on, count the seconds of every value."""
        self.core.timed = True

    @property
    def seconds(self) -> dict[Value, float]:
        """The seconds of every value so far; of values that are computed together, the first has them all."""
        values = self.program.values
        return dict(zip(values, self.core.seconds[-len(values) :], strict=True))  # after the inputs that are not read


def threads() -> int:
    """The number of threads: OMP_NUM_THREADS, or one for each core that this process may use."""
    return int(os.environ.get("OMP_NUM_THREADS") or cores())


@cache
def thread_pool(size: int) -> _native.ThreadPool:
    """The threads that all programs share."""
    return _native.ThreadPool(size)
