"""The model: moving between backends, modes, state, its summary, fit and predict, and bad input."""

from __future__ import annotations

import numpy as np
import pytest

import matgrad as mg
from support import Framework, assert_close, to_numpy

BACKENDS = ("numpy", "torch", "jax", "tensorflow")


def small_model(dtype: str = "float32") -> mg.MultilayerPerceptron:
    mg.manual_seed(5)
    M = mg.MultilayerPerceptron(
        [
            mg.ActivationDropoutLayer(4, 6, mg.LeakyReLUActivation(0.1), dropout=0.25),
            mg.BatchNormalizationLayer(6),
            mg.SReLULayer(6, 5),
            mg.LinearLayer(5, 3),
        ]
    )
    M.set_optimizer("Adam")
    return M.to(dtype=dtype)


def blobs(seed: int = 0, N: int = 90) -> tuple[np.ndarray, np.ndarray]:
    """Three classes that a small network separates."""
    rng = np.random.default_rng(seed)
    t = np.arange(N) % 3
    return rng.normal(size=(N, 4)) + 3 * np.eye(3, 4)[t], t


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_to_moves_the_whole_state_and_back(backend: Framework, dtype: str):
    M, expected = small_model(), small_model().state()

    assert M.to(backend.name, dtype=dtype) is M
    assert (M.backend.name, M.dtype) == (backend.name, dtype)
    for name, value in M.state().items():
        wanted = expected[name].astype(dtype) if expected[name].dtype.kind == "f" else expected[name]
        assert_close(value, wanted, tolerance=0.0, context=f"{backend}, {name}")

    M.to("numpy", dtype="float32")
    for name, value in M.state().items():
        assert isinstance(value, np.ndarray)
        assert_close(value, expected[name], tolerance=0.0, context=f"{backend} and back, {name}")


def test_a_moved_model_shares_no_memory():
    M, other = small_model(), small_model()
    W = M.layers[0].W
    M.to("torch")
    M.layers[0].W += 1

    np.testing.assert_array_equal(W, other.layers[0].W)


def test_bad_targets_of_to_are_refused():
    with pytest.raises(ValueError, match="unknown backend 'pytorch'; did you mean 'torch'\\? \\(known: numpy, torch"):
        small_model().to("pytorch")
    with pytest.raises(ValueError, match="expected one of float32, float64, found 'int8'"):
        small_model().to(dtype="int8")


def test_train_and_eval_switch_batch_statistics_and_dropout(backend: Framework):
    M = small_model("float64").to(backend.name)
    X = backend.matrix(blobs()[0][:8])

    assert M.eval() is M
    Y = to_numpy(M.feedforward(X))
    halves = [to_numpy(M.feedforward(X[:4])), to_numpy(M.feedforward(X[4:]))]
    np.testing.assert_allclose(Y, np.concatenate(halves), rtol=1e-12)  # rows do not see each other

    assert M.train() is M
    assert np.abs(to_numpy(M.feedforward(X)) - Y).max() > 1e-3
    M.layers[0].training = False
    assert M.layers[0].dropout_matrix(M.layers[0].W) is None


def test_the_summary_shows_layers_sizes_and_counts():
    lines = str(small_model()).splitlines()

    assert lines[0] == "MultilayerPerceptron on numpy, float32"
    assert lines[2].split() == ["1", "ActivationDropoutLayer(4,", "6,", "LeakyReLU(alpha=0.1))", "4", "→", "6", "30"]
    assert lines[-1].split() == ["total", str(30 + 12 + 35 + 20 + 18)]
    assert str(mg.MultilayerPerceptron()).startswith("MultilayerPerceptron")


def test_fit_learns_on_every_backend_and_reports_its_history(backend: Framework):
    X, t = blobs()
    M = mg.MultilayerPerceptron([mg.ActivationLayer(4, 8, mg.ReLUActivation()), mg.LinearLayer(8, 3)])
    M.to(backend.name)

    history = M.fit(X, t, learning_rate=0.2, epochs=8, batch_size=20, seed=1, validation=blobs(1))

    measures = {"loss", "accuracy", "validation_loss", "validation_accuracy"}
    assert set(history) == {"epoch", "learning_rate", "seconds"} | measures
    assert all(len(values) == 8 for values in history.values())
    assert history["loss"][-1] < history["loss"][0]
    assert history["validation_accuracy"][-1] > 0.9
    Y = M.predict(X, batch_size=7)
    assert Y.shape == (90, 3)
    assert Y.dtype == np.float32
    assert np.mean(Y.argmax(axis=1) == t) == pytest.approx(history["accuracy"][-1])


def test_equal_seeds_give_equal_runs_on_every_backend(backend: Framework):
    """Initial weights, dropout and the order of the batches come from seeds, not from the framework."""

    def run(name: str) -> list[float]:
        M = small_model("float64").to(name)
        M.set_optimizer("Momentum(0.9)")
        return M.fit(*blobs(), learning_rate=0.01, epochs=2, batch_size=25, seed=3)["loss"]

    assert run(backend.name) == pytest.approx(run("numpy"), rel=1e-9)


def test_fit_does_regression(capsys):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = X[:, 0] - 2 * X[:, 1]
    mg.manual_seed(0)
    M = mg.MultilayerPerceptron([mg.LinearLayer(2, 1)])

    history = M.fit(X, y, loss="MeanSquaredError", learning_rate=0.1, epochs=20, batch_size=10, seed=0, verbose=True)

    assert set(history) == {"epoch", "learning_rate", "seconds", "loss", "rmse"}
    assert history["loss"][-1] < 1e-6
    np.testing.assert_allclose(M.layers[0].W, [[1, -2]], atol=1e-3)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:3] == ["epoch", "lr", "loss"]
    assert lines[1].split()[:2] == ["1", "0.1"]
    assert len(lines) == 21


@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        (np.zeros((2, 5), np.float32), ValueError, "expected a batch X of size N × 4, found 2 × 5"),
        (np.zeros(4, np.float32), ValueError, "expected a batch X of size N × 4, found 4"),
        (np.zeros((2, 4)), TypeError, "X is float64 but the model is float32"),
        ([[0.0] * 4], TypeError, "builtins.list is not a matrix type"),
    ],
)
def test_bad_batches_are_refused(X, error: type[Exception], message: str):
    with pytest.raises(error, match=message):
        small_model().feedforward(X)


def test_a_model_without_layers_is_refused():
    with pytest.raises(ValueError, match="no parameters"):
        mg.MultilayerPerceptron().feedforward(np.zeros((1, 1)))
    with pytest.raises(ValueError, match="the model has no layers"):
        mg.make_step(mg.MultilayerPerceptron(), mg.SquaredErrorLoss())
