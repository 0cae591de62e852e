"""The features of a table: categories, missing values and the choice of columns, beside scikit-learn's."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder

from matgrad.datasets import DataError, Dataset, Features, csv, csv_features, hold_out
from support import assert_close

NAMES = ["age", "colour", "size", "income", "price"]
N = 60


def table(seed: int = 0, missing: float = 0.0) -> list[list[str]]:
    """Lines of a table with numbers and categories; a fraction of the features is missing."""
    rng = np.random.default_rng(seed)
    lines = [
        [f"{rng.integers(18, 80)}", rng.choice(["red", "green", "blue"]), rng.choice(["1", "2", "3"]),
         f"{rng.normal(30000, 5000):.2f}", f"{rng.normal(1e5, 1e4):.1f}"]
        for _ in range(N)
    ]  # fmt: skip
    for i, j in np.argwhere(rng.random((N, 4)) < missing):
        lines[i][j] = rng.choice(["", "NA", "?", "nan"])
    return lines


def write(folder: Path, lines: list[list[str]], header: list[str] | None = None, name: str = "table.csv") -> Path:
    path = folder / name
    path.write_text("\n".join(",".join(line) for line in ([header] if header else []) + lines) + "\n")
    return path


def parts(lines: list[list[str]]) -> tuple[np.ndarray, np.ndarray]:
    """The fields of the training and of the test lines."""
    A = np.array(lines, dtype=object)
    kept, held = hold_out(len(A), 0.2, 0)
    return A[kept], A[held]


def encoded(data: Dataset, path: Path) -> np.ndarray:
    """All lines of a file as a model for the data set would get them."""
    return csv_features(path, like=data.features)


# -- categories --------------------------------------------------------------------------------


@pytest.mark.parametrize("categorical", [["colour", "size"], [1, 2], ["colour", -3]])
def test_categories_are_those_of_scikit_learn(tmp_path: Path, categorical):
    lines = table()
    data = csv(write(tmp_path, lines, NAMES), categorical=categorical)

    train, test = parts(lines)
    encoder = OneHotEncoder(sparse_output=False).fit(train[:, 1:3])
    for X, A in ((data.Xtrain, train), (data.Xtest, test)):
        expected = np.hstack([A[:, :1].astype(float), encoder.transform(A[:, 1:3]), A[:, 3:4].astype(float)])
        assert_close(X, expected.astype(np.float32), tolerance=0.0)
    assert "categories of colour (blue, green, red)" in data.notes
    assert data.features.columns[1].categories == tuple(encoder.categories_[0])


def test_words_are_recognized(tmp_path: Path):
    """The sizes 1, 2 and 3 stay numbers."""
    path = write(tmp_path, table(), NAMES)
    auto, named = csv(path, categorical="auto"), csv(path, categorical=["colour"])
    assert_close(auto.Xtrain, named.Xtrain, tolerance=0.0)
    assert auto.features == named.features
    assert auto.input_size == 6


@pytest.mark.parametrize(
    ("fields", "categories", "numbers"),
    [
        (["1", "1.0", "2", "1e0", "+1"], ("1", "2"), [0, 0, 1, 0, 0]),
        (["1", "1.0", "2", "1e0", "x"], ("1", "1.0", "1e0", "2", "x"), [0, 1, 3, 2, 4]),
        (["01067", "1067", "1067.0", "2", "?"], ("01067", "1067", "1067.0", "2"), [0, 1, 2, 3, 0]),
        ([str(2**53), str(2**53 + 1), "1", "1", "1"], ("1", str(2**53), str(2**53 + 1)), [1, 2, 0, 0, 0]),
    ],
)
def test_equal_numbers_are_one_category_among_plain_numbers_alone(
    tmp_path: Path, fields: list[str], categories: tuple[str, ...], numbers: list[int]
):
    path = write(tmp_path, [[field, f"{i}.5"] for i, field in enumerate(fields)])
    data = csv(path, test=path, categorical=[0], task="regression", missing="median")
    assert data.features.columns[0].categories == categories
    for X in (data.Xtrain, data.Xtest, csv_features(path, like=data.features)):
        np.testing.assert_array_equal(X, np.eye(len(categories))[numbers])


@pytest.mark.parametrize(
    ("known", "found", "message"),
    [("1 2", "01", "found '01', expected one of the categories 1, 2"), ("01 2", "1", "found '1', expected .* 01, 2")],
)
def test_numbers_with_and_without_leading_zeros_are_different_categories(
    tmp_path: Path, known: str, found: str, message: str
):
    features = csv(write(tmp_path, [[name, "0.5"] for name in known.split() * 5]), categorical=[0]).features
    with pytest.raises(DataError, match=message):
        csv_features(write(tmp_path, [[found, "0.5"]]), like=features)


def test_categories_come_from_the_training_lines_alone(tmp_path: Path):
    train, test = table(), [["30", "pink", "9", "30000", "100000"], ["31", "red", "1", "30000", "100000"]]
    first, second = write(tmp_path, train, NAMES), write(tmp_path, test, NAMES, "test.csv")
    with pytest.raises(
        DataError, match=r"test.csv, line 2, column 2 \('colour'\): found 'pink', expected one of the cat"
    ):
        csv(first, test=second, categorical="auto")

    data = csv(first, test=second, categorical=["colour", "size"], unknown="zero")
    encoder = OneHotEncoder(sparse_output=False, handle_unknown="ignore").fit(np.array(train)[:, 1:3])
    assert_close(data.Xtest[:, 1:7], encoder.transform(np.array(test)[:, 1:3]).astype(np.float32), tolerance=0.0)
    assert "column 2 ('colour'): unknown categories become zeros (pink)" in data.notes


# -- missing values ----------------------------------------------------------------------------


def test_missing_values_are_replaced_as_scikit_learn_does(tmp_path: Path):
    lines = table(missing=0.1)
    data = csv(write(tmp_path, lines, NAMES), categorical=["colour"], missing="median")

    def numbers(A: np.ndarray) -> np.ndarray:
        return np.array([[float(x) if x[:1].isdigit() else np.nan for x in row] for row in A[:, [0, 2, 3]]])

    def words(A: np.ndarray) -> np.ndarray:
        return np.array([[x if x in ("red", "green", "blue") else None] for x in A[:, 1]], dtype=object)

    train, test = parts(lines)
    median = SimpleImputer(strategy="median").fit(numbers(train))
    frequent = SimpleImputer(strategy="most_frequent", missing_values=None).fit(words(train))
    encoder = OneHotEncoder(sparse_output=False).fit(frequent.transform(words(train)))
    assert np.isnan(numbers(train)).any()
    assert np.isnan(numbers(test)).any()
    for X, A in ((data.Xtrain, train), (data.Xtest, test)):
        assert_close(X[:, [0, 4, 5]], median.transform(numbers(A)).astype(np.float32), tolerance=0.0)
        one_hot = encoder.transform(frequent.transform(words(A)))
        assert_close(X[:, 1:4], one_hot.astype(np.float32), tolerance=0.0)


def test_lines_with_missing_values_are_dropped(tmp_path: Path):
    lines = table(missing=0.05)
    lines[3][4] = "NA"  # a target
    whole = [line for line in lines if all(field not in ("", "NA", "?", "nan") for field in line)]
    data = csv(write(tmp_path, lines, NAMES), categorical=["colour"], missing="drop")
    expected = csv(write(tmp_path, whole, NAMES, "whole.csv"), categorical=["colour"])

    assert len(whole) < N
    assert_close(data.Xtrain, expected.Xtrain, tolerance=0.0)
    assert_close(data.Ttest, expected.Ttest, tolerance=0.0)
    assert f"dropped: {N - len(whole)} of {N} lines, which have missing values" in data.notes
    with pytest.raises(DataError, match="missing value"):  # the prediction of a line cannot be left out
        encoded(data, tmp_path / "table.csv")


def test_missing_values_of_other_columns_do_not_matter(tmp_path: Path):
    lines = [["1", "", "5.5"], ["2", "x", "6.5"], ["3", "?", "7"]]
    path = write(tmp_path, lines, ["a", "b", "t"])
    for options in ({"columns": ["a"]}, {"drop_columns": ["b"]}, {"drop_columns": [1], "missing": "drop"}):
        data = csv(path, test=path, **options)
        assert data.Xtrain.tolist() == [[1], [2], [3]]
        assert "ignored columns: b" in data.notes


# -- finding the columns again -----------------------------------------------------------------


@pytest.fixture
def data(tmp_path: Path) -> Dataset:
    return csv(write(tmp_path, table(), NAMES), categorical=["colour"], drop_columns=["size"])


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [3, 0, 1]])
def test_columns_are_found_by_name(tmp_path: Path, data: Dataset, order: list[int]):
    """In any order, beside others or not."""
    lines = table(seed=1)
    expected = encoded(data, write(tmp_path, lines, NAMES, "ordered.csv"))
    moved = write(tmp_path, [[line[j] for j in order] for line in lines], [NAMES[j] for j in order], "moved.csv")
    assert_close(encoded(data, moved), expected, tolerance=0.0)
    if 4 in order:
        again = csv(moved, like=data.features)
        assert_close(again.Xtrain, expected[hold_out(N, 0.2)[0]], tolerance=0.0)
        assert_close(again.Ttrain, csv(tmp_path / "ordered.csv", like=data.features).Ttrain, tolerance=0.0)
    with pytest.raises(DataError, match=r"\('age'\) is the target, but also one of the features"):
        csv(moved, target="age", like=data.features)


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4], [0, 1, 3]])
def test_without_a_header_columns_are_found_by_position(tmp_path: Path, data: Dataset, order: list[int]):
    """Those of the training file, or the features alone."""
    lines = table(seed=1)
    expected = encoded(data, write(tmp_path, lines, NAMES, "ordered.csv"))
    path = write(tmp_path, [[line[j] for j in order] for line in lines], name="bare.csv")
    assert_close(encoded(data, path), expected, tolerance=0.0)


@pytest.mark.parametrize(
    ("header", "line", "message"),
    [
        (
            ["age", "colour"],
            ["1", "red"],
            "new.csv: no column 'income', which the features need; the header has age, c",
        ),
        (["Age", "colour", "x"], ["1", "red", "2"], "new.csv: no columns 'age', 'income', which"),
        (["age", "age", "colour", "income"], ["1", "1", "red", "2"], "new.csv: the header has 2 columns 'age'"),
        (None, ["1", "red"], "new.csv: found 2 columns, expected the 3 features of the model, or 5 columns as in the"),
        (None, ["1", "red", "2", "3"], "new.csv: found 4 columns, expected the 3 features"),
        (["age", "colour", "income"], ["1", "pink", "2"], "line 2, column 2 .'colour'.: found 'pink', expected one of"),
        (
            ["age", "colour", "income"],
            ["1", "?", "2"],
            "line 2, column 2 .'colour'.: missing value .'.'., expected a c",
        ),
        (["age", "colour", "income"], ["old", "red", "2"], "line 2, column 1 .'age'.: found 'old', expected a finite"),
    ],
)
def test_tables_that_do_not_fit_are_refused(tmp_path: Path, data: Dataset, header, line: list[str], message: str):
    with pytest.raises(DataError, match=message):
        encoded(data, write(tmp_path, [line], header, "new.csv"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, r"column 2 \('colour'\): found '\w+', expected a finite number; for categories, give --categorical"),
        ({"categorical": ["price"]}, r"column 5 \('price'\) is categorical, but not one of the features"),
        ({"categorical": ["shade"]}, "no column 'shade'; the first line has age, colour"),
        ({"categorical": "colour"}, "categorical: found the string 'colour', expected a list of columns"),
        ({"columns": "age"}, "columns: found the string 'age', expected a list of columns"),
        ({"columns": ["age", "price"]}, r"column 5 \('price'\) is the target, but one of columns"),
        ({"columns": []}, "found no features, expected a column besides the target and dropped ones"),
        ({"drop_columns": [0, 1, 2, 3]}, "found no features"),
        ({"drop_columns": [5]}, "no column 5; expected -5 to 4"),
        ({"missing": "mean"}, "missing: found 'mean', expected one of error, drop, median"),
        ({"unknown": "ignore"}, "unknown: found 'ignore', expected one of error, zero"),
    ],
)
def test_bad_choices_are_refused(tmp_path: Path, options: dict, message: str):
    with pytest.raises(DataError, match=message):
        csv(write(tmp_path, table(), NAMES), **options)


@pytest.mark.parametrize(
    ("lines", "header", "options", "message"),
    [
        ([["1", "2"], ["x", "3"], ["4", "5"]], ["a", "b"], {"categorical": "auto"},
         r"line 3, column 1 \('a'\): found 'x' in a column that also has numbers; name the column in --categorical"),
        ([["1", "2", "3"], ["4", "5", "6"]], ["a", "a", "b"], {}, "the header has several columns 'a'"),
        ([["", "2"], ["?", "3"]], ["a", "b"], {"missing": "median"}, "found no number in the training part"),
        ([["", "2"], ["?", "3"]], ["a", "b"], {"missing": "median", "categorical": ["a"]}, "all values of"),
        ([["", "2"], ["?", "3"]], ["a", "b"], {"missing": "drop"}, "expected at least 2 rows to hold some out"),
        ([["1", ""], ["2", "3"]], ["a", "b"], {"missing": "median"}, "missing value .'.., expected a target"),
        ([["1", "2"], ["x", "3"], ["4", "5"], ["6", "7"], ["8", "9"]], ["a", "b"], {"missing": "median"},
         "found 'x', expected a finite number"),
    ],
)  # fmt: skip
def test_bad_columns_are_refused(tmp_path: Path, lines, header, options: dict, message: str):
    with pytest.raises(DataError, match=message):
        csv(write(tmp_path, lines, header), **options)


def test_other_choices_beside_known_features_are_refused(tmp_path: Path, data: Dataset):
    with pytest.raises(DataError, match="like: expected no other choice of features beside it"):
        csv(tmp_path / "table.csv", columns=["age"], like=data.features)


# -- in files ----------------------------------------------------------------------------------


def test_features_survive_json(tmp_path: Path):
    path = write(tmp_path, table(missing=0.1), NAMES)
    for options in ({"missing": "median", "unknown": "zero"}, {"missing": "drop"}):
        features = csv(path, categorical=["colour", "size"], **options).features
        assert Features.from_json(json.loads(json.dumps(features.as_json()))) == features
    bare = csv(write(tmp_path, table()), categorical=[1]).features
    assert Features.from_json(json.loads(json.dumps(bare.as_json()))) == bare


@pytest.mark.parametrize(
    "change",
    [
        {"columns": []},
        {"columns": None},
        {"columns": [{"name": "a"}]},
        {"width": 2},
        {"width": "5"},
        {"missing": "mean"},
        {"unknown": None},
        {"target": 3},
        {"target": {"position": 0, "name": None, "categories": None, "fill": None}},
        *({"columns": [{"position": 0, "name": "a", "categories": None, "fill": None} | wrong]} for wrong in (
            {"position": -1}, {"position": True}, {"position": 9}, {"name": 3}, {"categories": []},
            {"categories": ["x", "x"]}, {"categories": [1]}, {"categories": "xy"}, {"fill": "x"},
            {"fill": float("nan")}, {"categories": ["x"], "fill": "y"},
        )),
    ],
)  # fmt: skip
def test_damaged_features_are_refused(data: Dataset, change: dict):
    value = json.loads(json.dumps(data.features.as_json()))
    with pytest.raises(ValueError, match="the features are damaged"):
        Features.from_json(value | change)
    for wrong in (None, [], "text", {}):
        with pytest.raises(ValueError, match="the features are damaged"):
            Features.from_json(wrong)
