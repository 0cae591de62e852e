"""Pruning: which stored weights of a layer are dropped, and which elements of several matrices are the largest.

A specification such as ``Magnitude(0.3)`` names one of `PRUNERS`. Equal weights are dropped in the order of their
positions, so the choice depends on nothing but the numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from matgrad.backends import backend_of
from matgrad.backends.base import Array
from matgrad.foundation.numbers import check_number
from matgrad.sparse.matrix import SparseMatrix, values_of, with_values
from matgrad.sparse.support import Support
from matgrad.specifications.parsing import describe, resolve


class Prune:
    """A rule that drops stored weights; your own needs only `__call__`."""

    def __call__(self, values: np.ndarray, scale: float = 1.0) -> np.ndarray:
        """Whether each of the values is dropped, a vector of booleans; `scale` is the decay of the drop fraction."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return describe(self, "Prune")


class MagnitudePrune(Prune):
    """The fraction of the weights that is nearest to 0"""

    def __init__(self, fraction: float = 0.3) -> None:
        self.fraction = check_number("fraction", fraction, "a number from 0 to 1")

    def __call__(self, values: np.ndarray, scale: float = 1.0) -> np.ndarray:
        return smallest(np.abs(values), round(scale * self.fraction * len(values)))


class SETPrune(MagnitudePrune):
    """The fraction of the positive weights, and that of the negative ones, that is nearest to 0; 0 is positive"""

    def __call__(self, values: np.ndarray, scale: float = 1.0) -> np.ndarray:
        result = np.zeros(len(values), dtype=bool)
        for part in (values >= 0, values < 0):
            count = round(scale * self.fraction * np.count_nonzero(part))
            result[part] = smallest(np.abs(values[part]), count)
        return result


class ThresholdPrune(Prune):
    """The weights w with |w| < t"""

    def __init__(self, t: float) -> None:
        self.t = check_number("t", t)

    def __call__(self, values: np.ndarray, scale: float = 1.0) -> np.ndarray:
        if scale != 1:
            raise ValueError("Threshold has no drop fraction that could decay: expected the decay 'constant'")
        return np.abs(values) < self.t


PRUNERS: dict[str, type[Prune]] = {"Magnitude": MagnitudePrune, "SET": SETPrune, "Threshold": ThresholdPrune}


def create_prune(specification: Prune | str) -> Prune:
    """The rule that a string such as ``Magnitude(0.3)`` names; a rule is returned as it is."""
    return resolve(specification, Prune, PRUNERS, "rule of pruning")


def smallest(scores: np.ndarray, count: int) -> np.ndarray:
    """Whether each score is one of the `count` smallest; of equal scores the first ones are."""
    if not count:
        return np.zeros(len(scores), dtype=bool)
    last = np.partition(scores, count - 1)[count - 1]
    result: np.ndarray = scores < last
    result[np.flatnonzero(scores == last)[: count - np.count_nonzero(result)]] = True
    return result


# -- the largest elements of several matrices -----------------------------------------------------


def largest(scores: Sequence[Array], count: int) -> list[Support]:
    """The supports of the `count` elements with the largest scores over all matrices, at least one in each matrix.

    The matrices are dense or sparse; what a sparse one does not store is not chosen.
    """
    found = [backend_of(values_of(A)).to_numpy(values_of(A)).reshape(-1) for A in scores]
    ends = np.cumsum([len(A) for A in found])
    if not len(found) <= count <= ends[-1]:
        raise ValueError(f"count: expected a number from {len(found)}, one per matrix, to {ends[-1]}, found {count}")
    joined = np.concatenate(found)
    if np.isnan(joined).any():
        raise ValueError("scores: found nan, expected numbers that can be compared")
    kept = np.zeros(len(joined), dtype=bool)
    kept[[end - 1 - np.argmax(A[::-1]) for A, end in zip(found, ends, strict=True)]] = True  # the largest of each
    others = np.flatnonzero(~kept)
    kept[others[~smallest(joined[others], len(joined) - count)]] = True
    places = map(np.flatnonzero, np.split(kept, ends[:-1]))
    pairs = zip(scores, places, strict=True)
    flat = [A.support.flat()[k] if isinstance(A, SparseMatrix) else k for A, k in pairs]
    return [Support.from_flat(A.shape, positions) for A, positions in zip(scores, flat, strict=True)]


def largest_weights(weights: Sequence[Array], count: int) -> list[Support]:
    """The supports of the `count` weights that are farthest from 0 over all matrices, at least one in each matrix."""
    return largest([with_values(W, abs(values_of(W))) for W in weights], count)
