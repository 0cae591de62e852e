"""What an engine supplies: training steps and evaluations that run on the matrices of a backend."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from matgrad.backends import backend_of, get_backend
from matgrad.backends.base import Array, Backend, Scalar
from matgrad.datasets.loader import DataLoader, rows_of
from matgrad.distributed.group import Group, current
from matgrad.layers.state import State
from matgrad.loss_functions import LossFunction
from matgrad.program.computations import Computation, Step, make_step
from matgrad.program.recorder import check_hidden_state
from matgrad.sparse.matrix import values_of
from matgrad.sparse.rules import largest_products
from matgrad.sparse.support import Support

if TYPE_CHECKING:
    from matgrad.multilayer_perceptron import MultilayerPerceptron

Batches = Iterable[tuple[Array, ...]]  # (X, T), or (X, T, s) if the examples have weights
Rate = Callable[[int], Scalar]  # the learning rate of the i-th batch: a number, or a 0-d array
Poll = Callable[[int], None]  # gets the number of batches done in this epoch; may raise an error to stop there

POLL_INTERVAL = 0.1  # seconds


class CompiledStep(ABC):
    """A training step with a state of its own, which every batch changes."""

    can_be_timed = False  # whether it can measure the seconds of every equation
    is_timed = False  # whether it measures them

    @property
    def compilation_seconds(self) -> float:
        """How long compiling took so far, where that is known."""
        return 0.0

    @abstractmethod
    def invalidate(self, step: Step, is_same: bool) -> None:
        """Go on with the step as it is now: what is no longer right is compiled again when it is next needed.

        `is_same` tells that no setting has changed, so that only other things that code of users reads may have.
        """

    @abstractmethod
    def load(self, state: Mapping[str, Array]) -> None:
        """Go on from this state, whose matrices are not changed."""

    @abstractmethod
    def state(self) -> State:
        """The present state, whose matrices are not changed later."""

    @abstractmethod
    def prepare(self, X: Array, T: Array, *s: Array) -> object:
        """Compile the step for batches like X and T, and their weights if there are any, without changing the state."""

    @abstractmethod
    def __call__(self, X: Array, T: Array, eta: Scalar, *s: Array) -> None:
        """Train on one batch with learning rate η, and with weights s if there are any."""

    def takes(self, batches: Batches) -> bool:
        """Whether it goes through these batches by itself, instead of being called for every one."""
        return getattr(batches, "is_plain", False) and self.takes_loader(cast(DataLoader, batches))

    def takes_loader(self, loader: DataLoader) -> bool:
        """Whether it goes through the batches of a loader, which it may form itself."""
        return False

    def train(self, batches: Batches, rate: Rate, poll: Poll = lambda done: None, first: int = 0) -> None:
        """Train on every batch, the i-th, from `first` on, with learning rate η = rate(i).

        ``poll(i + 1)`` is called when batch i is done: after each of them, or ten times per second and after the last.
        """
        if self.takes(batches):
            loader = cast(DataLoader, batches)
            rates = [float(rate(i)) for i in range(first, first + len(loader))]
            return self.train_epoch(loader, rates, lambda done: poll(first + done))
        eta: Any = None
        last: Any = None
        for i, (X, T, *s) in enumerate(batches, first):
            if (now := rate(i)) is not last:
                last, eta = now, scalar(now, X) if isinstance(now, int | float) else now
            self(X, T, eta, *s)
            poll(i + 1)

    def train_epoch(self, loader: DataLoader, rates: list[float], poll: Poll) -> None:
        """Train on all batches of a loader that it takes, with these learning rates."""
        raise NotImplementedError


def scalar(rate: float, X: Array) -> Scalar:
    """A learning rate as a 0-d array beside the examples X."""
    like = values_of(X)
    return backend_of(like).scalar(rate, like)


def throttled(poll: Poll, last: int, is_urgent: Callable[[], object] = lambda: False) -> Poll:
    """`poll`, called ten times per second, after the last batch, and whenever it is urgent."""
    polled = time.monotonic()

    def throttled_poll(done: int) -> None:
        nonlocal polled
        if done == last or is_urgent() or time.monotonic() - polled >= POLL_INTERVAL:
            poll(done)
            polled = time.monotonic()

    return throttled_poll


class OwnRows(CompiledStep):
    """A training step that computes the rows of one rank; the order of the examples is that of one process."""

    @abstractmethod
    def rows(self, N: int) -> slice:
        """The rows of this rank of a batch of N."""

    @abstractmethod
    def run(self, N: int, eta: Scalar, *own: Array) -> None:
        """Train on these rows of a batch of N: X, T and maybe s."""

    def own_rows(self, *batch: Array) -> list[Array]:
        """The rows of this rank of a whole batch."""
        return [rows_of(A, self.rows(A.shape[0])) for A in batch]

    def __call__(self, X: Array, T: Array, eta: Scalar, *s: Array) -> None:
        self.run(X.shape[0], eta, *self.own_rows(X, T, *s))

    def takes_loader(self, loader: DataLoader) -> bool:
        return True

    def train_epoch(self, loader: DataLoader, rates: list[float], poll: Poll) -> None:
        """Train on every batch, of which only the own rows are read."""
        order, eta = loader.order(), None
        for i, start in enumerate(range(0, loader.size, loader.batch_size)):
            if eta is None or rates[i] != rates[i - 1]:
                eta = scalar(rates[i], loader.X)
            N = min(loader.batch_size, loader.size - start)
            rows = self.rows(N)
            self.run(N, eta, *loader.examples(start + rows.start, start + rows.stop, order))
            poll(i + 1)


class CompiledEvaluation(ABC):
    """A computation that does not change the state, such as feedforward in evaluation mode, for one batch at a time."""

    @abstractmethod
    def invalidate(self, computation: Computation, is_same: bool) -> None:
        """Go on with the computation as it is now; see `CompiledStep.invalidate`."""

    @abstractmethod
    def __call__(self, state: State, *inputs: Array) -> dict[str, Any]:
        """The outputs, such as 'Y' and, for an `Evaluation`, 'loss'; they are valid until the next call."""


class TracedEvaluation(CompiledEvaluation):
    """Feedforward, or an evaluation, compiled by XLA: `jit` traces functions, as `jax.jit` does."""

    def __init__(self, computation: Computation, jit: Callable[[Computation], Any]) -> None:
        self.jit = jit
        self.invalidate(computation, is_same=False)

    def invalidate(self, computation: Computation, is_same: bool) -> None:
        if not is_same:
            self.computation, self.compiled = computation, self.jit(computation)
            self.prepared: set[tuple] = set()

    def __call__(self, state: State, *inputs: Array) -> State:
        if signature(inputs) not in self.prepared:
            check_hidden_state(self.computation, state, *inputs)
            self.prepared.add(signature(inputs))
        return self.compiled(state, *inputs)


def signature(inputs: Iterable[Array | None]) -> tuple:
    """The types, shapes and dtypes of inputs, for which a computation is compiled."""
    return tuple((type(x), x.shape, x.dtype) for x in inputs if x is not None)


class Engine(ABC):
    """One way to run the computations of a model on the matrices of a backend."""

    groups: type[Group] | None = None  # in which it trains

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    @abstractmethod
    def step(self, step: Step, group: Any = None) -> CompiledStep:
        """The training step, ready to run; that of a rank in a group gets whole batches, and computes its rows."""

    @abstractmethod
    def evaluation(self, computation: Computation) -> CompiledEvaluation:
        """Feedforward, or another computation that does not change the state, ready to run."""

    def largest_products(self, A: np.ndarray, B: np.ndarray, taken: Support, count: int) -> np.ndarray:
        """The positions of the largest elements of a product; see `matgrad.sparse.rules.largest_products`."""
        return largest_products(A, B, taken, count)


# -- which engine runs a model: that of the backend it was moved to, or of its matrices ------------------------

# the module and class of each backend's engine, by the name that users know
ENGINES: dict[str, tuple[str, str]] = {
    "numpy": ("matgrad.engines.program", "ProgramEngine"),
    "torch": ("matgrad.engines.torch_engine", "TorchEngine"),
    "jax": ("matgrad.engines.jit", "JitEngine"),
    "tensorflow": ("matgrad.engines.xla", "XlaEngine"),
    "native": ("matgrad.engines.native", "NativeEngine"),
}


@cache
def get_engine(name: str) -> Engine:
    """The engine of the backend called `name`."""
    backend = get_backend(name)
    if name not in ENGINES:
        raise NotImplementedError(f"the backend {name} has no engine; known: {', '.join(ENGINES)}")
    module, class_name = ENGINES[name]
    return getattr(import_module(module), class_name)(backend)


def engine_of(M: MultilayerPerceptron) -> Engine:
    """The engine that runs the steps and evaluations of M."""
    return get_engine(M.engine)


def compile_step(M: MultilayerPerceptron, loss: LossFunction, *, clip_norm: float | None = None) -> CompiledStep:
    """The training step of M, compiled by its engine.

    >>> step = compile_step(M, loss)
    >>> step.load(M.state())
    >>> for X, T in batches: step(X, T, eta)
    >>> M.load_state(step.state())
    """
    return step_of(make_step(M, loss, clip_norm=clip_norm))


def step_of(step: Step) -> CompiledStep:
    """The training step, compiled by the engine of its model: for this process alone, or for a rank of its group."""
    group, engine = current(), engine_of(step.template)
    name, expected = engine.backend.name, engine.groups
    if group is not None and expected is None:
        raise TypeError(f"{name} has no training on several processes; expected jax, native, numpy or torch")
    if group is not None and expected is not None and not isinstance(group, expected):
        found = type(group).__name__
        raise TypeError(f"models on {name} train in a group from distributed.start(backend={name!r}), found {found}")
    return engine.step(step, group)
