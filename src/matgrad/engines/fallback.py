"""Steps and evaluations compiled by M's engine or, with a warning, run equation by equation if that fails."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, ref

import numpy as np

from matgrad.backends import backend_of
from matgrad.backends.base import Array, RecordingError, Scalar
from matgrad.datasets.loader import DataLoader
from matgrad.distributed.group import Disagreement, current
from matgrad.engines.engine import CompiledStep, Poll, engine_of, step_of
from matgrad.inspection.profiling import profile_of
from matgrad.layers.base import check_sharing
from matgrad.layers.state import State, copied, matrices_of, sized_by_supports, supports_of
from matgrad.loss_functions import LossFunction, check_loss
from matgrad.program.computations import Evaluation, Feedforward, Step, train_batch
from matgrad.program.purity import Snapshot, isolated

if TYPE_CHECKING:
    from matgrad.multilayer_perceptron import MultilayerPerceptron


class TrainingStep(CompiledStep):
    """The training step of M: compiled or, if it is not to be or cannot be compiled, its equations one by one.

    It follows every change of a setting of M between two epochs. A step with code of users is recorded again in every
    epoch, and compared with its equations on the first batch of each size in epochs 1, 2, 4, 8 and so on. If M is
    profiled and the compiled step cannot measure how long its equations take, they run one by one.
    """

    compiled: CompiledStep | None = None  # None if the equations run one by one, in M itself
    reason = ""  # why the equations run one by one, unless that was asked for
    snapshot: Snapshot  # of M, its loss and the clip norm
    ready: Any  # the loader for whose batches it is compiled
    checked: set[Any]  # the sizes of batches for which it was found right
    earlier_seconds = 0.0  # for compiling steps that are no longer used
    loads: int  # how often a state was loaded, once per epoch

    def __init__(
        self, M: MultilayerPerceptron, loss: LossFunction, clip_norm: float | None = None, *, compiled: bool = True
    ) -> None:
        check_sharing(M.layers)
        check_loss(M, loss)
        self.M, self.loss, self.clip_norm = M, loss, clip_norm
        if compiled:
            self._compile()
            M.forget()  # in compiled training, layers keep no matrices of a batch
        else:
            _check_alone("compiled is False")

    @property
    def compilation_seconds(self) -> float:
        return self.earlier_seconds + (0.0 if self.compiled is None else self.compiled.compilation_seconds)

    def invalidate(self, step: Step, is_same: bool) -> None:
        """Do nothing: `load` does it."""

    def load(self, state: Mapping[str, Array], only_state: bool = False) -> None:
        """Copy the state in; what is no longer right is compiled again.

        `only_state` tells that nothing else of M has changed since the last time.
        """
        if self.compiled is not None and self.cache_key != cache_key(self.M, state):
            self.earlier_seconds = self.compilation_seconds
            self._compile()
        elif self.compiled is not None and not only_state:
            before, self.snapshot = self.snapshot, Snapshot(self.M, self.loss, self.clip_norm)
            if before != self.snapshot or not self.snapshot.is_builtin:
                self.ready = None
                self.compiled.invalidate(self._computation(), before == self.snapshot)
            self.loads += 1
            if self.loads & (self.loads - 1) == 0:
                self.checked.clear()
        if supports_of(state):  # whose sizes may have changed
            self.ready = None
        if self.compiled is None:
            self.M.load_state(state)
        else:
            self.compiled.load(state)

    def state(self) -> State:
        return self.M.state() if self.compiled is None else self.compiled.state()

    def prepare(self, X: Array, T: Array, *s: Array) -> None:
        """Compile the step for batches like these; if it is the user's, compare it with the equations."""
        if self.compiled is None:
            return
        self.compiled.prepare(X, T, *s)
        sizes = tuple(tuple(A.shape) for A in (X, T, *s))
        if sizes not in self.checked:
            if not self.snapshot.is_builtin:
                self._check(self.compiled, X, T, *s)
            self.checked.add(sizes)

    def __call__(self, X: Array, T: Array, eta: Scalar, *s: Array) -> None:
        if self.compiled is None:
            return self._run_equations(X, T, eta, *s)
        try:
            self.prepare(X, T, *s)
        except (ConnectionError, Disagreement, MemoryError):
            raise  # between ranks; and equations need more memory than a compiled step
        except Exception as error:
            self.M.load_state(self.compiled.state())
            self._run_equations(X, T, eta, *s)  # raises the original error if the fault is in the model or the batch
            self.reason = _reason(error)
            _check_alone(self.reason, error)
            _warn("training", error)
            self.compiled = None
        else:
            self.compiled(X, T, eta, *s)

    def _run_equations(self, X: Array, T: Array, eta: Scalar, *s: Array) -> None:
        """Train on one batch: the equations run one by one, and layers keep the matrices of the batch."""
        profile = profile_of(self.M)
        with nullcontext() if profile is None else profile.watching(self, X, T, *s):
            train_batch(self.M, self.loss, X, T, eta, self.clip_norm, *s)

    def takes(self, batches: Any) -> bool:
        """Whether the step can be compiled for all batches, including the last; if not, a call of it shows why."""
        if self.compiled is None or not self.compiled.takes(batches):
            return False
        try:
            for i in {0, len(batches) - 1} if self.ready is not batches else ():
                self.prepare(*batches.batch(i * batches.batch_size))
        except MemoryError:
            raise
        except Exception:
            return False
        self.ready = batches
        return True

    def train_epoch(self, loader: DataLoader, rates: list[float], poll: Poll) -> None:
        assert self.compiled is not None
        self.compiled.train_epoch(loader, rates, poll)

    def _check(self, step: CompiledStep, X: Array, T: Array, *s: Array) -> None:
        """Raise RecordingError if one compiled step does not change the state as the equations do."""
        before, eta = step.state(), self.M.scalar(RATE)
        M, loss = isolated(self.M, self.loss)
        M.load_state(copied(before))
        with np.errstate(all="ignore"):
            train_batch(M, loss, X, T, eta, self.clip_norm, *s)
        expected = M.state()
        if step.is_timed:  # the batches that it counts are those that are trained on
            step = step_of(self._computation())
            step.load(before)
        step(X, T, eta, *s)
        found = step.state()
        step.load(before)
        _compare(matrices_of(before), expected, found)

    def _computation(self) -> Step:
        return Step(self.M, self.loss, self.clip_norm)

    def _compile(self) -> None:
        self.compiled = step_of(self._computation())
        self.checked, self.loads, self.ready = set(), 0, None
        self.cache_key, self.snapshot = cache_key(self.M, self.M.state()), Snapshot(self.M, self.loss, self.clip_norm)
        profile = profile_of(self.M)
        if profile is not None and not profile.time(self.compiled):
            _check_alone(f"{self.M.engine} cannot measure the equations of a compiled step")
            self.compiled = None


RATE = 0.01  # the learning rate with which a step is compared with its equations
TOLERANCES = {"float32": 1e-3, "float64": 1e-8}  # relative to the largest change of a matrix


def _compare(before: State, expected: State, found: State) -> None:
    """Raise RecordingError if what was found for some matrices is not what was expected."""
    names = [name for name in before if not _agree(before[name], expected[name], found[name])]
    if names:
        raise RecordingError(f"compiled, it computes something else than the equations for {', '.join(names)}")


def _agree(*matrices: Array) -> bool:
    """Whether a step changes a matrix, from A, to what its equations give, B, up to rounding: found is C."""
    backend = backend_of(matrices[0])
    tolerance = TOLERANCES.get(backend.dtype(matrices[0]), 0.0)
    A, B, C = (np.asarray(backend.to_numpy(X) if hasattr(X, "shape") else X, np.float64) for X in matrices)
    scale = max(np.nanmax(np.abs(B - A), initial=0.0), 1e-3 * np.nanmax(np.abs(B), initial=0.0))
    with np.errstate(invalid="ignore"):
        return bool(np.all((np.abs(C - B) <= tolerance * scale) | (B == C) | (np.isnan(B) & np.isnan(C))))


class EvaluationWithFallback:
    """A computation of M: compiled or, if it is not to be or cannot be compiled, its equations one by one."""

    def __init__(self, kind: type[Any], M: MultilayerPerceptron, loss: Any, compiled: bool) -> None:
        self.kind, self.M, self.loss = kind, ref(M), loss  # it may be kept as long as M is
        self.compiled = engine_of(M).evaluation(kind(M, loss)) if compiled else None
        self.is_checked = True  # whether a batch agreed with the equations, or all code is the package's

    def __call__(self, state: State, *inputs: Array) -> dict[str, Any]:
        """The outputs for one batch, such as 'Y' and 'loss'; they are valid until the next call."""
        if self.compiled is None:
            return self._by_equations(state, *inputs)
        try:
            outputs = self.compiled(state, *inputs)
            if not self.is_checked:
                expected = self._by_equations(state, *inputs)
                _compare(expected, expected, outputs)
                self.is_checked = True
        except MemoryError:
            raise
        except Exception as error:
            outputs = self._by_equations(state, *inputs)  # raises the original error if the fault is not the engine's
            _warn("evaluation", error)
            self.compiled = None
        return outputs

    def _by_equations(self, state: State, *inputs: Array) -> State:
        """The outputs, computed in a clone of M as it is now."""
        return self.kind(self.M(), self.loss)(state, *inputs)


_cache = threading.local()  # the last evaluation of each kind of each model; each thread has its own


def evaluation_of(
    M: MultilayerPerceptron,
    loss: LossFunction | None = None,
    kind: type[Any] | None = None,
    *,
    compiled: bool = True,
    state: State | None = None,
) -> EvaluationWithFallback:
    """A computation of M, which is kept for the next call and follows every change of M.

    By default it is feedforward in evaluation mode, and the loss if there is one.
    """
    kind = kind or (Feedforward if loss is None else Evaluation)
    if not compiled:
        return EvaluationWithFallback(kind, M, loss, compiled=False)
    kept = vars(_cache).setdefault("of_model", WeakKeyDictionary()).setdefault(M, {})
    key, snapshot = (cache_key(M, M.state() if state is None else state), type(loss)), Snapshot(M, loss)
    known, before, evaluation = kept.get(kind, (None, None, None))
    if known != key:
        evaluation = EvaluationWithFallback(kind, M, loss, compiled=True)
    elif before != snapshot or not snapshot.is_builtin:
        evaluation.is_checked = False  # the first batch is compared with the equations
        if evaluation.compiled is not None:
            evaluation.compiled.invalidate(kind(M, loss), before == snapshot)
    evaluation.loss = loss
    evaluation.is_checked &= snapshot.is_builtin
    kept[kind] = key, snapshot, evaluation
    return evaluation


def cache_key(M: MultilayerPerceptron, state: Mapping[str, Any]) -> Any:
    """What a compiled computation of M cannot follow: its engine, device and products, sizes and dtypes of its state.

    Supports may change, and so may their numbers of elements.
    """
    sized = sized_by_supports(state)
    sizes = [(name, None if name in sized else (X.shape, getattr(X, "dtype", None))) for name, X in state.items()]
    return M.engine, M.device, M.matmul, sizes


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
    """Raise RecordingError on several ranks: equations that run one by one would train a model on each."""
    group = current()
    if group is not None and group.size > 1:
        raise RecordingError(f"training on {group.size} ranks needs a compiled step: {reason}") from cause
