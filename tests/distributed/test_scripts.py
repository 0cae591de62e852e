"""`mg.distributed` in a script that two processes run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ranks_support import free_port, largest_difference, torchrun

import matgrad as mg

pytestmark = pytest.mark.slow
WORKER = Path(__file__).parent / "script_worker.py"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Where two ranks have written what they found."""
    folder = tmp_path_factory.mktemp("script")
    status, _, errors = torchrun(WORKER, folder, free_port())
    assert status == 0, errors
    return folder


@pytest.fixture(scope="module")
def found(folder) -> list[dict]:
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


def test_collectives_are_those_of_both_ranks(found):
    for rank, results in enumerate(found):
        together = results["collectives"]
        assert together["exchange"] == [{"rank": 0, "word": ""}, {"rank": 1, "word": "é" * 300}]
        sums, largest, first = [[3.0] * 3] * 2, [[2.0] * 3] * 2, [[1.0] * 3] * 2
        for name in ("numpy", "torch"):
            assert together[name] == [sums, largest, first, [[0.0] * 2], [[1.0] * 2] * 2], (rank, name)
        assert results["is_first"] == (rank == 0)
        assert results["is_alone"]


def test_fit_trains_what_one_process_does(folder):
    X, t = mg.load_digits()
    mg.manual_seed(0)
    M = mg.create_model("BatchNormalization;ReLU;Linear", [64, 16, 10]).to(dtype="float64")
    M.fit(X[:99] / 16, t[:99], epochs=2, batch_size=14, seed=0)
    M.save(folder / "alone.npz")
    assert largest_difference(folder / "alone.npz", folder / "together.npz") < 1e-12


def test_ranks_that_differ_say_so_and_can_go_on(found):
    assert found[0]["disagreement"] == found[1]["disagreement"]
    assert found[0]["disagreement"].startswith("rank 1 differs from rank 0 in the seed of the order (sha256 ")


def test_a_process_group_of_the_users_stays(found):
    assert [results["adopted"] for results in found] == [[0, 1]] * 2
    assert [results["kept"] for results in found] == [[2.0, 2.0]] * 2


def test_a_rank_that_fails_ends_the_others(found):
    assert found[0]["failure"].startswith("ConnectionError: another rank has ended or does not answer (")
    assert found[1]["failure"] == "KeyError: 'no such column'"
