"""Generated data sets."""

from __future__ import annotations

import numpy as np
import pytest

from matgrad.datasets import DataError, checkerboard, mini


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


@pytest.mark.parametrize("make", [checkerboard, mini])
@pytest.mark.parametrize("size", [0, -5])
def test_bad_sizes_are_refused(make, size: int):
    with pytest.raises(DataError, match=f"{make.__name__}: size: expected 1 or more, found {size}"):
        make(size)
