"""Data sets that need no file: the digits, beside scikit-learn's, and generated ones."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits as sklearn_digits

import matgrad as mg
from matgrad import datasets
from matgrad.datasets import DataError, checkerboard, mini
from support import assert_close


def test_every_fifth_digit_is_held_out_and_the_order_is_kept():
    data, expected = datasets.digits(), sklearn_digits()
    np.testing.assert_array_equal(mg.load_digits()[0], expected.data)
    rest = [i for i in range(1797) if i % 5 != 0]

    assert_close(data.Xtest, expected.data[::5].astype(np.float32), tolerance=0.0)
    assert_close(data.Xtrain, expected.data[rest].astype(np.float32), tolerance=0.0)
    np.testing.assert_array_equal(data.Ttest, expected.target[::5])
    np.testing.assert_array_equal(data.Ttrain, expected.target[rest])
    assert (data.name, data.classes, data.input_size, data.output_size) == ("digits", 10, 64, 10)


def test_the_checkerboard_has_the_colours_of_a_chessboard():
    data = checkerboard(5000, seed=1)
    board = np.indices((8, 8)).sum(axis=0) % 2  # written with indices, not with floor

    assert (data.Xtrain.shape, data.Xtest.shape, data.classes) == ((5000, 2), (1000, 2), 2)
    for X, T in ((data.Xtrain, data.Ttrain), (data.Xtest, data.Ttest)):
        i, j = (np.digitize(x, np.arange(1, 8) / 8) for x in X.T)
        np.testing.assert_array_equal(T, board[i, j])
        assert X.min() >= 0
        assert X.max() < 1
    assert 0.45 < data.Ttrain.mean() < 0.55


def test_mini_is_tiny():
    data = mini()
    assert (data.Xtrain.shape, data.Xtest.shape, data.classes) == ((20, 8), (4, 8), 3)
    assert set(data.Ttrain) == {0, 1, 2}
    assert mini(1).Xtest.shape == (1, 8)


@pytest.mark.parametrize("make", [checkerboard, mini])
def test_equal_seeds_give_equal_data(make):
    assert make(30, seed=2).sha256() == make(30, seed=2).sha256() != make(30, seed=3).sha256()
    with pytest.raises(DataError, match=f"{make.__name__}: size: expected 1 or more, found 0"):
        make(0)
