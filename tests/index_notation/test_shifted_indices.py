"""Indices i + d in a circle, opposites and last values: products and sums of what has them, against numbers."""

from __future__ import annotations

import random

import numpy as np
import pytest

from matgrad.index_notation.conditions import order
from matgrad.index_notation.expressions import ONE, ZERO, Entry, delta, is_equal, of
from matgrad.index_notation.indices import DISTANCES, Index, Last, Reversed, Shifted, opposite, shifted
from matgrad.index_notation.positions import position
from matgrad.index_notation.sums import summed_over
from matgrad.index_notation.text import text
from matgrad.index_notation.values import evaluate

N = 7
I, J, K, LAST = *(Index(name, "T") for name in "ijk"), Last("T")


def x(k: Index):
    return of(Entry("x", (k,)))


def test_sums_of_neighbours():
    assert text(summed_over([K], delta(shifted(K, 1), I) * x(K))) == "x_i-1"
    assert is_equal(summed_over([K], x(shifted(K, 1)) * x(K)), summed_over([K], x(K) * x(shifted(K, -1))))
    assert delta(shifted(LAST, 1), LAST) == ZERO
    assert text(x(shifted(I, 1)) * delta(I, LAST)) == "[i=T]·x_1"
    assert opposite(shifted(I, 2)) == shifted(opposite(I), -2)
    assert opposite(LAST) == shifted(LAST, 1)


def test_equal_indices_by_way_of_an_opposite_end():
    assert delta(I, K) * delta(J, opposite(K)) * x(K) == delta(J, opposite(I)) * delta(I, K) * x(I)


MADE = {"x": lambda a, b: x(a), "δ": delta, "p": lambda a, b: position(a), "o": lambda a, b: order(a, b, 1)}
NUMBERS = {"x": lambda x, p, q: x[p], "δ": lambda x, p, q: p == q, "p": lambda x, p, q: p, "o": lambda x, p, q: q > p}


def number(k: Index, values: dict[Index, int]) -> int:
    match k:
        case Shifted():
            return (number(k.inner, values) + k.by) % N
        case Reversed():
            return N - 1 - number(k.inner, values)
        case Last():
            return N - 1
    return values[k]


def random_index(rng: random.Random) -> Index:
    k = shifted(rng.choice([I, J, K, LAST]), rng.randint(-2, 2))
    return shifted(opposite(k), rng.randint(-1, 1)) if rng.random() < 0.3 else k


@pytest.mark.parametrize("seed", range(4))
def test_random_products(seed):
    rng, arrays = random.Random(seed), {"x": np.random.default_rng(seed).random(N) + 0.5}
    count = 0
    for _ in range(100):
        token = DISTANCES.set({})
        e, expected = ONE, np.ones((N, N, N))
        for _ in range(rng.randint(1, 3)):
            kind, a, b = rng.choice("xxδδpoo"), random_index(rng), random_index(rng)
            e = e * MADE[kind](a, b)
            for place in np.ndindex(N, N, N):
                values = dict(zip((I, J, K), place, strict=True))
                p, q = number(a, values), number(b, values)
                expected[place] *= NUMBERS[kind](arrays["x"], p, q)
        found = evaluate(summed_over([K], e), [I, J], arrays, {"T": N})
        if DISTANCES.get().get("T", 0) < N:
            count += 1
            assert np.allclose(np.broadcast_to(found, (N, N)), expected.sum(2)), text(e)
        DISTANCES.reset(token)
    assert count > 90
