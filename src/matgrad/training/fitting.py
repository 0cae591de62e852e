"""The method `M.fit`: the one way from data to a trained model; the command line and the estimators call it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from matgrad import loss_functions as lf
from matgrad.callbacks import SNIP, Accounting, Callback, EarlyStopping, Statistics, TopologyCallback, default_report
from matgrad.datasets import DataLoader, Normalization, Text
from matgrad.datasets.checking import as_type, checked_examples, checked_weights
from matgrad.datasets.dataset import hold_out
from matgrad.datasets.loader import ClassWeights, class_indices, class_weights, weights_by_class
from matgrad.evaluation.sampling import check_causal
from matgrad.foundation.numbers import check_size
from matgrad.layers.dropout import LinearDropoutLayer
from matgrad.layers.linear import LinearLayer
from matgrad.layers.tokens import EmbeddingLayer
from matgrad.learning_rate import create_scheduler
from matgrad.training.run import Training
from matgrad.training.view import BATCH_SIZE, EPOCHS, LEARNING_RATE, Data, History, checked_callbacks

if TYPE_CHECKING:
    from matgrad.multilayer_perceptron import MultilayerPerceptron

Part = tuple[Any, np.ndarray, np.ndarray | None]  # X, T and s; s is None if the examples have no weights


def fit(
    M: MultilayerPerceptron,
    X: Any,
    T: Any = None,
    *,
    loss: lf.LossFunction | str | None = None,
    learning_rate: float | str | Callable[[int], float] = LEARNING_RATE,
    epochs: int = EPOCHS,
    batch_size: int = BATCH_SIZE,
    shuffle: bool = True,
    seed: int | None = None,
    sample_weight: Any = None,
    class_weight: ClassWeights | None = None,
    validation: float | tuple[Any, ...] | None = None,
    test: tuple[Any, ...] | None = None,
    early_stopping: int | None = None,
    normalize: str | None = None,
    normalize_targets: str | None = None,
    metric: str | None = None,
    per_step: bool = False,
    clip_norm: float | None = None,
    compiled: bool = True,
    statistics: bool = True,
    callbacks: Sequence[Callback] = (),
    verbose: bool = False,
    resume: str | Path | None = None,
) -> History:
    """Train M on NumPy examples X with targets T (a matrix, or class indices) on M's own backend.

    X may be a sparse matrix of SciPy, which is never made dense: see docs/sparse.md. Data that differs from epoch to
    epoch, such as augmented images, is a function in place of X and T: ``M.fit(lambda epoch: (X, T))``. So is a text,
    ``M.fit(mg.load_text(FILE))``, for a model that predicts each next character; its end is measured as `test`.
    With the defaults it trains as `matgrad train` does, but X and T are normalized only if M has normalizations of
    them. A model without one gets that of the examples that it is trained on (not of validation data) if `normalize` or
    `normalize_targets` is 'none', 'unit' (to [0, 1]) or 'standard' (mean 0, standard deviation 1); 'auto' targets are
    standard after a linear layer with a squared error or Huber as loss. The losses are those of the normalized targets,
    and errors such as the 'rmse' are in the units of T.

    The default loss is the one that M was trained with, here or before it was saved. Else it is the cross-entropy that
    fits the last layer (one output has the classes 0 and 1) or, for targets that are numbers, the mean squared error;
    with one output, integers other than 0 and 1 need a named loss. `M.information` then has the loss and the number of
    classes.

    `sample_weight` has a weight for each example, and `class_weight` one for each class: 'balanced', a list, or a
    dictionary from class indices; both are multiplied. Training descends Σ sᵢℓᵢ / N, where N counts the examples
    of a batch whatever their weights: to double all weights is to double the loss and its gradient. All losses in the
    history are weighted, those of validation data by class and, if they have any, by sample weights; the accuracy
    and the RMSE count every example once.

    `validation` is a pair (X, T), a triple (X, T, sample weights), or the fraction of the examples to hold out; `test`
    is such a pair or triple, which is only measured. With `early_stopping` training ends when the validation loss has
    not improved for that many epochs, or is no longer finite, and M keeps the best parameters.

    Returns the history, which is also `M.history`: for every epoch the learning rate, the 'seconds' of training (with
    compiling, without statistics and other callbacks) and, unless `statistics` is off, the 'loss' and the `metric`
    ('accuracy', 'rmse', 'mae', 'r2' or 'perplexity'; by default the perplexity of texts, the accuracy of other classes
    and the RMSE of numbers), also as
    'validation_loss', 'test_loss' and so on. If a layer is sparse, it also has what `callbacks.Accounting` adds:
    FLOPs, memory, stored and explored weights.
    `verbose` shows them, in a notebook as a live table and plot. `resume` continues a checkpoint; `epochs` counts
    those before it too. See `stochastic_gradient_descent` for the rest.
    """
    is_function = callable(X)
    if is_function and not (T is None and sample_weight is None):
        raise ValueError("X is a function of the epoch, which returns (X, T): expected no T and no sample_weight")
    if isinstance(X, Text):
        check_causal(M)
        test = (X.Xtest, X.Ttest) if test is None else test
    examples = _checked("the data of epoch 0", X(0)) if is_function else _checked("", (X, T, sample_weight))
    loss = lf.default_loss(M, examples[1]) if loss is None else lf.create_loss(loss)
    lf.check_loss(M, loss)
    if early_stopping is not None and (validation is None or not statistics):
        raise ValueError("early_stopping needs validation data and statistics")
    if is_function and isinstance(validation, Real):
        raise ValueError("validation: no fraction of data that differs by epoch can be held out; expected (X, T)")
    parts = _parts(examples, validation, test, seed)
    inputs, targets = _normalizations(M, loss, *parts[""][:2], normalize, normalize_targets)
    counts = [lf.number_of_classes(M, loss, T) for _, T, _ in parts.values()]
    classes = None if None in counts or targets is not None else counts[0]
    c = None if class_weight is None else class_weights(class_weight, parts[""][1], classes)

    def loader(name: str, part: Part, seed: Any = seed) -> DataLoader:
        X, T, s = part
        s = s if c is None else weights_by_class(T, c) * (1 if s is None else s)
        if isinstance(first := M.layers[0], EmbeddingLayer):
            class_indices(X, first.V, f"{name}X: ")
        X = as_type(X if inputs is None else inputs.apply(X), M.dtype, f"{name}X")
        T = T if targets is None else targets.apply(T.reshape(len(T), -1))
        T = as_type(T, M.dtype, f"{name}T") if T.dtype.kind == "f" else T  # integers may be classes
        K = M.layers[-1].output_size
        options: dict[str, Any] = {"shuffle": shuffle, "seed": seed, "classes": K, "weights": s}
        result = DataLoader(X, T, batch_size, **options, checked=inputs is None and targets is None)
        if result.labels is None:
            lf.check_target_values(M, result.T, loss, f"{name}T")
        return result.to(M.backend.name, dtype=M.dtype, device=M.device)

    def loader_of_epoch(i: int) -> DataLoader:
        if not i:
            return loaders[""]
        return loader("", _checked(f"the data of epoch {i}", X(i)), None if seed is None else (seed, i))

    loaders = {prefix: loader(prefix.replace("_", " "), part) for prefix, part in parts.items()}
    data: Data = loader_of_epoch if is_function else loaders[""]
    metric = metric or ("perplexity" if loss.has_tokens else "rmse" if classes is None else "accuracy")
    own: list[Callback] = [Statistics(loaders, metric, every_epoch=statistics)]
    own += [] if early_stopping is None else [EarlyStopping(check_size("early_stopping", early_stopping))]
    own += checked_callbacks(callbacks)
    is_sparse = any(layer.is_sparse for layer in M.layers) or any(isinstance(x, SNIP | TopologyCallback) for x in own)
    if is_sparse and not any(isinstance(callback, Accounting) for callback in own):
        own.append(Accounting())
    own += [default_report()] if verbose else []
    run = Training(M, loss, data, epochs, create_scheduler(learning_rate), per_step, clip_norm, compiled)
    M.normalization, M.target_normalization = inputs, targets
    known, M.information = M.information, {**M.information, "loss": lf.loss_name(loss), "classes": classes}
    M.information |= {"class_names": list(X.class_names or ())} if isinstance(X, Text) else {}
    try:
        return run.train(own, resume)
    finally:
        if not run.step:  # nothing was learned
            M.information = known


def _parts(examples: Part, validation: Any, test: Any, seed: int | None) -> dict[str, Part]:
    """The examples to train on and, by the prefixes 'validation_' and 'test_', those to validate and test with."""
    parts = {"": examples}
    if isinstance(validation, Real):
        X, T, s = examples
        rows = hold_out(X.shape[0], float(validation), 0 if seed is None else seed, "validation")
        parts[""], parts["validation_"] = ((X[i], T[i], None if s is None else s[i]) for i in rows)
    elif validation is not None:
        parts["validation_"] = _checked("validation", validation, ", a fraction or None")
    if test is not None:
        parts["test_"] = _checked("test", test, " or None")
    return parts


def _checked(name: str, part: Any, other: str = "") -> Part:
    """The examples (X, T) or (X, T, s) of a part, checked."""
    if not isinstance(part, tuple | list) or len(part) not in (2, 3):
        raise ValueError(f"{name}: expected a pair (X, T){other}, found {type(part).__name__}")
    where, s = f"{name} " if name else "", part[2] if len(part) == 3 else None
    X, T = checked_examples(part[0], part[1], where)
    return X, T, None if s is None else checked_weights(s, len(T), f"{where}sample_weight")


def _normalizations(
    M: MultilayerPerceptron, loss: lf.LossFunction, X: Any, T: np.ndarray, kind: str | None, target_kind: str | None
) -> tuple[Normalization | None, Normalization | None]:
    """The normalizations of the inputs and of the targets: those of M, else those of these kinds for X and T."""
    inputs, targets = M.normalization, M.target_normalization
    if M.layers[0].input == "labels" and (found := kind if inputs is None else inputs.kind) not in (None, "none"):
        raise ValueError(f"normalize: found {found!r}, but {M.layers[0]!r} takes labels, which keep their values")
    if inputs is None and kind is not None:
        inputs = Normalization.of(kind, X, dtype=M.dtype)
    if target_kind == "auto":
        is_free = type(M.layers[-1]) in (LinearLayer, LinearDropoutLayer)  # every output can be any number
        target_kind = "standard" if is_free and isinstance(loss, lf.SquaredErrorLoss | lf.HuberLoss) else None
    if targets is None and target_kind not in (None, "none"):
        targets = Normalization.of(target_kind, T.reshape(len(T), -1), dtype=M.dtype)
    return inputs, targets
