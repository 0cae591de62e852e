"""Training: stochastic gradient descent, as one loop with callbacks that watch or steer it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from contextlib import ExitStack
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from matgrad.backends.base import Matrix, Scalar
from matgrad.callbacks import Callback, Divergence, EarlyStopping, Interruption, Report, Statistics
from matgrad.datasets import DataLoader
from matgrad.datasets.dataset import check_finite, hold_out
from matgrad.engines.eager import EagerStep
from matgrad.engines.engine import Batches, CompiledStep
from matgrad.engines.fallback import StepWithFallback
from matgrad.foundation.numbers import check_size
from matgrad.inspection.profiling import counted
from matgrad.learning_rate import create_scheduler
from matgrad.loss_functions import LossFunction, create_loss
from matgrad.program.computations import check_loss, default_loss

if TYPE_CHECKING:
    from matgrad.multilayer_perceptron import MultilayerPerceptron

History = dict[str, list[float]]  # one value per epoch of 'loss', 'accuracy', 'validation_loss', 'seconds' …
Data = Batches | Callable[[int], Batches]  # the batches of every epoch, or those of epoch i = 0, 1, …

EPOCHS, BATCH_SIZE, LEARNING_RATE = 20, 50, 0.05  # defaults


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
) -> History:
    """Train M: for every batch feedforward, the gradient of the mean loss, backpropagate, optimize.

    The learning rate is that of the epoch or, with `per_step`, of the step, both from 0; the C++ core
    asks for the rates of all steps when an epoch begins. With `clip_norm` the gradients are scaled down
    to that norm if theirs is larger. The step is compiled by M's engine; with ``compiled=False`` the
    equations run one by one, and the layers keep the matrices of the last batch. Ctrl-C ends training
    between two batches with KeyboardInterrupt, and leaves M in a consistent state.
    """
    run = Training(M, loss, train_loader, epochs, learning_rate, per_step, clip_norm, compiled)
    run.train(callbacks)
    if run.is_interrupted:
        raise KeyboardInterrupt
    return run.history


class Training:
    """One run of training: the loop, and what callbacks can see of it."""

    X: Matrix  # the last batch, if a callback wants batches
    T: Matrix
    _step: CompiledStep

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
        self.M, self.loss, self.data, self.compiled = M, loss, data, compiled
        self.epochs = check_size("epochs", epochs, least=0)
        self.rows: list[dict[str, Any]] = []  # one per epoch
        self.epoch = self.batch = self.step = 0  # finished epochs, batches of this epoch, batches of all epochs
        self.batches: int | None = None  # of this epoch, if known
        self.seconds = 0.0  # of training, without callbacks
        self.is_stopped = self.is_interrupted = False
        check_loss(M, loss)
        self._clip_norm = clip_norm
        self._rates = _Rates(M, learning_rate, per_step)
        self._callbacks: list[Callback] = []

    @property
    def row(self) -> dict[str, Any]:
        """The values of the last epoch, by name."""
        return self.rows[-1]

    @property
    def history(self) -> History:
        """The values of all epochs, by name."""
        names = dict.fromkeys(name for row in self.rows for name in row)
        return {name: [row[name] for row in self.rows if name in row] for name in names}

    def stop(self) -> None:
        """End training after this batch or, between two epochs, before the next."""
        self.is_stopped = True

    def interrupt(self) -> None:
        """End training after this batch because the user asked for it."""
        self.is_stopped = self.is_interrupted = True

    def update(self) -> None:
        """Give M the current parameters, in the middle of an epoch."""
        self.M.load_state(self._step.state())

    def train(self, callbacks: Sequence[Callback] = ()) -> None:
        """Train epoch by epoch, until the last one or until a callback stops training."""
        self._step = (StepWithFallback if self.compiled else EagerStep)(self.M, self.loss, self._clip_norm)
        self._callbacks = [*_checked_callbacks(callbacks), Interruption()]
        # divergence is reported in words; every callback that was started ends, also if another one fails
        with np.errstate(all="ignore"), ExitStack() as at_end:
            for callback in self._callbacks:
                callback.start(self)
                at_end.callback(callback.end, self)
            while self.epoch < self.epochs and not self.is_stopped:
                if self._train_epoch():
                    for callback in self._callbacks:
                        callback.epoch(self)

    def _train_epoch(self) -> bool:
        """Train on the batches of an epoch; returns False if training was stopped before the last."""
        M, step, rates, start = self.M, self._step, self._rates, time.perf_counter()
        data = self.data(self.epoch) if callable(self.data) else self.data
        self.batch, self.batches = 0, len(data) if isinstance(data, Sized) else None
        wants_batches = any(callback.wants_batches for callback in self._callbacks)
        rates.start(self.epoch)
        is_whole = True
        with counted(M):
            M.train()
            step.load(M.state())
            try:
                step.train(self._watched(data) if wants_batches else data, rates, self._poll)
            except _Stopped:
                is_whole = False
            finally:
                M.load_state(step.state())
            if not self.batch:
                raise ValueError("there are no batches to train on: the data is empty, or an iterator that is used up")
            if is_whole:
                M.end_epoch()
        seconds = time.perf_counter() - start
        self.seconds += seconds
        if is_whole:
            self.epoch += 1
            self.rows.append({"epoch": self.epoch, "learning_rate": rates.last, "seconds": seconds})
        return is_whole

    def _watched(self, data: Batches) -> Iterator[tuple[Matrix, Matrix]]:
        """The batches; the one that is trained on is also (self.X, self.T)."""
        for self.X, self.T in data:
            yield self.X, self.T

    def _poll(self, done: int) -> None:
        """Call the callbacks between two batches."""
        self.step += done - self.batch
        self.batch = done
        for callback in self._callbacks:
            if callback.wants_batches:
                callback.batch(self)
            callback.poll(self)
        if self.is_stopped and done != self.batches:
            raise _Stopped


class _Stopped(Exception):
    """Training was stopped between two batches of an epoch."""


class _Rates:
    """The learning rate of every step: that of its epoch or, with `per_step`, its own, counted over all epochs."""

    def __init__(self, M: MultilayerPerceptron, learning_rate: Callable[[int], float], per_step: bool) -> None:
        self.M, self.learning_rate, self.per_step = M, learning_rate, per_step
        self.first = self.steps = 0

    def start(self, epoch: int) -> None:
        """Begin an epoch."""
        self.first = self.steps
        self._set(self.learning_rate(epoch))

    def __call__(self, i: int) -> Scalar:
        """η of step i of the epoch."""
        if self.per_step:
            self._set(self.learning_rate(self.first + i))
        self.steps = self.first + i + 1
        return self.eta

    def _set(self, lr: float) -> None:
        self.last, self.eta = lr, self.M.scalar(lr)


# -- the method M.fit --------------------------------------------------------------------------


def fit(
    M: MultilayerPerceptron,
    X: np.ndarray,
    T: np.ndarray,
    *,
    loss: LossFunction | str | None = None,
    learning_rate: float | str | Callable[[int], float] = LEARNING_RATE,
    epochs: int = EPOCHS,
    batch_size: int = BATCH_SIZE,
    shuffle: bool = True,
    seed: int | None = None,
    validation: float | tuple[np.ndarray, np.ndarray] | None = None,
    early_stopping: int | None = None,
    per_step: bool = False,
    clip_norm: float | None = None,
    compiled: bool = True,
    statistics: bool = True,
    callbacks: Sequence[Callback] = (),
    verbose: bool = False,
) -> History:
    """Train M on NumPy examples X with targets T (a matrix, or class indices) on M's own backend.

    With the defaults it trains as `matgrad train` does; X and T are normalized only if M has normalizations of them.
    The losses are then those of the normalized targets, and errors such as the 'rmse' are in the units of T.

    The default loss is that of M's file, if it was loaded. Else it is the cross-entropy that fits the last layer
    (one output has the classes 0 and 1) or, for targets that are numbers, the mean squared error. `validation` is
    a pair (X, T), or the fraction of the examples to hold out; with `early_stopping` training ends when the validation
    loss has not improved for that many epochs, and M keeps the best parameters. Returns the history: for
    every epoch the learning rate, the seconds of training and, unless `statistics` is off, the 'loss' and
    the 'accuracy' (for targets that are not classes, the 'rmse'), also as 'validation_loss' and so on.
    `verbose` shows them. See `stochastic_gradient_descent` for the rest.
    """
    loss = default_loss(M, np.asarray(T)) if loss is None else create_loss(loss)
    check_loss(M, loss)

    def loader(X: np.ndarray, T: np.ndarray, **options: Any) -> DataLoader:
        X, T, K = M.normalize(X), M.normalize_targets(T), M.layers[-1].output_size
        check_finite(X, "X")
        return DataLoader(X, T, batch_size, classes=K, **options).to(M.backend.name, dtype=M.dtype, device=M.device)

    if isinstance(validation, Real):
        X, T = np.asarray(X), np.asarray(T)
        kept, held = hold_out(len(X), float(validation), 0 if seed is None else seed, "validation")
        X, T, validation = X[kept], T[kept], (X[held], T[held])
    if validation is not None and (not isinstance(validation, tuple | list) or len(validation) != 2):
        raise ValueError(f"validation: expected a pair (X, T), a fraction or None, found {validation!r}")
    if early_stopping is not None and (validation is None or not statistics):
        raise ValueError("early_stopping needs validation data and statistics")
    train = loader(X, T, shuffle=shuffle, seed=seed)
    parts = {"": train} | ({} if validation is None else {"validation_": loader(*validation)})
    own: list[Callback] = [Statistics(parts), Divergence()] if statistics else []
    own += [] if early_stopping is None else [EarlyStopping(check_size("early_stopping", early_stopping))]
    own += [Report()] if verbose else []
    return stochastic_gradient_descent(
        M,
        epochs,
        loss,
        create_scheduler(learning_rate),
        train,
        per_step=per_step,
        clip_norm=clip_norm,
        compiled=compiled,
        callbacks=[*own, *_checked_callbacks(callbacks)],
    )


def _checked_callbacks(callbacks: Sequence[Callback]) -> list[Callback]:
    """The callbacks, after a check that each is one."""
    if not isinstance(callbacks, Iterable):
        raise TypeError(f"callbacks: expected a list of Callback objects, found {callbacks!r}")
    items = list(callbacks)
    for item in items:
        if not isinstance(item, Callback):
            raise TypeError(f"callbacks: expected a list of Callback objects, found {item!r} in it")
    return items
