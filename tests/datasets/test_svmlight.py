"""Data sets with sparse examples: svmlight files against scikit-learn's own reader, and npz files with CSR arrays."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import dump_svmlight_file, load_svmlight_file, load_svmlight_files

import matgrad as mg
from cli_support import run, succeed
from matgrad.datasets import DataError, hold_out, npz, save_npz, svmlight


def write(path: Path, labels=(-1, 3, 10), N: int = 40, D: int = 30, zero_based: bool = False, seed: int = 0) -> Path:
    """A file of random sparse examples, some of them empty."""
    rng = np.random.default_rng(seed)
    X = sp.random_array((N, D), density=0.1, rng=rng, format="csr")
    t = np.array(labels, float)[np.arange(N) % len(labels)]
    dump_svmlight_file(X, t, str(path), zero_based=zero_based)
    return path


@pytest.mark.parametrize("zero_based", [False, True])
def test_a_file_is_read_as_scikit_learn_does(tmp_path: Path, zero_based: bool):
    path = write(tmp_path / "some.svm", zero_based=zero_based)
    X, t = load_svmlight_file(str(path))
    if zero_based:  # compressed files are read as well
        path.write_bytes(gzip.compress(path.read_bytes()))
    data = svmlight(path)
    kept, held = hold_out(40, 0.2)
    np.testing.assert_array_equal(data.Xtrain.toarray(), X[kept].toarray().astype(np.float32))
    np.testing.assert_array_equal(data.Xtest.toarray(), X[held].toarray().astype(np.float32))
    assert (data.classes, data.class_names, data.first_index) == (3, ("-1", "3", "10"), 0 if zero_based else 1)
    np.testing.assert_array_equal(np.array([-1, 3, 10])[data.Ttrain], t[kept])
    assert data.notes == (
        f"features: {X.shape[1]}, counted from {0 if zero_based else 1}",
        "targets: 3 classes (-1, 3, 10)",
        "test examples: 8 of 40 lines, drawn with seed 0",
    )


def test_a_test_file_has_the_same_features_and_classes(tmp_path: Path):
    """The first index is that of both files, and so is the number of features."""
    train = write(tmp_path / "train.svm", zero_based=True)
    test = tmp_path / "test.svm"
    test.write_text("3 1:2 40:0.5\n10 \n-1 2:1  # a comment\n")
    data = svmlight(train, test=test)
    (X, _, Xt, _) = load_svmlight_files([str(train), str(test)])
    assert data.input_size == 41 == Xt.shape[1]
    np.testing.assert_array_equal(data.Xtrain.toarray(), X.toarray().astype(np.float32))
    np.testing.assert_array_equal(data.Xtest.toarray(), Xt.toarray().astype(np.float32))
    assert data.Ttest.tolist() == [1, 2, 0]
    test.write_text("4 1:2\n")
    with pytest.raises(DataError, match=r"test\.svm: found target 4, expected one of the classes of the training file"):
        svmlight(train, test=test)


@pytest.mark.parametrize(
    ("labels", "task", "classes"),
    [((1, 2), None, 2), ((0.5, 2), None, None), ((1, 2), "regression", None), ((0.5, 2), "classification", 2)],
)
def test_the_task_is_chosen_or_guessed(tmp_path: Path, labels, task: str | None, classes: int | None):
    data = svmlight(write(tmp_path / "some.svm", labels), task=task)
    assert data.classes == classes
    if classes is None:
        assert (data.Ttrain.shape, data.notes[1]) == ((32, 1), "targets: numbers (regression)")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "the file is empty, expected lines such as '1 3:0.5 17:2'"),
        ("1 3:x\n", "not an svmlight file, or a damaged one"),
        ("1 3:1 2:1\n", "not an svmlight file, or a damaged one"),  # not in order
        ("1 30000000000:1\n", "not an svmlight file, or a damaged one"),
        ("1 2000000000:1\n2 3:1\n", "2000000000 features: asks for .* GB, expected at most 128 MB"),
        ("nan 1:1\n1 2:1\n", "targets, row 0, column 0: found nan, expected a finite number"),
        ("1 1:1e300\n1 2:1\n2 1:1\n2 2:1\n", r"X(train|test), row 0, column 0: found 1e\+300, expected"),
        ("1 1:1\n", "expected at least 2 rows to hold some out, found 1"),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, content: str, message: str):
    path = tmp_path / "bad.svm"
    path.write_text(content)
    with pytest.raises((DataError, ValueError), match=rf"^{path}.*{message}"):
        svmlight(path)


def test_features_outside_those_of_the_model_are_refused(tmp_path: Path):
    path = write(tmp_path / "some.svm", zero_based=True)
    with pytest.raises(DataError, match="found feature 0, expected numbers from 1 to 30"):
        svmlight(path, first_index=1, features=30)
    with pytest.raises(DataError, match=r"found feature 29, expected numbers from 0 to 9"):
        svmlight(path, features=10)
    assert svmlight(path, features=100).input_size == 100


def test_a_missing_library_is_named(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("matgrad.foundation.imports.find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r"svmlight files need sklearn.*pip install '\.\[sklearn\]'"):
        svmlight(write(tmp_path / "some.svm"))


# -- npz files ----------------------------------------------------------------------------------


def test_a_sparse_data_set_survives_an_npz_file(tmp_path: Path):
    data = svmlight(write(tmp_path / "some.svm"))
    save_npz(data, tmp_path / "data.npz")
    again = npz(tmp_path / "data.npz")
    assert again.sha256() == data.sha256()
    assert sp.issparse(again.Xtest)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"Xtrain.columns": None}, "Xtrain: found values, starts, shape, expected all of values, columns, starts, sh"),
        ({"Xtrain.shape": np.array([32, 2])}, "Xtrain: columns: expected numbers from 0 to 1"),
        ({"Xtrain.shape": np.array([32, 2**31 - 1])}, "Xtrain: 2147483647 columns: asks for 32 GB"),
        ({"Xtrain.values": np.ones(1)}, "Xtrain: values: expected size"),
        ({"Xtrain.starts": np.zeros(33)}, "Xtrain: starts: expected a vector of integers, found float64"),
    ],
)
def test_damaged_npz_files_are_refused(tmp_path: Path, change: dict, message: str):
    save_npz(svmlight(write(tmp_path / "some.svm", D=30)), tmp_path / "data.npz")
    arrays = dict(np.load(tmp_path / "data.npz")) | change
    np.savez(tmp_path / "bad.npz", **{name: A for name, A in arrays.items() if A is not None})
    with pytest.raises(DataError, match=rf"bad\.npz: {message}"):
        npz(tmp_path / "bad.npz")


# -- the command line -----------------------------------------------------------------------------


def test_train_evaluate_and_predict_take_svmlight_files(tmp_path: Path):
    """A model from a file that counts from 0 reads others in the same way, though they have no feature 0."""
    train, other = write(tmp_path / "train.svm", zero_based=True), tmp_path / "other.svm"
    other.write_text("3 5:1\n-1 1:1 7:2\n")
    output = succeed("train", "--svmlight", train, "--epochs", 2, "--backend", "numpy", "--output", tmp_path / "run")
    assert "features: 30, counted from 0" in output
    model = tmp_path / "run" / "model.npz"
    succeed("predict", model, tmp_path / "y.csv", "--svmlight", other, "--part", "all", "--backend", "numpy")
    M = mg.load(model)
    X = np.zeros((2, 30), np.float32)
    X[0, 5], X[1, 1], X[1, 7] = 1, 1, 2
    classes = [line.split(",")[0] for line in (tmp_path / "y.csv").read_text().splitlines()[1:]]
    split = hold_out(2, 0.2)
    expected = M.predict(X[np.concatenate(split)]).argmax(axis=1)
    assert classes == [("-1", "3", "10")[k] for k in expected]
    output = succeed("evaluate", model, "--svmlight", f"{train};{train}", "--backend", "numpy")
    assert "the test part of train: 40 examples" in output


def test_options_that_do_not_fit_are_refused(tmp_path: Path):
    path = write(tmp_path / "some.svm")
    for options, message in (
        (["--svmlight-test", path], "--svmlight-test is gone: use --svmlight"),
        (["--svmlight", path, "--table", path], "--table and --svmlight: expected one data set"),
        (["--svmlight", path, "--target", "3"], "--target needs --table"),
        (["--svmlight", path, "--normalize", "standard"], "'standard' would make a sparse X dense"),
    ):
        result = run("train", *options, "--epochs", 1)
        assert result.exit_code != 0
        assert message in result.output
