"""The estimators `MLPClassifier` and `MLPRegressor`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from matgrad.sklearn.perceptron import Perceptron
from matgrad.softmax_functions import stable_log_softmax, stable_softmax


@dataclass(repr=False, eq=False)
class MLPClassifier(ClassifierMixin, Perceptron):
    """A multilayer perceptron that learns classes of any type; its outputs are logits, one per class.

    X is used as it is: scale it in a pipeline.

    Parameters
    ----------
    hidden_layer_sizes
        The sizes of the hidden layers: numbers, or a string such as ``"100;50"``.
    activation
        'relu', 'tanh', 'logistic' or 'identity' for all hidden layers, or hidden layers as ``matgrad train --layers``
        takes them, one or a list: ``"SReLU"``, ``"ReLU;BatchNormalization;ReLU"``. A linear layer with the outputs
        follows them.
    loss
        The loss, by default SoftmaxCrossEntropy, the only one with probabilities.
    class_weight
        How often the loss counts the examples of each class: a dictionary, or 'balanced', so that all count alike.
    density
        The fraction of weights that the linear layers store: a number, or a list with one per layer (docs/sparse.md).
    sparse_training
        A method of sparse training, such as ``"RigL"`` or ``"SET(0.3, every=50)"``.
    optimizer
        Such as ``"Adam"`` or ``"Momentum(0.9)"``.
    learning_rate
        A number, or a schedule such as ``"Exponential(0.01, 0.05)"``.
    batch_size
        The examples per step; 'auto' is 200, or all if there are fewer.
    max_iter
        The epochs of `fit`.
    early_stopping, validation_fraction, n_iter_no_change
        Whether to hold out this fraction of the examples, to stop when their loss has not decreased for that many
        epochs, and to keep the model for which it was smallest.
    backend, device
        What computes, and where; 'auto' is the C++ core, or NumPy where that is not built. The device 'auto' is a GPU
        if the backend sees one; with the backend 'auto' that is PyTorch.
    dtype
        'float32' or 'float64', which is slower; by default that of X if it has one of these, else float64.
    matmul
        How float32 matrices are multiplied: 'float32' or, on GPUs, 'tf32' or 'bf16', which round the factors.
    random_state
        The seed of the weights, the order of the examples, dropout and the held-out examples.
    verbose
        Whether to show a line per epoch.

    Attributes
    ----------
    model_
        The trained `MultilayerPerceptron`.
    classes_
        The classes, in the order of the outputs.
    n_iter_
        The epochs of training, in all calls of `partial_fit`.
    loss_curve_, loss_
        The loss of the training data after each epoch, weighted if they have weights, and that of the kept model.
    validation_scores_
        With early stopping, the accuracy (of a regressor, R²) of the held-out examples after each epoch, else None.
    history_
        These and more, as `MultilayerPerceptron.fit` returns them.
    """

    metric, default_loss = "accuracy", "SoftmaxCrossEntropy"

    class_weight: Mapping[Any, float] | str | None = field(default=None, kw_only=True)

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> MLPClassifier:
        """Train for one more epoch, with weights as they are; the first call needs all `classes`, y may lack some."""
        is_first = not hasattr(self, "model_")
        if is_first and classes is None:
            raise ValueError("partial_fit: the first call needs the classes")
        if self.class_weight == "balanced":
            raise ValueError("partial_fit: class_weight='balanced' needs all examples, expected weights of the classes")
        known = np.unique(self.classes_ if classes is None else classes)
        if not is_first and not np.array_equal(known, self.classes_):
            raise ValueError(f"partial_fit: found the classes {known}, expected {self.classes_}, as in the first call")
        if len(unknown := np.setdiff1d(column_or_1d(y), known)):
            raise ValueError(f"partial_fit: found the class {unknown.tolist()[0]!r} in y, expected one of {known}")
        return self._train_once(X, y, sample_weight, known)

    def predict(self, X: Any) -> np.ndarray:
        """The class of each example."""
        Y = self._output(X)
        return self.classes_[Y.argmax(axis=1)]

    def decision_function(self, X: Any) -> np.ndarray:
        """f_Θ(X), one column per class; for two classes a vector, the second column less the first."""
        Y = self._output(X)
        return Y[:, 1] - Y[:, 0] if len(self.classes_) == 2 else Y

    def _has_probabilities(self) -> bool:
        """Whether the loss is the softmax cross-entropy, perhaps with label smoothing."""
        name = getattr(self, "_trained_loss", self._loss_name())  # which the parameter may no longer be
        return str(name).partition("(")[0].strip() == "SoftmaxCrossEntropy"

    @available_if(_has_probabilities)
    def predict_proba(self, X: Any) -> np.ndarray:
        """softmax(f_Θ(X)), the probabilities of the classes, in the order of `classes_`."""
        return stable_softmax(self._output(X))

    @available_if(_has_probabilities)
    def predict_log_proba(self, X: Any) -> np.ndarray:
        """log-softmax(f_Θ(X)), the logarithms of the probabilities."""
        return stable_log_softmax(self._output(X))

    def _checked(self, X: Any, y: Any, sample_weight: Any, reset: bool) -> tuple[Any, np.ndarray, np.ndarray | None]:
        X, y, s = super()._checked(X, y, sample_weight, reset)
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        return X, y, s

    def _start(self, X: Any, y: np.ndarray) -> None:
        """A new model with one output per class."""
        self.classes_ = np.unique(y)
        if len(self.classes_) < 2:
            raise ValueError(f"y: found one class, {self.classes_.tolist()[0]!r}; expected at least 2 classes")
        self._create(X.dtype.name, len(self.classes_))

    def _targets(self, y: np.ndarray, s: np.ndarray | None) -> tuple[np.ndarray, np.ndarray | None]:
        """The indices of the classes, and s ⊙ T c, with c the weights of the classes; None if there are neither."""
        t = np.searchsorted(self.classes_, y)
        if self.class_weight is None:
            return t, s
        c = compute_class_weight(self.class_weight, classes=self.classes_, y=self.classes_[t])
        return t, c[t] if s is None else s * c[t]


class MLPRegressor(RegressorMixin, Perceptron):
    """A multilayer perceptron that learns numbers, one or more per example.

    X and y are used as they are: scale X in a pipeline, and y by scikit-learn's `TransformedTargetRegressor`.
    Parameters and attributes are those of `MLPClassifier`, without `class_weight` and `classes_`; the loss is by
    default MeanSquaredError.
    """

    metric, default_loss = "r2", "MeanSquaredError"

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> MLPRegressor:
        """Train for one more epoch, with weights as they are."""
        return self._train_once(X, y, sample_weight)

    def predict(self, X: Any) -> np.ndarray:
        """f_Θ(X), a vector if y was one."""
        Y = self._output(X)
        return Y[:, 0] if self._is_vector else Y

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _start(self, X: Any, y: np.ndarray) -> None:
        """A new model with one output per column of y."""
        self._is_vector = y.ndim == 1
        self._create(X.dtype.name, _columns(y).shape[1])

    def _targets(self, y: np.ndarray, s: np.ndarray | None) -> tuple[np.ndarray, np.ndarray | None]:
        return _columns(y), s


def _columns(y: np.ndarray) -> np.ndarray:
    """The numbers of the examples as a matrix."""
    return y.reshape(len(y), -1).astype(np.float64)
