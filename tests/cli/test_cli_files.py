"""`matgrad train`: the data and weights that it reads, and the files that it writes."""

from __future__ import annotations

import hashlib
import json
import platform

import numpy as np
import pytest
import yaml
from sklearn.datasets import load_digits
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from cli_support import KEYS, arrays, last_number, rows, run, save_blobs, succeed

FAST = ("--load-dataset", "data.npz", "--layers", "ReLU;Linear", "--epochs", 3, "--batch-size", 10)


@pytest.fixture
def data(folder) -> dict[str, np.ndarray]:
    """Tiny data, in data.npz too."""
    return save_blobs(folder / "data.npz")


# -- data --------------------------------------------------------------------------------------


def test_the_saved_data_set_is_that_of_scikit_learn(folder):
    succeed("train", "--epochs", 0, "--normalize", "none", "--save-dataset", "digits.npz")

    X, T = load_digits(return_X_y=True)
    is_test = np.arange(len(X)) % 5 == 0
    saved = arrays(folder / "digits.npz")
    assert list(saved) == [*KEYS, "value_range"]
    for key, expected in zip(KEYS, (X[~is_test], T[~is_test], X[is_test], T[is_test]), strict=True):
        np.testing.assert_array_equal(saved[key], expected, err_msg=key)
    assert saved["Xtrain"].dtype == np.float32


def test_a_saved_data_set_gives_the_same_run_when_it_is_loaded():
    """With the same options, and so with the default ones: the data must not be normalized twice."""
    first = succeed("train", "--epochs", 2, "--save-dataset", "digits.npz")
    second = succeed("train", "--epochs", 2, "--load-dataset", "digits.npz")

    assert [row["loss"] for row in rows(first)] == [row["loss"] for row in rows(second)]


@pytest.mark.parametrize(("kind", "scaler"), [("none", None), ("unit", MinMaxScaler()), ("standard", StandardScaler())])
def test_inputs_are_scaled_as_scikit_learn_does(folder, data, kind, scaler):
    """In the run, and in what its model keeps for later."""
    shown = ("--show", "batches, edgeitems=40", "--no-shuffle", "--epochs", 1)
    output = succeed("train", *FAST, *shown, "--normalize", kind, "--save-weights", "m.npz")

    X, Xt = data["Xtrain"], data["Xtest"]
    expected, expected_test = (X, Xt) if scaler is None else (scaler.fit_transform(X), scaler.transform(Xt))
    assert f"normalize {kind}" in output
    saved = arrays(folder / "m.npz")
    np.testing.assert_allclose((Xt - saved["extra.offset"]) / saved["extra.scale"], expected_test, atol=2e-6)
    first = output.partition("batch 1 layer 1 X\n")[2].partition("batch 1 layer 1 W")[0]
    values = np.array(first.replace("[", " ").replace("]", " ").split(), dtype=float).reshape(-1, 4)
    np.testing.assert_allclose(values, expected[:10], atol=1e-4)


@pytest.mark.parametrize(("name", "features", "classes"), [("checkerboard", 2, 2), ("mini", 8, 3)])
def test_data_is_generated(name, features, classes):
    output = succeed("train", "--generate-dataset", f"{name}(50)", "--epochs", 1)
    assert f"data {name}: 50 training and 10 test examples, {features} features, {classes} classes" in output

    def data_of(seed: int) -> str:
        record = succeed("train", "--generate-dataset", name, "--seed", seed, "--epochs", 0, "--json")
        return json.loads(record)["data"]["sha256"]

    assert data_of(1) == data_of(1) != data_of(2)


# -- weights -----------------------------------------------------------------------------------


def test_weights_come_back_whole(folder, data):
    layers = ("--layers", "SReLU;BatchNormalization;ReLU;Linear", "--layer-sizes", "4;6;5;3")
    output = succeed("train", *FAST, *layers, "--save-weights", "a.npz")
    again = succeed("train", *FAST, *layers, "--load-weights", "a.npz", "--epochs", 0, "--save-weights", "b.npz")

    a, b = arrays(folder / "a.npz"), arrays(folder / "b.npz")
    assert a.keys() == b.keys() >= {"W1", "b1", "W2", "b2", "W3", "b3"}
    assert {"1.al", "1.tl", "1.ar", "1.tr", "2.gamma", "2.beta", "2.running_mean"} <= a.keys()
    for name in a.keys() - {"matgrad"}:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)
    assert np.ptp(a["1.al"]) > 0, "SReLU's parameters are trained"
    assert np.ptp(a["2.running_mean"]) > 0, "batch statistics are kept"
    assert again.splitlines()[-1] == output.splitlines()[-1]
    assert not any("delta" in name for name in a), "optimizers are not saved"


@pytest.mark.parametrize("vector", [True, False], ids=["b as vector", "b as row"])
def test_weights_of_the_original_are_read(folder, data, vector):
    rng = np.random.default_rng(3)
    weights = {"W1": rng.normal(size=(6, 4)), "b1": rng.normal(size=6), "W2": rng.normal(size=(3, 6)), "b2": np.ones(3)}
    np.savez(
        "original.npz", **{k: A.astype(np.float32) if vector or A.ndim == 2 else A[None] for k, A in weights.items()}
    )
    options = ("--normalize", "none", "--layer-sizes", "4;6;3", "--epochs", 0)
    output = succeed("train", *FAST, *options, "--load-weights", "original.npz", "--save-weights", "m.npz")

    saved = arrays(folder / "m.npz")
    for name, A in weights.items():
        np.testing.assert_allclose(saved[name].reshape(A.shape), A, rtol=1e-6, err_msg=name)
    Y = np.maximum(data["Xtest"] @ weights["W1"].T + weights["b1"], 0) @ weights["W2"].T + weights["b2"]
    assert last_number(output) == pytest.approx(np.mean(Y.argmax(axis=1) == data["Ttest"]), abs=5e-4)


# -- configuration files -----------------------------------------------------------------------

CONFIGURATION = {"layers": "ReLU;Linear", "layer-sizes": [4, 7, 3], "epochs": 2, "batch_size": 20, "no_shuffle": True,
                 "learning_rate": 0.125, "load_dataset": "data.npz"}  # fmt: skip
WRITERS = {
    "toml": lambda values: "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items()),
    "yaml": yaml.safe_dump,
    "yml": yaml.safe_dump,
    "json": json.dumps,
}


@pytest.mark.parametrize("suffix", WRITERS)
@pytest.mark.usefixtures("data")
def test_a_configuration_file_gives_the_options(folder, suffix):
    (folder / f"c.{suffix}").write_text(WRITERS[suffix](CONFIGURATION))
    record = json.loads(succeed("train", "--config", f"c.{suffix}", "--json", "--epochs", 1))

    assert len(record["epochs"]) == 1, "the command line has precedence"
    assert record["epochs"][0]["learning_rate"] == 0.125
    assert record["configuration"]["layer_sizes"] == "4;7;3"
    assert record["configuration"]["no_shuffle"] is True
    assert record["configuration"]["batch_size"] == 20
    assert len(rows(succeed("train", "--epochs", 1, "--config", f"c.{suffix}"))) == 1, "wherever --config stands"


@pytest.mark.parametrize("value", ['"mine.py"', '["mine.py"]'])
@pytest.mark.usefixtures("data")
def test_a_configuration_file_can_name_plugins(folder, value):
    (folder / "mine.py").write_text(PLUGIN)
    (folder / "c.toml").write_text(
        f'load-dataset = "data.npz"\nepochs = 1\nplugin = {value}\nlayers = "Square;Linear"\n'
    )
    succeed("train", "--config", "c.toml")


# -- --output ----------------------------------------------------------------------------------


@pytest.mark.parametrize("exists", [False, True])
@pytest.mark.usefixtures("data")
def test_output_leaves_the_record_and_the_model(folder, exists):
    if exists:
        (folder / "out").mkdir()
    output = succeed(
        "train", *FAST, "--seed", 3, "--normalize", "standard", "--output", "out", "--plugin", _plugin(folder)
    )

    assert sorted(path.name for path in (folder / "out").iterdir()) == ["model.npz", "run.json"]
    record = json.loads((folder / "out" / "run.json").read_text())
    assert record["seed"] == 3
    assert record["interrupted"] is False
    assert record["versions"]["python"] == platform.python_version()
    assert record["versions"]["numpy"] == np.__version__
    assert record["machine"]["cores"] >= 1
    assert record["machine"]["system"]
    assert record["configuration"]["epochs"] == 3
    assert record["configuration"]["normalize"] == "standard"
    assert record["configuration"]["learning_rate"] == "0.05", "defaults are recorded too"
    assert record["configuration"]["load_dataset"] == "data.npz"
    assert record["model"]["sizes"] == "4;128;3"
    assert [f"{row['loss']:.4f}" for row in record["epochs"]] == [row["loss"] for row in rows(output)]
    assert f"test accuracy {record['results']['test_accuracy']:.3f}" == output.splitlines()[-1]
    assert arrays(folder / "out" / "model.npz")["W1"].shape == (128, 4)


def test_the_data_hash_is_that_of_the_arrays(folder, data):
    record = json.loads(succeed("train", *FAST, "--normalize", "none", "--json"))

    digest = hashlib.sha256()
    for key in KEYS:
        A = data[key]
        digest.update(f"{key} {A.shape} {A.dtype.name}\n".encode() + A.tobytes())
    assert record["data"]["sha256"] == digest.hexdigest()


# -- plugins -----------------------------------------------------------------------------------

PLUGIN = '''
import matgrad as mg
from matgrad.matrix_operations import hadamard

class SquareActivation(mg.ActivationFunction):
    """x²"""
    def __call__(self, X):
        return hadamard(X, X)
    def gradient(self, X):
        return 2 * X

class HalfLayer(mg.Layer):
    """Y = X / 2"""
    keeps_size = True
    def feedforward(self, X):
        Y = X / 2
        self.X = X
        return Y
    def backpropagate(self, Y, DY):
        DX = DY / 2
        self.DX = DX

class DoubleLoss(mg.SquaredErrorLoss):
    """2 ℒ_SE"""
    def __call__(self, Y, T):
        return 2 * super().__call__(Y, T)
    def gradient(self, Y, T):
        return 2 * super().gradient(Y, T)
'''


def _plugin(folder):
    (folder / "mine.py").write_text(PLUGIN)
    return "mine.py"


@pytest.mark.usefixtures("data")
def test_a_plugin_brings_a_layer_an_activation_and_a_loss(folder):
    mine = ("--plugin", _plugin(folder))
    model = ("--layers", "Half;Square;Linear", "--layer-sizes", "4;6;3", "--loss", "Double", "--learning-rate", 0.01)
    output = succeed("train", *FAST, *model, *mine, "--gradient-step", 1e-5, "--save-weights", "m.npz", "--epochs", 20)

    assert "gradients agree" in output
    assert float(rows(output)[-1]["loss"]) < float(rows(output)[0]["loss"])
    data = ("--load-dataset", "data.npz")
    accuracy = json.loads(succeed("evaluate", "m.npz", *data, *mine, "--json"))["accuracy"]
    assert f"test accuracy {accuracy:.3f}" == output.splitlines()[-1]


@pytest.mark.usefixtures("data")
def test_a_wrong_gradient_of_a_plugin_is_found_while_training(folder):
    (folder / "wrong.py").write_text(PLUGIN.replace("return 2 * X", "return 3 * X"))
    options = ("--plugin", "wrong.py", "--layers", "Square;Linear", "--gradient-step", 1e-5, "--save-weights", "m.npz")
    result = run("train", *FAST, *options)

    assert result.exit_code == 1
    assert result.stderr.startswith("Error: layer 1 SquareActivation.gradient is wrong at row ")
    assert not (folder / "m.npz").exists()
