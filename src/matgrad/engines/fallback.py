"""Steps and evaluations compiled by M's engine or, with a warning, run equation by equation if that fails."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from matgrad.backends import backend_of
from matgrad.backends.base import Matrix, RecordingError, Scalar
from matgrad.distributed.group import Disagreement, current
from matgrad.engines.eager import EagerEvaluation, EagerStep
from matgrad.engines.engine import Batches, CompiledEvaluation, CompiledStep, Poll
from matgrad.engines.registry import engine_of, step_of
from matgrad.inspection.profiling import profile_of
from matgrad.layers.state import State, copied, matrices_of
from matgrad.loss_functions import LossFunction
from matgrad.program.computations import Computation, Evaluation, Feedforward, GradientFactors, Step, train_batch
from matgrad.program.recorder import state_signatures
from matgrad.program.shapes import size_name
from matgrad.program.surroundings import Surroundings, is_own, preserved

if TYPE_CHECKING:
    from matgrad.multilayer_perceptron import MultilayerPerceptron


def training_step(
    M: MultilayerPerceptron, loss: LossFunction, clip_norm: float | None = None, *, compiled: bool = True
) -> CompiledStep:
    """The training step of M, which follows every change of M: compiled, or its equations."""
    if compiled:
        return StepWithFallback(M, loss, clip_norm)
    _check_alone("compiled is False")
    return EagerStep(M, loss, clip_norm)


class StepWithFallback(CompiledStep):
    """The compiled training step of M or, with a warning, its equations if it cannot be compiled.

    It follows every change of M between two epochs. A step with code from outside the package is compared with its
    equations on the first batch of each size, in epochs 1, 2, 4, 8 and so on. If M is profiled and the compiled step
    cannot measure how long its equations take, they run one by one.
    """

    step: CompiledStep
    checked: set[Any]  # the sizes of batches for which it was found right
    earlier_seconds = 0.0  # for compiling steps that are no longer used
    loads: int  # how often a state was loaded, once per epoch

    def __init__(self, M: MultilayerPerceptron, loss: LossFunction, clip_norm: float | None = None) -> None:
        self.eager = EagerStep(M, loss, clip_norm)
        self._compile()
        M.forget()  # in compiled training, layers keep no matrices of a batch

    @property
    def compilation_seconds(self) -> float:
        return self.earlier_seconds + self.step.compilation_seconds

    def renew(self, step: Step, is_same: bool) -> None:
        """Do nothing: `load` does it."""

    def load(self, state: Mapping[str, Matrix], only_state: bool = False) -> None:
        """Copy the state in; unless nothing else of M has changed, what is no longer right is compiled again."""
        M, loss = self.eager.M, self.eager.loss
        if self.step is not self.eager:
            if self.frame != _frame(M):
                self.earlier_seconds = self.compilation_seconds
                self._compile()
            elif not only_state:
                is_same = self.look.is_same(M, loss)
                if not (is_same and is_own(M, loss)):
                    self.step.renew(self._computation(), is_same)
                self.loads += 1
                if self.loads & (self.loads - 1) == 0:
                    self.checked.clear()
        self.step.load(state)

    def state(self) -> State:
        return self.step.state()

    def prepare(self, X: Matrix, T: Matrix, *s: Matrix) -> None:
        """Compile the step for batches like these; if it is the user's, compare it with the equations."""
        self.step.prepare(X, T, *s)
        sizes = tuple(tuple(A.shape) for A in (X, T, *s))
        if sizes not in self.checked:
            if self.step is not self.eager and not is_own(self.eager.M, self.eager.loss):
                self._check(X, T, *s)
            self.checked.add(sizes)

    def __call__(self, X: Matrix, T: Matrix, eta: Scalar, *s: Matrix) -> None:
        try:
            self.prepare(X, T, *s)
        except (ConnectionError, Disagreement, MemoryError):
            raise  # between ranks; and equations need more memory than a compiled step
        except Exception as error:
            self.eager.load(self.step.state())
            self.eager(X, T, eta, *s)  # raises the original error if the fault is in the model or the batch
            _check_alone(_reason(error), error)
            _warn("training", error)
            self.step = self.eager
        else:
            self.step(X, T, eta, *s)

    def train(
        self,
        batches: Batches,
        rate: Callable[[int], Scalar],
        poll: Poll = lambda done: None,
        first: int = 0,
    ) -> None:
        if self.step.takes_epochs and getattr(batches, "is_plain", False) and self._can_prepare(batches):
            self.step.train(batches, rate, poll, first)
        else:
            super().train(batches, rate, poll, first)

    def _can_prepare(self, loader: Any) -> bool:
        """Whether the step can be compiled for all batches, including the last; if not, a call of it shows why."""
        try:
            for i in {0, len(loader) - 1}:
                self.prepare(*loader.batch(i * loader.batch_size))
        except MemoryError:
            raise
        except Exception:
            return False
        return True

    def _check(self, X: Matrix, T: Matrix, *s: Matrix) -> None:
        """Raise RecordingError if one compiled step does not change the state as the equations do in M itself."""
        M, loss, eta, before = self.eager.M, self.eager.loss, self.eager.M.scalar(RATE), self.step.state()
        kept = M.state()
        with preserved(M, loss), np.errstate(all="ignore"):
            M.load_state(copied(before))
            try:
                train_batch(M, loss, X, T, eta, self.eager.clip_norm, *s)
                expected = M.state()
            finally:
                M.load_state(kept)
                M.forget()
        step = self.step
        if step.is_timed:  # the batches that it counts are those that are trained on
            step = step_of(self._computation())
            step.load(before)
        step(X, T, eta, *s)
        found = step.state()
        step.load(before)
        _compare(matrices_of(before), expected, found)

    def _computation(self) -> Step:
        return Step(self.eager.M, self.eager.loss, self.eager.clip_norm)

    def _compile(self) -> None:
        M, loss = self.eager.M, self.eager.loss
        self.step = step_of(self._computation())
        self.checked, self.loads = set(), 0
        self.frame, self.look = _frame(M), _Look(M, loss)
        profile = profile_of(M)
        if profile is not None and not profile.time(self.step):
            _check_alone(f"{M.engine} cannot measure the equations of a compiled step")
            self.step = self.eager


RATE = 0.01  # the learning rate with which a step is compared with its equations
TOLERANCES = {"float32": 1e-3, "float64": 1e-8}  # relative to the largest change of a matrix


def _compare(before: State, expected: State, found: State) -> None:
    """Raise RecordingError if what was found for some matrices is not what was expected."""
    names = [name for name in before if not _agree(before[name], expected[name], found[name])]
    if names:
        raise RecordingError(f"compiled, it computes something else than the equations for {', '.join(names)}")


def _agree(before: Matrix, expected: Matrix, found: Matrix) -> bool:
    """Whether a step changes a matrix as its equations do, up to rounding."""
    backend = backend_of(before)
    tolerance = TOLERANCES.get(backend.dtype(before), 0.0)
    A, B, C = (
        np.asarray(backend.to_numpy(X) if hasattr(X, "shape") else X, np.float64) for X in (before, expected, found)
    )
    scale = max(np.nanmax(np.abs(B - A), initial=0.0), 1e-3 * np.nanmax(np.abs(B), initial=0.0))
    with np.errstate(invalid="ignore"):
        return bool(np.all((np.abs(C - B) <= tolerance * scale) | (B == C) | (np.isnan(B) & np.isnan(C))))


class EvaluationWithFallback(CompiledEvaluation):
    """A computation of M: compiled or, with a warning, its equations if it cannot be compiled."""

    def __init__(
        self, kind: type[Feedforward | GradientFactors], M: MultilayerPerceptron, loss: Any, compiled: bool
    ) -> None:
        self.eager = EagerEvaluation(kind, M, loss)
        self.current: CompiledEvaluation = self.eager
        self.is_checked = False  # whether the last batch, or one before it, agreed with the equations
        if compiled:
            self.current = engine_of(M).evaluation(kind(M, loss))

    def renew(self, computation: Computation, is_same: bool) -> None:
        """Go on with the computation as it is now; its first batch is compared with the equations."""
        self.current.renew(computation, is_same)
        self.is_checked = is_own(computation.template, computation.loss)

    def __call__(self, state: State, *inputs: Matrix) -> dict[str, Any]:
        if self.current is self.eager:
            return self.eager(state, *inputs)
        try:
            outputs = self.current(state, *inputs)
            if not self.is_checked:
                expected = self.eager(state, *inputs)
                _compare(expected, expected, outputs)
                self.is_checked = True
        except MemoryError:
            raise
        except Exception as error:
            outputs = self.eager(state, *inputs)  # raises the original error if the fault is not the engine's
            _warn("evaluation", error)
            self.current = self.eager
        return outputs


class _Cache(threading.local):
    """The last evaluation of each kind of each model; each thread has its own."""

    def __init__(self) -> None:
        self.of_model: WeakKeyDictionary[MultilayerPerceptron, dict[type, tuple[Any, _Look, EvaluationWithFallback]]]
        self.of_model = WeakKeyDictionary()


_cache = _Cache()


def evaluation_of(
    M: MultilayerPerceptron, loss: LossFunction | None = None, *, compiled: bool = True
) -> EvaluationWithFallback:
    """Feedforward of M in evaluation mode, and the loss if there is one; it is kept for the next call."""
    return _compiled(Feedforward if loss is None else Evaluation, M, loss, compiled)


def gradient_factors_of(
    M: MultilayerPerceptron, loss: LossFunction, *, compiled: bool = True
) -> EvaluationWithFallback:
    """The factors of the gradients of M's sparse parameters; it is kept for the next call."""
    return _compiled(GradientFactors, M, loss, compiled)


def _compiled(
    kind: type[Feedforward | GradientFactors], M: MultilayerPerceptron, loss: Any, compiled: bool
) -> EvaluationWithFallback:
    """A computation of M, which is kept for the next call and follows every change of M."""
    if not compiled:
        return EvaluationWithFallback(kind, M, loss, compiled=False)
    kept, frame = _cache.of_model.setdefault(M, {}), (_frame(M), type(loss))
    if kind not in kept or kept[kind][0] != frame:
        kept[kind] = frame, _Look(M, loss), EvaluationWithFallback(kind, M, loss, compiled=True)
    _, look, evaluation = kept[kind]
    evaluation.renew(kind(M, loss), look.is_same(M, loss))
    return evaluation


def _frame(M: MultilayerPerceptron) -> Any:
    """What a compiled computation of M cannot follow: its engine, device and products, sizes and dtypes of its state.

    Supports may change, and so may their numbers of elements.
    """
    signatures = state_signatures(M.state())
    sizes = [(name, *map(size_name, shape), dtype) for name, (shape, dtype) in signatures.items()]
    return M.engine, M.device, M.matmul, sizes


class _Look:
    """A look at M and its loss, to see later whether anything has changed."""

    def __init__(self, M: MultilayerPerceptron, loss: LossFunction | None) -> None:
        self._take(M, loss)

    def is_same(self, M: MultilayerPerceptron, loss: LossFunction | None) -> bool:
        """Whether nothing has changed since the last look; False if that cannot be seen."""
        is_same = self.surroundings is not None and not self.surroundings.changes() and self.loss is loss
        if not is_same:
            self._take(M, loss)
        return is_same

    def _take(self, M: MultilayerPerceptron, loss: LossFunction | None) -> None:
        self.loss = loss
        try:
            self.surroundings: Surroundings | None = Surroundings(M, loss, generators=False)
        except Exception:  # also from code of users, such as a property that fails
            self.surroundings = None


def _warn(what: str, error: Exception) -> None:
    """Warn that the equations run one by one, and why; the warning points to the code that called the package."""
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "matgrad":
        frame, level = frame.f_back, level + 1
    warnings.warn(f"{what} continues uncompiled: {_reason(error)}", stacklevel=level)


def _reason(error: Exception) -> str:
    """An error in one line."""
    return str(error).partition("\n")[0] or type(error).__name__


def _check_alone(reason: str, cause: Exception | None = None) -> None:
    """Refuse to run equations one by one on several ranks, each of which would train a model of its own."""
    group = current()
    if group is not None and group.size > 1:
        raise RecordingError(f"training on {group.size} ranks needs a compiled step: {reason}") from cause
