"""The estimators `MLPClassifier` and `MLPRegressor`, and what they share: parameters, training and storage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import _check_partial_fit_first_call, check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, column_or_1d, validate_data

from matgrad.backends import BACKENDS
from matgrad.backends.base import DTYPES
from matgrad.callbacks import Callback
from matgrad.callbacks.methods import create_method, starts_dense
from matgrad.datasets.checking import checked_weights
from matgrad.foundation.numbers import check_size, own_generator
from matgrad.layers.weights import with_densities
from matgrad.learning_rate import create_scheduler
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.softmax_functions import stable_log_softmax, stable_softmax
from matgrad.specifications.models import create_model
from matgrad.specifications.parsing import Items, parse_numbers, split_items

ACTIVATIONS = {"identity": "Linear", "logistic": "Sigmoid", "tanh": "HyperbolicTangent", "relu": "ReLU"}
ENGINES = ("auto", *(name for name in BACKENDS if name != "sympy"))
LARGEST_BATCH = 200  # of batch_size='auto'
SEEDS = 2**31 - 1


@dataclass(repr=False, eq=False)
class Perceptron(BaseEstimator):
    """An estimator whose model is a `MultilayerPerceptron`; its parameters are those of `MLPClassifier`."""

    metric: ClassVar[str]  # the score, as a property of `Measures`
    default_loss: ClassVar[str]

    hidden_layer_sizes: Items | int = (100,)
    activation: Items = "relu"
    _: KW_ONLY
    loss: str | None = None
    density: Items | None = None
    sparse_training: str | None = None
    optimizer: str = "Adam"
    learning_rate: float | str = 0.001
    batch_size: int | str = "auto"
    max_iter: int = 200
    early_stopping: bool = False
    validation_fraction: float = 0.1
    n_iter_no_change: int = 10
    backend: str = "auto"
    device: str | None = None
    dtype: str | None = None
    matmul: str = "float32"
    random_state: Any = None
    verbose: bool = False

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train a new model on examples X, an array, a frame or a sparse matrix, with the targets y."""
        X, y, s = self._checked(X, y, sample_weight, reset=True)
        self._create(X, y)
        kept, held = self._parts(X, *self._targets(y, s))
        self._train(kept, self.max_iter, held)
        return self

    def _train_once(self, X: Any, y: Any, sample_weight: Any, classes: np.ndarray | None = None) -> Self:
        """Train for one more epoch, with weights as they are; a new model is for the classes, by default those of y."""
        for name in ("early_stopping", "sparse_training"):
            if getattr(self, name):
                raise ValueError(f"partial_fit: {name}={getattr(self, name)!r} needs a whole run of training, use fit")
        is_first = not hasattr(self, "model_")
        X, y, s = self._checked(X, y, sample_weight, reset=is_first)
        if is_first:
            self._create(X, y if classes is None else classes)
        self._train((X, *self._targets(y, s)), 1)
        return self

    # -- for the estimators -------------------------------------------------------------------
    def _outputs(self, y: np.ndarray) -> int:
        """The number of outputs of a model for the targets y."""
        raise NotImplementedError

    def _targets(self, y: np.ndarray, s: np.ndarray | None) -> tuple[np.ndarray, np.ndarray | None]:
        """The targets of the model for y, and the weights of the examples."""
        raise NotImplementedError

    def _checked(self, X: Any, y: Any, sample_weight: Any, reset: bool) -> tuple[Any, np.ndarray, np.ndarray | None]:
        """X, y and the weights as arrays, after a check of them and of the parameters."""
        self._check_parameters()
        known = self.dtype or [np.float64, np.float32]  # the first if X has another
        options = {"accept_sparse": "csr", "dtype": known if reset else self.model_.dtype}
        X, y = validate_data(self, X, y, reset=reset, multi_output=True, y_numeric=self.metric == "r2", **options)
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        return X, y, sample_weight

    def _create(self, X: Any, y: np.ndarray) -> None:
        """Make an untrained model for such examples and targets."""
        outputs = self._outputs(y)
        self._rng = np.random.default_rng(check_random_state(self.random_state).randint(SEEDS))
        sizes = parse_numbers(self.hidden_layer_sizes, "hidden_layer_sizes")
        hidden = [ACTIVATIONS.get(item, item) for item in split_items(self.activation, "activation")]
        hidden = hidden * len(sizes) if len(hidden) == 1 else hidden
        with own_generator(self._seed()):
            self.model_: MultilayerPerceptron = create_model(
                [*hidden, "Linear"],
                [self.n_features_in_, *sizes, outputs],
                optimizers=self.optimizer,
                densities=None if starts_dense(self.sparse_training) else self.density,
            ).to(self.backend, dtype=X.dtype.name, device=self.device, matmul=self.matmul)
        self.n_iter_ = 0
        self.history_: dict[str, list] = {}

    def _train(self, data: tuple, epochs: int, held: tuple | None = None) -> None:
        """Train the model for more epochs on (X, T, s), where s may be None; `held` are those to validate with."""
        X, T, s = data
        method, schedule, start = self._method(), create_scheduler(self.learning_rate), self.n_iter_
        with own_generator(self._seed()):
            history = self.model_.fit(
                X,
                T,
                loss=self._loss_name(),
                learning_rate=(lambda i: schedule(start + i)) if start else schedule,
                epochs=epochs,
                batch_size=min(LARGEST_BATCH, X.shape[0]) if isinstance(self.batch_size, str) else self.batch_size,
                seed=self._seed(),
                sample_weight=s,
                validation=held,
                early_stopping=None if held is None else self.n_iter_no_change,
                metric=self.metric,
                callbacks=[] if method is None else [method],
                verbose=self.verbose,
            )
        self._trained_loss = self._loss_name()
        self.n_iter_ += len(history["loss"])
        self.history_ = {name: [*self.history_.get(name, []), *values] for name, values in history.items()}
        self.loss_curve_ = self.history_["loss"]
        self.validation_scores_ = self.history_.get(f"validation_{self.metric}")
        self.loss_ = self.loss_curve_[-1 if held is None else int(np.nanargmin(history["validation_loss"]))]

    def _parts(self, X: Any, T: np.ndarray, s: np.ndarray | None) -> tuple[tuple, tuple | None]:
        """(X, T, s / mean(s)) in two parts, to train on and to validate with; the second is None if none are held out.

        So weights are relative: with those of mean 1, weight 2 is the example twice, and weight 0 no example.
        """
        s = None if s is None else checked_weights(s, len(T), "sample_weight") / np.mean(s)
        if not self.early_stopping:
            return (X, T, s), None
        options = {"test_size": self.validation_fraction, "random_state": self._seed()}
        given = [A for A in (X, T, s) if A is not None]
        parts = train_test_split(*given, stratify=T if self.metric == "accuracy" else None, **options)
        return (*parts[::2], None)[:3], (*parts[1::2], None)[:3]

    def _output(self, X: Any) -> np.ndarray:
        """f_Θ(X)"""
        check_is_fitted(self)
        if not self._is_valid(X):
            X = validate_data(self, X, accept_sparse="csr", dtype=self.model_.dtype, reset=False)
        return self.model_.predict(X)

    def _is_valid(self, X: Any) -> bool:
        """Whether `validate_data`, which takes longer than a small model, would return X itself."""
        is_matrix = type(X) is np.ndarray and X.ndim == 2 and X.dtype == self.model_.dtype and len(X) > 0
        is_named = hasattr(self, "feature_names_in_")
        return is_matrix and not is_named and X.shape[1] == self.n_features_in_ and bool(np.isfinite(X).all())

    # -- parts of these -----------------------------------------------------------------------
    def _seed(self) -> int:
        return int(self._rng.integers(SEEDS))

    def _loss_name(self) -> str:
        return self.default_loss if self.loss is None else self.loss

    def _method(self) -> Callback | None:
        """The method of sparse training; one that starts from a dense model reaches the density."""
        if self.sparse_training is None:
            return None
        if self.density is None or not starts_dense(self.sparse_training):
            return create_method(self.sparse_training)
        densities = [d for _, d in with_densities(self.model_.linear_layers(), self.density)]
        return create_method(self.sparse_training, density=densities)

    def _check_parameters(self) -> None:
        """Raise if a parameter that nothing else checks is invalid."""
        for name, known in (("backend", ENGINES), ("dtype", (None, *DTYPES)), ("early_stopping", (False, True))):
            if getattr(self, name) not in known:
                raise ValueError(f"{name}: found {getattr(self, name)!r}, expected one of {', '.join(map(str, known))}")
        for name in ("max_iter", "n_iter_no_change", *(() if self.batch_size == "auto" else ("batch_size",))):
            check_size(name, getattr(self, name))
        if not isinstance(self.validation_fraction, int | float | np.number) or not 0 < self.validation_fraction < 1:
            raise ValueError(f"validation_fraction: found {self.validation_fraction!r}, expected a number from 0 to 1")
        if not isinstance(self.loss, str | None):
            raise ValueError(f"loss: found {self.loss!r}, expected a string such as {self.default_loss!r}")

    # -- what scikit-learn asks for -----------------------------------------------------------
    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self.backend not in ("jax", "tensorflow")
        return tags

    def __getstate__(self) -> dict[str, Any]:
        """The state for joblib and pickle, in which the model has NumPy arrays, whatever its backend."""
        state = dict(super().__getstate__())
        if "model_" in state:
            M = self.model_
            state["model_"], state["_place"] = M.clone().to("numpy"), (M.engine, M.device, M.matmul)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        place = state.pop("_place", None)
        super().__setstate__(state)
        if place is not None:
            engine, device, matmul = place
            self.model_.to(engine, device=device if engine == "torch" else None, matmul=matmul)


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
        if self.class_weight == "balanced":
            raise ValueError("partial_fit: class_weight='balanced' needs all examples, expected weights of the classes")
        _check_partial_fit_first_call(self, classes)  # sets classes_
        if len(unknown := np.setdiff1d(column_or_1d(y), self.classes_).tolist()):
            raise ValueError(f"partial_fit: found the class {unknown[0]!r} in y, expected one of {self.classes_}")
        return self._train_once(X, y, sample_weight, self.classes_)

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

    def _outputs(self, y: np.ndarray) -> int:
        self.classes_ = np.unique(y)
        if len(self.classes_) < 2:
            raise ValueError(f"y: found one class, {self.classes_.tolist()[0]!r}; expected at least 2 classes")
        return len(self.classes_)

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

    def _outputs(self, y: np.ndarray) -> int:
        self._is_vector = y.ndim == 1
        return 1 if self._is_vector else y.shape[1]

    def _targets(self, y: np.ndarray, s: np.ndarray | None) -> tuple[np.ndarray, np.ndarray | None]:
        return y.reshape(len(y), -1).astype(np.float64), s
