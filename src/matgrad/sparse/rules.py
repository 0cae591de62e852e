"""Pruning and growing: which stored weights of a layer are dropped, and at which free positions new ones are stored.

A specification such as ``Magnitude(0.3)`` names one of `PRUNERS`, and one such as ``Gradient`` one of `GROWERS`. Equal
weights are dropped in the order of their positions, so the choice depends on nothing but the numbers. Every free
position can be grown, also those behind the last element of a row and in rows without elements. Nothing as large as
the dense matrix is ever stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from matgrad.backends import backend_of
from matgrad.backends.base import Array
from matgrad.foundation.numbers import check_number, check_size
from matgrad.sparse.matrix import SparseMatrix, values_of, with_values
from matgrad.sparse.support import Support, distinct
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


# -- growing ---------------------------------------------------------------------------------------


TILE = 2**18  # elements of a product that are looked at at once

Factors = tuple[np.ndarray, np.ndarray]  # A, K×N, and B, N×D: the gradient of a dense W would be A B
Largest = Callable[[np.ndarray, np.ndarray, Support, int], np.ndarray]  # see `largest_products`


@dataclass
class Site:
    """Where weights are grown: a layer's K×D matrix W, at positions that are not `taken`."""

    taken: Support  # those that are stored and, unless they may grow again, those that were just pruned
    rng: np.random.Generator
    factors: list[Factors]  # of the gradients on as many batches as the rule asks for, the last one first
    largest: Largest

    @property
    def free(self) -> int:
        """The number of positions that are not taken."""
        K, D = self.taken.shape
        return K * D - self.taken.nnz


class Grow:
    """A rule that chooses free positions; your own needs only `__call__`."""

    batches = 0  # on how many batches it needs the gradient

    def __call__(self, site: Site, count: int) -> np.ndarray:
        """The numbers i·D + j of `count` free positions (i, j), in increasing order."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return describe(self, "Grow")


class RandomGrow(Grow):
    """Random positions; all sets of positions are equally likely"""

    def __call__(self, site: Site, count: int) -> np.ndarray:
        ranks, taken = distinct(site.free, count, site.rng), site.taken.kept_flat()
        free_before = taken - np.arange(len(taken))  # how many free positions there are before each that is taken
        return ranks + np.searchsorted(free_before, ranks, side="right")


class GradientGrow(Grow):
    """The positions where the gradient of the loss has the largest absolute values (RigL)"""

    batches = 1

    def __call__(self, site: Site, count: int) -> np.ndarray:
        return site.largest(*site.factors[0], site.taken, count)


class MomentumGrow(Grow):
    """The positions where Σ_i μⁱ·G_i has the largest absolute values, for the gradients G_i on several batches

    at the present weights: the momentum that a dense layer would have, without its history.
    """

    def __init__(self, mu: float = 0.9, batches: int = 8) -> None:
        self.mu, self.batches = check_number("mu", mu, "a number in [0, 1)"), check_size("batches", batches)

    def __call__(self, site: Site, count: int) -> np.ndarray:
        A = np.hstack([self.mu**i * A for i, (A, _) in enumerate(site.factors)])
        B = np.vstack([B for _, B in site.factors])
        return site.largest(A, B, site.taken, count)


GROWERS: dict[str, type[Grow]] = {"Random": RandomGrow, "Gradient": GradientGrow, "Momentum": MomentumGrow}


def create_grow(specification: Grow | str) -> Grow:
    """The rule that a string such as ``Random`` names; a rule is returned as it is."""
    return resolve(specification, Grow, GROWERS, "rule of growing")


def largest_products(A: np.ndarray, B: np.ndarray, taken: Support, count: int) -> np.ndarray:
    """The numbers i·D + j, in increasing order, of the `count` free positions with the largest |(A B)_ij|.

    Of equal values the first ones are chosen. A B is computed a few rows at a time.
    """
    (K, D), flat = taken.shape, taken.flat()
    best_scores, best = np.empty(0, dtype=A.dtype), np.empty(0, dtype=np.int64)
    step = max(1, TILE // D)
    for row in range(0, K, step):
        scores = np.abs(A[row : row + step] @ B).reshape(-1)
        here = flat[slice(*np.searchsorted(flat, (row * D, min(row + step, K) * D)))]
        scores[here - row * D] = -1
        scores[np.isnan(scores)] = np.inf  # so that every position can be compared
        least = np.partition(best_scores, -count)[-count] if 0 < count <= len(best_scores) else 0
        found = np.flatnonzero(scores >= least)
        best_scores, best = np.concatenate([best_scores, scores[found]]), np.concatenate([best, row * D + found])
        if len(best) > 4 * count:
            kept = smallest(-best_scores, count)
            best_scores, best = best_scores[kept], best[kept]
    return np.sort(best[smallest(-best_scores, count)])


class Rewiring:
    """A new support: the elements of `old` that are kept, a vector of booleans, and the positions that are grown.

    `grown` has the numbers i·D + j of the new positions (i, j) in increasing order; none of them may be kept as well.
    `new_elements` are the places of the grown elements in the new `support`.
    """

    def __init__(self, old: Support, kept: np.ndarray, grown: np.ndarray) -> None:
        self._kept = kept
        flat = np.concatenate([old.kept_flat()[kept], grown])
        self._order = np.argsort(flat, kind="stable")  # which merges two increasing sequences
        flat = flat[self._order]
        self.support = Support.from_flat(old.shape, flat)
        self.support.cached("flat", lambda: flat)
        self.new_elements = np.flatnonzero(self._order >= len(flat) - len(grown))

    def moved(self, values: Array, new: np.ndarray | float = 0.0) -> Array:
        """The 1×nnz values of the old support on the new one, with the values `new` where elements are new."""
        backend = backend_of(values)
        A = backend.to_numpy(values)
        fresh = np.broadcast_to(np.asarray(new, dtype=A.dtype), len(self.new_elements))
        return backend.from_numpy(np.concatenate([A[0, self._kept], fresh])[self._order][None], backend.device(values))
