"""In a float64 run no number that was given is rounded to float32 on its way to the equations."""

from __future__ import annotations

import numpy as np
import pytest

import matgrad as mg
from cli_support import succeed
from matgrad import datasets
from support import Framework, assert_close, to_numpy

BACKENDS = ("numpy", "torch")
rng = np.random.default_rng(0)
TENTHS = np.arange(60) / 10  # hardly any of which are float32 numbers


@pytest.mark.parametrize("X", [rng.random((60, 5), np.float32), 2**31 + np.arange(300).reshape(60, 5)])
def test_a_loader_that_is_moved_to_float64(X: np.ndarray, backend: Framework):
    loader = mg.DataLoader(X, TENTHS, weights=TENTHS)
    assert {A.dtype.name for A in (loader.X, loader.T, loader.weights)} == {"float32"}
    loader.to(backend.name).to(dtype="float64")
    for found, given in ((loader.X, X), (loader.T, TENTHS[:, None]), (loader.weights, TENTHS[:, None])):
        assert to_numpy(found).dtype == np.float64
        assert np.array_equal(to_numpy(found), given)


def test_one_step_with_weights_of_examples_and_classes(backend: Framework):
    X, t, c, eta = 1e9 / 7 + rng.random((60, 5)), np.arange(60) % 3, np.array([0.1, 0.7, 1.3]), 0.1
    M = mg.create_model("Linear", [5, 3]).to(backend.name, dtype="float64")
    W = to_numpy(M.layers[0].W).copy()
    M.fit(X, t, class_weight=c, sample_weight=TENTHS, normalize="standard", learning_rate=eta, epochs=1, batch_size=60)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    E = np.exp(X @ W.T)
    DY = (TENTHS * c[t])[:, None] * (E / E.sum(axis=1, keepdims=True) - np.eye(3)[t]) / 60
    assert_close(to_numpy(M.layers[0].W), W - eta * DY.T @ X, tolerance=1e-13, context=backend.name)


def test_normalizations_are_written_as_they_are(tmp_path):
    X = 1e9 / 7 + rng.random((60, 5))
    M = mg.create_model("ReLU;Linear", [5, 4, 1]).to(dtype="float64")
    M.fit(X, TENTHS, loss="MeanSquaredError", normalize="standard", normalize_targets="standard", epochs=1)
    M.save(tmp_path / "model.npz")
    read = mg.load(tmp_path / "model.npz")
    assert np.array_equal(read.normalization.offset[0], X.mean(axis=0))
    assert np.array_equal(read.predict(X), M.predict(X))
    assert_close(to_numpy(mg.from_torch(mg.to_torch(M)).predict(X)), M.predict(X), tolerance=1e-13)


def test_the_examples_of_the_command_line(tmp_path):
    table, options = tmp_path / "data.csv", ("--epochs", 1, "--layer-sizes", "2;3;1", "--layers", "ReLU;Linear")
    table.write_text("a,b,y\n" + "".join(f"{x},{x / 3},{x / 7}\n" for x in TENTHS))
    for dtype in ("float64", "float32"):
        saved, model = tmp_path / f"{dtype}.npz", tmp_path / f"{dtype}-model.npz"
        files = ("--table", table, "--save-dataset", saved, "--save-weights", model)
        succeed("train", *files, *options, "--dtype", dtype)
        data = datasets.npz(saved, dtype="float64")
        X, T = (np.concatenate(A) for A in ((data.Xtrain, data.Xtest), (data.Ttrain, data.Ttest)))
        assert np.isin(X[:, 0], TENTHS).all() == np.isin(T, TENTHS / 7).all() == (dtype == "float64")
    M = mg.load(tmp_path / "float64-model.npz")
    X = np.column_stack([TENTHS, TENTHS / 3])
    assert np.array_equal(datasets.table_features(table, like=M.features, dtype="float64"), X)
