"""`matgrad evaluate` and `matgrad predict`, against scikit-learn and plain NumPy."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.metrics import accuracy_score, confusion_matrix, log_loss, mean_absolute_error, r2_score

from cli_support import arrays, blobs, forward, plane, run, save_blobs, succeed, write_csv
from matgrad.specifications.models import create_model
from matgrad.storage.models import load, save_model

DIGITS, LABELS = load_digits(return_X_y=True)
IS_TEST = np.arange(len(DIGITS)) % 5 == 0


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The file of a model of the digits, trained for a moment."""
    path = tmp_path_factory.mktemp("model") / "digits.npz"
    succeed("train", "--epochs", 2, "--quiet", "--save-weights", path)
    return path


@pytest.fixture
def regression(folder):
    """The file of a model of plane.csv."""
    write_csv(folder / "plane.csv", ["x", "y", "z"], plane())
    output = succeed("train", "--table", "plane.csv", "--epochs", 5, "--save-weights", "plane.npz",
                     "--save-dataset", "raw.npz", "--normalize", "none")  # fmt: skip
    assert "regression with 1 output;" in output
    return folder / "plane.npz"


def outputs(path, X) -> np.ndarray:
    """What the saved model gives for X, in plain NumPy."""
    content = arrays(path)
    weights = {name: A for name, A in content.items() if name[0] in "Wb"}
    Y = forward(weights, (X - content["extra.offset"]) / content["extra.scale"])
    return Y * content.get("extra.target_scale", 1) + content.get("extra.target_offset", 0)


@pytest.mark.parametrize("part", ["train", "test"])
def test_accuracy_loss_and_confusion_matrix(model, part):
    rows = IS_TEST if part == "test" else ~IS_TEST
    Y, T = outputs(model, DIGITS[rows]), LABELS[rows]
    P = np.exp(Y - Y.max(axis=1, keepdims=True))
    P /= P.sum(axis=1, keepdims=True)
    found = json.loads(succeed("evaluate", model, "--part", part, "--json"))

    assert found["accuracy"] == pytest.approx(accuracy_score(T, Y.argmax(axis=1)))
    assert found["loss"] == pytest.approx(log_loss(T, P), rel=1e-4)
    assert found["confusion"] == confusion_matrix(T, Y.argmax(axis=1)).tolist()


def test_the_confusion_matrix_as_text(model):
    output = succeed("evaluate", model)
    expected = confusion_matrix(LABELS[IS_TEST], outputs(model, DIGITS[IS_TEST]).argmax(axis=1))

    lines = output.splitlines()
    first = next(i for i, line in enumerate(lines) if "predicted" in line) + 3
    table = np.array([line.split() for line in lines[first : first + 10]], dtype=int)
    np.testing.assert_array_equal(table[:, 1:], expected)
    assert table[:, 0].tolist() == list(range(10))
    assert "360 examples" in output
    assert lines[-1] == f"accuracy {np.trace(expected) / expected.sum():.4f}"


def test_evaluate_agrees_with_the_last_line_of_train(folder):
    save_blobs(folder / "data.npz")
    data = ("--load-dataset", "data.npz")
    for kind in ("none", "unit", "standard"):
        last = succeed("train", *data, "--normalize", kind, "--epochs", 3, "--save-weights", "m.npz").splitlines()[-1]
        assert f"{json.loads(succeed('evaluate', 'm.npz', *data, '--json'))['accuracy']:.3f}" == last.split()[-1], kind


def test_regression_measures(folder, regression):
    data = arrays(folder / "raw.npz")
    Y, T = outputs(regression, data["Xtest"]), data["Ttest"]
    found = json.loads(succeed("evaluate", regression, "--table", "plane.csv", "--json"))

    assert found["RMSE"] == pytest.approx(np.sqrt(np.mean((Y - T) ** 2)), rel=1e-5)
    assert found["MAE"] == pytest.approx(mean_absolute_error(T, Y), rel=1e-5)
    assert found["R2"] == pytest.approx(r2_score(T, Y), rel=1e-5)
    scale = arrays(regression)["extra.target_scale"][0, 0]
    assert found["loss"] == pytest.approx(np.mean((Y - T) ** 2) / scale**2, rel=1e-4)
    text = succeed("evaluate", regression, "--table", "plane.csv")
    assert f"MAE {found['MAE']:.4f}" in text
    assert "accuracy" not in text


def test_on_every_backend(backend, model):
    here, on_numpy = (
        json.loads(succeed("evaluate", model, "--json", "--backend", name)) for name in (backend.name, "numpy")
    )
    assert here["loss"] == pytest.approx(on_numpy["loss"], rel=1e-5), backend
    assert here["confusion"] == on_numpy["confusion"], backend


def test_classes_of_a_csv_file_keep_the_names_of_the_model(folder):
    """A file in which a class is missing has its other classes right all the same."""
    data = blobs(N=90)
    names = np.array(["ant", "bee", "cat"])[data["Ttrain"]]
    lines = [[*x.tolist(), str(name)] for x, name in zip(data["Xtrain"], names, strict=True)]
    write_csv(folder / "all.csv", [*"abcd", "animal"], lines)
    write_csv(folder / "some.csv", [*"abcd", "animal"], [line for line in lines if line[-1] != "ant"])
    succeed("train", "--table", "all.csv", "--epochs", 20, "--save-weights", "m.npz")
    assert json.loads(succeed("evaluate", "m.npz", "--table", "all.csv", "--json"))["accuracy"] > 0.9

    assert json.loads(succeed("evaluate", "m.npz", "--table", "some.csv", "--json"))["accuracy"] > 0.9


def test_a_single_class_is_refused(folder):
    X = np.random.default_rng(0).random((30, 2)).tolist()
    write_csv(folder / "one.csv", ["x", "y", "t"], [[*x, "same"] for x in X])
    result = run("train", "--table", "one.csv", "--epochs", 1)
    assert result.exit_code == 2
    assert "all examples have the same class; expected at least 2 classes" in result.stderr


def test_a_model_saved_from_python_has_one_class_per_output(folder):
    M = create_model("ReLU;Linear", "64;5;10")
    save_model(M, "bare.npz")
    expected = accuracy_score(LABELS[IS_TEST], M.predict(DIGITS[IS_TEST]).argmax(axis=1))
    assert json.loads(succeed("evaluate", "bare.npz", "--json"))["accuracy"] == pytest.approx(expected)
    succeed("predict", "bare.npz", "out.csv")


# -- predict -----------------------------------------------------------------------------------


def test_predictions_that_are_not_finite_are_refused(regression, folder):
    content = arrays(regression)
    np.savez(regression, **(content | {"W1": content["W1"] * np.float32(1e30)}))
    write_csv(folder / "far.csv", ["x", "y"], [[0, 0], [1e30, 1e30]])
    result = run("predict", "plane.npz", "far.out.csv", "--table", "far.csv")
    assert result.exit_code == 2
    assert "plane.npz: the prediction for example 2 is not a finite number" in result.stderr
    assert "Warning" not in result.stderr
    assert not (folder / "far.out.csv").exists()


def test_predictions_in_csv_and_npz_are_those_of_the_model(folder, model):
    assert "360 predictions in p.csv" in succeed("predict", model, "p.csv")
    succeed("predict", model, "p.npz")

    saved = load(model)
    Y = saved.predict(DIGITS[IS_TEST])  # raw: the file has the normalization
    found = arrays(folder / "p.npz")
    np.testing.assert_allclose(found["Y"], Y, atol=1e-5)
    np.testing.assert_allclose(found["Y"], outputs(model, DIGITS[IS_TEST]), atol=1e-4)
    np.testing.assert_array_equal(found["classes"], Y.argmax(axis=1))
    with (folder / "p.csv").open(newline="") as file:
        header, *lines = csv.reader(file)
    assert header == ["class", *(f"p({k})" for k in range(10))]
    np.testing.assert_array_equal(np.array(lines)[:, 1:].astype(np.float32), found["P"])
    np.testing.assert_allclose(found["P"], np.exp(Y) / np.exp(Y).sum(axis=1, keepdims=True), rtol=1e-4)
    np.testing.assert_array_equal(np.array(lines)[:, 0].astype(int), found["classes"])


@pytest.mark.parametrize("header", [True, False])
def test_predictions_for_features_alone(folder, regression, header):
    X = np.array([[0.1, 0.2], [0.5, 0.25], [1.0, 1.0]])
    np.savetxt("new.csv", X, delimiter=",", header="x,y" if header else "", comments="")
    succeed("predict", regression, "p.csv", "--table", "new.csv")
    succeed("predict", regression, "p.npz", "--table", "new.csv")

    found = np.genfromtxt("p.csv", delimiter=",", names=True)
    assert found.dtype.names == ("z",)
    np.testing.assert_allclose(found["z"], outputs(regression, X)[:, 0], atol=1e-5)
    assert list(arrays(folder / "p.npz")) == ["Y", "names"]
    assert arrays(folder / "p.npz")["names"].tolist() == ["z"]


def test_predictions_have_the_names_of_the_classes(folder):
    data = blobs(N=60)
    names = np.array(["red, dark", "green", 'so-called "blue"'])
    lines = [[*x.tolist(), str(names[t])] for x, t in zip(data["Xtrain"], data["Ttrain"], strict=True)]
    write_csv(folder / "c.csv", [*"abcd", "colour"], lines)
    np.savetxt("new.csv", data["Xtest"], delimiter=",", fmt="%.9g")
    succeed("train", "--table", "c.csv", "--epochs", 20, "--save-weights", "m.npz")
    succeed("predict", "m.npz", "p.csv", "--table", "new.csv")

    with (folder / "p.csv").open(newline="") as file:
        predicted = [line["colour"] for line in csv.DictReader(file)]
    assert accuracy_score(names[data["Ttest"]], predicted) > 0.9


def test_batch_statistics_are_those_of_training(folder):
    """The prediction for a row does not depend on the rows beside it."""
    save_blobs(folder / "data.npz")
    data = ("--load-dataset", "data.npz")
    layers = ("--layers", "BatchNormalization;ReLU;Linear", "--dropouts", "0.3")
    succeed("train", *data, *layers, "--epochs", 2, "--save-weights", "m.npz")
    np.savetxt("one.csv", blobs()["Xtest"][:1], delimiter=",", fmt="%.9g")
    succeed("predict", "m.npz", "all.npz", *data)
    succeed("predict", "m.npz", "one.npz", "--table", "one.csv")

    np.testing.assert_allclose(arrays(folder / "one.npz")["Y"][0], arrays(folder / "all.npz")["Y"][0], rtol=1e-5)
