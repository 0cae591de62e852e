"""Starting points of sparse training: the supports that keep the largest scores, or the weights farthest from 0.

Of equal ones the first are dropped, as in `matgrad.sparse.pruning`, so the choice depends on nothing but the numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from matgrad.backends import backend_of
from matgrad.backends.base import Array
from matgrad.sparse.matrix import SparseMatrix, values_of
from matgrad.sparse.pruning import smallest
from matgrad.sparse.support import Support


def largest(scores: Sequence[np.ndarray], count: int) -> list[Support]:
    """The supports of the `count` elements with the largest scores over all matrices, at least one in each matrix."""
    kept = _kept([A.reshape(-1) for A in scores], count)
    return [Support.from_flat(A.shape, np.flatnonzero(k)) for A, k in zip(scores, kept, strict=True)]


def largest_weights(weights: Sequence[Array], count: int) -> list[Support]:
    """The supports of the `count` weights that are farthest from 0 over all matrices, at least one in each matrix.

    The matrices are dense or sparse; what a sparse one does not store is not chosen.
    """
    values = [backend_of(values_of(W)).to_numpy(values_of(W)).reshape(-1) for W in weights]
    kept = _kept([np.abs(A) for A in values], count)
    return [Support.from_flat(W.shape, _positions(W, k)) for W, k in zip(weights, kept, strict=True)]


def _positions(W: Array, kept: np.ndarray) -> np.ndarray:
    """The numbers i·D + j of the positions of the elements of W that are kept."""
    return W.support.flat()[kept] if isinstance(W, SparseMatrix) else np.flatnonzero(kept)


def _kept(scores: Sequence[np.ndarray], count: int) -> list[np.ndarray]:
    """For each vector which of its scores are among the `count` largest of all; its own largest always is."""
    ends = np.cumsum([len(A) for A in scores])
    if not len(scores) <= count <= ends[-1]:
        raise ValueError(f"count: expected a number from {len(scores)}, one per matrix, to {ends[-1]}, found {count}")
    joined = np.concatenate(scores)
    if np.isnan(joined).any():
        raise ValueError("scores: found nan, expected numbers that can be compared")
    kept = np.zeros(len(joined), dtype=bool)
    kept[[end - 1 - np.argmax(A[::-1]) for A, end in zip(scores, ends, strict=True)]] = True
    others = np.flatnonzero(~kept)
    kept[others[~smallest(joined[others], len(joined) - count)]] = True
    return np.split(kept, ends[:-1])
