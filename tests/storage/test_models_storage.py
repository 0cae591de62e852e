"""Saved models: what is in the file, reading it back, the original's files, and damaged ones."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
from sklearn.metrics import r2_score

import matgrad as mg
from matgrad.datasets import Features, Normalization
from matgrad.datasets.features import Column
from matgrad.specifications import models as specifications
from matgrad.specifications.models import create_model
from matgrad.storage.models import load, load_weights, save_model
from support import Framework, to_numpy

BACKENDS = ("numpy", "torch", "jax", "tensorflow")

LAYERS, SIZES = "ReLU;BatchNormalization;SReLU;Linear", "5;7;6;3"


def trained(backend: str = "numpy") -> mg.MultilayerPerceptron:
    """A model in which nothing has its initial value any more."""
    mg.manual_seed(1)
    rng = np.random.default_rng(2)
    M = create_model(LAYERS, SIZES, dropouts="0.3;0;0", optimizers="Adam").to(backend)
    M.fit(rng.normal(size=(30, 5)), rng.integers(0, 3, 30), epochs=3, batch_size=10, seed=0)
    return M


@pytest.fixture
def file(tmp_path):
    return tmp_path / "model.npz"


def test_a_model_comes_back_whole_from_any_backend(backend: Framework, file):
    M = trained(backend.name)
    M.save(file, information={"loss": "SquaredError", "π": 3})
    saved = load(file)

    expected = {name: to_numpy(X) for name, X in M.state().items() if name.count(".") == 1}
    assert {"1.seed", "1.renewals", "2.running_mean", "3.al"} < expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(to_numpy(saved.state()[name]), value, err_msg=name)
    assert saved.information == {"loss": "SquaredError", "classes": 3, "π": 3}
    X = np.random.default_rng(3).normal(size=(4, 5)).astype(np.float32)
    np.testing.assert_allclose(saved.predict(X), M.predict(X), rtol=1e-5)


def test_a_loaded_model_has_the_dtype_and_the_optimizer_of_a_new_one(file):
    X = np.random.default_rng(3).normal(size=(4, 5))
    for dtype in ("float32", "float64"):
        M = trained().to(dtype=dtype)
        M.save(file)
        loaded = mg.load(file)

        np.testing.assert_array_equal(loaded.predict(X), M.predict(X), err_msg=dtype)
        assert loaded.dtype == dtype
        new = create_model(LAYERS, SIZES, dropouts="0.3;0;0")
        assert loaded.state().keys() == new.state().keys(), "with the default optimizer"
        assert loaded.normalization is None


def test_layers_that_normalize_rows_come_back(file):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(30, 5)).astype(np.float32)
    M = create_model("ReLU;LayerNormalization;ReLU;RMSNormalization(epsilon=0.01);Linear", SIZES)
    M.fit(X, rng.integers(0, 3, 30), epochs=2, batch_size=10, seed=0)
    assert not np.array_equal(to_numpy(M.layers[1].beta), np.zeros((1, 7)))
    M.save(file)
    loaded = mg.load(file)
    np.testing.assert_array_equal(loaded.predict(X), M.predict(X))
    assert [layer.specification() for layer in loaded.layers] == [layer.specification() for layer in M.layers]


def test_a_normalization_is_part_of_the_model(file):
    X = np.random.default_rng(3).normal(size=(40, 5)).astype(np.float32)
    M = trained()
    expected = M.predict((X - X.mean(axis=0)) / X.std(axis=0))
    M.normalization = Normalization.of("standard", X)
    M.save(file)

    np.testing.assert_allclose(mg.load(file).predict(X), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(mg.load(file).predict(X), M.predict(X))
    content = dict(np.load(file))
    np.savez(file, **{name: A for name, A in content.items() if name != "extra.scale"})
    with pytest.raises(
        ValueError, match="expected finite offset and scale of size 1 × 5 for the standard normalization"
    ):
        mg.load(file)


def test_a_normalization_of_the_targets_is_part_of_the_model(file):
    """Fit, predict and score take and return the units of the data; the layers have normalized targets."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(200, 3)).astype(np.float32)
    T = 5000 + X @ np.array([[300.0, 1], [-200, 2], [100, 3]])
    mean, deviation = T.mean(axis=0), T.std(axis=0)
    mg.manual_seed(0)
    M = create_model("Linear", [3, 2])
    mg.manual_seed(0)
    plain = create_model("Linear", [3, 2])
    M.target_normalization = Normalization.of("standard", T)
    found = M.fit(X, T, epochs=5, seed=0)
    expected = plain.fit(X, (T - mean) / deviation, epochs=5, seed=0)

    np.testing.assert_allclose(found["loss"], expected["loss"], rtol=1e-3)
    Y = plain.predict(X) * deviation + mean
    np.testing.assert_allclose(M.predict(X), Y, rtol=1e-5)
    assert found["rmse"][-1] == pytest.approx(np.sqrt(np.mean((M.predict(X).astype(float) - T) ** 2)), rel=1e-3)
    assert M.score(X, T) == pytest.approx(r2_score(T, M.predict(X)), abs=1e-5)
    M.save(file)
    loaded = mg.load(file)
    np.testing.assert_array_equal(loaded.predict(X), M.predict(X))
    assert loaded.fit(X, T, epochs=1)["loss"][0] < found["loss"][0]
    content = dict(np.load(file))
    for change, message in (
        ({"extra.target_scale": np.ones((1, 3))}, "expected finite target_offset and target_scale of size 1 × 2"),
        ({"extra.target_scale": np.zeros((1, 2))}, "positive scales"),
        ({"extra.target_offset": np.full((1, 2), np.nan)}, "expected finite offsets"),
    ):
        np.savez(file, **content | change)
        with pytest.raises(ValueError, match=message):
            mg.load(file)


def test_the_names_of_columns_and_classes_are_checked(file):
    M = create_model("Linear", [3, 3])
    columns = tuple(Column(j, name) for j, name in enumerate("ab"))
    for features, information, message in (
        (Features(columns, 3, Column(2, "t")), {}, "the features have 2 columns, expected 3"),
        (Features((*columns, Column(2)), 4, Column(3, "t")), {}, "the features are damaged: its columns do not fit"),
        (None, {"class_names": ["a", "b"]}, "expected the different names of 3 classes"),
        (None, {"class_names": ["a", "b", "a"]}, "expected the different names of 3 classes"),
        (None, {"class_names": "abc"}, r".*description is damaged: .*\$\.class_names"),
    ):
        M.features = features
        M.save(file, information=information)
        with pytest.raises(ValueError, match=f"model.npz: {message}"):
            mg.load(file)


def test_the_weights_have_the_names_of_the_original(file):
    M = trained()
    save_model(M, file)
    with np.load(file, allow_pickle=False) as content:
        linear = [M.layers[0], M.layers[2], M.layers[3]]
        for k, layer in enumerate(linear, start=1):
            np.testing.assert_array_equal(content[f"W{k}"], layer.W)
            np.testing.assert_array_equal(content[f"b{k}"], layer.b)
        assert not any("Adam" in name or ".m" in name for name in content.files)


@pytest.mark.parametrize("shape", [(-1,), (1, -1)])
def test_files_of_the_original_are_read(file, shape):
    """They have W1, b1, … only, with biases as vectors."""
    M, other = trained(), create_model(LAYERS, SIZES)
    layers = [layer for layer in M.layers if isinstance(layer, mg.LinearLayer)]
    np.savez(
        file,
        **{f"W{k}": x.W for k, x in enumerate(layers, 1)},
        **{f"b{k}": x.b.reshape(shape) for k, x in enumerate(layers, 1)},
    )
    load_weights(other, file)

    np.testing.assert_array_equal(other.layers[3].W, M.layers[3].W)
    np.testing.assert_array_equal(other.layers[0].b, M.layers[0].b)
    assert not other.layers[1].running_mean.any()


def test_weights_are_loaded_into_another_backend_and_dtype(backend: Framework, file):
    M = trained()
    save_model(M, file)
    other = create_model(LAYERS, SIZES, dropouts="0.3;0;0").to(backend.name, dtype="float64")
    load_weights(other, file)
    assert other.dtype == "float64"
    np.testing.assert_array_equal(to_numpy(other.layers[0].W), M.layers[0].W.astype(np.float64))


class SparseLinear(mg.Layer):
    """Y = X Vᵀ, with a sparse V"""

    parameters = ("V",)

    def __init__(self, D: int, K: int, nnz: int = 6, seed: int = 0) -> None:
        super().__init__(D, K)
        rng = np.random.default_rng(seed)
        self.V = mg.SparseMatrix(mg.Support.random(K, D, nnz, rng), rng.normal(size=(1, nnz)).astype(np.float32))

    def feedforward(self, X):
        self.X = X
        return X @ self.V.T


class Wrapper(mg.Layer):
    """Y = f(X), for a layer f that the constructor is given"""

    def __init__(self, inner: mg.Layer, name: str = "") -> None:
        super().__init__(inner.input_size, inner.output_size)
        self.inner = inner

    def parts(self):
        return [self.inner]

    def feedforward(self, X):
        self.X = X
        return self.inner.feedforward(X)


class Pair(Wrapper):
    """Y = f(X), for a linear f"""

    def __init__(self, D: int, K: int) -> None:
        super().__init__(mg.LinearLayer(D, K))


def test_a_layer_that_no_specification_makes_is_saved_too(file):
    """Its weights are read into a model that was made by hand."""
    changed = Pair(3, 2)
    changed.inner = mg.ActivationLayer(3, 2, "ReLU")
    for layer, problem in (
        (Wrapper(mg.LinearLayer(3, 2)), r"layer 1, Wrapper.* cannot be made from its specification 'Wrapper.*': .*"),
        (changed, r"'Pair' makes part 1 Linear with .*input_size = 3, .*but it has part 1 ReLU with .*"),
    ):
        M = mg.MultilayerPerceptron([layer])
        M.save(file)
        with pytest.raises(ValueError, match=f"{problem}; make the model and use mg.load_weights"):
            mg.load(file)
        other = mg.MultilayerPerceptron([Wrapper(mg.LinearLayer(3, 2))])
        mg.load_weights(other, file)
        np.testing.assert_array_equal(other.layers[0].inner.W, layer.inner.W)


class PowerLayer(mg.Layer):
    """Y = X, with settings"""

    keeps_size = True

    def __init__(self, input_size: int, output_size: int, exponent: int = 2, hidden: float = 0.5) -> None:
        super().__init__(input_size, output_size)
        self.exponent, self.kept = exponent, hidden

    def feedforward(self, X):
        self.X = X
        return X


def test_a_users_layer_comes_back_with_its_settings(file, monkeypatch):
    monkeypatch.setitem(specifications.LAYERS, "Power", PowerLayer)
    M = mg.create_model("Linear;Power(exponent=3)", [4, 3])
    M.save(file)
    assert mg.load(file).layers[1].exponent == 3


def test_settings_that_a_specification_does_not_have_are_not_lost_silently(file, monkeypatch):
    monkeypatch.setitem(specifications.LAYERS, "Power", PowerLayer)
    M = mg.create_model("Linear;Power(hidden=0.7)", [4, 3])
    M.save(file)
    with pytest.raises(ValueError, match=r"'Power' makes .*kept = 0\.5.*but it has .*kept = 0\.7"):
        mg.load(file)


@pytest.mark.parametrize("nnz", [6, 9])
def test_the_support_of_any_sparse_parameter_is_saved(file, nnz: int):
    """Its values at another support would be another matrix."""
    M, other = (mg.MultilayerPerceptron([mg.LinearLayer(5, 4), SparseLinear(4, 3, *x)]) for x in ((6, 0), (nnz, 1)))
    other.set_optimizer("Momentum(0.9)")
    X = np.random.default_rng(3).normal(size=(4, 5)).astype(np.float32)
    save_model(M, file)
    load_weights(other, file)

    np.testing.assert_array_equal(other.layers[1].V.to_dense(), M.layers[1].V.to_dense())
    np.testing.assert_array_equal(other.predict(X), M.predict(X))
    assert other.state()["2.V.delta"].shape == (1, 6)
    content = dict(np.load(file))
    assert {name for name in content if name.startswith("2.V")} == {"2.V", "2.V.starts", "2.V.columns"}
    np.savez(file, **{name: A for name, A in content.items() if not name.startswith("2.V.")})
    with pytest.raises(ValueError, match=r"2\.V is a dense matrix, but the layer is sparse"):
        load_weights(other, file)


class Evil:
    def __reduce__(self):
        return (print, ("unpickled!",))


def damaged(file, how: str) -> None:
    """Write a model file that is wrong in some way."""
    save_model(trained(), file)
    content = dict(np.load(file, allow_pickle=False))
    description = json.loads(str(content["matgrad"]))
    if how == "truncated":
        file.write_bytes(file.read_bytes()[:200])
        return
    if how == "pickle":
        file.write_bytes(pickle.dumps(Evil()))
        return
    changes = {
        "missing": lambda: content.pop("W2"),
        "shape": lambda: content.update(W1=np.zeros((7, 4))),
        "nan": lambda: content.update(b1=np.full((1, 7), np.nan)),
        "text array": lambda: content.update(b1=np.full((1, 7), "x")),
        "object": lambda: content.update(W1=np.array([Evil()], dtype=object)),
        "unknown": lambda: content.update(W9=np.zeros(3)),
        "no description": lambda: content.pop("matgrad"),
        "bad description": lambda: content.update(matgrad=np.array("{")),
        "format": lambda: content.update(matgrad=np.array(json.dumps(description | {"format": 99}))),
        "layer": lambda: content.update(matgrad=np.array(json.dumps(description).replace("SReLU", "TReLUU"))),
    }
    changes[how]()
    np.savez(file, **content)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("missing", "there is no 'W2'"),
        ("shape", r"1.W is \(7, 4\), expected \(7, 5\)"),
        ("nan", "1.b has elements that are not finite"),
        ("text array", "1.b is <U1, but the model is float32"),
        ("object", "W1: not an array of numbers"),
        ("unknown", "W9 in it, which this model does not have"),
        ("no description", "no model description in it"),
        ("bad description", "the model description is damaged"),
        ("format", "expected format 1, found 99"),
        ("layer", "unknown layer 'TReLUU'"),
        ("truncated", "not an npz file"),
        ("pickle", "not an npz file"),
    ],
)
def test_damaged_files_are_refused_and_nothing_is_unpickled(file, how: str, message: str, capsys):
    damaged(file, how)
    with pytest.raises(ValueError, match=message):
        load(file)
    assert "unpickled" not in capsys.readouterr().out


def test_a_refused_file_leaves_the_model_as_it_was(file):
    damaged(file, "shape")
    M = create_model(LAYERS, SIZES, dropouts="0.3;0;0")
    before = {name: X.copy() for name, X in M.state().items()}
    with pytest.raises(ValueError, match=r"1\.W is"):
        load_weights(M, file)
    for name, X in M.state().items():
        np.testing.assert_array_equal(X, before[name])


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"nowhere\.npz: no such file"):
        load(tmp_path / "nowhere.npz")


def test_a_loaded_model_is_saved_with_what_its_file_says_of_it(tmp_path):
    """Otherwise a regression would come back as a classifier."""
    M = create_model("ReLU;Linear", [3, 4, 1])
    M.save(tmp_path / "a.npz", information={"loss": "MeanSquaredError", "classes": None, "results": {"loss": 1.0}})
    mg.load(tmp_path / "a.npz").save(tmp_path / "b.npz")
    assert load(tmp_path / "b.npz").information == {"loss": "MeanSquaredError", "classes": None}


def test_a_loaded_regression_stays_one(file):
    """Also for targets that look like classes."""
    M = create_model("ReLU;Linear", [3, 4, 1]).to(dtype="float64")
    M.save(file, information={"loss": "MeanSquaredError"})
    X, t = np.random.default_rng(1).normal(size=(20, 3)), np.arange(20) % 2
    loaded = mg.load(file)
    losses = loaded.fit(X, t, epochs=1)["loss"]
    Y = loaded.predict(X)[:, 0]
    assert losses == [pytest.approx(np.mean((Y - t) ** 2))]
    assert loaded.score(X, t) == pytest.approx(1 - np.mean((Y - t) ** 2) / np.var(t))


def test_each_layer_keeps_its_own_renewal_of_dropout(file):
    M = create_model("ReLU;ReLU;Linear", "5;7;6;3", dropouts="0.3;0.2;0", renew="step;epoch;step")
    M.save(file)
    layers = mg.load(file).layers[:2]
    assert [(layer.dropout, layer.renew) for layer in layers] == [(0.3, "step"), (0.2, "epoch")]
