"""Running a program: every instruction is one call of a backend's kernel, in place."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from matgrad.backends.base import Backend, CompiledStep, Matrix, Scalar
from matgrad.program.buffers import Buffer, base, plan
from matgrad.program.program import SOURCES, VIEWS, Program, Shape, Value
from matgrad.program.recorder import record_step
from matgrad.program.rules import optimized

if TYPE_CHECKING:
    from matgrad.engines.training_step import Step
    from matgrad.sparse.support import Support

State = dict[str, Any]
# these take plain numbers
_SCALARS = ("scale", "divide", "power", "add_scaled", "product_sum", "sampled_sum", "uniform", "uniform_on")


def into(function: Callable[..., Any], **options: Any) -> Callable[..., None]:
    """The kernel that calls a framework's function with ``out=``."""
    return staticmethod(lambda out, *operands: function(*operands, out=out, **options))


class Kernels(ABC):
    """A backend's operations that write to a given matrix: ``kernels.exp(out, X)``."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    @abstractmethod
    def empty(self, shape: Shape, dtype: str, like: Matrix) -> Matrix:
        """A matrix or scalar to write to."""

    @abstractmethod
    def repeat(self, x: Matrix, shape: Shape) -> Matrix:
        """x seen as a matrix of that shape, without a copy."""

    @abstractmethod
    def copy(self, out: Matrix, X: Matrix) -> None:
        """X"""

    def identity(self, out: Matrix) -> None:
        """I_n"""
        self.copy(out, self.backend.identity(out.shape[0], out))

    def diag(self, out: Matrix, X: Matrix) -> None:
        """diag(X)"""
        self.copy(out, self.backend.diag(X))

    def Diag(self, out: Matrix, x: Matrix) -> None:
        """Diag(x)"""
        self.copy(out, self.backend.Diag(x))

    def uniform(self, out: Matrix, seed: Scalar, count: Scalar) -> None:
        """uniform(m, n, seed, count)"""
        m, n = out.shape
        self.copy(out, self.backend.uniform(m, n, seed, count, out))

    def sparse_product(self, out: Matrix, S: Support, w: Matrix, B: Matrix) -> None:
        """W B"""
        self.copy(out, self.backend.sparse_product(S, w, B))

    def sparse_transposed_product(self, out: Matrix, S: Support, w: Matrix, B: Matrix) -> None:
        """Wᵀ B"""
        self.copy(out, self.backend.sparse_transposed_product(S, w, B))

    def sampled_product(self, out: Matrix, S: Support, A: Matrix, B: Matrix) -> None:
        """(A Bᵀ)_S"""
        self.copy(out, self.backend.sampled_product(S, A, B))

    def sampled_sum(
        self, out: Matrix, S: Support, beta: Scalar, C: Matrix, alpha: Scalar, A: Matrix, B: Matrix
    ) -> None:
        """β·C + α·(A Bᵀ)_S"""
        self.copy(out, beta * C + alpha * self.backend.sampled_product(S, A, B))

    def uniform_on(self, out: Matrix, S: Support, seed: Scalar, count: Scalar) -> None:
        """uniform(m, n, seed, count)_S"""
        self.copy(out, self.backend.uniform_on(S, seed, count, out))

    def run(self, code: list[tuple[Callable[..., None], int, tuple[int, ...]]], slots: list[Any]) -> None:
        """Execute the instructions (kernel, place of the result, places of the operands)."""
        for kernel, out, operands in code:
            kernel(slots[out], *[slots[i] for i in operands])


class Executor:
    """A program with memory: ``execute(X=X, T=T, eta=eta)`` changes the matrices of `state` in place."""

    def __init__(self, program: Program, kernels: Kernels, state: State) -> None:
        self.program, self.kernels, self.state = program, kernels, state
        self.runs = 0
        self.seconds: dict[Value, float] = {}  # that its values took, where they are timed
        self.slots: list[Any] = []
        self.given: dict[str, int] = {}  # where the inputs of a run go
        self.views: list[tuple[int, Value, int]] = []  # views of those: place, view, place of its operand
        self.code: list[tuple[Callable[..., None], int, tuple[int, ...]]] = []
        self.computed: list[Value] = []  # by each instruction
        self._like = next(iter(state.values()))
        self._places: dict[Any, int] = {}  # of buffers, views and numbers
        self._plan = plan(program, set(state))
        for value in program.values:
            if value.operation not in SOURCES:
                self._add(value)
        self.code += [(kernels.copy, self._place(to), (self._place(source),)) for to, source in self._plan.copies]
        holder = {self._plan.buffers[value]: value for value in program.outputs.values()}
        self.computed += [holder[source] for _, source in self._plan.copies]

    def execute(self, **inputs: Any) -> None:
        """Run the program once."""
        slots = self.slots
        for name, place in self.given.items():
            slots[place] = inputs[name]
        for place, view, operand in self.views:
            slots[place] = self._view(view, slots[operand])
        self.kernels.run(self.code, slots)
        self.runs += 1

    def time(self) -> None:
        """From now on, count the seconds of every value."""
        for i, (kernel, out, operands) in enumerate(self.code):
            self.code[i] = self._timed(kernel, self.computed[i]), out, operands

    def _timed(self, kernel: Callable[..., None], value: Value) -> Callable[..., None]:
        """The kernel with a clock, which on a device waits for the result."""
        wait, seconds = self.kernels.backend.wait, self.seconds
        seconds[value] = 0.0

        def timed(out: Matrix, *operands: Any) -> None:
            start = time.perf_counter()
            kernel(out, *operands)
            wait(out)
            seconds[value] += time.perf_counter() - start

        return timed

    def _add(self, value: Value) -> None:
        """Give a view its place, or append an instruction."""
        operands = tuple(self._operand(x, value) for x in value.operands)
        if value.operation not in VIEWS:
            place = self._place(self._plan.buffers[value])
            self.code.append((getattr(self.kernels, value.operation), place, operands))
            self.computed.append(value)
        elif base(value).name in self.given:
            self.views.append((self._new(value, None), value, operands[0]))
        else:
            self._new(value, self._view(value, self.slots[operands[0]]))

    def _operand(self, x: Value, user: Value) -> int:
        """The place of an operand: a view, a matrix in a buffer, or a number."""
        if x.operation in VIEWS:
            return self._places[x]
        if x.support is not None:
            return self._new(x, x.support)
        if x.operation != "number":
            return self._place(self._plan.buffers[x])
        if user.operation in _SCALARS:
            return self._new(("number", x.number), x.number)
        constant = self.kernels.empty((), x.dtype, self._like)
        constant[...] = x.number
        return self._new(x, constant)

    def _place(self, buffer: Buffer) -> int:
        """The place of a buffer, whose memory is made at its first use."""
        if buffer in self._places:
            return self._places[buffer]
        if buffer.name in self.state:
            return self._new(buffer, self.state[buffer.name])
        if buffer.name:
            self.given[buffer.name] = self._new(buffer, None)
            return self.given[buffer.name]
        return self._new(buffer, self.kernels.empty(buffer.shape, buffer.dtype, self._like))

    def _new(self, key: Any, content: Any) -> int:
        """A place with that content."""
        if key not in self._places:
            self._places[key] = len(self.slots)
            self.slots.append(content)
        return self._places[key]

    def _view(self, value: Value, X: Any) -> Any:
        """X seen as transposed or repeated."""
        return X.T if value.operation == "transpose" else self.kernels.repeat(X, value.shape)


class ProgramStep(CompiledStep):
    """A training step as a recorded program, one for every batch size, on the same matrices."""

    can_be_timed = True

    def __init__(self, step: Step, kernels: Kernels, executor: Callable[..., Any] = Executor) -> None:
        self.step, self.kernels, self.executor = step, kernels, executor
        self.matrices: State = {}
        self.executors: dict[Any, Any] = {}
        self.seconds = 0.0  # that recording and planning took

    def load(self, state: Mapping[str, Matrix]) -> None:
        """Copy the state in."""
        if not self.matrices:
            self.matrices = {name: self._empty(X) for name, X in state.items()}
        for name, X in state.items():
            self.kernels.copy(self.matrices[name], X)

    def state(self) -> State:
        """A copy of the state."""
        copies = {name: self._empty(X) for name, X in self.matrices.items()}
        for name, X in copies.items():
            self.kernels.copy(X, self.matrices[name])
        return copies

    def prepare(self, X: Matrix, T: Matrix) -> Any:
        """Record the step for batches of this size."""
        key = (X.shape, T.shape, X.dtype, T.dtype)
        if key not in self.executors:
            start = time.perf_counter()
            program = optimized(record_step(self.step, self.matrices, X, T))
            self.executors[key] = self.executor(program, self.kernels, self.matrices)
            if self.is_timed:
                self.executors[key].time()
            self.seconds += time.perf_counter() - start
        return self.executors[key]

    def __call__(self, X: Matrix, T: Matrix, eta: Scalar) -> None:
        """Train on one batch with learning rate η."""
        executor = self.prepare(X, T)
        executor.execute(X=X, T=T, eta=eta if isinstance(eta, type(X)) else self.kernels.backend.scalar(eta, X))

    def _empty(self, X: Matrix) -> Matrix:
        return self.kernels.empty(tuple(X.shape), self.kernels.backend.dtype(X), X)
