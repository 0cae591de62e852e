"""Tables: files and data frames, decisions, categories and missing values beside scikit-learn's, and errors."""

from __future__ import annotations

import csv
import gzip
import json
from dataclasses import asdict
from datetime import date
from pathlib import Path

import numpy as np
import pandas
import polars
import pyarrow
import pytest
from sklearn.datasets import load_iris
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder

from matgrad.datasets import DataError, Dataset, Features, hold_out, table, table_features
from support import assert_close

NUMBERS = "1,2,a\n3,4.5,b\n-5e-1,6,a\n7,8,b\n"
EXPECTED = np.array([[1, 2], [3, 4.5], [-0.5, 6], [7, 8]], np.float32)
NAMES = ["age", "colour", "size", "income", "price"]
N = 60


def people(seed: int = 0, missing: float = 0.0) -> list[list[str]]:
    """Lines of a table with numbers and categories; a fraction of the features is missing."""
    rng = np.random.default_rng(seed)
    lines = [
        [f"{rng.integers(18, 80)}", rng.choice(["red", "green", "blue"]), rng.choice(["1", "2", "3"]),
         f"{rng.normal(30000, 5000):.2f}", f"{rng.normal(1e5, 1e4):.1f}"]
        for _ in range(N)
    ]  # fmt: skip
    for i, j in np.argwhere(rng.random((N, 4)) < missing):
        lines[i][j] = rng.choice(["", "NA", " ? ", "nan"])
    return lines


def write(folder: Path, content: str | list[list[str]], header: list[str] | None = None, name="table.csv") -> Path:
    if not isinstance(content, str):
        content = "\n".join(",".join(line) for line in ([header] if header else []) + content) + "\n"
    path = folder / name
    path.write_bytes(content.encode())
    return path


def parts(lines: list[list[str]]) -> tuple[np.ndarray, np.ndarray]:
    """The fields of the training and of the test lines."""
    A = np.array(lines, dtype=object)
    kept, held = hold_out(len(A), 0.2, 0)
    return A[kept], A[held]


# -- files and data frames ---------------------------------------------------------------------


def test_iris_as_python_writes_it(tmp_path: Path):
    iris = load_iris()
    path = tmp_path / "iris.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        writer.writerow([*iris.feature_names, "the species, quoted"])
        writer.writerows([*row, iris.target_names[t]] for row, t in zip(iris.data, iris.target, strict=True))

    data = table(str(path))

    assert (data.name, data.classes, data.class_names) == ("iris", 3, ("setosa", "versicolor", "virginica"))
    for rows, X, T in zip(hold_out(150, 0.2), (data.Xtrain, data.Xtest), (data.Ttrain, data.Ttest), strict=True):
        assert_close(X, iris.data[rows].astype(np.float32), tolerance=0.0)
        np.testing.assert_array_equal(T, iris.target[rows])
    assert data.notes == (
        "delimiter: comma",
        "header: yes",
        "target column 5 ('the species, quoted'): 3 classes (setosa, versicolor, virginica)",
        "test examples: 30 of 150 rows, drawn with seed 0",
    )
    assert table(path).sha256() == data.sha256() != table(path, seed=1).sha256()


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("header", ["", "x,y,class\n", '"x","none","class"\n'])
@pytest.mark.parametrize(("start", "end"), [("", "\n"), ("\ufeff", "\r\n"), ("\n\n", "\n")])
def test_formats_of_csv_are_recognized(tmp_path: Path, delimiter: str, header: str, end: str, start: str):
    text = start + (header + NUMBERS).replace(",", delimiter).replace("\n", end)
    data = table(write(tmp_path, text), test=write(tmp_path, text, name="test.csv"))

    assert_close(data.Xtrain, EXPECTED, tolerance=0.0)
    assert_close(data.Xtest, EXPECTED, tolerance=0.0)
    assert (data.Ttrain.tolist(), data.class_names) == ([0, 1, 0, 1], ("a", "b"))
    assert data.notes[1] == f"header: {'yes' if header else 'no'}"
    assert [c.name for c in data.features.columns] == (
        [None] * 2 if not header else header.replace('"', "").split(",")[:2]
    )


def frame() -> pandas.DataFrame:
    """All types of columns, an index that is no feature, and missing values."""
    columns = {
        "whole": [1, 2, 3, 4, 5, 6],
        "half": [0.5, None, 1.5, 2.5, 3.5, 4.5],
        "flag": [True, False, True, True, False, False],
        "word": ["b", "a", None, "a", "a", "b"],
        "code": ["01", "1", "01", "1", "2", "2"],
        "day": [date(2020, 1, 1)] * 6,
        "kind": ["x", "y", "x", "y", "x", "y"],
    }
    return pandas.DataFrame(columns, index=[5, 4, 3, 2, 1, 0]).astype({"kind": "category"})


@pytest.mark.parametrize("source", ["pandas", "polars", "pyarrow", "parquet", "feather", "stream", "csv", "csv.gz"])
def test_files_and_frames_give_the_same_data(tmp_path: Path, source: str):
    pandas_frame, path = frame(), tmp_path / f"table.{source}"
    plain = polars.from_pandas(pandas_frame)
    writers = {"feather": plain.write_ipc, "stream": plain.write_ipc_stream, "parquet": pandas_frame.to_parquet}
    if source in writers:
        writers[source](path)
    elif source.startswith("csv"):  # where flags are words
        text = plain.with_columns(polars.col("flag").cast(polars.Int8)).write_csv().encode()
        path.write_bytes(gzip.compress(text) if source == "csv.gz" else text)
    frames = {"pandas": pandas_frame, "polars": plain, "pyarrow": pyarrow.table(plain)}
    choice = {"drop_columns": ["day"], "categorical": ["word", "code"], "missing": "median"}
    given = frames.get(source, path)
    data = table(given, test=given, target="kind", **choice)

    one_hot = [[0, 1], [1, 0], [1, 0], [1, 0], [1, 0], [0, 1]], [[1, 0, 0], [0, 1, 0], [1, 0, 0], [0, 1, 0]]
    expected = np.array([[1, 0.5, 1], [2, 2.5, 0], [3, 1.5, 1], [4, 2.5, 1], [5, 3.5, 0], [6, 4.5, 0]])
    assert_close(data.Xtrain, np.hstack([expected, one_hot[0], [*one_hot[1], *[[0, 0, 1]] * 2]]).astype(np.float32))
    assert (data.class_names, data.Ttrain.tolist()) == (("x", "y"), [0, 1] * 3)
    assert_close(table_features(given, like=data.features), data.Xtest)
    auto = table(given, test=given, target="kind", **choice | {"categorical": "auto", "drop_columns": ["day", "code"]})
    assert auto.features.columns[3].categories == ("a", "b")


def test_columns_of_strings_in_a_typed_table_are_categories(tmp_path: Path):
    """In a CSV file, where everything is a string, numbers are numbers."""
    strings = polars.DataFrame({"id": ["01", "1", "2", "01"], "y": [0.5, 1, 2, 3]})
    assert table(strings, test=strings, categorical="auto").features.columns[0].categories is not None
    strings.write_csv(tmp_path / "t.csv")
    assert table(tmp_path / "t.csv", categorical="auto").features.columns[0].categories is None


def test_columns_that_are_neither_numbers_nor_strings(tmp_path: Path):
    with pytest.raises(DataError, match=r"the table, column 6 \('day'\): found date32.*, expected numbers or strings"):
        table(frame()[["whole", "half", "flag", "word", "code", "day", "kind"]], columns=["day"])
    assert table(frame(), columns=["day"], categorical=["day"]).features.columns[0].categories == ("2020-01-01",)
    with pytest.raises(TypeError, match="expected a file or a data frame of pandas, polars or Arrow, found list"):
        table([[1, 2]])
    with pytest.raises(DataError, match="the table: found 0 rows"):
        table(polars.DataFrame({"x": [], "y": []}))


def test_damaged_files_are_refused(tmp_path: Path):
    path = tmp_path / "a.parquet"
    frame().to_parquet(path)
    content = path.read_bytes()
    for damaged in (content[:100], content[:-20] + bytes(20), b"PAR1", b"ARROW1\0\0" + bytes(50)):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=r"a\.parquet: "):
            table(path)


def test_a_small_file_of_a_huge_table_is_refused(tmp_path: Path, monkeypatch):
    path = tmp_path / "a.parquet"
    polars.DataFrame({"x": np.zeros(1 << 20), "y": np.zeros(1 << 20)}).write_parquet(path)
    assert path.stat().st_size < 100_000
    monkeypatch.setenv("MATGRAD_MEMORY_LIMIT", "8M")
    with pytest.raises(DataError, match=r"asks for .* MB, expected at most 8 MB"):
        table(path)


# -- targets -----------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["class", 0, "0", -3])
def test_the_target_column_has_a_name_or_a_position(tmp_path: Path, target):
    path = write(tmp_path, "class,x,y\nb,1,2\na,3,4\n")
    data = table(path, test=path, target=target)
    assert (data.class_names, data.Xtrain.tolist(), data.Ttrain.tolist()) == (("a", "b"), [[1, 2], [3, 4]], [1, 0])


@pytest.mark.parametrize(
    ("targets", "task", "names"),
    [
        ([10, 9, 10, 9], None, ("9", "10")),  # sorted as numbers
        (["1.0", "2", "1", "2.0"], None, ("1", "2")),
        ([1, 2, 3, 4], None, None),
        ([0.5, 1, 0.5, 1], None, None),
        (list(range(21)) * 2, None, None),
        (list(range(20)) * 2, None, tuple(str(i) for i in range(20))),
        ([1, 2, 3, 4], "classification", ("1", "2", "3", "4")),
        ([0, 1, 0, 1], "regression", None),
        ([0.5, 1, 0.5, 1], "classification", ("0.5", "1")),
        (["01", "1", "001", "2"], None, ("001", "01", "1", "2")),
        (["01", "1", "1.0", "1e0", "x"], None, ("01", "1", "1.0", "1e0", "x")),
        ([2**53, 2**53 + 1, -(2**53) - 1] * 2, None, (str(-(2**53) - 1), str(2**53), str(2**53 + 1))),
    ],
)
def test_targets_are_classes_or_numbers(tmp_path: Path, targets: list, task: str | None, names):
    path = write(tmp_path, "".join(f"{i},{t}\n" for i, t in enumerate(targets)))
    data = table(path, test=path, task=task)
    assert data.class_names == names
    if names is None:
        assert_close(data.Ttrain, np.array(targets, np.float32).reshape(-1, 1), tolerance=0.0)
        assert (data.classes, data.notes[2]) == (None, "target column 2: numbers (regression)")
    else:
        numbers = {name: k for k, name in enumerate(names)}
        expected = [numbers.get(str(t), numbers.get(str(t).removesuffix(".0"))) for t in targets]
        assert data.Ttrain.tolist() == data.Ttest.tolist() == expected


# -- categories and missing values -------------------------------------------------------------


@pytest.mark.parametrize("categorical", [["colour", "size"], [1, -3]])
def test_categories_are_those_of_scikit_learn(tmp_path: Path, categorical):
    lines = people()
    data = table(write(tmp_path, lines, NAMES), categorical=categorical)

    train, test = parts(lines)
    encoder = OneHotEncoder(sparse_output=False).fit(train[:, 1:3])
    for X, A in ((data.Xtrain, train), (data.Xtest, test)):
        expected = np.hstack([A[:, :1].astype(float), encoder.transform(A[:, 1:3]), A[:, 3:4].astype(float)])
        assert_close(X, expected.astype(np.float32), tolerance=0.0)
    assert "categories of colour (blue, green, red)" in data.notes
    auto = table(tmp_path / "table.csv", categorical="auto").features  # sizes stay numbers
    assert [column.name for column in auto.columns if column.categories is not None] == ["colour"]


@pytest.mark.parametrize(
    ("fields", "categories", "numbers"),
    [
        (["1", "1.0", "2", "1e0", "+1"], ("1", "2"), [0, 0, 1, 0, 0]),
        (["1", "1.0", "2", "1e0", "x"], ("1", "1.0", "1e0", "2", "x"), [0, 1, 3, 2, 4]),
        (["01067", "1067", "1067.0", "2", "?"], ("01067", "1067", "1067.0", "2"), [0, 1, 2, 3, 0]),
        ([str(2**53), str(2**53 + 1), "1", "1", "1"], ("1", str(2**53), str(2**53 + 1)), [1, 2, 0, 0, 0]),
    ],
)
def test_equal_numbers_are_one_category_among_plain_numbers_alone(tmp_path: Path, fields, categories, numbers):
    path = write(tmp_path, [[field, f"{i}.5"] for i, field in enumerate(fields)])
    data = table(path, test=path, categorical=[0], task="regression", missing="median")
    assert data.features.columns[0].categories == categories
    for X in (data.Xtrain, data.Xtest, table_features(path, like=data.features)):
        np.testing.assert_array_equal(X, np.eye(len(categories))[numbers])


def test_categories_come_from_the_training_rows_alone(tmp_path: Path):
    train, test = people(), [["30", "pink", "9", "30000", "100000"], ["31", "red", "1", "30000", "100000"]]
    first, second = write(tmp_path, train, NAMES), write(tmp_path, test, NAMES, "test.csv")
    with pytest.raises(DataError, match=r"test.csv, row 1, column 2 \('colour'\): found 'pink', expected one of"):
        table(first, test=second, categorical="auto")

    data = table(first, test=second, categorical=["colour", "size"], unknown="zero")
    encoder = OneHotEncoder(sparse_output=False, handle_unknown="ignore").fit(np.array(train)[:, 1:3])
    assert_close(data.Xtest[:, 1:7], encoder.transform(np.array(test)[:, 1:3]).astype(np.float32), tolerance=0.0)
    assert "column 2 ('colour'): unknown categories become zeros (pink)" in data.notes


def test_missing_values_are_replaced_as_scikit_learn_does(tmp_path: Path):
    lines = people(missing=0.1)
    data = table(write(tmp_path, lines, NAMES), categorical=["colour"], missing="median")

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


def test_rows_with_missing_values_are_dropped(tmp_path: Path):
    lines = people(missing=0.05)
    lines[3][4] = "NA"  # a target
    whole = [line for line in lines if all(field not in ("", "NA", " ? ", "nan") for field in line)]
    data = table(write(tmp_path, lines, NAMES), categorical=["colour"], missing="drop")
    expected = table(write(tmp_path, whole, NAMES, "whole.csv"), categorical=["colour"])

    assert len(whole) < N
    assert_close(data.Xtrain, expected.Xtrain, tolerance=0.0)
    assert_close(data.Ttest, expected.Ttest, tolerance=0.0)
    assert f"dropped: {N - len(whole)} of {N} rows, which have missing values" in data.notes
    with pytest.raises(DataError, match="missing value"):  # the prediction of a row cannot be left out
        table_features(tmp_path / "table.csv", like=data.features)


def test_missing_values_of_other_columns_do_not_matter(tmp_path: Path):
    path = write(tmp_path, [["1", "", "5.5"], ["2", "x", "6.5"], ["3", "?", "7"]], ["a", "b", "t"])
    for options in ({"columns": ["a"]}, {"drop_columns": ["b"]}, {"drop_columns": [1], "missing": "drop"}):
        data = table(path, test=path, **options)
        assert data.Xtrain.tolist() == [[1], [2], [3]]
        assert "ignored columns: b" in data.notes


# -- finding the columns again -----------------------------------------------------------------


@pytest.fixture
def data(tmp_path: Path) -> Dataset:
    return table(write(tmp_path, people(), NAMES), categorical=["colour"], drop_columns=["size"])


@pytest.mark.parametrize("order", [[4, 3, 2, 1, 0], [3, 0, 1]])
def test_columns_are_found_by_name(tmp_path: Path, data: Dataset, order: list[int]):
    """In any order, beside others or not."""
    lines = people(seed=1)
    ordered = write(tmp_path, lines, NAMES, "ordered.csv")
    expected = table_features(ordered, like=data.features)
    moved = write(tmp_path, [[line[j] for j in order] for line in lines], [NAMES[j] for j in order], "moved.csv")
    assert_close(table_features(moved, like=data.features), expected, tolerance=0.0)
    if 4 in order:
        again = table(moved, like=data.features)
        assert_close(again.Xtrain, expected[hold_out(N, 0.2)[0]], tolerance=0.0)
        assert_close(again.Ttrain, table(ordered, like=data.features).Ttrain, tolerance=0.0)
    with pytest.raises(DataError, match=r"\('age'\) is the target, but also one of the features"):
        table(moved, target="age", like=data.features)
    with pytest.raises(DataError, match="like: expected no other choice of features beside it"):
        table(moved, columns=["age"], like=data.features)


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4], [0, 1, 3]])
def test_without_a_header_columns_are_found_by_position(tmp_path: Path, data: Dataset, order: list[int]):
    """Those of the training file, or the features alone."""
    lines = people(seed=1)
    expected = table_features(write(tmp_path, lines, NAMES, "ordered.csv"), like=data.features)
    path = write(tmp_path, [[line[j] for j in order] for line in lines], name="bare.csv")
    assert_close(table_features(path, like=data.features), expected, tolerance=0.0)


def test_features_without_targets(tmp_path: Path):
    assert_close(table_features(write(tmp_path, "x;y\n1;2\n3;4.5\n")), np.array([[1, 2], [3, 4.5]], np.float32))
    assert_close(table_features(write(tmp_path, "1\n2\n")), np.array([[1], [2]], np.float32))
    with pytest.raises(DataError, match=r"table.csv, row 2, column 2 \('y'\): found 'a', expected a finite number"):
        table_features(write(tmp_path, "x,y\n1,2\n3,a\n"))


# -- errors ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("\n\n  \n", {}, "table.csv: the file is empty"),
        ("x,y,class\n", {}, "table.csv: found a header and no lines of data"),
        ("1\n2\n", {}, "table.csv: found 1 column, expected at least 2"),
        ("1,2,a\n3,4\n", {}, "table.csv: .*Row #2: Expected 3 columns, got 2"),
        ("x,y,c\n1,2,a\n\n3,4,b,5\n", {}, "table.csv: .*Row #3: Expected 3 columns, got 4"),
        ("x,y,c\n1,2,a\n3,,b\n", {}, r"table.csv, row 2, column 2 \('y'\): missing value"),
        ("1,2,a\n3, ? ,b\n", {}, "row 2, column 2: missing value"),
        ("1,2,a\n3,inf,b\n", {}, "row 2, column 2: found 'inf', expected a finite number"),
        ("1,2,a\n3,1e99,b\n", {}, "row 2, column 2: found '1e99', expected a finite number"),
        ("1,2,a\n3,4_0,b\n", {}, "row 2, column 2: found '4_0', expected a finite number"),
        ("1,x,a\n3,4,b\n", {}, "row 1, column 2: found 'x', expected a finite number.*; if this line is a header"),
        ("1,2,a\n3,4,\n", {}, "table.csv, row 2, column 3: missing value, expected a target"),
        ("x,y\n1,2\n3,4\n", {"target": "z"}, "table.csv: no column 'z'; expected x, y or -2 to 1"),
        ("x,y\n1,2\n3,4\n", {"target": -3}, "table.csv: no column -3; expected x, y or -2 to 1"),
        ('x,y\n1,a\n2,"b\n3,a\n', {}, "table.csv, row 2: found a quote that is not closed"),
        ("1,2,a\n", {}, "expected at least 2 rows to hold some out, found 1"),
        (NUMBERS, {"task": "clustering"}, r"unknown task 'clustering' \(known: classification, regression\)"),
        (NUMBERS, {"delimiter": ", "}, "delimiter: expected one character, found ', '"),
        ("a,b\n1,2\nx,3\n4,5\n", {"categorical": "auto"}, "row 2, column 1 .'a'.: found 'x', expected a number as in"),
        ("a,a,b\n1,2,3\n4,5,6\n", {}, "there are 2 columns 'a'"),
        ("a,b\n,2\n?,3\n", {"missing": "median"}, "found no values in the training part"),
        ("a,b\n1,\n2,3\n", {"missing": "median"}, "missing value, expected a target"),
        (
            NUMBERS,
            {"test": "1,2,c\n"},
            "test.csv, row 1, column 3: found 'c', expected one of a, b, as in the training",
        ),
        ("x,y,c\n" + NUMBERS, {"test": "x,z,c\n" + NUMBERS}, "test.csv: no column 'y', which the features need; found"),
        (
            NUMBERS,
            {"test": "1,2,3,a\n"},
            "test.csv: found 4 columns, expected the 2 features of the model, or 3 columns",
        ),
    ],
)
def test_bad_tables_are_refused(tmp_path: Path, text: str, options: dict, message: str):
    if "test" in options:
        options = options | {"test": write(tmp_path, options["test"], name="test.csv")}
    with pytest.raises(DataError, match=message):
        table(write(tmp_path, text), **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, r"column 2 \('colour'\): found '\w+', expected a finite number; for categories, give --features"),
        ({"categorical": ["price"]}, r"column 5 \('price'\) is categorical, but not one of the features"),
        ({"columns": "age"}, "columns: found the string 'age', expected a list of columns"),
        ({"drop_columns": [0, 1, 2, 3]}, "found no features"),
        ({"missing": "mean"}, r"unknown missing 'mean'; did you mean 'median'\? \(known: error, drop, median\)"),
    ],
)
def test_bad_choices_are_refused(tmp_path: Path, options: dict, message: str):
    with pytest.raises(DataError, match=message):
        table(write(tmp_path, people(), NAMES), **options)


def test_files_that_are_no_text_are_refused(tmp_path: Path):
    path = tmp_path / "a.csv"
    with pytest.raises(DataError, match=r"a.csv: no such file"):
        table(path)
    path.write_bytes(b"1,2\n\xff\xfe,1\n")
    with pytest.raises(DataError, match=r"a.csv: .*invalid UTF8 data"):
        table(path)
    path.write_bytes(b"a,b\n1,2\n\xe9,3,4\n5,6\n")
    with pytest.raises(DataError, match="Row #3: Expected 2 columns, got 3"):
        table(path)
    with pytest.raises(DataError, match="found a folder, expected a file"):
        table(tmp_path)


# -- in files ----------------------------------------------------------------------------------


def test_features_survive_json(tmp_path: Path):
    path = write(tmp_path, people(missing=0.1), NAMES)
    for options in ({"missing": "median", "unknown": "zero"}, {"missing": "drop"}):
        features = table(path, categorical=["colour", "size"], **options).features
        assert Features.from_json(json.loads(json.dumps(asdict(features)))) == features


@pytest.mark.parametrize(
    "change",
    [
        {"columns": []},
        {"columns": [{"name": "a"}]},
        {"width": 2},
        {"missing": "mean"},
        {"target": {"position": 0, "name": None, "categories": None, "fill": None}},
        *({"columns": [{"position": 0, "name": "a", "categories": None, "fill": None} | wrong]} for wrong in (
            {"position": -1}, {"categories": []}, {"categories": ["x", "x"]}, {"fill": "x"},
        )),
    ],
)  # fmt: skip
def test_damaged_features_are_refused(data: Dataset, change: dict):
    value = json.loads(json.dumps(asdict(data.features)))
    with pytest.raises(ValueError, match="the features are damaged"):
        Features.from_json(value | change)
