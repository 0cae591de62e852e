"""CSV files: formats, decisions, and errors that name line and column."""

from __future__ import annotations

import csv as python_csv
import gzip
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_iris

from matgrad.datasets import DataError, csv, csv_features
from support import assert_close

NUMBERS = "1,2,a\n3,4.5,b\n-5e-1,6,a\n7,8,b\n"
EXPECTED = np.array([[1, 2], [3, 4.5], [-0.5, 6], [7, 8]], np.float32)


def write(folder: Path, text: str, name: str = "table.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode())
    return path


def everything(data) -> tuple[np.ndarray, np.ndarray]:
    """Training and test examples together, sorted."""
    X, T = np.concatenate([data.Xtrain, data.Xtest]), np.concatenate([data.Ttrain, data.Ttest])
    order = np.lexsort(X.T[::-1])
    return X[order], T[order]


def test_iris_as_python_writes_it(tmp_path: Path):
    iris = load_iris()
    path = tmp_path / "iris.csv"
    with path.open("w", newline="") as file:
        writer = python_csv.writer(file, quoting=python_csv.QUOTE_ALL)
        writer.writerow([*iris.feature_names, "the species, quoted"])
        writer.writerows([*row, iris.target_names[t]] for row, t in zip(iris.data, iris.target, strict=True))

    data = csv(str(path))

    assert (data.name, data.classes, data.class_names) == ("iris", 3, ("setosa", "versicolor", "virginica"))
    assert (len(data.Xtrain), len(data.Xtest)) == (120, 30)
    X, T = everything(data)
    order = np.lexsort(iris.data.astype(np.float32).T[::-1])
    assert_close(X, iris.data[order].astype(np.float32), tolerance=0.0)
    np.testing.assert_array_equal(T, iris.target[order])
    assert data.notes == (
        "delimiter: comma",
        "header: yes",
        "target column 5 ('the species, quoted'): 3 classes (setosa, versicolor, virginica)",
        "test examples: 30 of 150 lines, drawn with seed 0",
    )
    assert csv(path).sha256() == data.sha256() != csv(path, seed=1).sha256()
    assert len(csv(path, test_fraction=0.5).Xtest) == 75


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("header", ["", "x,y,class\n", '"x","y","class"\n'])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("start", ["", "\ufeff", "\n\n"])
def test_formats_are_recognized(tmp_path: Path, delimiter: str, header: str, end: str, start: str):
    text = start + (header + NUMBERS).replace(",", delimiter).replace("\n", end)
    data = csv(write(tmp_path, text), test=write(tmp_path, text, "test.csv"))

    assert_close(data.Xtrain, EXPECTED, tolerance=0.0)
    assert_close(data.Xtest, EXPECTED, tolerance=0.0)
    assert data.Ttrain.tolist() == [0, 1, 0, 1]
    assert data.class_names == ("a", "b")
    assert data.notes[1] == f"header: {'yes' if header else 'no'}"


def test_a_compressed_table_and_an_odd_delimiter(tmp_path: Path):
    path = tmp_path / "table.csv.gz"
    path.write_bytes(gzip.compress(NUMBERS.replace(",", "|").encode()))
    data = csv(path, delimiter="|", test=path)
    assert_close(data.Xtrain, EXPECTED, tolerance=0.0)
    assert data.name == "table"


@pytest.mark.parametrize(
    ("target", "names", "expected"),
    [("class", ("a", "b"), [[1, 2], [3, 4]]), (0, ("a", "b"), [[1, 2], [3, 4]]), ("0", ("a", "b"), [[1, 2], [3, 4]]),
     (-3, ("a", "b"), [[1, 2], [3, 4]])],
)  # fmt: skip
def test_the_target_column_has_a_name_or_a_position(tmp_path: Path, target, names, expected):
    path = write(tmp_path, "class,x,y\nb,1,2\na,3,4\n")
    data = csv(path, test=path, target=target)
    assert data.class_names == names
    assert data.Xtrain.tolist() == expected
    assert data.Ttrain.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("targets", "task", "names"),
    [
        ([0, 1, 0, 1], None, ("0", "1")),
        ([10, 9, 10, 9], None, ("9", "10")),  # sorted as numbers
        (["1.0", "2", "1", "2.0"], None, ("1", "2")),
        ([1, 2, 3, 4], None, None),
        ([0.5, 1, 0.5, 1], None, None),
        (list(range(21)) * 2, None, None),
        (list(range(20)) * 2, None, tuple(str(i) for i in range(20))),
        ([1, 2, 3, 4], "classification", ("1", "2", "3", "4")),
        ([0, 1, 0, 1], "regression", None),
        (["1", "b", "1", "b"], None, ("1", "b")),
        ([0.5, 1, 0.5, 1], "classification", ("0.5", "1")),
        (["01", "1", "001", "2"], None, ("001", "01", "1", "2")),
        (["01", "1", "1.0", "1e0", "x"], None, ("01", "1", "1.0", "1e0", "x")),
        (["1e5", "b", "1e5", "b"], None, ("1e5", "b")),
    ],
)
def test_targets_are_classes_or_numbers(tmp_path: Path, targets: list, task: str | None, names):
    path = write(tmp_path, "".join(f"{i},{t}\n" for i, t in enumerate(targets)))
    data = csv(path, test=path, task=task)
    assert data.class_names == names
    if names is None:
        assert_close(data.Ttrain, np.array(targets, np.float32).reshape(-1, 1), tolerance=0.0)
        assert (data.classes, data.notes[2]) == (None, "target column 2: numbers (regression)")
    else:
        numbers = {name: k for k, name in enumerate(names)}
        expected = [numbers.get(str(t), numbers.get(str(t).removesuffix(".0"))) for t in targets]
        assert data.Ttrain.tolist() == data.Ttest.tolist() == expected
        assert data.notes[2].startswith(f"target column 2: {len(names)} classes ({names[0]}, {names[1]}")


def test_features_without_targets(tmp_path: Path):
    assert_close(csv_features(write(tmp_path, "x;y\n1;2\n3;4.5\n")), np.array([[1, 2], [3, 4.5]], np.float32))
    assert_close(csv_features(write(tmp_path, "1\n2\n")), np.array([[1], [2]], np.float32))
    assert_close(csv_features(write(tmp_path, "1,2\n"), header=False), np.array([[1, 2]], np.float32))
    with pytest.raises(DataError, match=r"table.csv, line 3, column 2 \('y'\): found 'a', expected a finite number"):
        csv_features(write(tmp_path, "x,y\n1,2\n3,a\n"))


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("", {}, "table.csv: the file is empty, expected lines of numbers"),
        ("\n\n  \n", {}, "table.csv: the file is empty"),
        ("x,y,class\n", {}, "table.csv: found a header and no lines of data"),
        ("1\n2\n", {}, "table.csv, line 1: found 1 column, expected at least 2"),
        ("1,2,a\n3,4\n", {}, "table.csv, line 2: found 2 columns, expected 3"),
        ("x,y,c\n1,2,a\n\n3,4,b,5\n", {}, "table.csv, line 4: found 4 columns, expected 3"),
        ("x,y,c\n1,2,a\n3,,b\n", {}, r"table.csv, line 3, column 2 \('y'\): missing value \(''\), expected a number"),
        ("1,2,a\nNA,4,b\n", {}, r"line 2, column 1: missing value \('NA'\)"),
        ("1,2,a\n3,?,b\n", {}, r"line 2, column 2: missing value \('\?'\)"),
        ("1,2,a\n3,nan,b\n", {}, r"line 2, column 2: missing value \('nan'\)"),
        ("1,2,a\n3,inf,b\n", {}, "line 2, column 2: found 'inf', expected a finite number"),
        ("1,2,a\n3,1e99,b\n", {}, r"line 2, column 2: found '1e\+99', expected a finite number"),
        ("1,2\n3,1e99\n", {"task": "regression"}, "line 2, column 2: found '1e99', expected a finite number"),
        ("1,2,a\n3,4_0,b\n", {}, "line 2, column 2: found '4_0', expected a finite number"),
        ("1,2,a\n3,0x10,b\n", {}, "line 2, column 2: found '0x10', expected a finite number"),
        ("a,1,2\nb,x,4\n", {"target": 0}, "line 2, column 2: found 'x', expected a finite number"),
        ("1,x,a\n3,4,b\n", {}, "line 1, column 2: found 'x', expected a finite number; if this line is a header"),
        ("x,y,c\n1,2,a\n", {"header": False}, "line 1, column 1: found 'x', expected .*; if this line is a header"),
        ("1,2,a\n3,4,\n", {}, r"table.csv, line 2, column 3: missing value \(''\), expected a target"),
        (
            "x,y,c\n1,2,3\n3,4,b\n",
            {"task": "regression"},
            r"line 3, column 3 \('c'\): found 'b', expected a finite number",
        ),
        ("x,y\n1,2\n3,4\n", {"target": "z"}, "table.csv: no target column 'z'; the first line has x, y"),
        ("1,2\n3,4\n", {"target": "z", "header": False}, "no target column 'z'; there is no header"),
        ("x,y\n1,2\n3,4\n", {"target": 2}, "table.csv: no target column 2; expected -2 to 1"),
        ("x,y\n1,2\n3,4\n", {"target": -3}, "table.csv: no target column -3; expected -2 to 1"),
        ("x,x,y\n1,2,3\n", {"target": "x"}, "the header has 2 columns 'x'; give the position"),
        ('1,2,a\n3,"4,b\n', {}, "table.csv, line 2: unexpected end of data"),
        ('1,2,a\n"3"4,5,b\n', {}, "table.csv, line 2: ',' expected after '\"'"),
        ("1,2,a\n", {}, "expected at least 2 rows to hold some out, found 1"),
        (NUMBERS, {"test_fraction": 1.5}, "held-out fraction: expected a number between 0 and 1, found 1.5"),
        (NUMBERS, {"task": "clustering"}, "unknown task 'clustering'; known: classification, regression"),
        (NUMBERS, {"delimiter": ", "}, "delimiter: expected one character, found ', '"),
        (NUMBERS, {"delimiter": ";"}, "line 1: found 1 column, expected at least 2"),
    ],
)
def test_bad_tables_are_refused(tmp_path: Path, text: str, options: dict, message: str):
    with pytest.raises(DataError, match=message):
        csv(write(tmp_path, text), **options)


@pytest.mark.parametrize(
    ("train", "test", "message"),
    [
        (NUMBERS, "1,2,c\n", "test.csv, line 1, column 3: found 'c', expected one of the 2 classes of the training"),
        (NUMBERS, "1,a\n", "test.csv: no target column 2; expected -2 to 1"),
        (
            "x,y,c\n" + NUMBERS,
            "x,z,c\n" + NUMBERS,
            "test.csv: no column 'y', which the features need; the header has x, z, c",
        ),
        (NUMBERS, "", "test.csv: the file is empty"),
        (NUMBERS, "1,2,3,a\n", "test.csv: found 4 columns, expected the 2 features of the model, or 3 columns"),
        ("1,2.5\n2,3.5\n", "1,2\n2,b\n", "test.csv, line 2, column 2: found 'b', expected a finite number"),
    ],
)
def test_test_files_that_do_not_fit_are_refused(tmp_path: Path, train: str, test: str, message: str):
    with pytest.raises(DataError, match=message):
        csv(write(tmp_path, train), test=write(tmp_path, test, "test.csv"))


def test_files_that_are_no_text_are_refused(tmp_path: Path):
    path = tmp_path / "a.csv"
    with pytest.raises(DataError, match=r"a.csv: no such file"):
        csv(path)
    path.write_bytes(b"1,2\n\xff\xfe\n")
    with pytest.raises(DataError, match=r"a.csv: not a text file in UTF-8 \(invalid start byte at byte 4\)"):
        csv(path)
    with pytest.raises(DataError, match="found a folder, expected a file"):
        csv(tmp_path)


def test_integers_above_2_to_the_53_are_different_classes(tmp_path: Path):
    """As floats, 2^53 and 2^53 + 1 would be one class."""
    numbers = [2**53, 2**53 + 1, -(2**53) - 1]
    path = write(tmp_path, "x,t\n" + "".join(f"{i},{numbers[i % 3]}\n" for i in range(30)))
    data = csv(path, task="classification")
    assert data.class_names == tuple(map(str, sorted(numbers)))
    X, labels = everything(data)
    assert [int(data.class_names[k]) for k in labels] == [numbers[int(x) % 3] for x in X[:, 0]]
