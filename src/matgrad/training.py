"""Training: stochastic gradient descent, and the methods fit and predict."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from matgrad.backends.base import Scalar
from matgrad.datasets import DataLoader
from matgrad.engines.training_step import EagerStep, StepWithFallback, check_loss
from matgrad.evaluation.measures import Batches, evaluation_mode, measure
from matgrad.inspection.profiling import counted
from matgrad.learning_rate import learning_rate as create_scheduler
from matgrad.loss_functions import LossFunction, create_loss

if TYPE_CHECKING:
    from matgrad.multilayer_perceptron import MultilayerPerceptron

History = dict[str, list[float]]  # one value an epoch of 'loss', 'accuracy', 'validation_loss' …


def stochastic_gradient_descent(
    M: MultilayerPerceptron,
    epochs: int,
    loss: LossFunction,
    learning_rate: Callable[[int], float],
    train_loader: Batches,
    *,
    per_step: bool = False,
    clip_norm: float | None = None,
    compiled: bool = True,
    on_epoch: Callable[[int, float], bool | None] | None = None,
) -> None:
    """Train M: for every batch feedforward, the gradient of the mean loss, backpropagate, optimize.

    The learning rate is that of the epoch or, with `per_step`, of the step, both from 0; the C++ core
    asks for the rates of all steps when an epoch begins. With `clip_norm` the gradients are scaled down
    to that norm where theirs is larger. The step is compiled by M's backend; with ``compiled=False`` the
    equations run one by one, and the layers keep the matrices of the last batch. ``on_epoch(epoch, lr)``
    is called after each epoch, with the rate that was used last; training stops where it returns True.
    """
    step = (StepWithFallback if compiled else EagerStep)(M, loss, clip_norm)
    rates = Rates(M, learning_rate, per_step)
    for epoch in range(epochs):
        rates.start(epoch)
        with counted(M):
            M.train()
            step.load(M.state())
            try:
                step.train(train_loader, rates)
            finally:
                M.load_state(step.state())
            M.end_epoch()
        if on_epoch is not None and on_epoch(epoch, rates.last):
            break


class Rates:
    """The learning rate of every step: that of its epoch or, with `per_step`, its own; steps count on over epochs."""

    def __init__(self, M: MultilayerPerceptron, learning_rate: Callable[[int], float], per_step: bool) -> None:
        self.M, self.learning_rate, self.per_step = M, learning_rate, per_step
        self.first = self.steps = 0

    def start(self, epoch: int) -> None:
        """The steps of this epoch follow."""
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


def default_loss(M: MultilayerPerceptron) -> LossFunction:
    """The cross-entropy that fits what the last layer of M gives."""
    if not M.layers:
        raise ValueError("the model has no layers")
    names = {"real": "SoftmaxCrossEntropy", "probability": "CrossEntropy", "log-probability": "LogProbability"}
    return create_loss(names[M.layers[-1].output])


# -- the methods M.fit and M.predict -----------------------------------------------------------


def fit(
    M: MultilayerPerceptron,
    X: np.ndarray,
    T: np.ndarray,
    *,
    loss: LossFunction | str | None = None,
    learning_rate: float | str | Callable[[int], float] = 0.01,
    epochs: int = 10,
    batch_size: int = 100,
    shuffle: bool = True,
    seed: int | None = None,
    validation: tuple[np.ndarray, np.ndarray] | None = None,
    per_step: bool = False,
    clip_norm: float | None = None,
    compiled: bool = True,
    verbose: bool = False,
) -> History:
    """Train M on NumPy examples X with targets T (a matrix, or class indices) on M's own backend.

    The default loss is the cross-entropy that fits the last layer. Returns the history: for every
    epoch the 'loss', with class indices the 'accuracy', and the same of the `validation` data (X, T) as
    'validation_loss' and 'validation_accuracy'. `verbose` prints them. See
    `stochastic_gradient_descent` for the rest.
    """
    loss = default_loss(M) if loss is None else create_loss(loss)
    check_loss(M, loss)

    def loader(X: np.ndarray, T: np.ndarray, **options: Any) -> DataLoader:
        X, T, K = np.asarray(X), np.asarray(T), M.layers[-1].output_size
        if not np.isfinite(X).all():
            row, column = np.argwhere(~np.isfinite(X))[0]
            raise ValueError(f"X, row {row}, column {column}: expected a finite number, found {X[row, column]}")
        return DataLoader(X, T, batch_size, classes=K, **options).to(M.backend.name, dtype=M.dtype, device=M.device)

    if validation is not None and (not isinstance(validation, tuple | list) or len(validation) != 2):
        raise ValueError(f"validation: expected a pair (X, T), found {validation!r}")
    train = loader(X, T, shuffle=shuffle, seed=seed)
    measured = {"": train.in_order()} | ({} if validation is None else {"validation_": loader(*validation)})
    history: History = {}

    def on_epoch(epoch: int, lr: float) -> None:
        row = {}
        for prefix, data in measured.items():
            measures = measure(M, data, loss)
            row[f"{prefix}loss"] = measures.loss
            if data.labels is not None:
                row[f"{prefix}accuracy"] = measures.accuracy
        for name, value in row.items():
            history.setdefault(name, []).append(value)
        if verbose:
            values = "  ".join(f"{name} {value:.4f}" for name, value in row.items())
            print(f"epoch {epoch + 1}  lr {lr:.4g}  {values}")

    scheduler = create_scheduler(learning_rate)
    stochastic_gradient_descent(
        M,
        epochs,
        loss,
        scheduler,
        train,
        per_step=per_step,
        clip_norm=clip_norm,
        compiled=compiled,
        on_epoch=on_epoch,
    )
    return history


def predict(M: MultilayerPerceptron, X: np.ndarray, batch_size: int = 1000) -> np.ndarray:
    """f_Θ(X) in evaluation mode, for a NumPy matrix X with any number of rows."""
    A = np.asarray(X, dtype=M.dtype)
    batches = (A[i : i + batch_size] for i in range(0, max(len(A), 1), batch_size))
    with evaluation_mode(M):
        outputs = [M.feedforward(M.backend.from_numpy(B, M.device)) for B in batches]
    return np.concatenate([M.backend.to_numpy(Y) for Y in outputs])
