"""Steps and evaluations compiled by M's engine or, with a warning, run equation by equation if that fails."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from matgrad.backends.base import Matrix, Scalar
from matgrad.engines.eager import EagerEvaluation, EagerStep
from matgrad.engines.engine import Batches, CompiledEvaluation, CompiledStep, Poll
from matgrad.engines.registry import engine_of
from matgrad.inspection.profiling import profile_of
from matgrad.layers.state import State
from matgrad.loss_functions import LossFunction
from matgrad.program.computations import Evaluation, Feedforward, Step
from matgrad.program.recorder import state_signatures
from matgrad.program.settings import settings
from matgrad.program.shapes import size_name

if TYPE_CHECKING:
    from matgrad.multilayer_perceptron import MultilayerPerceptron


class StepWithFallback(CompiledStep):
    """The compiled training step of M or, with a warning, its equations if it cannot be compiled.

    If M is profiled and the compiled step cannot measure how long its equations take, they run one by one.
    """

    step: CompiledStep

    def __init__(self, M: MultilayerPerceptron, loss: LossFunction, clip_norm: float | None = None) -> None:
        self.eager = EagerStep(M, loss, clip_norm)
        self._compile()
        M.forget()  # in compiled training, layers keep no matrices of a batch

    def load(self, state: Mapping[str, Matrix]) -> None:
        if self.step is not self.eager and self.settings != _fixed(self.eager.M, self.eager.loss):
            self._compile()  # because something other than the state has changed, such as a dropout rate
        self.step.load(state)

    def state(self) -> State:
        return self.step.state()

    def prepare(self, X: Matrix, T: Matrix) -> None:
        self.step.prepare(X, T)

    def __call__(self, X: Matrix, T: Matrix, eta: Scalar) -> None:
        try:
            self.step.prepare(X, T)
        except Exception as error:
            self.eager.load(self.step.state())
            self.eager(X, T, eta)  # raises the original error if the fault is in the model or the batch
            _warn("training", error)
            self.step = self.eager
        else:
            self.step(X, T, eta)

    def train(self, batches: Batches, rate: Callable[[int], Scalar], poll: Poll = lambda done: None) -> None:
        if self.step.takes_epochs and getattr(batches, "is_plain", False) and self._can_prepare(batches):
            self.step.train(batches, rate, poll)
        else:
            super().train(batches, rate, poll)

    def _can_prepare(self, loader: Any) -> bool:
        """Whether the step can be compiled for all batches, including the last; if not, a call of it shows why."""
        try:
            for i in {0, len(loader) - 1}:
                self.step.prepare(*loader.batch(i * loader.batch_size))
        except Exception:
            return False
        return True

    def _compile(self) -> None:
        M, loss = self.eager.M, self.eager.loss
        self.step = engine_of(M).step(Step(M, loss, self.eager.clip_norm))
        self.settings = _fixed(M, loss)
        profile = profile_of(M)
        if profile is not None and not profile.time(self.step):
            self.step = self.eager


class EvaluationWithFallback(CompiledEvaluation):
    """Feedforward, or an evaluation, of M: compiled or, with a warning, its equations if it cannot be compiled."""

    def __init__(self, M: MultilayerPerceptron, loss: LossFunction | None, compiled: bool) -> None:
        self.eager = EagerEvaluation(M, loss)
        self.current: CompiledEvaluation = self.eager
        if compiled:
            self.current = engine_of(M).evaluation(Feedforward(M) if loss is None else Evaluation(M, loss))

    def __call__(self, state: State, *inputs: Matrix) -> dict[str, Any]:
        try:
            return self.current(state, *inputs)
        except Exception as error:
            if self.current is self.eager:
                raise
            outputs = self.eager(state, *inputs)  # raises the original error if the fault is not the engine's
            _warn("evaluation", error)
            self.current = self.eager
            return outputs


class _Cache(threading.local):
    """The last evaluation of each model, without and with a loss, and what is fixed in it; each thread has its own."""

    def __init__(self) -> None:
        self.of_model: WeakKeyDictionary[MultilayerPerceptron, dict[bool, tuple[Any, EvaluationWithFallback]]]
        self.of_model = WeakKeyDictionary()


_cache = _Cache()


def evaluation_of(
    M: MultilayerPerceptron, loss: LossFunction | None = None, *, compiled: bool = True
) -> EvaluationWithFallback:
    """Feedforward of M in evaluation mode, and the loss if there is one; it is kept for the next call."""
    if not compiled:
        return EvaluationWithFallback(M, loss, compiled=False)
    kept, key = _cache.of_model.setdefault(M, {}), loss is None
    fixed = _fixed(M, loss)
    if key not in kept or kept[key][0] != fixed:
        kept[key] = fixed, EvaluationWithFallback(M, loss, compiled=True)
    return kept[key][1]


def _fixed(M: MultilayerPerceptron, loss: LossFunction | None) -> Any:
    """What is fixed in a compiled computation of M: its engine and device, its settings, and the shapes and dtypes of
    its state; supports are not fixed, nor are their numbers of elements.
    """
    model = M.clone().train()
    signatures = state_signatures(model.state())
    sizes = [(name, *map(size_name, shape), dtype) for name, (shape, dtype) in signatures.items()]
    aside = ("layers", "_checked", "information", "history")  # the layers follow, the others are not computed with
    own = {name: x for name, x in vars(M).items() if name not in aside}
    return M.engine, M.device, type(M), settings([own, *model.layers, loss]), sizes


def _warn(what: str, error: Exception) -> None:
    """Warn that the equations run one by one, and why; the warning points to the code that called the package."""
    reason = str(error).partition("\n")[0] or type(error).__name__
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "matgrad":
        frame, level = frame.f_back, level + 1
    warnings.warn(f"{what} continues uncompiled: {reason}", stacklevel=level)
