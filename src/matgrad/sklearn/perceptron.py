"""What the estimators share: parameters, training and storage."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from matgrad.backends import BACKENDS
from matgrad.backends.base import DTYPES
from matgrad.callbacks import Callback
from matgrad.callbacks.methods import create_method, starts_dense
from matgrad.datasets.checking import checked_weights
from matgrad.foundation.numbers import check_size, manual_seed, preserved_generator
from matgrad.learning_rate import create_scheduler
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.sparse.densities import layer_densities
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
        self._start(X, y)
        kept, held = self._parts(X, *self._targets(y, s))
        self._train(kept, self.max_iter, held)
        return self

    # -- for the estimators -------------------------------------------------------------------
    def _start(self, X: Any, y: np.ndarray) -> None:
        """Make an untrained model for such examples and targets."""
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

    def _create(self, dtype: str, outputs: int) -> None:
        """An untrained model."""
        self._rng = np.random.default_rng(check_random_state(self.random_state).randint(SEEDS))
        sizes = parse_numbers(self.hidden_layer_sizes, "hidden_layer_sizes")
        hidden = [ACTIVATIONS.get(item, item) for item in split_items(self.activation, "activation")]
        hidden = hidden * len(sizes) if len(hidden) == 1 else hidden
        with self._random_numbers():
            self.model_: MultilayerPerceptron = create_model(
                [*hidden, "Linear"],
                [self.n_features_in_, *sizes, outputs],
                optimizers=self.optimizer,
                densities=None if starts_dense(self.sparse_training) else self.density,
            ).to(self.backend, dtype=dtype, device=self.device, matmul=self.matmul)
        self.n_iter_ = 0
        self.history_: dict[str, list] = {}

    def _train(self, data: tuple, epochs: int, held: tuple | None = None) -> None:
        """Train the model for more epochs on (X, T, s), where s may be None; `held` are those to validate with."""
        X, T, s = data
        method, schedule, start = self._method(), create_scheduler(self.learning_rate), self.n_iter_
        with self._random_numbers():
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
        given = [A for A in (X, T, s) if A is not None]
        stratify = T if self.metric == "accuracy" else None
        parts = train_test_split(
            *given, test_size=self.validation_fraction, random_state=self._seed(), stratify=stratify
        )
        kept, held = parts[::2], parts[1::2]
        return (*kept, None)[:3], (*held, None)[:3]

    def _output(self, X: Any) -> np.ndarray:
        """f_Θ(X)"""
        check_is_fitted(self)
        return self.model_.predict(validate_data(self, X, accept_sparse="csr", dtype=self.model_.dtype, reset=False))

    # -- parts of these -----------------------------------------------------------------------
    @contextmanager
    def _random_numbers(self) -> Iterator[None]:
        """Inside, the package draws from a generator of the estimator; the user's is left as it is."""
        with preserved_generator():
            manual_seed(self._seed())
            yield

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
        return create_method(self.sparse_training, density=layer_densities(self.density, self._sizes()))

    def _sizes(self) -> list[int]:
        """The number of features, then the sizes of the layers."""
        return [self.n_features_in_, *(layer.output_size for layer in self.model_.linear_layers())]

    def _check_partial(self) -> None:
        """Raise if a parameter needs a whole run of training."""
        for name in ("early_stopping", "sparse_training"):
            if getattr(self, name):
                raise ValueError(f"partial_fit: {name}={getattr(self, name)!r} needs a whole run of training, use fit")

    def _check_parameters(self) -> None:
        """Raise if a parameter that nothing else checks is invalid."""
        for name, known in (("backend", ENGINES), ("dtype", (None, *DTYPES)), ("early_stopping", (False, True))):
            if getattr(self, name) not in known:
                raise ValueError(f"{name}: found {getattr(self, name)!r}, expected one of {', '.join(map(str, known))}")
        for name in ("max_iter", "n_iter_no_change"):
            check_size(name, getattr(self, name))
        if self.batch_size != "auto":
            check_size("batch_size", self.batch_size)
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
