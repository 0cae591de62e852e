"""One run of training: the loop over epochs and batches."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence, Sized
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from matgrad.backends.base import Array
from matgrad.callbacks import Callback, Checkpoints, Interruption
from matgrad.callbacks.ending import divergence
from matgrad.datasets import DataLoader
from matgrad.distributed.group import is_first
from matgrad.engines.engine import Batches
from matgrad.engines.fallback import TrainingStep
from matgrad.foundation.callers import is_builtin
from matgrad.inspection.profiling import counted
from matgrad.learning_rate import checked_rate
from matgrad.loss_functions import LossFunction
from matgrad.program.purity import Snapshot
from matgrad.sparse.support import Support
from matgrad.storage.checkpoints import RunState, find_checkpoint
from matgrad.training import ranks, resuming
from matgrad.training.view import Data, History, RunView, checked_callbacks

if TYPE_CHECKING:
    from matgrad.multilayer_perceptron import MultilayerPerceptron

LAST = 3  # the place of callbacks that are called after all others


def stochastic_gradient_descent(
    M: MultilayerPerceptron,
    epochs: int,
    loss: LossFunction,
    learning_rate: Callable[[int], float],
    train_loader: Data,
    *,
    per_step: bool = False,
    clip_norm: float | None = None,
    compiled: bool = True,
    callbacks: Sequence[Callback] = (),
    resume: str | Path | None = None,
) -> History:
    """Train M: for every batch feedforward, the gradient of the mean loss, backpropagate, optimize.

    The learning rate is that of the epoch or, with `per_step`, of the step, both from 0; an engine that goes through
    whole epochs asks for the rates of all steps when one begins. With `clip_norm` the gradients are scaled down to
    that norm if theirs is larger. The step is compiled by M's engine; with ``compiled=False`` the equations run one by
    one, and the layers keep the matrices of the last batch. Ctrl-C ends training between two batches with
    KeyboardInterrupt, and leaves M in a consistent state. A run that diverges ends with FloatingPointError. In any
    case `M.history` has the history so far. With `resume`, the run resumes from a checkpoint, or from the newest in a
    folder, that `callbacks.Checkpoints` wrote, as if it had not ended; M, the data and the callbacks must be made as
    they were. Data that is a function must depend on the number of the epoch alone.
    """
    run = Training(M, loss, train_loader, epochs, learning_rate, per_step, clip_norm, compiled)
    return run.train(callbacks, resume)


class Training(RunView):
    """One run of training: the loop over epochs and batches, in which the engine trains, and callbacks watch or steer.

        for epoch in range(epochs):
            for part in the batches:        # all of them, unless a callback wants some batches
                step.train(part)            # the engine
                callback.batch(run)         # those that want the last batch of the part
            callback.epoch(run)             # all

    `RunView` has the rest: what callbacks see of it.
    """

    def train(self, callbacks: Sequence[Callback] = (), resume: str | Path | None = None) -> History:
        """Train epoch by epoch, until the last one or until a callback stops training; returns the history.

        `resume` is a checkpoint, or a folder of them. Ctrl-C ends it with KeyboardInterrupt.
        """
        if resume is not None:
            resuming.restore(self, find_checkpoint(resume), checked_callbacks(callbacks))
        self._step = TrainingStep(self.M, self.loss, self.clip_norm, compiled=self.compiled)
        self.callbacks = _in_order(checked_callbacks(callbacks))
        ranks.agree_on_run(self, resuming.settings(self))

        # divergence is reported in words; every callback that was started ends, also if another one fails
        with np.errstate(all="ignore"), ExitStack() as at_end:
            at_end.callback(lambda: setattr(self.M, "history", self.history))
            for callback in resuming.started(self):
                at_end.callback(callback.end, self)
            while self.epoch < self.epochs and not self.is_stopped:
                if self._train_epoch():
                    self._call_epoch()
        if self.is_interrupted:
            raise KeyboardInterrupt
        return self.history

    def _train_epoch(self) -> bool:
        """Train on the batches of an epoch; returns False if training was stopped before the last."""
        self._start_of_epoch = time.perf_counter()
        data = self._begin_epoch()
        with counted(self.M):
            is_whole = self._train_batches(data)
            if not self.batch:
                raise ValueError("there are no batches to train on: the data is empty, or an iterator that is used up")
            if is_whole:
                self.M.end_epoch()
        seconds = time.perf_counter() - self._start_of_epoch
        self.seconds += seconds
        if is_whole:
            self.epoch, self._is_in_epoch = self.epoch + 1, False
            self.rows.append({"epoch": self.epoch, "learning_rate": self.learning_rate, "seconds": seconds})
        return is_whole

    def _train_batches(self, data: Batches) -> bool:
        """Let the engine train on the batches, part by part; False if training was stopped before the last."""
        self._load()
        is_lost = False
        try:
            for batches, first in self._parts(data):
                self._end_of_part = first + len(batches) if isinstance(batches, DataLoader) else None
                self._step.train(batches, self._rate, self._poll, first)
                if not self._is_watched:
                    self._call_batch()
                    self._call_poll()
        except _Stopped:
            return False
        except ConnectionError:  # a rank is lost, and this one may have done a part of a step
            is_lost = True
            raise
        finally:
            if not is_lost:
                self.M.load_state(self._step.state())
        return True

    def _begin_epoch(self) -> Batches:
        """The data of the epoch; a resumed epoch begins where the checkpoint ended."""
        data = self._data_of_epoch()
        self.batch, self.batches, self.examples = 0, len(data) if isinstance(data, Sized) else None, 0
        self._order = resuming.generator_of(data)
        resuming.resume_epoch(self, data)
        self._epoch_data, self._is_in_epoch = data, True
        self.learning_rate = checked_rate(self._schedule, self.step if self.per_step else self.epoch)
        ranks.agree_on_epoch(self, data)
        return data

    def _parts(self, data: Batches) -> Iterator[tuple[Batches, int]]:
        """The batches in parts, which the engine may train on by itself, and the number of the first batch of each.

        The batches of a resumed epoch that are done are skipped.
        """
        done, start = self.batch, self.step - self.batch
        intervals = {callback.interval for callback in self.callbacks if callback.wants_batches}
        every = self.group.exchange(sorted(intervals), "the parts of an epoch")
        intervals = {n for own in every for n in own}  # all ranks do what one of them needs
        is_plain = isinstance(data, DataLoader) and data.is_plain  # others may form their batches as they like
        self._is_watched = 1 in intervals or (bool(intervals) and not is_plain)
        if self._is_watched or not isinstance(data, DataLoader):
            yield self._watched(data, done), done
        elif not intervals and not done:
            yield data, 0
        else:
            stops = [i for i in range(1, len(data)) if i == done or any((start + i) % n == 0 for n in intervals)]
            for part, first in zip(data.parts(stops), [0, *stops], strict=True):
                resuming.restore_generator(self)
                if first >= done:
                    yield part, first

    def _watched(self, data: Batches, done: int) -> Iterator[tuple[Array, ...]]:
        """The batches that are not done yet; the one that is trained on is also (self.X, self.T, *self.s)."""
        batches = iter(data)
        for _ in range(done):
            next(batches, None)
        resuming.restore_generator(self)
        for i, (self.X, self.T, *self.s) in enumerate(batches):
            if i == 0:
                ranks.agree_on_batch(self)
            self.state = self.M.state()
            yield self.X, self.T, *self.s

    def _rate(self, i: int) -> float:
        """η of step i of this epoch: that of the epoch or, with `per_step`, its own, counted over all epochs."""
        if self.per_step:
            self.learning_rate = checked_rate(self._schedule, self.step - self.batch + i)
        return self.learning_rate

    def _load(self, only_state: bool = False) -> None:
        """Train with the model, the loss and the clip norm as they are now."""
        self.M.train()
        self._step.loss, self._step.clip_norm = self.loss, self.clip_norm
        self._step.load(self.M.state(), only_state)

    # -- the callbacks ------------------------------------------------------------------------
    def _poll(self, done: int) -> None:
        """Count the batches that are done; the engine calls it after each or, where it trains by itself, at times."""
        self.step += done - self.batch
        self.batch, data = done, self._epoch_data
        if isinstance(data, DataLoader):
            self.examples = min(done * data.batch_size, data.size)
        else:
            self.examples += self.X.shape[0]
        if self._is_watched:
            self._call_batch()
        if done != self._end_of_part:  # after which first the callbacks are called that want its last batch
            self._call_poll()

    def _call_batch(self) -> None:
        """Call the callbacks that want this batch, and continue with the model as they leave it."""
        due = [x for x in self.callbacks if x.wants_batches and self.step % x.interval == 0]
        start = time.perf_counter()
        if due or self.group.size > 1:  # all ranks do what one of them needs
            self.M.load_state(self._step.state())
        for callback in due:
            if is_first() or not callback.only_first:
                callback.batch(self)
        if self._listen(bool(due)):
            self._load(only_state=all(map(is_builtin, due)))  # our callbacks change nothing else
        if not any(callback.is_training for callback in due):
            self._start_of_epoch += time.perf_counter() - start

    def _call_poll(self) -> None:
        """Call the callbacks that look between two batches; end the epoch if one has asked for it before the last."""
        start = time.perf_counter()
        for callback in self._called():
            before = None if is_builtin(callback) else self._seen()
            callback.poll(self)
            if before is not None and before[0] != self._seen()[0]:
                name = type(callback).__name__
                raise RuntimeError(f"{name}.poll has changed the run, expected `batch` or `epoch` to do that")
        self._start_of_epoch += time.perf_counter() - start
        self._hear()  # what the ranks asked for with the last step
        if self.is_stopped and self.batch != self.batches:
            raise _Stopped

    def _call_epoch(self) -> None:
        """Call the callbacks, the last ones when it is known whether the run is stopped; some are part of training."""
        for is_last in (False, True):
            for callback in self._called():
                if (callback.place == LAST) == is_last:
                    start = time.perf_counter()
                    callback.epoch(self)
                    if callback.is_training:
                        seconds = time.perf_counter() - start
                        self.seconds += seconds
                        self.row["seconds"] += seconds
            if not (is_last or self.is_rescued) and (problem := divergence(self)) is not None:
                raise FloatingPointError(problem)
            self._listen()

    def _seen(self) -> tuple[Snapshot, list[Array | Support]]:
        """What decides the next steps, as far as it can be seen to be changed, and the state, which is to be kept."""
        modes, state = [layer.training for _, layer in self.M.walk()], list(self.M.state().values())
        return Snapshot(self.M, self.loss, self.clip_norm, self.learning_rate, modes, list(map(id, state))), state

    def snapshot(self) -> RunState:
        """What a checkpoint has of this run, apart from its model: between two batches, or two epochs."""
        return resuming.snapshot(self)

    def _called(self) -> list[Callback]:
        """The callbacks that this rank calls."""
        return [callback for callback in self.callbacks if is_first() or not callback.only_first]


class _Stopped(Exception):
    """Training was stopped between two batches of an epoch."""


def _in_order(callbacks: list[Callback]) -> list[Callback]:
    """The callbacks in the order in which they are called, with those that every run has."""
    own = [*callbacks, Interruption()]
    if any(isinstance(callback, Checkpoints) for callback in own):
        own.append(Interruption(signal.SIGTERM))
    return sorted(own, key=lambda callback: (callback.place, isinstance(callback, Checkpoints)))
