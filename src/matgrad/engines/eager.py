"""Eager execution: the equations run one by one in the model, whose layers keep the matrices of the last batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING
from weakref import ref

from matgrad.backends.base import Matrix, Scalar
from matgrad.engines.engine import CompiledEvaluation, CompiledStep
from matgrad.inspection.profiling import profile_of
from matgrad.layers.checks import check_sharing
from matgrad.layers.state import State
from matgrad.loss_functions import LossFunction, check_loss
from matgrad.program.computations import Computation, Step, train_batch

if TYPE_CHECKING:
    from matgrad.multilayer_perceptron import MultilayerPerceptron


class EagerStep(CompiledStep):
    """The training step of M: its equations run one by one in M itself."""

    def __init__(self, M: MultilayerPerceptron, loss: LossFunction, clip_norm: float | None = None) -> None:
        check_sharing(M.layers)
        check_loss(M, loss)
        self.M, self.loss, self.clip_norm = M, loss, clip_norm

    def invalidate(self, step: Step, is_same: bool) -> None:
        """Do nothing: M is always as it is now."""

    def load(self, state: Mapping[str, Matrix], only_state: bool = False) -> None:
        self.M.load_state(state)

    def state(self) -> State:
        return self.M.state()

    def prepare(self, X: Matrix, T: Matrix, *s: Matrix) -> None:
        """Do nothing: there is nothing to compile."""

    def __call__(self, X: Matrix, T: Matrix, eta: Scalar, *s: Matrix) -> None:
        profile = profile_of(self.M)
        with nullcontext() if profile is None else profile.watching(self, X, T, *s):
            train_batch(self.M, self.loss, X, T, eta, self.clip_norm, *s)


class EagerEvaluation(CompiledEvaluation):
    """A computation of M: the equations run one by one, in a clone of M as it is at the time."""

    def __init__(self, kind: Callable[..., Computation], M: MultilayerPerceptron, loss: LossFunction | None) -> None:
        self.kind, self.M, self.loss = kind, ref(M), loss  # it may be kept as long as M is

    def invalidate(self, computation: Computation, is_same: bool) -> None:
        """Do nothing: M is always as it is now."""

    def __call__(self, state: State, *inputs: Matrix) -> State:
        M = self.M()
        assert M is not None
        return self.kind(M, self.loss)(state, *inputs)
