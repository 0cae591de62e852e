"""What callbacks see of a run of training, and may change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from matgrad.backends import backend_of
from matgrad.backends.base import Array
from matgrad.callbacks import Callback
from matgrad.datasets import DataLoader
from matgrad.distributed.group import Alone, Request, current
from matgrad.engines.engine import Batches
from matgrad.engines.fallback import TrainingStep
from matgrad.foundation.imports import deferred
from matgrad.foundation.numbers import check_size
from matgrad.layers.state import State
from matgrad.loss_functions import LossFunction, check_loss, check_target_values, check_weighable
from matgrad.storage.checkpoints import RunState

if TYPE_CHECKING:
    from matgrad.multilayer_perceptron import MultilayerPerceptron

Data = Batches | Callable[[int], Batches]  # the batches of every epoch, or those of epoch i = 0, 1, …

EPOCHS, BATCH_SIZE, LEARNING_RATE = 20, 50, 0.05  # defaults


class History(dict[str, list]):
    """One value per epoch of 'loss', 'accuracy', 'validation_loss', 'seconds' …; in a notebook a table and a plot."""

    compilation_seconds = 0.0  # of compiling, as far as they are known, since training began or was resumed

    _repr_html_ = deferred("matgrad.explanation.histories", "history_html")


class RunView:
    """A run of training as callbacks see it: its model, loss and data, how far it is, and what was measured."""

    M: MultilayerPerceptron  # with the current parameters in `batch` and `epoch`, where changes count
    X: Array  # the last batch, unless the engine trains whole epochs by itself
    T: Array
    s: list[Array]  # its weights, [s], or [] if it has none
    state: State  # of M before that batch; in compiled training, when the epoch began
    learning_rate: float  # of the last step or, when an epoch begins, of its first
    epoch = batch = step = 0  # finished epochs, batches of this epoch, batches of all epochs
    batches: int | None = None  # of this epoch, if known
    examples = 0  # of this epoch so far
    seconds = 0.0  # of training: compiling, loading and steps, without callbacks such as statistics
    is_stopped = is_interrupted = False
    is_rescued = False  # whether the run diverged, but a callback keeps an earlier model
    callbacks: Sequence[Callback] = ()  # in the order in which they are called
    resumed_from: Path | None = None  # the file of the checkpoint from which this run is resumed

    _step: TrainingStep
    _epoch_data: Batches
    _start_of_epoch: float  # as time.perf_counter() has it, moved on by the time that callbacks take
    _end_of_part: int | None  # the number of its last batch, if it is known
    _is_watched: bool  # whether the callbacks are called after each batch, and not after parts of an epoch
    _is_in_epoch = False
    _resumed: RunState | None = None  # what the checkpoint has, until its epoch is resumed
    _order: dict[str, Any] | None = None  # the generator of the data before the order of this epoch
    _generator: dict[str, Any] | None = None  # the state of the other one when the checkpoint was written

    def __init__(
        self,
        M: MultilayerPerceptron,
        loss: LossFunction,
        data: Data,
        epochs: int = EPOCHS,
        learning_rate: Callable[[int], float] = lambda i: LEARNING_RATE,
        per_step: bool = False,
        clip_norm: float | None = None,
        compiled: bool = True,
    ) -> None:
        self.M, self.data, self.loss, self.compiled = M, data, loss, compiled
        self.epochs, self.clip_norm = check_size("epochs", epochs, least=0), clip_norm
        self._schedule, self.per_step = learning_rate, per_step
        self.rows: list[dict[str, Any]] = []  # one per epoch
        self.group = current() or Alone()  # of the ranks that train together
        self.group.asked = self.group.heard = Request.NONE

    @property
    def loss(self) -> LossFunction:
        """The loss; another one counts from the next batch on."""
        return self._loss

    @loss.setter
    def loss(self, loss: LossFunction) -> None:
        check_loss(self.M, loss)
        if isinstance(data := self.data, DataLoader):
            if data.labels is None:
                check_target_values(self.M, backend_of(data.T).to_numpy(data.T), loss)
            if data.weights is not None:
                check_weighable(loss)
        self._loss = loss

    @property
    def row(self) -> dict[str, Any]:
        """The values of the last epoch, by name."""
        return self.rows[-1]

    @property
    def history(self) -> History:
        """The values of all epochs, by name."""
        names = dict.fromkeys(name for row in self.rows for name in row)
        history = History((name, [row[name] for row in self.rows if name in row]) for name in names)
        history.compilation_seconds = self._step.compilation_seconds if hasattr(self, "_step") else 0.0
        return history

    @property
    def progress(self) -> float:
        """The part of the run that is done, from 0 to 1."""
        part = self.batch / self.batches if self._is_in_epoch and self.batches else 0.0
        return min((self.epoch + part) / self.epochs, 1.0) if self.epochs else 1.0

    @property
    def inputs(self) -> Array | None:
        """All X of this epoch's `DataLoader`; of other data, that of the last batch, if there is one."""
        data = getattr(self, "_epoch_data", self.data)
        return data.X if isinstance(data, DataLoader) else getattr(self, "X", None)

    def sample(self, rng: np.random.Generator) -> tuple[Array, ...]:
        """A batch (X, T), or (X, T, s), of training data: random examples of a `DataLoader`, else the last batch."""
        data = self._epoch_data if self.batch else self._data_of_epoch()
        if not isinstance(data, DataLoader):
            if not self.batch:
                raise ValueError("there is no batch yet: before the first step, expected a DataLoader as data")
            return self.X, self.T, *self.s
        return data.batch(0, rng.choice(len(data.X), min(data.batch_size, len(data.X)), replace=False))

    def _data_of_epoch(self) -> Batches:
        return self.data(self.epoch) if callable(self.data) else self.data

    def __repr__(self) -> str:
        return f"Training: {self.epoch} of {self.epochs} epochs"

    _repr_html_ = deferred("matgrad.explanation.histories", "run_html")

    # -- stopping -----------------------------------------------------------------------------
    def stop(self) -> None:
        """End training after this batch or, between two epochs, before the next; all ranks stop after the same."""
        self._ask(Request.STOP)

    def interrupt(self) -> None:
        """End training after this batch because the user asked for it."""
        self._ask(Request.INTERRUPT)

    def _ask(self, request: Request) -> None:
        """Ask all ranks; one that is alone hears it at once."""
        self.group.asked = max(self.group.asked, request)
        if self.group.size == 1:
            self._listen()

    def _listen(self, has_changed: bool = False) -> bool:
        """Hear what any rank asks for; returns whether the model of any has changed. All ranks exchange that now."""
        has_changed = self.group.listen(has_changed)
        self._hear()
        return has_changed

    def _hear(self) -> None:
        """Stop or interrupt the run if a rank has asked for it."""
        self.is_stopped |= self.group.heard >= Request.STOP
        self.is_interrupted |= self.group.heard == Request.INTERRUPT


def checked_callbacks(callbacks: Sequence[Callback]) -> list[Callback]:
    """The callbacks, after a check that each is one."""
    items = list(callbacks) if isinstance(callbacks, Iterable) else [None]
    if not all(isinstance(item, Callback) for item in items):
        raise TypeError(f"callbacks: expected a list of Callback objects, found {callbacks!r}")
    return items
