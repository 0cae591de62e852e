"""Data loaders and one-hot targets."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.preprocessing import label_binarize

import matgrad as mg
from support import Framework, assert_close, to_numpy

BACKENDS = ("numpy", "torch", "jax", "tensorflow")

X, LABELS = np.arange(22, dtype=np.float64).reshape(11, 2), np.arange(11) % 4


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shuffle", [False, True])
def test_every_example_comes_once_with_its_target(backend: Framework, shuffle: bool, dtype: str):
    loader = mg.DataLoader(X, LABELS, batch_size=4, shuffle=shuffle, seed=1).to(backend.name, dtype=dtype)

    batches = [(to_numpy(A), to_numpy(T)) for A, T in loader]

    assert [len(A) for A, _ in batches] == [4, 4, 3]
    assert (len(loader), loader.size, loader.classes) == (3, 11, 4)
    A, T = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    assert A.dtype == T.dtype == dtype
    order = (A[:, 0] / 2).astype(int)
    assert sorted(order) == list(range(11))
    assert (list(order) == list(range(11))) != shuffle
    np.testing.assert_array_equal(T, label_binarize(LABELS[order], classes=range(4)))


def test_shuffling_is_new_for_every_pass_and_equal_for_equal_seeds(backend: Framework):
    def passes(name: str) -> list[list[float]]:
        loader = mg.DataLoader(X, LABELS, batch_size=11, shuffle=True, seed=2).to(name)
        return [to_numpy(A)[:, 0].tolist() for _ in range(2) for A, _ in loader]

    first, second = passes(backend.name)
    assert first != second
    assert [first, second] == passes("numpy")


@pytest.mark.parametrize("T", [X, X[:, :1], X[:, 0]])
def test_targets_that_are_numbers_stay_numbers(backend: Framework, T: np.ndarray):
    loader = mg.DataLoader(X.astype("float32"), T, batch_size=20, shuffle=True, seed=0).to(backend.name)
    ((A, batch),) = loader

    expected = to_numpy(A)[:, : 1 if T.ndim == 1 else T.shape[1]]
    assert_close(batch, expected, tolerance=0.0, context=f"{backend}, T {T.shape}")
    assert loader.classes is None


def test_a_loader_takes_matrices_of_any_backend(backend: Framework):
    A = backend.matrix(X, "float32")
    ((batch, T),) = mg.DataLoader(A, A, batch_size=50)
    assert_close(batch, X.astype("float32"), tolerance=0.0)
    assert_close(T, X.astype("float32"), tolerance=0.0)


def test_integers_become_float32():
    ((batch, _),) = mg.DataLoader(np.arange(6, dtype=np.uint8).reshape(3, 2), np.array([0, 1, 1]))
    assert_close(batch, np.arange(6, dtype=np.float32).reshape(3, 2), tolerance=0.0)


def test_one_hot(backend: Framework):
    expected = label_binarize(LABELS, classes=range(5)).astype(np.float32)
    assert_close(mg.one_hot(LABELS, 5, like=backend.matrix(X, "float32")), expected, tolerance=0.0)
    assert mg.one_hot(LABELS, 5).dtype == np.float64
    with pytest.raises(ValueError, match=r"label 0.5 in row 1: expected a class from 0 to 3"):
        mg.one_hot(np.array([0, 0.5]), 4)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((X, LABELS[:5]), ValueError, "X has 11 rows and T has 5"),
        ((X, LABELS, 0), ValueError, "batch_size: expected 1 or more, found 0"),
        ((X[:0], LABELS[:0]), ValueError, r"expected a matrix with at least one row, found shape \(0, 2\)"),
        ((X, LABELS - 1), ValueError, "label -1 in row 0: expected a class from 0 to 2"),
        ((X.astype(complex), LABELS), ValueError, "X: found complex128, expected numbers"),
    ],
)
def test_bad_data_is_refused(arguments, error: type[Exception], message: str):
    with pytest.raises(error, match=message):
        mg.DataLoader(*arguments)
