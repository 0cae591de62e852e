"""The method `M.fit`: training on arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from matgrad.callbacks import (
    Accounting,
    Callback,
    EarlyStopping,
    Statistics,
    default_report,
    is_sparse_training,
)
from matgrad.datasets import DataLoader
from matgrad.datasets.checking import check_finite, checked_examples, checked_weights
from matgrad.datasets.dataset import hold_out
from matgrad.datasets.weighting import ClassWeights, class_weights, weights_by_class
from matgrad.foundation.numbers import check_size
from matgrad.learning_rate import create_scheduler
from matgrad.loss_functions import (
    LossFunction,
    check_loss,
    check_probabilities,
    create_loss,
    default_loss,
    number_of_classes,
)
from matgrad.training.run import BATCH_SIZE, EPOCHS, LEARNING_RATE, History, Training, checked_callbacks, finished

if TYPE_CHECKING:
    from matgrad.multilayer_perceptron import MultilayerPerceptron


def fit(
    M: MultilayerPerceptron,
    X: Any,
    T: np.ndarray,
    *,
    loss: LossFunction | str | None = None,
    learning_rate: float | str | Callable[[int], float] = LEARNING_RATE,
    epochs: int = EPOCHS,
    batch_size: int = BATCH_SIZE,
    shuffle: bool = True,
    seed: int | None = None,
    sample_weight: Any = None,
    class_weight: ClassWeights | None = None,
    validation: float | tuple[Any, ...] | None = None,
    early_stopping: int | None = None,
    per_step: bool = False,
    clip_norm: float | None = None,
    compiled: bool = True,
    statistics: bool = True,
    callbacks: Sequence[Callback] = (),
    verbose: bool = False,
    resume: str | Path | None = None,
) -> History:
    """Train M on NumPy examples X with targets T (a matrix, or class indices) on M's own backend.

    X may be a sparse matrix of SciPy, which is never made dense: see docs/sparse.md.
    With the defaults it trains as `matgrad train` does; X and T are normalized only if M has normalizations of them.
    The losses are then those of the normalized targets, and errors such as the 'rmse' are in the units of T.

    The default loss is the one that M was trained with, here or before it was saved. Else it is the cross-entropy that
    fits the last layer (one output has the classes 0 and 1) or, for targets that are numbers, the mean squared error;
    with one output, integers other than 0 and 1 need a named loss. `M.information` then has the loss and the number of
    classes.

    `sample_weight` has a weight for each example, and `class_weight` one for each class: 'balanced', a list, or a
    dictionary from class indices; both are multiplied. Training descends Σ sᵢℓᵢ / N, where N counts the examples
    of a batch whatever their weights: to double all weights is to double the loss and its gradient. All losses in the
    history are weighted, those of validation data by class and, if they have any, by sample weights; the accuracy
    and the RMSE count every example once.

    `validation` is a pair (X, T), a triple (X, T, sample weights), or the fraction of the examples to hold out;
    with `early_stopping` training ends when the validation loss has not improved for that many epochs, or is no
    longer finite, and M keeps the best parameters. Returns the history, which is also `M.history`: for every epoch
    the learning rate, the 'seconds' of training (with compiling, without statistics and other callbacks) and,
    unless `statistics` is off, the 'loss' and the 'accuracy' (for targets that are not classes, the 'rmse'), also
    as 'validation_loss' and so on. If a layer is sparse, it also has what `callbacks.Accounting` tells: FLOPs,
    memory, stored and explored weights.
    `verbose` shows them, in a notebook as a live table and plot. `resume` goes on from a checkpoint; `epochs` counts
    those before it too. See `stochastic_gradient_descent` for the rest.
    """
    X, T = checked_examples(X, T)
    loss = default_loss(M, T) if loss is None else create_loss(loss)
    check_loss(M, loss)
    data = _divided(X, T, sample_weight, validation, seed)
    if early_stopping is not None and ("validation_" not in data or not statistics):
        raise ValueError("early_stopping needs validation data and statistics")

    counts = [number_of_classes(M, loss, T) for _, T, _ in data.values()]
    classes = None if None in counts else counts[0]
    c = None if class_weight is None else class_weights(class_weight, data[""][1], classes)

    def loader(part: str, X: Any, T: np.ndarray, s: np.ndarray | None) -> DataLoader:
        s = s if c is None else weights_by_class(T, c) * (1 if s is None else s)
        X = _of_dtype(M.normalize(X), M.dtype, f"{part}X")
        T = M.normalize_targets(T)
        T = _of_dtype(T, M.dtype, f"{part}T") if T.dtype.kind == "f" else T  # integers may be classes
        K = M.layers[-1].output_size
        result = DataLoader(X, T, batch_size, shuffle=shuffle, seed=seed, classes=K, weights=s)
        if result.labels is None:
            check_probabilities(result.T, loss, f"{part}T")
        return result.to(M.backend.name, dtype=M.dtype, device=M.device)

    loaders = {prefix: loader(prefix.replace("_", " "), *arrays) for prefix, arrays in data.items()}
    own: list[Callback] = [Statistics(loaders, "rmse" if classes is None else "accuracy")] if statistics else []
    own += [] if early_stopping is None else [EarlyStopping(check_size("early_stopping", early_stopping))]
    own += checked_callbacks(callbacks)
    own += [Accounting()] if is_sparse_training(M, own) else []
    own += [default_report()] if verbose else []
    run = Training(M, loss, loaders[""], epochs, create_scheduler(learning_rate), per_step, clip_norm, compiled)
    known, M.information = M.information, {**M.information, "loss": loss.specification(), "classes": classes}
    try:
        return finished(run, own, resume)
    finally:
        if not run.step:  # nothing was learned
            M.information = known


def _divided(X: Any, T: np.ndarray, weights: Any, validation: Any, seed: int | None) -> dict[str, tuple]:
    """The examples and, with the prefix 'validation_', those to validate with: a fraction of them, or those given.

    Each part is (X, T, s), where s is None if the examples have no weights.
    """
    s = None if weights is None else checked_weights(weights, len(T), "sample_weight")
    if validation is None:
        return {"": (X, T, s)}
    if isinstance(validation, Real):
        parts = hold_out(X.shape[0], float(validation), 0 if seed is None else seed, "validation")
        kept, held = ((X[rows], T[rows], None if s is None else s[rows]) for rows in parts)
        return {"": kept, "validation_": held}
    if isinstance(validation, tuple | list) and len(validation) in (2, 3):
        Xv, Tv, *sv = validation
        Xv, Tv = checked_examples(Xv, Tv, "validation ")
        given = [checked_weights(x, len(Tv), "validation sample weights") for x in sv if x is not None]
        return {"": (X, T, s), "validation_": (Xv, Tv, given[0] if given else None)}
    raise ValueError(f"validation: expected a pair (X, T), a fraction or None, found {validation!r}")


def _of_dtype(A: Any, dtype: str, where: str) -> Any:
    """A with elements of the model's type, after a check that they are finite."""
    with np.errstate(over="ignore"):
        B = A.astype(dtype, copy=False)
    check_finite(B, where, A)
    return B
