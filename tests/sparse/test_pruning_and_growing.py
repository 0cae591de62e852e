"""Rules of pruning and growing, against plain sorting of everything."""

from __future__ import annotations

import numpy as np
import pytest

from matgrad.engines.engine import get_engine
from matgrad.sparse.rules import Site, create_grow, create_prune, largest_products
from matgrad.sparse.support import Support

SHAPES = [(1, 1), (1, 17), (17, 1), (2, 3), (9, 7), (30, 41)]


def whole_numbers(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Few different numbers, so that there are many equal ones, and every product is exact."""
    return rng.integers(-3, 4, shape).astype(np.float32)


def test_magnitude_drops_the_smallest():
    values = np.array([0.5, -0.1, 0.2, -0.2, 0.0, 3.0, -4.0, 0.2], dtype=np.float32)
    assert np.flatnonzero(create_prune("Magnitude(0.5)")(values)).tolist() == [1, 2, 3, 4]
    assert np.flatnonzero(create_prune("Magnitude(0.5)")(values, 0.5)).tolist() == [1, 4], "half of the fraction"
    assert not create_prune("Magnitude(0)")(values).any()
    assert create_prune("Magnitude(1)")(values).all()


def test_SET_drops_positive_and_negative_weights_separately():
    values = np.array([0.5, -0.1, 0.2, -0.2, 0.0, 3.0, -4.0, -5.0], dtype=np.float32)
    dropped = create_prune("SET(0.5)")(values)
    assert np.flatnonzero(dropped).tolist() == [1, 2, 3, 4], "of 0.5, 0.2, 0, 3 and of -0.1, -0.2, -4, -5"
    only_positive = np.array([3.0, 1.0, 2.0, 4.0])
    assert np.flatnonzero(create_prune("SET(0.5)")(only_positive)).tolist() == [1, 2]


def test_threshold():
    values = np.array([0.5, -0.1, 0.1, -0.2])
    assert np.flatnonzero(create_prune("Threshold(0.2)")(values)).tolist() == [1, 2]
    with pytest.raises(ValueError, match="no drop fraction"):
        create_prune("Threshold(0.2)")(values, 0.5)


@pytest.mark.parametrize(
    ("create", "specification", "message"),
    [
        (create_prune, "SET(-0.1)", "fraction: expected a number from 0 to 1"),
        (create_prune, "Threshold(-1)", "t: expected a finite number of 0 or more"),
        (create_prune, "Magnitud(0.1)", "did you mean 'Magnitude'"),
        (create_grow, "Momentum(1)", r"mu: expected a number in \[0, 1\)"),
        (create_grow, "Momentum(0.5, 0)", "batches must be a positive integer"),
    ],
)
def test_bad_rules_are_refused(create, specification: str, message: str):
    with pytest.raises(ValueError, match=message):
        create(specification)


def site(S: Support, seed: int = 0, factors: list | None = None) -> Site:
    return Site(S, np.random.default_rng(seed), factors or [], largest_products)


@pytest.mark.parametrize("shape", SHAPES)
def test_random_growing_takes_free_positions(shape: tuple[int, int]):
    rng, (K, D) = np.random.default_rng(3), shape
    for nnz in {0, 1, K * D // 2, K * D - 1, K * D}:
        S = Support.random(K, D, nnz, rng)
        for count in {0, 1, K * D - nnz} & set(range(K * D - nnz + 1)):
            grown = create_grow("Random")(site(S, nnz), count)
            assert len(grown) == count
            assert (np.diff(grown) > 0).all()
            assert not np.isin(grown, S.flat()).any()
            assert ((grown >= 0) & (grown < K * D)).all()


def test_every_free_position_is_grown_equally_often():
    """Also those behind the last element of a row, and in a row without elements."""
    mask = np.zeros((4, 5), dtype=bool)
    mask[0, 2] = mask[1, 0] = mask[1, 4] = mask[3, 3] = True
    S, counts, rounds = Support.from_mask(mask), np.zeros(20), 4000
    for seed in range(rounds):
        counts[create_grow("Random")(site(S, seed), 4)] += 1
    assert not counts[mask.reshape(-1)].any()
    expected = rounds * 4 / 16
    assert np.abs(counts[~mask.reshape(-1)] - expected).max() < 5 * np.sqrt(expected * 0.75)


def chosen(A: np.ndarray, B: np.ndarray, S: Support, count: int) -> list[int]:
    """The positions of the largest gradients, by sorting all of them."""
    scores, free = np.abs(A @ B).reshape(-1), np.setdiff1d(np.arange(S.shape[0] * S.shape[1]), S.flat())
    return sorted(sorted(free, key=lambda p: (-scores[p], p))[:count])


@pytest.mark.parametrize("engine", ["numpy", "native"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_largest_gradients_are_those_of_the_whole_matrix(engine: str, dtype: str, monkeypatch):
    """Tile by tile, of any shape, with equal values, for any count."""
    monkeypatch.setattr("matgrad.sparse.rules.TILE", 60)
    largest, rng = get_engine(engine).largest_products, np.random.default_rng(0)
    for K, D in [*SHAPES, *rng.integers(1, 40, (60, 2)).tolist()]:
        for nnz in {0, int(rng.integers(0, K * D + 1)), K * D - 1}:
            A, B = (whole_numbers(rng, *shape).astype(dtype) for shape in ((K, 6), (6, D)))
            A *= rng.integers(0, 3, (K, 1))  # rows of very different length
            S = Support.random(K, D, nnz, rng)
            for count in {0, 1, int(rng.integers(0, K * D - nnz + 1)), K * D - nnz} - {K * D - nnz + 1}:
                if count <= K * D - nnz:
                    assert largest(A, B, S, count).tolist() == chosen(A, B, S, count)


def test_momentum_sums_the_gradients_of_several_batches():
    rng = np.random.default_rng(2)
    factors = [(whole_numbers(rng, 8, 5), whole_numbers(rng, 5, 9)) for _ in range(3)]
    S = Support.random(8, 9, 20, rng)
    total = sum(0.5**i * (A @ B) for i, (A, B) in enumerate(factors))
    grow = create_grow("Momentum(0.5, 3)")
    assert grow.batches == 3
    assert grow(site(S, factors=factors), 7).tolist() == chosen(total, np.eye(9), S, 7)


@pytest.mark.parametrize(
    "change",
    [
        {"A": np.zeros((3, 2))},
        {"A": np.zeros((4, 2), dtype=np.float16), "B": np.zeros((2, 5), dtype=np.float16)},
        {"B": np.zeros((3, 5), dtype=np.float32)},
        {"count": 19},
        {"count": -1},
        {"starts": np.array([0, 1, 1, 2])},
        {"starts": np.array([0, 2, 1, 2, 2])},
        {"columns": np.array([0, 5], dtype=np.int32)},
        {"columns": np.array([-1, 0], dtype=np.int32)},
    ],
)
def test_the_core_refuses_what_does_not_fit(change: dict):
    native = pytest.importorskip("matgrad._native")
    good = {
        "A": np.zeros((4, 2), dtype=np.float32),
        "B": np.zeros((2, 5), dtype=np.float32),
        "starts": np.array([0, 1, 1, 2, 2]),
        "columns": np.array([3, 0], dtype=np.int32),
        "count": 18,
    }
    assert len(native.largest_products(**good, pool=native.ThreadPool(2))) == 18
    with pytest.raises((ValueError, TypeError)):
        native.largest_products(**good | change, pool=native.ThreadPool(2))


@pytest.mark.parametrize("engine", ["numpy", "native"])
@pytest.mark.parametrize("special", ["", "nan", "tiny"])
def test_large_matrices_are_searched_in_parts(engine: str, special: str):
    """Rows are ignored only if they cannot matter, also with nan, or if all squares are too small for a float.

    nan counts as infinite, so that there is always a choice; the run ends because it diverges.
    """
    rng = np.random.default_rng(1)
    A, B = whole_numbers(rng, 900, 4), whole_numbers(rng, 4, 3000)
    if not special:
        A *= rng.integers(0, 9, (900, 1))
    elif special == "nan":
        A[7], B[0, 5] = np.nan, np.nan
    else:
        A = np.sort(A, axis=0) * np.float32(2.0**-90)
    S = Support.random(900, 3000, 20_000, rng)
    scores = np.nan_to_num(np.abs(A @ B).reshape(-1), nan=np.inf)
    scores[S.flat()] = -1
    expected = np.sort(np.argsort(-scores, kind="stable")[:5000])
    assert np.array_equal(get_engine(engine).largest_products(A, B, S, 5000), expected)
