"""Starting points: the largest scores and weights, against sorting by plain Python."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import matgrad as mg
from matgrad.sparse.starting_points import largest, largest_weights
from sparse_support import BACKENDS, mask_of, some_support
from support import Framework

SHAPES = [(1, 1), (1, 9), (9, 1), (3, 4), (5, 7)]


def chosen(scores: list[np.ndarray], count: int) -> list[set[tuple[int, int]]]:
    """The positions of the largest scores: the best of each matrix, then those of the rest; the last of equal ones."""
    ranked = sorted(((A[i, j], m, i, j) for m, A in enumerate(scores) for i, j in np.ndindex(*A.shape)), reverse=True)
    first = [next(x for x in ranked if x[1] == m) for m in range(len(scores))]
    rest = [x for x in ranked if x not in first][: count - len(first)]
    return [{(i, j) for _, n, i, j in first + rest if n == m} for m in range(len(scores))]


def positions(S: mg.Support) -> set[tuple[int, int]]:
    return {(int(i), int(j)) for i, j in zip(S.row_indices(), S.columns, strict=True)}


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_the_largest_scores_are_those_of_sorting(data):
    shapes = data.draw(st.lists(st.sampled_from(SHAPES), min_size=1, max_size=4))
    levels, seed = data.draw(st.integers(1, 6)), data.draw(st.integers(0, 10**6))
    rng = np.random.default_rng(seed)
    scores = [rng.integers(0, levels, shape) * (rng.random() < 0.8) / 2.0 for shape in shapes]  # with many ties
    count = data.draw(st.integers(len(scores), sum(A.size for A in scores)))
    supports = largest(scores, count)
    assert [positions(S) for S in supports] == chosen(scores, count)
    assert sum(S.nnz for S in supports) == count
    assert [S.shape for S in supports] == shapes


@pytest.mark.parametrize("name", BACKENDS)
def test_the_largest_weights_of_dense_and_sparse_matrices(name):
    rng = np.random.default_rng(0)
    S = some_support(6, 8, 0.4)
    A, B = rng.normal(size=(5, 6)), rng.normal(size=(1, S.nnz))
    convert = Framework(name).backend.from_numpy
    supports = largest_weights([convert(A, None), mg.SparseMatrix(S, convert(B, None))], 20)
    dense = mg.SparseMatrix(S, B).to_dense()
    assert [positions(S) for S in supports] == chosen([np.abs(A), np.where(mask_of(S), np.abs(dense), -1)], 20)


def test_stored_zeros_can_be_kept():
    S = some_support(6, 8, 0.4)
    (kept,) = largest_weights([mg.SparseMatrix(S, np.zeros((1, S.nnz)))], S.nnz)
    assert kept.is_same(S)


def test_infinite_scores_and_empty_looking_layers():
    scores = [np.array([[np.inf, np.inf, np.inf]]), np.zeros((2, 2))]
    assert [positions(S) for S in largest(scores, 2)] == [{(0, 2)}, {(1, 1)}]


@pytest.mark.parametrize("count", [0, 1, 14, -3])
def test_impossible_counts_are_refused(count):
    with pytest.raises(ValueError, match=f"expected a number from 2, one per matrix, to 13, found {count}"):
        largest([np.ones((3, 3)), np.ones((1, 4))], count)


def test_scores_that_are_nan_are_refused():
    with pytest.raises(ValueError, match="scores: found nan"):
        largest([np.array([[1.0, np.nan]])], 1)
