"""Training: stochastic gradient descent, the pure training step, and what is measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from matgrad.activation_functions import relu
from matgrad.backends import backend_of
from matgrad.backends.base import Matrix, Scalar
from matgrad.datasets import DataLoader
from matgrad.layers.layer import State
from matgrad.learning_rate import learning_rate as create_scheduler
from matgrad.loss_functions import LOSSES, LossFunction, create_loss
from matgrad.matrix_operations import (
    columns_sum,
    elements_sum,
    hadamard,
    ones,
    reciprocal,
    rows_sum,
    sqrt,
)

if TYPE_CHECKING:
    from matgrad.multilayer_perceptron import MultilayerPerceptron

Batches = Iterable[tuple[Matrix, Matrix]]
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
    on_epoch: Callable[[int, float], bool | None] | None = None,
) -> None:
    """Train M: for every batch feedforward, the gradient of the mean loss, backpropagate, optimize.

    The learning rate is that of the epoch or, with `per_step`, of the step, both from 0. With
    `clip_norm` the gradients are scaled down to that norm where theirs is larger.
    ``on_epoch(epoch, lr)`` is called after each epoch, with the rate that was used last; training
    stops where it returns True.
    """
    check_loss(M, loss)
    i = 0
    for epoch in range(epochs):
        M.train()
        lr = learning_rate(epoch)
        for X, T in train_loader:
            lr = learning_rate(i) if per_step else lr
            train_batch(M, loss, X, T, M.backend.scalar(lr, like=X), clip_norm)
            i += 1
        M.end_epoch()
        if on_epoch is not None and on_epoch(epoch, lr):
            break


def train_batch(
    M: MultilayerPerceptron,
    loss: LossFunction,
    X: Matrix,
    T: Matrix,
    eta: Scalar,
    clip_norm: float | None = None,
) -> None:
    """One step: feedforward, the gradient of the mean loss, backpropagate, optimize."""
    Y = M.feedforward(X)
    _check_targets(Y, T)
    DY = loss.mean_gradient(Y, T)
    M.backpropagate(Y, DY)
    if clip_norm is not None:
        clip_gradients(M, clip_norm)
    M.optimize(eta)


def make_step(
    M: MultilayerPerceptron, loss: LossFunction, *, clip_norm: float | None = None
) -> Callable[[State, Matrix, Matrix, Scalar], State]:
    """The training step of M as a pure function ``step(state, X, T, η) -> state``.

    It can be compiled: ``jax.jit(make_step(M, loss))`` or ``tf.function(make_step(M, loss))``. Start
    with ``M.state()`` and give the last state back to M with ``M.load_state``.
    """
    check_loss(M, loss)
    model = M.clone().train()

    def step(state: State, X: Matrix, T: Matrix, eta: Scalar) -> State:
        model.load_state(state)
        train_batch(model, loss, X, T, eta, clip_norm)
        model.forget()
        return model.state()

    return step


def clip_gradients(M: MultilayerPerceptron, max_norm: float) -> None:
    """Dθ' = Dθ·min(1, c / (‖DΘ‖ + 10⁻⁶)), with ‖DΘ‖ the norm of all gradients and c = max_norm."""
    gradients = [(layer, f"D{name}") for layer in M.layers for name in layer.parameters]
    squares = [rows_sum(columns_sum(hadamard(D, D))) for D in (getattr(*g) for g in gradients)]
    one = ones(1, like=squares[0])
    c = max_norm * reciprocal(sqrt(sum(squares[1:], squares[0])) + 1e-6 * one)
    factor = elements_sum(c - relu(c - one))
    for layer, name in gradients:
        setattr(layer, name, factor * getattr(layer, name))


def check_loss(M: MultilayerPerceptron, loss: LossFunction) -> None:
    """Refuse a loss that cannot follow the last layer of M."""
    if not M.layers:
        raise ValueError("the model has no layers")
    layer = M.layers[-1]
    if layer.output in loss.accepts:
        return
    fitting = [cls.__name__ for cls in LOSSES.values() if layer.output in cls.accepts]
    needed = {"probability": "SoftmaxLayer", "log-probability": "LogSoftmaxLayer"}
    before = " or ".join(needed[kind] for kind in sorted(loss.accepts) if kind in needed)
    raise ValueError(
        f"{type(loss).__name__} cannot follow {layer!r}: put it after a {before}, or use "
        f"one of {', '.join(fitting)} here"
    )


# -- measures ----------------------------------------------------------------------------------


def compute_loss(M: MultilayerPerceptron, data: Batches, loss: LossFunction) -> float:
    """The mean loss of an example, in evaluation mode."""
    total, count = 0.0, 0
    for Y, T in _outputs(M, data):
        N, _ = Y.shape
        total += float(loss(Y, T)) * (N if loss.is_mean else 1)
        count += N
    return total / count


def compute_accuracy(M: MultilayerPerceptron, data: Batches) -> float:
    """The fraction of examples whose class is predicted, in evaluation mode.

    Targets may be one-hot rows or class indices.
    """
    correct, count = 0, 0
    for Y, T in _outputs(M, data):
        targets = backend_of(T).to_numpy(T)
        is_one_hot = targets.ndim == 2 and targets.shape[1] > 1
        classes = targets.argmax(axis=1) if is_one_hot else targets.reshape(-1)
        correct += int(np.sum(predicted_classes(M, Y) == classes))
        count += len(classes)
    return correct / count


def predicted_classes(M: MultilayerPerceptron, Y: Matrix) -> np.ndarray:
    """The class of each row of an output Y of M: the index of its largest element.

    With one column there are two classes: 1 where a probability is at least 1/2, or where another
    number is at least 0.
    """
    A = backend_of(Y).to_numpy(Y)
    if A.shape[1] > 1:
        return A.argmax(axis=1)
    threshold = 0.5 if M.layers[-1].output == "probability" else 0
    return (A[:, 0] >= threshold).astype(np.int64)


# -- the methods M.fit and M.predict -----------------------------------------------------------


def fit(
    M: MultilayerPerceptron,
    X: np.ndarray,
    T: np.ndarray,
    *,
    loss: LossFunction | str = "SoftmaxCrossEntropy",
    learning_rate: float | str | Callable[[int], float] = 0.01,
    epochs: int = 10,
    batch_size: int = 100,
    shuffle: bool = True,
    seed: int | None = None,
    validation: tuple[np.ndarray, np.ndarray] | None = None,
    per_step: bool = False,
    clip_norm: float | None = None,
    verbose: bool = False,
) -> History:
    """Train M on NumPy examples X with targets T (a matrix, or class indices) on M's own backend.

    Returns the history: for every epoch the 'loss', with class indices the 'accuracy', and the
    same of the `validation` data as 'validation_loss' and 'validation_accuracy'. `verbose` prints
    them. See `stochastic_gradient_descent` for the rest.
    """
    loss = create_loss(loss)

    def loader(X: np.ndarray, T: np.ndarray, **options: Any) -> DataLoader:
        K = M.layers[-1].output_size
        return DataLoader(X, T, batch_size, classes=K, **options).to(M.backend.name, dtype=M.dtype, device=M.device)

    train = loader(X, T, shuffle=shuffle, seed=seed)
    measured = {"": loader(X, T)} | ({"validation_": loader(*validation)} if validation else {})
    history: History = {}

    def on_epoch(epoch: int, lr: float) -> None:
        row = {}
        for prefix, data in measured.items():
            row[f"{prefix}loss"] = compute_loss(M, data, loss)
            if data.labels is not None:
                row[f"{prefix}accuracy"] = compute_accuracy(M, data)
        for name, value in row.items():
            history.setdefault(name, []).append(value)
        if verbose:
            values = "  ".join(f"{name} {value:.4f}" for name, value in row.items())
            print(f"epoch {epoch + 1}  lr {lr:.4g}  {values}")

    scheduler = create_scheduler(learning_rate)
    stochastic_gradient_descent(
        M, epochs, loss, scheduler, train, per_step=per_step, clip_norm=clip_norm, on_epoch=on_epoch
    )
    return history


def predict(M: MultilayerPerceptron, X: np.ndarray, batch_size: int = 1000) -> np.ndarray:
    """f_Θ(X) in evaluation mode, for a NumPy matrix X with any number of rows."""
    A = np.asarray(X, dtype=M.dtype)
    batches = (A[i : i + batch_size] for i in range(0, max(len(A), 1), batch_size))
    with _evaluation(M):
        outputs = [M.feedforward(M.backend.from_numpy(B, M.device)) for B in batches]
    return np.concatenate([M.backend.to_numpy(Y) for Y in outputs])


# -- shared parts ------------------------------------------------------------------------------


@contextmanager
def _evaluation(M: MultilayerPerceptron) -> Iterator[None]:
    """Evaluation mode inside, the mode of before afterwards."""
    modes = [layer.training for layer in M.layers]
    M.eval()
    try:
        yield
    finally:
        for layer, mode in zip(M.layers, modes, strict=True):
            layer.training = mode


def _outputs(M: MultilayerPerceptron, data: Batches) -> Iterator[tuple[Matrix, Matrix]]:
    """The output Y of M for every batch, with its targets T, in evaluation mode."""
    with _evaluation(M):
        for X, T in data:
            yield M.feedforward(X), T


def _check_targets(Y: Matrix, T: Matrix) -> None:
    """Refuse targets of another backend or size than the output."""
    backend_of(Y, T)
    if tuple(Y.shape) != tuple(T.shape):
        sizes = (" × ".join(map(str, A.shape)) for A in (Y, T))
        raise ValueError("the output is {} and the targets are {}: expected equal sizes".format(*sizes))
