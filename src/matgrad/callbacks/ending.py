"""What ends a run before its last epoch, such as divergence and signals, and the checkpoints that resume it."""

from __future__ import annotations

import math
import re
import signal
import threading
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import FrameType, MappingProxyType
from typing import TYPE_CHECKING, Any

from matgrad.backends import convert
from matgrad.callbacks.callback import Callback
from matgrad.datasets.checking import all_finite
from matgrad.foundation.numbers import check_size
from matgrad.foundation.writing import PREFIX
from matgrad.layers.state import State, matrices_of
from matgrad.storage.checkpoints import BEST, FILES, checkpoint_files, read_checkpoint, step_of, write_checkpoint
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


class Checkpoints(Callback):
    """Writes checkpoints to a folder: at the start, after every few epochs or steps, and at the end.

    `every` is a number of epochs, or of steps with a suffix, such as ``"500s"`` or ``"500 steps"``. The newest `keep`
    checkpoints stay; ``best.safetensors`` is the one with the smallest `measure`, if that is measured. Ctrl-C and
    SIGTERM write one too. A warning says what cannot be written, and training continues; `failure` has the error
    of the last one.
    `record` is kept in every file. If the folder has checkpoints of another run, it is an error or, with `overwrite`,
    emptied.

    ``M.fit(X, T, resume=folder)``, with the same callbacks, resumes from the newest good one.
    """

    only_first = True
    place = 3
    state_names = MappingProxyType({"best": float | None})

    def __init__(
        self,
        folder: str | Path,
        every: int | str = 1,
        keep: int = 3,
        *,
        measure: str = "validation_loss",
        overwrite: bool = False,
        record: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self.folder, self.measure, self.record = Path(folder), measure, record
        self.every, self.wants_batches = parse_interval(every)
        self.interval = self.every if self.wants_batches else 1
        self.keep, self.overwrite = check_size("keep", keep), overwrite
        self.best: float | None = None  # the smallest measure so far
        self.failure: OSError | None = None
        self._written = -1  # the step of the last one

    def start(self, run: Training) -> None:
        self._open(run)
        self.best = None
        self._write(run)

    def resume(self, run: Training, state: Mapping[str, Any]) -> None:
        self._open(run)
        self.restore(state)
        self._written = run.step

    def batch(self, run: Training) -> None:
        if run.batch != run.batches:  # the last one is followed by `epoch`
            self._write(run)

    def epoch(self, run: Training) -> None:
        if run.is_rescued:  # the model has diverged
            return
        value, before = run.row.get(self.measure, math.nan), self.best
        if math.isfinite(value) and (before is None or value < before):
            self.best = value  # which is written too
            if not self._write(run, self.folder / BEST):
                self.best = before
        count = run.step if self.wants_batches else run.epoch
        if count % self.every == 0 or run.is_stopped or run.epoch == run.epochs:
            self._write(run)

    def end(self, run: Training) -> None:
        if run.is_stopped and not run.is_rescued and self._written != run.step:
            self._write(run)

    def _open(self, run: Training) -> None:
        """Make the folder, without what killed runs have left; it may have no checkpoints of others, nor later ones."""
        self.folder.mkdir(exist_ok=True)
        for file in self.folder.glob(f"{PREFIX}*"):
            file.unlink(missing_ok=True)
        files = [file for file in (self.folder / BEST, *checkpoint_files(self.folder)) if file.exists()]
        if run.resumed_from is not None and run.resumed_from.resolve().parent == self.folder.resolve():
            files = [file for file in files if step_of(file) > run.step and _is_good(file)]
        elif self.overwrite:
            while files:
                files.pop().unlink()
        if files:
            found = f"has {files[-1].name} of another run"
            raise ValueError(f"{self.folder}: {found}; expected a new folder, or to resume from this one")

    def _write(self, run: Training, file: Path | None = None) -> bool:
        """Write a checkpoint of a model that is finite, and remove the oldest; returns whether that could be done."""
        try:
            if wrong := not_finite(run.M):
                raise OSError(wrong)
            place = file or self.folder / FILES.replace("*", f"{run.step:08}")
            if place.is_symlink():
                place.unlink()
            write_checkpoint(place, run.M, run.snapshot(), self.record)
            self.failure = None
        except OSError as error:
            self.failure = error
            warnings.warn(f"no checkpoint after step {run.step}: {error}; training continues", stacklevel=2)
            return False
        if file is None:
            self._written = run.step
            done = [old for old in checkpoint_files(self.folder) if step_of(old) <= run.step]
            for old in done[: -self.keep]:
                with suppress(OSError):
                    old.unlink()
        return True


def parse_interval(every: int | str) -> tuple[int, bool]:
    """The number in ``5``, ``"5"``, ``"5 epochs"``, ``"500s"`` or ``"500 steps"``, and whether it counts steps."""
    match = re.fullmatch(r"([1-9][0-9]{0,11}) *(e|epochs?|s|steps?)?", str(every))
    if match is None or isinstance(every, bool):
        raise ValueError(f"every: expected a number of epochs such as 5, or of steps such as 500s, found {every!r}")
    return int(match[1]), (match[2] or "e").startswith("s")


def _is_good(file: Path) -> bool:
    """Whether a checkpoint can be read."""
    with suppress(ValueError):
        return bool(read_checkpoint(file))
    return False
