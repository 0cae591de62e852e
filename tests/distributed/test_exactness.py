"""Several ranks compute what one process computes: ranks as threads, float64, against training alone."""

from __future__ import annotations

import cases
import numpy as np
import pytest
from cases import CASES, RATE, numbers
from threads import on_ranks

import matgrad as mg

ENGINES = ("numpy", "torch", "native")
RANKS = (2, 3, 5)


def train_on_ranks(name: str, engine: str, ranks: int, epochs: int = 3) -> list[dict[str, np.ndarray]]:
    """The states of a case on every rank after some epochs."""
    parts = [cases.model(name, engine) for _ in range(ranks)]

    def work(rank: int) -> dict[str, np.ndarray]:
        M, loss, clip_norm, loader = parts[rank]
        mg.stochastic_gradient_descent(M, epochs, loss, mg.ConstantScheduler(RATE), loader, clip_norm=clip_norm)
        return numbers(M)

    return on_ranks(ranks, work)


def check(name: str, engine: str, ranks: int) -> None:
    expected = cases.train(name, engine)
    found = train_on_ranks(name, engine, ranks)
    tolerance = CASES[name].tolerance  # also relative: a variance of 42 has a rounding error of 1e-14 · 42
    for key, A in expected.items():
        np.testing.assert_allclose(found[0][key], A, rtol=tolerance, atol=tolerance, err_msg=key)
        for other in found[1:]:
            np.testing.assert_array_equal(other[key], found[0][key], err_msg=key)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", CASES)
def test_ranks_compute_what_one_process_computes(name, engine):
    ranks = RANKS[(list(CASES).index(name) + ENGINES.index(engine)) % len(RANKS)]
    check(name, engine, ranks)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.slow
@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("name", CASES)
def test_any_number_of_ranks(name, ranks, engine):
    check(name, engine, ranks)
