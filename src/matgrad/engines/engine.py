"""What an engine supplies: training steps and evaluations that run on the matrices of a backend."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from matgrad.backends.base import Backend, Matrix, Scalar
from matgrad.layers.state import State
from matgrad.program.computations import Feedforward, Step

Batches = Iterable[tuple[Matrix, Matrix]]
Poll = Callable[[int], None]  # gets the number of batches done in this epoch; may raise an error to stop there


class CompiledStep(ABC):
    """A training step with a state of its own, which every batch changes."""

    takes_epochs = False  # whether `train` runs whole epochs instead of calling the step for every batch
    can_be_timed = False  # whether it can measure the seconds of every equation
    is_timed = False  # whether it measures them

    @abstractmethod
    def renew(self, step: Step, is_same: bool) -> None:
        """Go on with the step as it is now: what is no longer right is compiled again when it is next needed.

        `is_same` tells that nothing is known to have changed.
        """

    @abstractmethod
    def load(self, state: Mapping[str, Matrix]) -> None:
        """Copy the state in."""

    @abstractmethod
    def state(self) -> State:
        """A copy of the state."""

    @abstractmethod
    def prepare(self, X: Matrix, T: Matrix) -> object:
        """Compile the step for batches like X and T, without changing the state."""

    @abstractmethod
    def __call__(self, X: Matrix, T: Matrix, eta: Scalar) -> None:
        """Train on one batch with learning rate η."""

    def train(self, batches: Batches, rate: Callable[[int], Scalar], poll: Poll = lambda done: None) -> None:
        """Train on every batch, the i-th with learning rate η = rate(i).

        ``poll(i)`` is called when i batches are done: after each of them, or ten times per second.
        """
        for i, (X, T) in enumerate(batches):
            self(X, T, rate(i))
            poll(i + 1)


class CompiledEvaluation(ABC):
    """Feedforward in evaluation mode, with or without a loss, for one batch at a time."""

    @abstractmethod
    def renew(self, computation: Feedforward, is_same: bool) -> None:
        """Go on with the computation as it is now; see `CompiledStep.renew`."""

    @abstractmethod
    def __call__(self, state: State, *inputs: Matrix) -> dict[str, Any]:
        """The outputs 'Y' and, for an `Evaluation`, 'loss'; they are valid until the next call."""


class Engine(ABC):
    """One way to run the computations of a model on the matrices of a backend."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    @abstractmethod
    def step(self, step: Step) -> CompiledStep:
        """The training step, ready to run."""

    @abstractmethod
    def evaluation(self, computation: Feedforward) -> CompiledEvaluation:
        """Feedforward, or an evaluation, ready to run."""
