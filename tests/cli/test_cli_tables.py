"""CSV files on the command line: targets of any size, columns by name, categories, missing values."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_iris
from sklearn.linear_model import LinearRegression
from sklearn.metrics import mean_absolute_error, r2_score

import matgrad as mg
from cli_support import arrays, last_number, plane, run, succeed, write_csv
from matgrad.datasets import table_features


def read(path: str) -> tuple[list[str], list[list[str]]]:
    with Path(path).open(newline="") as file:
        header, *lines = csv.reader(file)
    return header, lines


def numbers(path: str) -> np.ndarray:
    return np.array(read(path)[1], dtype=float)


def houses(N: int = 600, seed: int = 0) -> tuple[list[str], list[list[object]]]:
    """Generated prices of houses, most of them hundreds of thousands."""
    rng = np.random.default_rng(seed)
    area, rooms, year = rng.uniform(40, 250, N), rng.integers(1, 8, N), rng.integers(1900, 2020, N)
    town = rng.choice(["Delft", "Eindhoven", "Zwolle"], N)
    price = 2500 * area + 9000 * rooms + 800 * (year - 1900) + 60000 * (town == "Delft") + rng.normal(0, 20000, N)
    columns = (area.round(1).tolist(), rooms.tolist(), year.tolist(), town.tolist(), price.round().tolist())
    return ["area", "rooms", "year", "town", "price"], [list(row) for row in zip(*columns, strict=True)]


@pytest.fixture
def model(folder) -> str:
    """A model of houses.csv, trained with the defaults; raw.npz has the data."""
    write_csv(folder / "houses.csv", *houses())
    files = ("--save-weights", "m.npz", "--save-dataset", "raw.npz")
    succeed("train", "--table", "houses.csv", "--features", "categorical=auto", *files)
    return "m.npz"


# -- targets -----------------------------------------------------------------------------------


def test_diabetes_is_as_good_as_linear_regression_with_a_smaller_rate(folder):
    """The targets are 25 to 346. With the default rate the loss of these 354 examples goes up and down."""
    data = load_diabetes(scaled=False)
    lines = np.column_stack([data.data, data.target]).tolist()
    write_csv(folder / "d.csv", [*data.feature_names, "progression"], lines)
    files = ("--save-weights", "m.npz", "--save-dataset", "raw.npz")
    succeed("train", "--table", "d.csv", "--learning-rate", 0.01, *files)
    raw = arrays(folder / "raw.npz")
    linear = LinearRegression().fit(raw["Xtrain"], raw["Ttrain"]).score(raw["Xtest"], raw["Ttest"])
    assert json.loads(succeed("evaluate", "m.npz", "--table", "d.csv", "--json"))["R2"] > linear - 0.1


def test_prices_with_the_defaults_are_as_good_as_linear_regression(folder, model):
    raw = arrays(folder / "raw.npz")
    linear = LinearRegression().fit(raw["Xtrain"], raw["Ttrain"]).score(raw["Xtest"], raw["Ttest"])
    found = json.loads(succeed("evaluate", model, "--table", "houses.csv", "--json"))
    assert linear > 0.95
    assert found["R2"] > linear - 0.02


def test_predictions_and_measures_are_in_the_units_of_the_data(folder, model):
    """And those of the library are the same."""
    raw = arrays(folder / "raw.npz")
    M = mg.load(model)
    succeed("predict", model, "p.csv", "--table", "houses.csv", "--part", "test")
    Y = numbers("p.csv")
    found = json.loads(succeed("evaluate", model, "--table", "houses.csv", "--json"))

    np.testing.assert_allclose(M.predict(raw["Xtest"]), Y, rtol=1e-5)
    assert found["MAE"] == pytest.approx(mean_absolute_error(raw["Ttest"], Y), rel=1e-4)
    assert found["RMSE"] == pytest.approx(np.sqrt(np.mean((raw["Ttest"] - Y) ** 2)), rel=1e-4)
    assert found["R2"] == pytest.approx(r2_score(raw["Ttest"], Y), rel=1e-4)
    assert M.score(raw["Xtest"], raw["Ttest"]) == pytest.approx(found["R2"], rel=1e-4)
    variance = raw["Ttrain"].astype(np.float64).var()  # the loss is that of the scaled targets
    assert found["loss"] == pytest.approx(found["RMSE"] ** 2 / variance, rel=1e-4)


def test_a_run_shows_errors_in_the_units_of_the_data(folder, model):
    options = ("--table", "houses.csv", "--features", "categorical=auto", "--epochs", 2)
    output = succeed("train", *options, "--save-weights", "n.npz")
    found = json.loads(succeed("evaluate", "n.npz", "--table", "houses.csv", "--json"))
    assert last_number(output) == pytest.approx(found["RMSE"], abs=1e-2)
    assert ", targets normalized (standard)" in output
    record = json.loads(succeed("train", *options, "--json", "--validation", 0.1))
    assert record["data"]["normalize_targets"] == "standard"
    assert all(row[f"{part}rmse"] > 1000 for row in record["epochs"] for part in ("", "validation_", "test_"))
    assert all(row[f"{part}loss"] < 10 for row in record["epochs"] for part in ("", "validation_", "test_"))


@pytest.mark.parametrize("kind", ["none", "unit", "standard"])
def test_the_scaling_of_the_targets_can_be_chosen(folder, kind):
    lines = [[x / 20, 3 * x / 20 - 1] for x in range(40)]
    write_csv(folder / "line.csv", ["x", "t"], lines)
    options = ("--table", "line.csv", "--layers", "Linear", "--normalize-targets", kind, "--epochs", 100)
    succeed("train", *options, "--task", "regression", "--save-weights", "m.npz", "--save-dataset", "raw.npz")
    T, content = arrays(folder / "raw.npz")["Ttrain"].astype(np.float64), arrays(folder / "m.npz")
    expected = {"none": None, "unit": (T.min(), np.ptp(T)), "standard": (T.mean(), T.std())}[kind]
    assert ("extra.target_offset" in content) == (expected is not None)
    if expected is not None:
        np.testing.assert_allclose(content["extra.target_offset"], [[expected[0]]], rtol=1e-6)
        np.testing.assert_allclose(content["extra.target_scale"], [[expected[1]]], rtol=1e-6)
    assert json.loads(succeed("evaluate", "m.npz", "--table", "line.csv", "--json"))["R2"] > 0.99


@pytest.mark.parametrize(
    "options", [("--layers", "ReLU;Sigmoid"), ("--loss", "BinaryCrossEntropy"), ("--layers", "ReLU;ReLU")]
)
def test_outputs_that_are_not_any_number_keep_their_targets(folder, options):
    """A probability, or the logit of one, cannot reach targets with mean 0."""
    write_csv(folder / "p.csv", ["x", "t"], [[x / 40, 0.1 + 0.8 * x / 40] for x in range(40)])
    succeed("train", "--table", "p.csv", "--epochs", 1, *options, "--save-weights", "m.npz")
    assert "extra.target_offset" not in arrays(folder / "m.npz")


# -- columns by name ---------------------------------------------------------------------------


def test_columns_in_another_order_give_the_same_predictions(folder, model):
    header, lines = houses(50, seed=1)
    order = np.random.default_rng(3).permutation(4).tolist()
    assert order != [0, 1, 2, 3]
    write_csv(folder / "ordered.csv", header[:4], [line[:4] for line in lines])
    write_csv(folder / "moved.csv", [header[j] for j in order], [[line[j] for j in order] for line in lines])
    write_csv(folder / "more.csv", ["id", *header], [[f"h{i}", *line] for i, line in enumerate(lines)])
    for name in ("ordered", "moved", "more"):
        succeed("predict", model, f"{name}.out.csv", "--table", f"{name}.csv")

    expected = (folder / "ordered.out.csv").read_text()
    assert expected.startswith("price\n")
    assert (folder / "moved.out.csv").read_text() == (folder / "more.out.csv").read_text() == expected
    result = run("predict", model, "p.csv", "--table", "more.csv")
    assert result.stderr == "ignored columns: id, price\n"
    Y = mg.load(model).predict(table_features("moved.csv", like=mg.load(model).features))
    np.testing.assert_allclose(Y, numbers("p.csv"), rtol=1e-6)
    assert r2_score([line[4] for line in lines], Y) > 0.9


def test_evaluate_finds_the_columns_and_the_target_by_name(folder, model):
    header, lines = houses()
    order = [4, 3, 1, 2, 0]
    write_csv(folder / "moved.csv", [header[j] for j in order], [[line[j] for j in order] for line in lines])
    here, moved = (json.loads(succeed("evaluate", model, "--table", f"{x}.csv", "--json")) for x in ("houses", "moved"))
    assert here == moved


# -- what predictions are called ---------------------------------------------------------------


@pytest.fixture
def iris(folder) -> str:
    """A model of iris.csv."""
    data = load_iris()
    lines = [[*x, str(data.target_names[t])] for x, t in zip(data.data.tolist(), data.target, strict=True)]
    write_csv(folder / "iris.csv", [*data.feature_names, "species"], lines)
    return "iris.npz"


@pytest.mark.parametrize(
    "options",
    [(), ("--layers", "ReLU;Softmax"), ("--layers", "ReLU;LogSoftmax"), ("--loss", "BinaryCrossEntropy"),
     ("--loss", "MeanSquaredError")],
)  # fmt: skip
def test_classes_and_probabilities(folder, iris, options):
    succeed("train", "--table", "iris.csv", "--save-weights", iris, *options)
    succeed("predict", iris, "p.csv", "--table", "iris.csv")
    succeed("predict", iris, "p.npz", "--table", "iris.csv")
    header, lines = read("p.csv")
    content = arrays(folder / "p.npz")
    A, Y = np.array(lines)[:, 1:].astype(float), content["Y"].astype(np.float64)

    expected, letter = {
        (): (np.exp(Y) / np.exp(Y).sum(axis=1, keepdims=True), "p"),
        ("--layers", "ReLU;Softmax"): (Y, "p"),
        ("--layers", "ReLU;LogSoftmax"): (np.exp(Y), "p"),
        ("--loss", "BinaryCrossEntropy"): (1 / (1 + np.exp(-Y)), "p"),
        ("--loss", "MeanSquaredError"): (Y, "y"),
    }[options]
    names = ["setosa", "versicolor", "virginica"]
    assert header == ["species", *(f"{letter}({name})" for name in names)]
    np.testing.assert_allclose(A, expected, rtol=1e-4, atol=1e-6)
    if letter == "p":
        np.testing.assert_array_equal(A.astype(np.float32), content["P"])
    assert [line[0] for line in lines] == [names[k] for k in expected.argmax(axis=1)]
    assert content["names"].tolist() == names
    assert [names[k] for k in content["classes"]] == [line[0] for line in lines]


@pytest.mark.parametrize("loss", ["BinaryCrossEntropy", "SquaredError"])
def test_one_output_has_two_classes(folder, loss):
    M = mg.create_model("Linear", [2, 1])
    M.save("m.npz", information={"loss": loss, "classes": 2, "class_names": ["no", "yes"]})
    np.savetxt("x.csv", np.array([[1.0, 2.0], [-1.0, -2.0]]), delimiter=",")
    succeed("predict", "m.npz", "p.csv", "--table", "x.csv")
    header, lines = read("p.csv")
    Y = M.predict(np.array([[1.0, 2.0], [-1.0, -2.0]], np.float32))[:, 0].astype(float)
    p = 1 / (1 + np.exp(-Y))
    assert header == (["class", "p(no)", "p(yes)"] if loss == "BinaryCrossEntropy" else ["class", "y(yes)"])
    expected = np.column_stack([1 - p, p]) if loss == "BinaryCrossEntropy" else Y.reshape(-1, 1)
    np.testing.assert_allclose(np.array(lines)[:, 1:].astype(float), expected, rtol=1e-5)
    assert [line[0] for line in lines] == ["yes" if y >= 0 else "no" for y in Y]


def test_outputs_without_names_are_predictions(folder):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 3))
    for K, header in ((1, ["prediction"]), (2, ["prediction1", "prediction2"])):
        T = 1000 + 100 * X[:, :K]
        np.savez("d.npz", Xtrain=X, Ttrain=T, Xtest=X, Ttest=T)
        options = ("--load-dataset", "d.npz", "--layers", "Linear", "--epochs", 200, "--save-weights", "m.npz")
        succeed("train", *options)
        succeed("predict", "m.npz", "p.csv", "--load-dataset", "d.npz")
        assert read("p.csv")[0] == header
        np.testing.assert_allclose(numbers("p.csv"), T, rtol=1e-2)


# -- the choice of columns, categories and missing values --------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        ("--features", "columns = 0, 1"),
        ("--features", 'drop="town",2; missing=error'),
    ],
)
def test_columns_are_chosen_by_name_or_number(folder, options):
    write_csv(folder / "houses.csv", *houses(60))
    output = succeed("train", "--table", "houses.csv", *options, "--epochs", 1, "--save-weights", "m.npz")
    assert "48 training and 12 test examples, 2 features, regression" in output
    assert "ignored columns: year, town" in output
    lines = succeed("inspect", "m.npz").splitlines()
    assert {"features: area, rooms", "target: price", "missing: error", "normalize_targets: standard"} < set(lines)


def test_columns_from_a_configuration_file(folder):
    write_csv(folder / "houses.csv", *houses(60))
    (folder / "c.toml").write_text('table = "houses.csv"\nfeatures = ["columns=area,town", "categorical=town"]\n')
    assert "4 features, regression" in succeed("train", "--config", "c.toml", "--epochs", 1)


def test_missing_values_and_unknown_categories_by_option(folder):
    header, lines = houses(200)
    gaps = [[*line[:1], "" if i % 7 == 3 else line[1], *line[2:]] for i, line in enumerate(lines)]
    write_csv(folder / "gaps.csv", header, gaps)
    table = ("--table", "gaps.csv", "--features")
    refused = run("train", *table, "categorical=town")
    assert refused.exit_code == 2
    assert re.search(r"gaps.csv, row \d+, column 2 \('rooms'\): missing value", refused.stderr)
    assert '--features "missing=median"' in refused.stderr
    options = ("categorical=town; missing=median; unknown=zero", "--save-weights", "m.npz")
    assert last_number(succeed("train", *table, *options)) < 60000
    write_csv(folder / "new.csv", header[:4], [[100.0, "", 1990, "Utrecht"], [100.0, 4, 1990, "Delft"]])
    result = run("predict", "m.npz", "p.csv", "--table", "new.csv")
    assert result.exit_code == 0
    assert result.stderr == "column 4 ('town'): unknown categories become zeros (Utrecht)\n"
    M = mg.load("m.npz")
    X = np.array([[100, M.features.columns[1].fill, 1990, 0, 0, 0], [100, 4, 1990, 1, 0, 0]], np.float32)
    np.testing.assert_allclose(numbers("p.csv"), M.predict(X), rtol=1e-5)
    assert "dropped: 29 of 200 rows" in succeed("train", *table, "categorical=town; missing=drop", "--epochs", 1)


def test_the_task_of_a_model_is_that_of_its_data(folder):
    """Integers, which could be classes, are the targets of a regression again."""
    write_csv(folder / "n.csv", ["x", "t"], [[i / 40, i % 4] for i in range(40)])
    succeed("train", "--table", "n.csv", "--epochs", 1, "--task", "regression", "--save-weights", "m.npz")
    assert "R2" in json.loads(succeed("evaluate", "m.npz", "--table", "n.csv", "--json"))


def test_files_of_earlier_versions_are_read(folder):
    """They have no features, and targets that are not scaled: columns are taken by position."""
    write_csv(folder / "plane.csv", ["x", "y", "z"], plane())
    succeed("train", "--table", "plane.csv", "--normalize-targets", "none", "--epochs", 5, "--save-weights", "m.npz")
    content = arrays(folder / "m.npz")
    description = json.loads(str(content["matgrad"]))
    assert description["information"].pop("features")["target"]["name"] == "z"
    np.savez("old.npz", **content | {"matgrad": np.array(json.dumps(description))})

    new, old = (
        json.loads(succeed("evaluate", name, "--table", "plane.csv", "--json")) for name in ("m.npz", "old.npz")
    )
    assert new == old
    for name, heading in (("m", "z"), ("old", "prediction")):
        succeed("predict", f"{name}.npz", f"{name}.csv", "--table", "plane.csv", "--part", "test")
        assert read(f"{name}.csv")[0] == [heading]
    np.testing.assert_array_equal(numbers("m.csv"), numbers("old.csv"))
