"""The estimators: scikit-learn's own checks, its tools, weights, frames, sparse models and backends."""

from __future__ import annotations

import io
import subprocess
import sys

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import load_iris
from sklearn.metrics import log_loss, mean_squared_error, r2_score
from sklearn.model_selection import GridSearchCV, cross_val_score, validation_curve
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.estimator_checks import estimator_checks_generator

import matgrad as mg
from matgrad.foundation.numbers import generator
from matgrad.sklearn import MLPClassifier, MLPRegressor

BACKENDS = ("numpy", "torch", "native", "jax", "tensorflow")
SMALL = {"hidden_layer_sizes": (8,), "learning_rate": 0.05, "max_iter": 20, "random_state": 0}
SLOW = "check_class_weight_classifiers"  # which trains for 1000 epochs


def blobs(N: int = 60, D: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Examples of three classes, which are words."""
    rng = np.random.default_rng(0)
    t = rng.integers(0, 3, N)
    return rng.normal(size=(N, D)) + 2 * np.eye(3, D)[t], np.array(["red", "green", "blue"])[t]


def plane(N: int = 60) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(1).normal(size=(N, 3))
    return X, X @ np.array([[1.0, 0], [2, 1], [0, -1]])


# -- scikit-learn's own checks -------------------------------------------------------------------


def checks():
    """Every check of both estimators; none is excused."""
    for estimator in (MLPClassifier(**SMALL), MLPRegressor(**SMALL)):
        for copy, check in estimator_checks_generator(estimator):
            name = getattr(check, "func", check).__name__
            marks = [pytest.mark.slow] if name == SLOW else []
            yield pytest.param(copy, check, marks=marks, id=f"{type(estimator).__name__}-{name}")


@pytest.mark.parametrize(("estimator", "check"), list(checks()))
@pytest.mark.filterwarnings("ignore")  # some checks provoke warnings
def test_scikit_learns_checks(estimator, check):
    check(estimator)


# -- its tools -----------------------------------------------------------------------------------


def test_pipelines_grid_search_and_cross_validation():
    X, y = blobs()
    pipeline = make_pipeline(StandardScaler(), MLPClassifier(**SMALL))
    assert cross_val_score(pipeline, X, y, cv=3).min() > 0.6
    grid = {"mlpclassifier__hidden_layer_sizes": [(4,), "6;4"], "mlpclassifier__optimizer": ["Adam", "Momentum(0.9)"]}
    search = GridSearchCV(pipeline, grid, cv=2).fit(X, y)
    assert search.best_score_ > 0.6
    assert search.best_estimator_[-1].model_.layers[-1].output_size == 3


def test_a_validation_curve():
    X, y = blobs()
    train, test = validation_curve(MLPClassifier(**SMALL), X, y, param_name="max_iter", param_range=[1, 10], cv=2)
    assert train.shape == test.shape == (2, 2)
    assert train[1].mean() > train[0].mean()


def test_scaled_targets():
    X, Y = plane()
    y = 1000 + 100 * Y[:, 0]
    scaled = TransformedTargetRegressor(MLPRegressor(**SMALL), transformer=StandardScaler())
    assert scaled.fit(X, y).score(X, y) > 0.8


def test_parameters_and_copies():
    estimator = MLPClassifier(class_weight="balanced", **SMALL)
    copy = clone(estimator).set_params(density=0.5, activation="tanh")
    assert copy.get_params() == estimator.get_params() | {"density": 0.5, "activation": "tanh"}
    assert {*MLPRegressor().get_params()} == {*copy.get_params()} - {"class_weight"}


# -- what is learned -----------------------------------------------------------------------------


def test_classes_and_probabilities():
    X, y = blobs()
    estimator = MLPClassifier(**SMALL).fit(X, y)
    assert [*estimator.classes_] == ["blue", "green", "red"]
    P = estimator.predict_proba(X)
    np.testing.assert_allclose(P.sum(axis=1), 1)
    np.testing.assert_array_equal(estimator.predict(X), estimator.classes_[P.argmax(axis=1)])
    np.testing.assert_allclose(np.exp(estimator.predict_log_proba(X)), P)
    assert estimator.loss_ == pytest.approx(log_loss(y, P))
    assert estimator.n_iter_ == len(estimator.loss_curve_) == SMALL["max_iter"]
    assert estimator.score(X, y) == estimator.history_["accuracy"][-1]
    assert estimator.validation_scores_ is None


def test_decision_functions():
    X, y = load_iris(return_X_y=True)
    for loss in ("SoftmaxCrossEntropy", "Hinge"):
        for t in (y, y > 0):
            estimator = MLPClassifier(loss=loss, max_iter=3, random_state=0).fit(X, t)
            found = estimator.decision_function(X)
            chosen = found.argmax(axis=1) if found.ndim == 2 else (found > 0).astype(int)
            np.testing.assert_array_equal(estimator.classes_[chosen], estimator.predict(X))
    assert not hasattr(estimator.set_params(loss="SoftmaxCrossEntropy"), "predict_proba"), "it was trained with another"


def test_numbers():
    X, Y = plane()
    for y in (Y, Y[:, 0]):
        estimator = MLPRegressor(**SMALL).fit(X, y)
        found = estimator.predict(X)
        assert found.shape == y.shape
        assert estimator.loss_ == pytest.approx(mean_squared_error(y, found))
        assert estimator.score(X, y) == pytest.approx(r2_score(y, found))


def test_other_losses():
    X, y = blobs()
    estimator = MLPClassifier(loss="MeanSquaredError", **SMALL).fit(X, y)
    assert estimator.score(X, y) > 0.5
    assert not hasattr(estimator, "predict_proba")
    assert hasattr(MLPClassifier(loss="SoftmaxCrossEntropy(0.1)"), "predict_proba")


@pytest.mark.parametrize(
    ("sizes", "activation", "layers"),
    [
        ((5, 4), "tanh", ["HyperbolicTangent", "HyperbolicTangent", None]),
        ("5;4", ["logistic", "GELU"], ["Sigmoid", "GELU", None]),
        (5, "ReLU;BatchNormalization", ["ReLU", None, None]),
        ((), "relu", [None]),
    ],
)
def test_hidden_layers(sizes, activation, layers):
    X, y = blobs()
    M = MLPClassifier(**SMALL | {"hidden_layer_sizes": sizes, "activation": activation}).fit(X, y).model_
    names = [
        type(layer.act).__name__.removesuffix("Activation") if hasattr(layer, "act") else None for layer in M.layers
    ]
    assert names == layers


def test_early_stopping_keeps_the_best_model():
    X, y = blobs(200)
    options = {"early_stopping": True, "validation_fraction": 0.25, "n_iter_no_change": 3, "max_iter": 200}
    estimator = MLPClassifier(**SMALL | options | {"learning_rate": 0.3}).fit(X, y)
    losses = estimator.history_["validation_loss"]
    assert estimator.n_iter_ == len(losses) == len(estimator.validation_scores_) < 200
    assert np.argmin(losses) == len(losses) - 4
    assert estimator.loss_ == estimator.loss_curve_[np.argmin(losses)]
    regressor = MLPRegressor(**SMALL | options).fit(*plane())
    assert len(regressor.validation_scores_) == regressor.n_iter_
    assert regressor.validation_scores_[-1] > 0.5  # R²


def test_partial_fit_goes_on():
    X, y = blobs()
    estimator = MLPClassifier(**SMALL)
    with pytest.raises(ValueError, match="classes must be passed on the first call"):
        estimator.partial_fit(X, y)
    is_red = y == "red"
    estimator.partial_fit(X[is_red], y[is_red], classes=np.unique(y))
    for _ in range(15):
        estimator.partial_fit(X, y)
    assert estimator.n_iter_ == len(estimator.loss_curve_) == 16
    assert estimator.score(X, y) > 0.8
    with pytest.raises(ValueError, match="found the class 'pink' in y, expected one of"):
        estimator.partial_fit(X[:1], ["pink"])
    with pytest.raises(ValueError, match="is not the same as on last call"):
        estimator.partial_fit(X, y, classes=["red", "green"])
    regressor = MLPRegressor(**SMALL)
    X, Y = plane()
    losses = [regressor.partial_fit(X, Y).loss_ for _ in range(5)]
    assert losses == regressor.loss_curve_
    assert losses[-1] < losses[0]


def test_a_schedule_goes_on_in_partial_fit():
    X, Y = plane()
    regressor = MLPRegressor(**SMALL | {"learning_rate": "Exponential(0.1, 1)"})
    for _ in range(3):
        regressor.partial_fit(X, Y)
    assert regressor.history_["learning_rate"] == pytest.approx(0.1 * np.exp([0, -1, -2]))


def test_the_random_state_decides_everything():
    X, y = blobs()
    options = SMALL | {"batch_size": 16, "density": 0.5, "sparse_training": "SET(every=2)"}
    mg.manual_seed(3)
    before = generator().bit_generator.state
    first, same, other = (MLPClassifier(**options | {"random_state": i}).fit(X, y).predict_proba(X) for i in (0, 0, 1))
    np.testing.assert_array_equal(first, same)
    assert not np.array_equal(first, other)
    assert generator().bit_generator.state == before


@pytest.mark.parametrize("engine", ["numpy", "torch", "auto"])
def test_estimators_in_threads_are_those_fitted_one_by_one(engine: str):
    """Weights, supports, orders, dropout, new connections and held-out examples, all drawn at the same time."""
    X, y = blobs()
    options = SMALL | {"batch_size": 16, "density": 0.5, "sparse_training": "SET(every=2)", "early_stopping": True}
    options |= {"activation": "Dropout(0.2);ReLU", "max_iter": 4, "backend": engine}

    def fitted(seed: int) -> np.ndarray:
        return MLPClassifier(**options | {"random_state": seed}).fit(X, y).decision_function(X)

    mg.manual_seed(3)
    before = generator().bit_generator.state
    expected, interval = [fitted(seed) for seed in range(6)], sys.getswitchinterval()
    try:
        sys.setswitchinterval(1e-5)
        tasks = (joblib.delayed(fitted)(seed) for seed in range(6))
        found = joblib.Parallel(n_jobs=4, backend="threading")(tasks)
    finally:
        sys.setswitchinterval(interval)
    for seed, (Y, T) in enumerate(zip(found, expected, strict=True)):
        np.testing.assert_array_equal(Y, T, err_msg=f"{engine}, seed {seed}")
    assert generator().bit_generator.state == before


# -- weights -------------------------------------------------------------------------------------


def test_weights_are_relative_and_in_the_loss():
    X, y = blobs()
    s = np.random.default_rng(2).uniform(0, 3, len(y))
    estimator, ten_times, plain = (MLPClassifier(**SMALL) for _ in range(3))
    estimator.fit(X, y, sample_weight=s)
    P = estimator.predict_proba(X)
    assert estimator.loss_ == pytest.approx(log_loss(y, P, sample_weight=s))
    np.testing.assert_allclose(ten_times.fit(X, y, sample_weight=10 * s).predict_proba(X), P)
    assert not np.allclose(plain.fit(X, y).predict_proba(X), P)


@pytest.mark.parametrize("weights", ["balanced", {"red": 5, "blue": 0.5}])
def test_class_weights_are_those_of_the_examples(weights):
    X, y = blobs()
    rows = np.flatnonzero((y != "red") | (np.arange(len(y)) % 4 == 0))
    X, y, s = X[rows], y[rows], np.random.default_rng(2).uniform(0, 3, len(rows))
    by_class = MLPClassifier(class_weight=weights, **SMALL).fit(X, y, sample_weight=s)
    by_example = MLPClassifier(**SMALL).fit(X, y, sample_weight=s * compute_sample_weight(weights, y))
    np.testing.assert_allclose(by_class.predict_proba(X), by_example.predict_proba(X))


def test_class_weights_in_partial_fit():
    """A part of the data need not have all classes, and its weights count as they are."""
    X, y = blobs()
    is_red = y == "red"
    weighted, plain = MLPClassifier(class_weight={"red": 3, "blue": 2}, **SMALL), MLPClassifier(**SMALL)
    weighted.partial_fit(X[is_red], y[is_red], classes=np.unique(y))
    plain.partial_fit(X[is_red], y[is_red], classes=np.unique(y), sample_weight=np.full(is_red.sum(), 3))
    np.testing.assert_allclose(weighted.predict_proba(X), plain.predict_proba(X))


# -- data ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_frames(frame):
    X, y = blobs()
    columns = {"a": X[:, 0], "b": X[:, 1], "c": X[:, 2]}
    estimator = MLPClassifier(**SMALL).fit(frame(columns), y)
    assert [*estimator.feature_names_in_] == ["a", "b", "c"]
    expected = MLPClassifier(**SMALL).fit(X, y).predict_proba(X)
    np.testing.assert_allclose(estimator.predict_proba(frame(columns)), expected)
    with pytest.raises(ValueError, match="feature names"):
        estimator.predict(frame({"b": X[:, 1], "a": X[:, 0], "c": X[:, 2]}))


def test_the_dtype_is_that_of_the_examples():
    X, y = blobs()
    assert MLPClassifier(**SMALL).fit(X.astype("float32"), y).model_.dtype == "float32"
    assert MLPClassifier(**SMALL).fit(X.astype(int), y).model_.dtype == "float64"
    assert MLPClassifier(dtype="float32", **SMALL).fit(X, y).predict_proba(X).dtype == "float32"


# -- backends and sparse models ------------------------------------------------------------------


def test_every_backend(backend):
    """Training with weights and early stopping, and the same probabilities after a way through a file."""
    X, y = blobs()
    X, s = X.astype("float32"), np.linspace(0, 2, len(y))
    estimator = MLPClassifier(backend=backend.name, early_stopping=True, **SMALL).fit(X, y, sample_weight=s)
    assert estimator.model_.engine == backend.name
    P = estimator.predict_proba(X)
    reference = MLPClassifier(backend="numpy", early_stopping=True, **SMALL).fit(X, y, sample_weight=s)
    np.testing.assert_allclose(P, reference.predict_proba(X), atol=1e-5)
    file = io.BytesIO()
    joblib.dump(estimator, file)
    assert estimator.model_.engine == backend.name
    copy = joblib.load(io.BytesIO(file.getvalue()))
    assert copy.model_.engine == backend.name
    np.testing.assert_allclose(copy.predict_proba(X), P, atol=1e-6)


def test_sparse_examples(backend):
    X, y = blobs()
    X = np.where(np.abs(X) > 0.5, X, 0)
    dense, sparse = (MLPClassifier(backend=backend.name, **SMALL) for _ in range(2))
    if not backend.backend.has_sparse:
        with pytest.raises(TypeError, match="has no sparse matrices"):
            sparse.fit(csr_array(X), y)
        return
    P = sparse.fit(csr_array(X), y).predict_proba(csr_array(X))
    np.testing.assert_allclose(P, dense.fit(X, y).predict_proba(X), rtol=1e-9)


@pytest.mark.parametrize(
    ("options", "density"),
    [
        ({"density": 0.5}, 0.5),
        ({"density": "0.25;1"}, 0.25),
        ({"density": 0.5, "sparse_training": "RigL(every=1)"}, 0.5),
        ({"density": 0.5, "sparse_training": "GMP(every=1)"}, 0.5),
        ({"sparse_training": "SNIP(0.5)"}, None),
    ],
)
def test_sparse_layers(options: dict, density: float | None):
    X, y = blobs(D=8)
    M = MLPClassifier(**SMALL | options).fit(X, y).model_
    assert M.layers[0].is_sparse
    if density is not None:
        assert M.layers[0].W.support.density == pytest.approx(density)


# -- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden_layer_sizes": (0,)}, "layer size 2 must be a positive integer"),
        ({"hidden_layer_sizes": "a"}, "hidden_layer_sizes 1: expected an integer, found 'a'"),
        ({"hidden_layer_sizes": (5, 4), "activation": "ReLU;ReLU;ReLU"}, "expected 5 layer sizes for 4 linear layers"),
        ({"activation": "rely"}, "unknown layer 'rely'"),
        ({"optimizer": "adam"}, "unknown optimizer 'adam'"),
        ({"learning_rate": -1}, "lr must be finite and at least 0"),
        ({"loss": "Entropy"}, "unknown loss function 'Entropy'"),
        ({"loss": "CrossEntropy"}, "CrossEntropyLoss cannot follow"),
        ({"loss": 3}, "loss: found 3, expected a string such as 'SoftmaxCrossEntropy'"),
        ({"density": 2}, "density"),
        ({"sparse_training": "Rigel"}, "unknown method of sparse training 'Rigel'"),
        ({"batch_size": 0}, "batch_size must be a positive integer, found 0"),
        ({"max_iter": 1.5}, "max_iter must be a positive integer, found 1.5"),
        ({"n_iter_no_change": 0}, "n_iter_no_change must be a positive integer"),
        ({"early_stopping": 3}, "early_stopping: found 3, expected one of False, True"),
        ({"validation_fraction": 1}, "validation_fraction: found 1, expected a number from 0 to 1"),
        ({"backend": "abacus"}, "backend: found 'abacus', expected one of auto, numpy"),
        ({"dtype": "float16"}, "dtype: found 'float16', expected one of None, float32, float64"),
        ({"class_weight": {"pink": 2}}, "pink|class_weight"),
    ],
)
def test_wrong_parameters_are_refused(options: dict, message: str):
    with pytest.raises(ValueError, match=message):
        MLPClassifier(**SMALL | options).fit(*blobs())


@pytest.mark.parametrize(
    ("y", "message"),
    [(["red"] * 60, "found one class, .*red.*; expected at least 2 classes"), (np.ones((60, 2), int), "1d array")],
)
def test_targets_that_are_no_classes_are_refused(y, message: str):
    with pytest.raises(ValueError, match=message):
        MLPClassifier(**SMALL).fit(blobs()[0], y)


@pytest.mark.parametrize(
    "options", [{"early_stopping": True}, {"sparse_training": "SET"}, {"class_weight": "balanced"}]
)
def test_what_needs_a_whole_run_is_refused_in_partial_fit(options: dict):
    X, y = blobs()
    with pytest.raises(ValueError, match="partial_fit: "):
        MLPClassifier(**SMALL | options).partial_fit(X, y, classes=np.unique(y))


def test_without_scikit_learn_the_extra_is_named():
    code = "import sys; sys.modules['sklearn'] = None; import matgrad.sklearn"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "estimators need sklearn, which is not installed: pip install '.[sklearn]'" in result.stderr
