"""Data sets: checks, normalization beside scikit-learn's, hashing and splitting."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from matgrad.datasets import DataError, Dataset, Normalization, hold_out
from support import assert_close

RNG = np.random.default_rng(0)
X, XT = RNG.normal(3, 10, (50, 4)), RNG.normal(3, 10, (20, 4))
T, TT = np.arange(50) % 3, np.arange(20) % 3


def changed(A: np.ndarray, index, value) -> np.ndarray:
    B = A.copy()
    B[index] = value
    return B


def dataset(*arrays, **options) -> Dataset:
    return Dataset.checked("some", *(arrays or (X, T, XT, TT)), **options)


def test_arrays_become_float32_and_int64():
    data = dataset(X, T.astype(np.uint8), XT, TT.astype(np.int16))
    assert_close(data.Xtrain, X.astype(np.float32), tolerance=0.0)
    assert data.Ttrain.dtype == data.Ttest.dtype == np.int64
    assert (data.classes, data.input_size, data.output_size) == (3, 4, 3)


@pytest.mark.parametrize(("Ttrain", "Ttest", "classes"), [(T, TT + 4, 7), (T + 4, TT, 7), (T * 0, TT * 0, 1)])
def test_there_are_as_many_classes_as_the_largest_label_asks_for(Ttrain, Ttest, classes: int):
    assert dataset(X, Ttrain, XT, Ttest).classes == classes
    assert dataset(X, Ttrain, XT, Ttest, classes=9).output_size == 9


@pytest.mark.parametrize("columns", [None, 1, 3])
def test_numbers_are_targets_of_a_regression(columns: int | None):
    Y, YT = (A[:, 0] if columns is None else A[:, :columns] for A in (X, XT))
    data = dataset(X, Y, XT, YT)
    assert_close(data.Ttrain, Y.reshape(50, -1).astype(np.float32), tolerance=0.0)
    assert (data.classes, data.output_size) == (None, columns or 1)


@pytest.mark.parametrize(
    ("arrays", "options", "message"),
    [
        ((X[:9], T, XT, TT), {}, "some: Xtrain has 9 rows and Ttrain has 50: expected one target per row"),
        ((X, T, XT[:, :3], TT), {}, "some: Xtrain has 4 columns and Xtest has 3: expected equal numbers"),
        ((X[0], T, XT, TT), {}, r"some: Xtrain: expected a matrix with at least one row, found shape \(4,\)"),
        ((X, T, XT[:0], TT[:0]), {}, r"some: Xtest: expected a matrix with at least one row, found shape \(0, 4\)"),
        ((changed(X, (7, 2), np.nan), T, XT, TT), {}, "some: Xtrain, row 7, column 2: found nan, expected a finite"),
        ((changed(X, (0, 1), 1e300), T, XT, TT), {}, r"row 0, column 1: found 1e\+300, expected a finite float32"),
        ((X, changed(X[:, :2], (5, 1), np.inf), XT, XT[:, :2]), {}, "Ttrain, row 5, column 1: found inf"),
        ((X.astype(str), T, XT, TT), {}, "some: Xtrain: found <U32, expected numbers"),
        ((X, T.astype(object), XT, TT), {}, "some: Ttrain: found object, expected numbers"),
        ((X, T, XT, XT), {}, "Ttrain has classes and Ttest has 4 columns of numbers: expected the same"),
        ((X, changed(T, 8, -1), XT, TT), {}, "Ttrain: label -1 in row 8: expected a class from 0 to 2"),
        ((X, T, XT, TT), {"classes": 2}, "some: Ttrain: label 2 in row 2: expected a class from 0 to 1"),
        ((X, T, XT, changed(TT, 4, 5)), {"classes": 3}, "some: Ttest: label 5 in row 4: expected a class from 0 to 2"),
        ((X, X, XT, XT), {"classes": 2}, "Ttrain: found a matrix of numbers, expected 2 classes"),
        ((X[:9], T, XT, TT), {"source": "file.npz"}, "^file.npz: Xtrain has 9 rows"),
    ],
)  # fmt: skip
def test_bad_arrays_are_refused(arrays, options: dict, message: str):
    with pytest.raises(DataError, match=message):
        dataset(*arrays, **options)


# -- normalization -----------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "scaler"), [("standard", StandardScaler()), ("unit", MinMaxScaler())])
def test_normalization_equals_that_of_scikit_learn(kind: str, scaler):
    A = changed(X, (slice(None), 1), 0.1)  # a constant column
    scaler.fit(A.astype(np.float32).astype(np.float64))

    data = dataset(A, T, XT, TT).normalize(kind)

    assert_close(data.Xtrain, scaler.transform(A).astype(np.float32), tolerance=1e-6, noise=1e-6)
    assert_close(data.Xtest, scaler.transform(XT).astype(np.float32), tolerance=1e-6, noise=1e-6)
    normalization = Normalization.of(kind, A.astype(np.float32))
    assert normalization.kind == str(normalization) == kind
    assert normalization.scale[0, 1] == 1
    assert_close(normalization.apply(XT.astype(np.float32)), data.Xtest, tolerance=0.0)


def test_standard_deviations_of_many_rows():
    A = np.random.default_rng(1).normal(1000, 0.5, (10_001, 3)).astype(np.float32)
    A[:, 1] = 0.1
    N = Normalization.of("standard", A)
    assert_close(N.offset, A.astype(np.float64).mean(axis=0, keepdims=True).astype(np.float32))
    assert_close(N.scale[:, [0, 2]], A[:, [0, 2]].astype(np.float64).std(axis=0, keepdims=True).astype(np.float32))
    assert N.scale[0, 1] == 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", ["none", "unit", "standard"])
def test_normalization_is_inverted(kind: str, dtype):
    A = changed(X, (slice(None), 1), 1e6).astype(dtype)  # a constant column
    N = Normalization.of(kind, A)
    assert_close(N.invert(N.apply(A)), A, tolerance=1e-6 if dtype == np.float32 else 1e-13)
    if kind == "standard":
        scaler = StandardScaler().fit(A.astype(np.float64))
        assert_close(N.invert(A), scaler.inverse_transform(A).astype(dtype), tolerance=1e-5)


def test_a_known_range_is_used_for_unit():
    data = dataset(X, T, XT, TT, value_range=(-100, 300)).normalize("unit")
    assert_close(data.Xtest, ((XT + 100) / 400).astype(np.float32), tolerance=1e-6)


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: dataset().normalize("units"), "some: unknown normalization 'units'; did you mean 'unit'"),
        (lambda: dataset(X * 1e37, T, XT, TT).normalize("unit"), "column 0: the range of its values is too wide"),
        (
            lambda: dataset(np.array([[0], [1e-40]]), T[:2], [[1e10]], TT[:1]).normalize("unit"),
            "some: Xtest after normalization, row 0, column 0: found inf",
        ),
    ],
)
def test_bad_normalization_is_refused(act, message: str):
    with pytest.raises(DataError, match=message):
        act()


# -- hash and split ----------------------------------------------------------------------------


def test_the_hash_is_stable_and_sees_every_change():
    data = dataset()
    others = [
        dataset(changed(X, (3, 3), 0), T, XT, TT),
        dataset(X, changed(T, 3, 1), XT, TT),
        dataset(X, T, changed(XT, (0, 0), 0), TT),
        dataset(X, T, XT, changed(TT, 0, 2)),
        dataset(X, T.astype(float), XT, TT.astype(float)),
        dataset(X.reshape(25, 8), T[:25], XT.reshape(10, 8), TT[:10]),
        data.normalize("unit"),
    ]
    assert len({data.sha256(), *(other.sha256() for other in others)}) == 8
    assert data.sha256() == dataset(np.asfortranarray(X), T, XT, TT).sha256()
    tiny = Dataset.checked("a", np.array([[1.0]]), np.array([0]), np.array([[2.0]]), np.array([0]))
    # printf 'Xtrain (1, 1) float32\n\0\0\x80\x3fTtrain …' | sha256sum
    assert tiny.sha256() == "8a64ee698c06663d88cb2594d0930aeb9cf6b1cad4c382cdb7bb8c99f3b706a3"


@pytest.mark.parametrize(("N", "fraction", "expected"), [(10, 0.01, 1), (10, 0.99, 9), (2, 0.5, 1), (10, 0.3, 3)])
def test_some_rows_are_held_out_and_some_are_kept(N: int, fraction: float, expected: int):
    kept, held = hold_out(N, fraction)
    assert len(held) == expected
    assert sorted([*kept, *held]) == list(range(N))
    assert sorted(kept) == list(kept)


@pytest.mark.parametrize(
    ("N", "fraction", "message"),
    [(9, 0.0, "expected a number between 0 and 1, found 0.0"), (9, 1, "between 0 and 1, found 1"),
     (9, -0.5, "found -0.5"), (9, float("nan"), "found nan"), (1, 0.5, "expected at least 2 rows to hold some out")],
)  # fmt: skip
def test_bad_fractions_are_refused(N: int, fraction: float, message: str):
    with pytest.raises(DataError, match=message):
        hold_out(N, fraction)
