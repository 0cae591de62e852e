"""One run of training: the loop over epochs and batches, and what callbacks can see of it."""

from __future__ import annotations

import signal
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from matgrad.backends import backend_of
from matgrad.backends.base import Array
from matgrad.callbacks import Callback, Checkpoints, Interruption
from matgrad.callbacks.ending import divergence
from matgrad.datasets import DataLoader
from matgrad.distributed.group import Alone, Request, current, is_first
from matgrad.engines.engine import Batches
from matgrad.engines.fallback import TrainingStep
from matgrad.foundation.files import naming
from matgrad.foundation.imports import deferred
from matgrad.foundation.machine import threads, versions
from matgrad.foundation.numbers import check_size, generator
from matgrad.inspection.profiling import counted
from matgrad.layers.state import State
from matgrad.learning_rate import checked_rate
from matgrad.loss_functions import LossFunction, check_loss, check_probabilities, check_weighable
from matgrad.optimizers import CompositeOptimizer
from matgrad.program.purity import Snapshot
from matgrad.sparse.support import Support
from matgrad.specifications.origins import check_origins, origins
from matgrad.storage.checkpoints import Checkpoint, RunState, find_checkpoint
from matgrad.training.fingerprint import fingerprint_of_batch, fingerprint_of_epoch, fingerprint_of_run, is_builtin

if TYPE_CHECKING:
    from matgrad.multilayer_perceptron import MultilayerPerceptron

Data = Batches | Callable[[int], Batches]  # the batches of every epoch, or those of epoch i = 0, 1, …

EPOCHS, BATCH_SIZE, LEARNING_RATE = 20, 50, 0.05  # defaults
UNCOMPILED = "no compiled step"  # the name of the reason for that, among the settings in a checkpoint
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


class History(dict[str, list]):
    """One value per epoch of 'loss', 'accuracy', 'validation_loss', 'seconds' …; in a notebook a table and a plot."""

    compilation_seconds = 0.0  # of compiling, as far as they are known, since training began or was resumed

    _repr_html_ = deferred("matgrad.explanation.histories", "history_html")


class Training:
    """One run of training: the loop, and what callbacks can see of it."""

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
    _resumed: RunState | None = None  # that checkpoint, until its epoch is resumed
    _order: dict[str, Any] | None = None  # the generator of the data before the order of this epoch
    _generator: dict[str, Any] | None = None  # the state that it had when the checkpoint was written
    _step: TrainingStep
    _epoch_data: Batches
    _start_of_epoch: float  # as time.perf_counter() has it, moved on by the time that callbacks take
    _end_of_part: int | None  # the number of its last batch, if it is known
    _is_watched: bool  # whether the callbacks are called after each batch, and not after parts of an epoch
    _is_in_epoch = _is_between_batches = _is_current = False

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
        self._model, self.data, self.loss, self.compiled = M, data, loss, compiled
        self.epochs, self.clip_norm = check_size("epochs", epochs, least=0), clip_norm
        self._schedule, self.per_step = learning_rate, per_step
        self.rows: list[dict[str, Any]] = []  # one per epoch
        self.group = current() or Alone()  # of the ranks that train together

    # -- the loop -----------------------------------------------------------------------------
    def train(self, callbacks: Sequence[Callback] = (), resume: str | Path | None = None) -> History:
        """Train epoch by epoch, until the last one or until a callback stops training; returns the history.

        `resume` is a checkpoint from which it goes on, or a folder of them. Ctrl-C ends it with KeyboardInterrupt.
        """
        if resume is not None:
            self._restore(find_checkpoint(resume), checked_callbacks(callbacks))
        self._step = TrainingStep(self.M, self.loss, self.clip_norm, compiled=self.compiled)
        self.group.asked = self.group.heard = Request.NONE
        own = [*checked_callbacks(callbacks), Interruption()]
        if any(isinstance(callback, Checkpoints) for callback in own):
            own.append(Interruption(signal.SIGTERM))
        self.callbacks = sorted(own, key=lambda callback: (callback.place, isinstance(callback, Checkpoints)))
        self._called = [callback for callback in self.callbacks if is_first() or not callback.only_first]
        if self.group.size > 1:
            schedule = "every step" if self.per_step else "every epoch"
            self.group.agree(fingerprint_of_run(self, self._settings() | {"the learning rate": f"changes {schedule}"}))
        # divergence is reported in words; every callback that was started ends, also if another one fails
        with np.errstate(all="ignore"), ExitStack() as at_end:
            at_end.callback(lambda: setattr(self.M, "history", self.history))
            for callback in self._start():
                at_end.callback(callback.end, self)
            while self.epoch < self.epochs and not self.is_stopped:
                if self._train_epoch():
                    self._after_epoch()
        if self.is_interrupted:
            raise KeyboardInterrupt
        return self.history

    def _after_epoch(self) -> None:
        """Call the callbacks, the last ones when it is known whether the run is stopped; some are part of training."""
        for is_last in (False, True):
            for callback in self._called:
                if (callback.place == LAST) == is_last:
                    start = time.perf_counter()
                    callback.epoch(self)
                    if callback.is_training:
                        seconds = time.perf_counter() - start
                        self.seconds += seconds
                        self.row["seconds"] += seconds
            if not (is_last or self.is_rescued) and (problem := divergence(self)) is not None:
                raise FloatingPointError(problem)
            self._synchronize()

    def _train_epoch(self) -> bool:
        """Train on the batches of an epoch; returns False if training was stopped before the last."""
        M, step = self.M, self._step
        self._start_of_epoch = time.perf_counter()
        data = self._data_of_epoch()
        self._order = _generator_of(data)
        self.batch, self.batches, self.examples = 0, len(data) if isinstance(data, Sized) else None, 0
        if self._resumed is not None:
            self._resume_epoch(data, self._resumed)
        self._epoch_data, self._is_in_epoch = data, True
        self.learning_rate = checked_rate(self._schedule, self.step if self.per_step else self.epoch)
        if self.group.size > 1:
            self.group.agree(fingerprint_of_epoch(self, data), "the start of an epoch")
        is_whole, is_lost = True, False
        with counted(M):
            self._load()
            try:
                for batches, first in self._parts(data):
                    self._end_of_part = first + len(batches) if isinstance(batches, DataLoader) else None
                    step.train(batches, self._rate, self._poll, first)
                    if not self._is_watched:
                        self._after_batch()
                        self._between_batches()
            except _Stopped:
                is_whole = False
            except ConnectionError:  # a rank is lost, and this one may have done a part of a step
                is_lost = True
                raise
            finally:
                if not is_lost:
                    M.load_state(step.state())
            if not self.batch:
                raise ValueError("there are no batches to train on: the data is empty, or an iterator that is used up")
            if is_whole:
                M.end_epoch()
        seconds = time.perf_counter() - self._start_of_epoch
        self.seconds += seconds
        if is_whole:
            self.epoch += 1
            self._is_in_epoch = False
            self.rows.append({"epoch": self.epoch, "learning_rate": self.learning_rate, "seconds": seconds})
        return is_whole

    def _data_of_epoch(self) -> Batches:
        return self.data(self.epoch) if callable(self.data) else self.data

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
                self._restore_generator()
                if first >= done:
                    yield part, first

    def _watched(self, data: Batches, done: int) -> Iterator[tuple[Array, ...]]:
        """The batches that are not done yet; the one that is trained on is also (self.X, self.T, *self.s)."""
        batches = iter(data)
        for _ in range(done):
            next(batches, None)
        self._restore_generator()
        for i, (self.X, self.T, *self.s) in enumerate(batches):
            if i == 0 and self.group.size > 1:
                self.group.agree(fingerprint_of_batch(self.X, self.T, *self.s), "the first batch")
            self.state = self.M.state()
            yield self.X, self.T, *self.s

    def _rate(self, i: int) -> float:
        """η of step i of this epoch: that of the epoch or, with `per_step`, its own, counted over all epochs."""
        if self.per_step:
            self.learning_rate = checked_rate(self._schedule, self.step - self.batch + i)
        return self.learning_rate

    def _poll(self, done: int) -> None:
        """Count the batches that are done, and call the callbacks."""
        self.step += done - self.batch
        self.batch, data = done, self._epoch_data
        if isinstance(data, DataLoader):
            self.examples = min(done * data.batch_size, data.size)
        else:
            self.examples += self.X.shape[0]
        if self._is_watched:
            self._after_batch()
        if done != self._end_of_part:  # after which first the callbacks are called that want its last batch
            self._between_batches()

    def _between_batches(self) -> None:
        """Call the callbacks that look between two batches; end the epoch if one has asked for it before the last."""
        start = time.perf_counter()
        for callback in self._called:
            if is_builtin(callback) or type(callback).poll is Callback.poll:
                callback.poll(self)
            else:
                before, _state = self._seen()
                callback.poll(self)
                if before != self._seen()[0]:
                    name = type(callback).__name__
                    raise RuntimeError(f"{name}.poll has changed the run, expected `batch` or `epoch` to do that")
        self._start_of_epoch += time.perf_counter() - start
        self._apply_requests()  # what was heard with the last step
        if self.is_stopped and self.batch != self.batches:
            raise _Stopped

    def _after_batch(self) -> None:
        """Call the callbacks that want this batch, and continue with the model as they leave it."""
        due = [x for x in self.callbacks if x.wants_batches and self.step % x.interval == 0]
        are_ours = all(map(is_builtin, due))
        start = time.perf_counter()
        self._is_between_batches, self._is_current = True, False
        if due and (self.group.size > 1 or not are_ours):
            _ = self.M  # callbacks of users may know the model from elsewhere; on all ranks, if those of the first do
        for callback in due:
            if is_first() or not callback.only_first:
                callback.batch(self)
        self._is_between_batches = False
        if self._synchronize(self._is_current):
            self._load(only_state=are_ours and all(callback.changes_only_state for callback in due))
        if not any(callback.is_training for callback in due):
            self._start_of_epoch += time.perf_counter() - start

    def _load(self, only_state: bool = False) -> None:
        """Train with the model, the loss and the clip norm as they are now."""
        self._model.train()
        self._step.loss, self._step.clip_norm = self.loss, self.clip_norm
        self._step.load(self._model.state(), only_state)

    def _seen(self) -> tuple[Snapshot, list[Array | Support]]:
        """What decides the next steps, as far as it can be seen to be changed, and the state, which is to be kept."""
        modes, state = [layer.training for _, layer in self._model.walk()], list(self._model.state().values())
        return Snapshot(self._model, self.loss, self.clip_norm, self.learning_rate, modes, list(map(id, state))), state

    # -- what callbacks see --------------------------------------------------------------------
    @property
    def loss(self) -> LossFunction:
        """The loss; another one counts from the next batch on."""
        return self._loss

    @loss.setter
    def loss(self, loss: LossFunction) -> None:
        check_loss(self._model, loss)
        if isinstance(data := self.data, DataLoader):
            if data.labels is None:
                check_probabilities(backend_of(data.T).to_numpy(data.T), loss)
            if data.weights is not None:
                check_weighable(loss)
        self._loss = loss

    @property
    def M(self) -> MultilayerPerceptron:
        """The model; in a callback's `batch` with the current parameters, and what is changed in it is trained on."""
        if self._is_between_batches and not self._is_current:
            self._is_current = True
            self._model.load_state(self._step.state())
        return self._model

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

    def __repr__(self) -> str:
        return f"Training: {self.epoch} of {self.epochs} epochs"

    _repr_html_ = deferred("matgrad.explanation.histories", "run_html")

    def stop(self) -> None:
        """End training after this batch or, between two epochs, before the next; all ranks stop after the same."""
        self._request(Request.STOP)

    def interrupt(self) -> None:
        """End training after this batch because the user asked for it."""
        self._request(Request.INTERRUPT)

    def _request(self, request: Request) -> None:
        """Apply a request, at once or, where ranks train together, as soon as all have heard it."""
        self.group.asked = max(self.group.asked, request)
        if self.group.size == 1:
            self._synchronize()

    def _synchronize(self, has_changed: bool = False) -> bool:
        """Apply what any rank requests; whether the model of any has changed. All ranks exchange that now."""
        has_changed = self.group.listen(has_changed)
        self._apply_requests()
        return has_changed

    def _apply_requests(self) -> None:
        """Stop or interrupt the run if a rank has requested it."""
        self.is_stopped |= self.group.heard >= Request.STOP
        self.is_interrupted |= self.group.heard == Request.INTERRUPT

    # -- checkpoints ---------------------------------------------------------------------------
    def snapshot(self) -> RunState:
        """What a checkpoint has of this run, apart from its model: between two batches, or two epochs."""
        is_partial = self._is_in_epoch
        return RunState(
            epoch=self.epoch,
            batch=self.batch if is_partial else 0,
            batches=self.batches if is_partial else None,
            step=self.step,
            examples=self.examples if is_partial else 0,
            seconds=sum(row["seconds"] for row in self.rows),
            epoch_seconds=time.perf_counter() - self._start_of_epoch if is_partial else 0.0,
            is_stopped=self.is_stopped and not self.is_interrupted,
            settings=self._settings() | self._conditions(),
            rows=self.rows,
            order=self._order if is_partial else _generator_of(self.data),
            generator=dict(generator().bit_generator.state),
            callbacks=[(type(callback).__name__, callback.state(self)) for callback in self.callbacks],
            plugins={
                "model": origins(layer for _, layer in self._model.walk()),
                "training": origins([self.loss, *self.callbacks]),
            },
        )

    def _restore(self, checkpoint: Checkpoint, callbacks: Sequence[Callback]) -> None:
        """Go on from a checkpoint."""
        if self.epochs < checkpoint.run.epoch:
            expected = f"expected as many epochs or more, found {self.epochs}"
            raise ValueError(f"{checkpoint.path}: {checkpoint.run.epoch} epochs are done, {expected}")
        checkpoint.restore(self._model)
        with naming(checkpoint.path):
            check_origins(checkpoint.run.plugins.get("training", {}), [self.loss, *callbacks], are_all_needed=False)
        run = self._resumed = checkpoint.run
        if self.compiled and (reason := run.settings.get(UNCOMPILED)):
            self.compiled = False
            kept = "what its code keeps outside of the state is not in the checkpoint, and it may end differently"
            warnings.warn(f"the run continues uncompiled, as before ({reason}); {kept}", stacklevel=3)
        self.resumed_from = checkpoint.path
        self.epoch, self.step, self.rows, self.seconds = run.epoch, run.step, list(run.rows), run.seconds
        self.is_stopped = run.is_stopped

    def _settings(self) -> dict[str, str]:
        """What should be the same in all parts of a run, in words."""
        rules = CompositeOptimizer(*(layer.optimizer for _, layer in self._model.walk()))
        return {
            "the loss": self.loss.specification(),
            "the optimizers": rules.specification(),
            "the clip norm": "none" if self.clip_norm is None else f"{self.clip_norm:g}",
            "products in": self._model.matmul,
        }

    def _conditions(self) -> dict[str, str]:
        """What a run that is resumed must have in common with the one before to end with the same bits, in words."""
        M, step, known = self._model, self._step, versions()
        found = {"its equations": "one by one" if step.compiled is None else "compiled", "the engine": M.engine}
        found |= {"the device": M.device or "cpu", "the number of threads": str(threads())}
        found |= {"the number of ranks": str(self.group.size)}
        found |= {f"the version of {x}": known[x] for x in ("matgrad", "numpy", M.backend.name) if x in known}
        found |= {UNCOMPILED: step.reason} if step.reason else {}
        return found | Snapshot(M, self.loss).kept()

    def _compare(self, before: Mapping[str, str]) -> None:
        """Warn of what differs from the run in a checkpoint."""
        present = self._settings() | self._conditions() | {UNCOMPILED: before.get(UNCOMPILED, "")}
        for name, had in before.items():
            if (now := present.get(name, "none")) != had:
                warnings.warn(f"the run in the checkpoint had {name} {had}, and is resumed with {now}", stacklevel=4)

    def _start(self) -> Iterator[Callback]:
        """Start the callbacks, those that the checkpoint has a state of with that."""
        saved = [] if self._resumed is None else list(self._resumed.callbacks)
        names = {type(callback).__name__ for callback in self.callbacks}
        for missing in {name for name, state in saved if state} - {*names, Checkpoints.__name__}:
            warnings.warn(f"the checkpoint has a callback {missing}, and is resumed without it", stacklevel=3)
        for callback in self._called:
            own = next((item for item in saved if item[0] == type(callback).__name__), None)
            if own is None:
                callback.start(self)
            else:
                saved.remove(own)
                callback.resume(self, own[1])
            yield callback
        if self._resumed is not None and is_first():
            self._compare(self._resumed.settings)

    def _resume_epoch(self, data: Batches, run: RunState) -> None:
        """Resume a partial epoch, with the generators of random numbers as they were when it began."""
        self._resumed, self._generator = None, run.generator if run.batch else None
        if run.batch and run.batches != self.batches:
            raise ValueError(f"the checkpoint is of data with {run.batches} batches, found {self.batches}")
        self.batch, self.examples = run.batch, run.examples
        self._start_of_epoch -= run.epoch_seconds
        with naming(f"{self.resumed_from}", "a damaged state of a random generator: "):
            generator().bit_generator.state = run.generator
            if isinstance(data, DataLoader) and run.order is not None:
                self._order = data.rng.bit_generator.state = run.order

    def _restore_generator(self) -> None:
        """Give the generator its state in the checkpoint, when the order of the batches has been drawn from it."""
        if self._generator is not None:
            generator().bit_generator.state, self._generator = self._generator, None


def _generator_of(data: Data) -> dict[str, Any] | None:
    """The state of the generator from which the order of the data comes, if it is known."""
    return dict(data.rng.bit_generator.state) if isinstance(data, DataLoader) else None


class _Stopped(Exception):
    """Training was stopped between two batches of an epoch."""


def checked_callbacks(callbacks: Sequence[Callback]) -> list[Callback]:
    """The callbacks, after a check that each is one."""
    items = list(callbacks) if isinstance(callbacks, Iterable) else [None]
    if not all(isinstance(item, Callback) for item in items):
        raise TypeError(f"callbacks: expected a list of Callback objects, found {callbacks!r}")
    return items
