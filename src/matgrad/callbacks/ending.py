"""What ends a run before its last epoch: early stopping, divergence and signals."""

from __future__ import annotations

import math
import signal
import threading
import warnings
from collections.abc import Mapping
from types import FrameType, MappingProxyType
from typing import TYPE_CHECKING, Any

from matgrad.backends import convert
from matgrad.callbacks.callback import Callback
from matgrad.datasets.checking import all_finite
from matgrad.foundation.numbers import check_size
from matgrad.layers.state import State, matrices_of
from matgrad.storage.models import on_backend

if TYPE_CHECKING:
    from matgrad.multilayer_perceptron import MultilayerPerceptron
    from matgrad.training import Training


class EarlyStopping(Callback):
    """Stop when a measure has not decreased for `patience` epochs, and keep the model for which it was smallest.

    If the run diverges after such an epoch, it ends with a warning, and the best model is kept as well.
    """

    state_names = MappingProxyType({"best": float | None, "best_epoch": int, "_state": dict[str, Any]})

    best: float | None = None  # the smallest value of the measure so far, of which epoch, and the model then
    best_epoch: int
    _state: State

    def __init__(self, patience: int, measure: str = "validation_loss") -> None:
        self.patience, self.measure = check_size("patience", patience), measure

    def start(self, run: Training) -> None:
        self.best, self.best_epoch, self._state = None, 0, {}

    def resume(self, run: Training, state: Mapping[str, Any]) -> None:
        super().resume(run, state)
        self._state = on_backend(self._state, run.M)

    def epoch(self, run: Training) -> None:
        if self.measure not in run.row:
            raise ValueError(f"early stopping: no {self.measure} is measured, only {', '.join(run.row)}")
        if (problem := divergence(run)) is not None:
            if self.best is not None:  # a model to keep
                kept = f"{self.measure.replace('_', ' ')} {self.best:.4f}"
                warnings.warn(f"{problem}; kept the model of epoch {self.best_epoch}, with {kept}", stacklevel=2)
                run.is_rescued = True
                run.stop()
            return
        value = run.row[self.measure]
        if math.isfinite(value) and (self.best is None or value < self.best):
            M, state = run.M, run.M.state()
            copies = {name: convert(X, M.backend, None, M.device) for name, X in matrices_of(state).items()}
            self.best, self.best_epoch, self._state = value, run.epoch, state | copies
        if run.epoch - self.best_epoch >= self.patience:
            run.stop()

    def end(self, run: Training) -> None:
        if self.best is not None:
            run.M.load_state(self._state)


def divergence(run: Training) -> str | None:
    """What is not finite after the last epoch: its loss or, if that was not measured, a parameter."""
    loss = run.row.get("loss")
    what = not_finite(run.M) if loss is None else None if math.isfinite(loss) else f"the loss is {loss}"
    return None if what is None else diverged(what, run.epoch)


def diverged(what: str, epoch: int) -> str:
    """The message of a run that has diverged."""
    return f"{what} after epoch {epoch}: a smaller learning rate or clipping may help"


def not_finite(M: MultilayerPerceptron) -> str | None:
    """Which matrix of the state of M has elements that are not finite, in words, if one has."""
    found = (name for name, X in matrices_of(M.state()).items() if not all_finite(M.backend.to_numpy(X)))
    return next((f"{name} has elements that are not finite" for name in found), None)


class Interruption(Callback):
    """Lets Ctrl-C, or another signal, end training between two batches; a second one ends it at once."""

    place = 2

    def __init__(self, number: int = signal.SIGINT) -> None:
        self.number = number
        self.is_requested = False
        self._previous: Any = None

    def start(self, run: Training) -> None:
        in_main_thread = threading.current_thread() is threading.main_thread()  # others get no signals
        if in_main_thread and signal.getsignal(self.number) not in (None, signal.SIG_IGN):
            self._previous = signal.signal(self.number, self._request)

    def poll(self, run: Training) -> None:
        if self.is_requested:
            run.interrupt()

    epoch = poll

    def end(self, run: Training) -> None:
        if self._previous is not None:
            signal.signal(self.number, self._previous)
            self._previous = None

    def _request(self, number: int, frame: FrameType | None) -> None:
        if self.is_requested:
            raise KeyboardInterrupt
        self.is_requested = True
