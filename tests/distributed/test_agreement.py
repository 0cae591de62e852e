"""Ranks that differ are told apart before they train, by name."""

from __future__ import annotations

import numpy as np
import pytest
from threads import on_ranks

import matgrad as mg
from matgrad.distributed import Disagreement, current
from matgrad.training import ranks


def errors_of(size: int, task) -> list[str]:
    """What each rank says that is wrong."""

    def tried(rank):
        try:
            task(current())
        except Disagreement as error:
            return str(error)
        return ""

    return on_ranks(size, tried)


def test_all_ranks_name_all_that_differ():
    def task(group):
        seeds, data = ["0", "1", "0"], [f"sha256 {x * 64}" for x in "aba"]
        group.agree({"the seed": seeds[group.rank], "the data": data[group.rank], "the dtype": "float32"})

    one = "rank 1 differs from rank 0 in the seed (1, expected 0) and the data (sha256 bbbbbbbb…bbbbbbbb, expected "
    found = errors_of(3, task)
    assert len(set(found)) == 1
    assert found[0].startswith(one)
    assert errors_of(2, lambda group: group.agree({"the seed": "0"})) == ["", ""]


def test_a_fact_that_a_rank_does_not_have():
    found = errors_of(2, lambda group: group.agree({"the checkpoint": "step 5"} if group.is_first else {}))
    assert found == ["rank 1 differs from rank 0 in the checkpoint (none, expected step 5)"] * 2


X, T = np.random.default_rng(0).normal(size=(12, 3)), np.arange(12) % 2


def fit(group, *, weights: int = 0, change=lambda X: X, **options):
    rng = np.random.default_rng(weights)
    M = mg.MultilayerPerceptron([mg.LinearLayer(3, 2)])
    M.load_state({name: rng.normal(size=A.shape).astype(A.dtype) for name, A in M.state().items()})
    M.fit(change(X.copy()), T, **({"epochs": 1, "seed": 0, "batch_size": 4} | options))


def changed(X: np.ndarray) -> np.ndarray:
    X[7, 2] += 1
    return X


@pytest.mark.parametrize(
    ("of_rank_1", "named"),
    [
        ({"change": changed}, "the data (sha256 "),
        ({"seed": 1}, "the seed of the order (sha256 "),
        ({"weights": 1}, "the initial model (sha256 "),
        ({"batch_size": 5}, "the batch size (5, expected 4)"),
        ({"epochs": 2}, "the epochs (2, expected 1)"),
        ({"learning_rate": 0.1}, "the learning rate (0.1, expected 0.05)"),
        ({"loss": "SquaredError"}, "the loss (SquaredError, expected SoftmaxCrossEntropy)"),
        ({"clip_norm": 1.0}, "the clip norm (1, expected none)"),
        ({"statistics": False}, "the callbacks (none, expected Statistics)"),
    ],
)
def test_fit_tells_ranks_apart(of_rank_1: dict, named: str):
    found = errors_of(2, lambda group: fit(group, **(of_rank_1 if group.rank else {})))
    assert found[0] == found[1]
    assert found[0].startswith("rank 1 differs from rank 0 in ")
    assert named in found[0]


def test_versions_are_compared(monkeypatch):
    known = [{"matgrad": "1", "numpy": "2.4"}, {"matgrad": "1", "numpy": "9.9"}]
    monkeypatch.setattr(ranks, "versions", lambda: known[current().rank])
    assert "in the version of numpy (9.9, expected 2.4)" in errors_of(2, fit)[0]


def test_large_data_are_hashed_in_part(monkeypatch):
    monkeypatch.setattr(ranks, "MOST", 1000)
    X = np.zeros((1000, 5))

    def is_noticed(row: int, rows: int) -> bool:
        """Whether a change of a row changes the hash of the first rows."""
        changed = X[:rows].copy()
        changed[row] = 1
        return ranks._sha256({"X": changed}) != ranks._sha256({"X": X[:rows]})

    assert all(is_noticed(row, 200) for row in range(200))  # as many as are hashed
    assert [row for row in range(20) if is_noticed(row, 1000)] == [0, 5, 10, 15]
