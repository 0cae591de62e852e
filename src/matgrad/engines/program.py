"""The engine for NumPy and PyTorch: computations as recorded programs, run in place by the framework's kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any

from matgrad.backends.base import Array, Backend, Scalar
from matgrad.distributed.group import Collectives
from matgrad.engines.engine import CompiledEvaluation, CompiledStep, Engine, scalar, signature
from matgrad.engines.kernels import Executor, Kernels
from matgrad.foundation.machine import Stopwatch
from matgrad.layers.state import State, flattened, matrices_of, supports_of
from matgrad.program.computations import Computation, Step
from matgrad.program.program import Program
from matgrad.program.recorder import listing, record_computation
from matgrad.program.rules import TRANSPOSED, optimized, transposed_names, with_transposed
from matgrad.sparse.matrix import values_of
from matgrad.sparse.support import Support

# the kernels of each backend: module and class
KERNELS = {
    "numpy": ("matgrad.engines.numpy_kernels", "NumpyKernels"),
    "torch": ("matgrad.engines.torch_engine", "TorchKernels"),
}

MOST_SIZES = 8  # of batches for which an evaluation keeps programs


class ProgramEngine(Engine):
    """Runs programs with one kernel call per instruction."""

    executor_class: type[Any] = Executor
    groups = Collectives

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        module, name = KERNELS[backend.name]
        self.kernels: Kernels = getattr(import_module(module), name)(backend)

    def step(self, step: Step, group: Any = None) -> CompiledStep:
        if group is None:
            return ProgramStep(step, self.kernels, self.executor_class)
        from matgrad.engines.sharded import ShardedStep  # which imports this module

        return ShardedStep(step, self.kernels, self.executor_class, group)

    def evaluation(self, computation: Computation) -> CompiledEvaluation:
        return ProgramEvaluation(computation, self.kernels, self.executor_class)


class Programs:
    """The programs of a computation, one for each size of its inputs, which share the matrices of the state."""

    is_timed = False  # whether to count the seconds of every equation

    def __init__(self, computation: Computation, kernels: Kernels, executor_class: Callable[..., Any]) -> None:
        self.computation, self.kernels, self.executor_class = computation, kernels, executor_class
        self.matrices: State = {}  # and supports, as the kernels read them
        self.supports: dict[str, Support] = {}  # themselves
        self.transposed: set[str] = set()  # the entries of the state whose transposes `matrices` has, as Wᵀ for W
        self.executors: dict[Any, Any] = {}  # by the shapes and dtypes of the inputs
        self.listings: dict[Any, list[tuple]] = {}  # of their programs
        self.current: set[Any] = set()  # those whose programs are known to be those of the computation
        self.retired: list[Any] = []  # executors for other numbers of elements, with the time they took
        self.compilation = Stopwatch()  # for recording and planning

    @property
    def compilation_seconds(self) -> float:
        return self.compilation.seconds

    def invalidate(self, computation: Any, is_same: bool = False) -> None:
        """Go on with the computation as it is now: it is recorded again, and planned again if it has changed."""
        self.computation = computation
        self.current.clear()

    def load(self, state: Mapping[str, Array]) -> None:
        """Go on with these matrices and supports; programs are recorded again if numbers of elements change."""
        before, own = self.matrices, {}
        for name, X in matrices_of(state).items():
            place = self._place(name)
            own[place] = self._own(place, self._turned(name, X))
        like, self.supports = next(iter(own.values()), None), supports_of(state)
        indices = {name: self.kernels.index(S, like, self.matrices.get(name)) for name, S in self.supports.items()}
        self.matrices = own | indices
        is_resized = any(name not in before or before[name].shape != X.shape for name, X in own.items())
        for key, executor in list(self.executors.items()):
            if is_resized:
                self._retire(key)
            else:
                executor.bind(self.matrices)

    def _retire(self, key: Any) -> None:
        """Take an executor away."""
        executor = self.executors.pop(key)
        if self.is_timed:  # otherwise free its memory
            self.retired.append(executor)

    def _products(self) -> AbstractContextManager[Any]:
        """Within it, products are computed as the model says."""
        return self.kernels.backend.products(self.computation.template.matmul)

    def _own(self, name: str, X: Array) -> Array:
        """A matrix of the state, with this name in `matrices`, as programs use it."""
        return self.kernels.readable(X)

    def _present(self) -> State:
        """The present state, without a copy."""
        names = {self._place(name): name for name in self.transposed}
        present = {(own := names.get(place, place)): self._turned(own, X) for place, X in self.matrices.items()}
        return present | self.supports

    def _place(self, name: str) -> str:
        """The name that an entry of the state has in `matrices`."""
        return name + TRANSPOSED if name in self.transposed else name

    def _turned(self, name: str, X: Array) -> Array:
        """An entry of the state as it is in `matrices`, or back."""
        return X.T if name in self.transposed else X

    def _run(self, executor: Any, *inputs: Any) -> State:
        """The outputs for these inputs; products are computed as the model says."""
        named = flattened(dict(zip(self.computation.names(len(inputs)), inputs, strict=True)))
        with self._products():
            return executor.execute(**named)

    def executor_for(self, *inputs: Array | None, key: Any = None) -> Any:
        """The executor that is known by this key, by default their signature, or one for inputs of these sizes.

        None stands for a scalar. The computation is recorded if it is not known to be the same.
        """
        key = key or signature(inputs)
        if key not in self.current or key not in self.executors:
            with self.compilation:
                self._record(key, inputs)
            self.current.add(key)
        return self.executors[key]

    def _record(self, key: Any, inputs: tuple[Array | None, ...]) -> None:
        """Record the computation, and plan its program unless that is known."""
        recorded = record_computation(self.computation, self._present(), *inputs)
        found = listing(recorded)
        if key in self.executors:
            if self.listings[key] == found:
                return
            self._retire(key)
        self._transpose(transposed_names(recorded))
        executor = self._made(self._optimized(with_transposed(recorded, self.transposed)))
        if self.is_timed:
            executor.time()
        self.listings[key], self.executors[key] = found, executor

    def _optimized(self, program: Program) -> Program:
        """The program as it is run."""
        return optimized(program)

    def _transpose(self, names: set[str]) -> None:
        """Store these entries of the state transposed; earlier programs, which read them otherwise, are discarded."""
        if names <= self.transposed:
            return
        state = self._present()
        for key in list(self.executors):
            self._retire(key)
        self.current.clear()
        self.matrices, self.transposed = {}, self.transposed | names
        self.load(state)

    def _made(self, program: Program) -> Any:
        """An executor of the program, which works on the matrices of the state."""
        return self.executor_class(program, self.kernels, self.matrices)


class ProgramStep(Programs, CompiledStep):
    """A training step as a recorded program."""

    can_be_timed = True
    is_shared = False  # whether others have its matrices: these are then copied before they are changed

    def load(self, state: Mapping[str, Array]) -> None:
        super().load(state)
        self.is_shared = False

    def state(self) -> State:
        self.is_shared = True
        present = self._present()
        return {name: self.kernels.copied(X) if name in self.transposed else X for name, X in present.items()}

    def prepare(self, X: Array, T: Array, *s: Array) -> Any:
        """Record the step for batches of this size; its matrices can be changed."""
        if self.is_shared:
            self.load(self._present())
        return self.executor_for(X, T, None, *s)

    def _own(self, name: str, X: Array) -> Array:
        """A copy, which may be changed."""
        return self.kernels.copied(X)

    def __call__(self, X: Array, T: Array, eta: Scalar, *s: Array) -> None:
        self._execute(self.prepare(X, T, *s), X, T, eta, *s)

    def _execute(self, executor: Any, X: Array, T: Array, eta: Scalar, *s: Array) -> None:
        """Train on one batch with this executor."""
        self._run(executor, X, T, eta if isinstance(eta, type(values_of(X))) else scalar(float(eta), X), *s)


class ProgramEvaluation(Programs, CompiledEvaluation):
    """Feedforward, or an evaluation, as a recorded program."""

    loaded: State | None = None

    def __call__(self, state: State, *inputs: Array) -> State:
        if state is not self.loaded:
            self.load(state)
            self.loaded = state
        executor = self.executor_for(*inputs)
        if len(self.executors) > MOST_SIZES:
            del self.executors[next(iter(self.executors))]
        return self._run(executor, *inputs)
