"""`matgrad bench distributed`: a quick run, and the model of the cost."""

from __future__ import annotations

import json
from dataclasses import asdict
from itertools import pairwise

import pytest

from cli_support import run, succeed
from matgrad.bench.experiments.distributed import _is_for_sparse
from matgrad.bench.experiments.prediction import NETWORKS, RankCost, fits, network, predictions, rank_cost
from matgrad.bench.reports import plots, tables
from matgrad.bench.tools.registry import DDP, DISTRIBUTED_TOOLS, LATENCY, RANKS_OF, SUMS
from matgrad.specifications.models import create_model

SIZES = (30, 20, 10, 5)
NATIVE = "matgrad-native"


def test_a_quick_run(tmp_path):
    tools = f"{DDP},{RANKS_OF[NATIVE]}"
    options = ("--sizes", "30,20,10,5", "--batch-sizes", "8", "--densities", "1", "--examples", 16, "--rounds", 2)
    output = succeed("bench", "distributed", *options, "--tools", tools, "--threads", 2, "--output", tmp_path / "out")
    record = json.loads((tmp_path / "out" / "bench.json").read_text())
    assert (record["kind"], record["failures"], record["missing"]) == ("distributed", {}, {})
    (point,) = record["points"]
    own, ddp = (point["tools"][name] for name in (RANKS_OF[NATIVE], DDP))
    assert len(own["seconds"]) == len(ddp["seconds"]) == 2
    assert 0 < own["waiting"] < 1
    assert own["ratios"][DDP]["median"] > 0
    assert own["difference"]["to"] == DDP
    assert own["difference"]["relative"] < 1e-5
    assert record["tools"][DDP]["processes"] == 2
    assert record["tools"][DDP]["threads"] == 1
    assert "PyTorch DDP, 2 processes" in output
    assert (tmp_path / "out" / "plot.svg").exists()


def test_bad_sizes_are_refused():
    result = run("bench", "distributed", "--sizes", "30")
    assert result.exit_code == 2
    assert "--sizes: expected the number of features and those of the layers" in result.stderr


# -- the model of the cost ------------------------------------------------------------------------

MODEL = create_model("ReLU;ReLU;Linear", SIZES, optimizers="Momentum(0.9)")
FLOPS, MEMORY, BETWEEN = 40e9, 5e9, (1e9, 50e-6)


def parameters() -> int:
    return sum(K * D + K for D, K in pairwise(SIZES))


def test_the_cost_of_a_rank_is_that_of_its_program():
    alone, two, four = (rank_cost(MODEL, 100, p) for p in (1, 2, 4))
    products = 2 * 100 * (2 * 30 * 20 + 3 * 20 * 10 + 3 * 10 * 5)  # no gradient of X
    assert alone.flops == products
    assert (two.flops, four.flops) == (products // 2, products // 4)
    assert (alone.bytes, alone.messages) == (0, 0)
    assert (two.bytes, two.messages) == (4 * parameters(), 1) == (four.bytes, four.messages)
    assert two.passes > four.passes > 5 * four.bytes, "all of the parameters are updated by every rank"
    printed = json.loads(succeed("program", "--layer-sizes", "30;20;10;5", "--ranks", 4, "--json"))["messages"]
    assert (four.bytes, four.messages) == (sum(message["bytes"] for message in printed), len(printed))


def test_the_elements_of_sparse_layers_count_once_with_their_index():
    M = create_model("ReLU;ReLU;Linear", SIZES, optimizers="Momentum(0.9)", densities=0.2)
    dense, sparse = rank_cost(MODEL, 1, 1), rank_cost(M, 1, 1)
    assert 0 < sparse.passes < dense.passes


def test_a_ring_sends_every_byte_twice_but_for_a_share():
    cost = RankCost(4, 0, 0, 1000, 3)
    assert (cost.sent, cost.hops) == (1500, 18)
    assert cost.seconds(1, 1, (100, 2)) == 15 + 36


def measured(name: str, batch_size: int) -> dict:
    """A point whose times are those of the model, with two processes that share the machine."""
    tools = {}
    costs = {p: rank_cost(MODEL, batch_size, p) for p in (1, 2)}
    for p, tool in ((1, name), (2, RANKS_OF[name])):
        seconds = costs[p].seconds(FLOPS / p, MEMORY / p, BETWEEN)
        tools[tool] = {"per_step": seconds, "waiting": 0.1, "ratios": {}}
    tools[LATENCY] = {"per_step": 2 * BETWEEN[1], "waiting": 0, "ratios": {}}
    tools[SUMS] = {"per_step": 2 * BETWEEN[1] + costs[2].sent / BETWEEN[0], "waiting": 0, "ratios": {}}
    return {
        "density": 1.0,
        "batch_size": batch_size,
        "costs": {str(p): asdict(c) for p, c in costs.items()},
        "tools": tools,
    }


@pytest.fixture(scope="module")
def record() -> dict:
    """A record of times that the model explains."""
    points = [measured(NATIVE, N) for N in (100, 1000)]
    found = fits(points)
    names = (NATIVE, RANKS_OF[NATIVE], SUMS, LATENCY)
    return {
        "kind": "distributed",
        "points": points,
        "sizes": SIZES,
        "network": network(points),
        "fits": found,
        "predictions": predictions(found, SIZES, "float32", 0),
        "tools": {
            n: DISTRIBUTED_TOOLS[n].about() | {"processes": DISTRIBUTED_TOOLS[n].processes, "threads": 1} for n in names
        },
        "missing": {},
        "options": {"rounds": 1, "dtype": "float32", "seed": 0},
        "machine": {"threads": 2, "processor": "a processor"},
    }


def test_the_fit_finds_the_rates_behind_the_times(record):
    assert record["network"] == pytest.approx(BETWEEN)
    (fit,) = record["fits"]
    assert (fit["flops"], fit["memory"]) == pytest.approx((FLOPS, MEMORY))
    assert fit["largest_error"] < 1e-9


def test_predictions_are_those_of_the_model(record):
    assert len(record["predictions"]) == 3 * len(NETWORKS)
    for row in record["predictions"]:
        for p, seconds in row["seconds"].items():
            cost = rank_cost(MODEL, row["batch_size"], int(p))
            assert seconds == pytest.approx(cost.seconds(FLOPS, MEMORY, NETWORKS[row["network"]]))


def test_tables_and_a_picture(record, tmp_path):
    text = tables.text(record)
    for found in ("matgrad C++, 2 processes", "PREDICTED ms per step", "rates that fit these times", "64 machines",
                  f"{4 * parameters():,}", "between the processes: 1.00 GB/s, 50 µs per message"):  # fmt: skip
        assert found in text, found
    assert all(path.stat().st_size > 1000 for path in plots.draw(record, tmp_path))


def test_without_sums_nothing_is_predicted():
    point = measured(NATIVE, 100)
    del point["tools"][SUMS]
    assert (network([point]), fits([point, point])) == (None, [])


def test_what_trains_sparse_weights():
    assert [name for name in DISTRIBUTED_TOOLS if _is_for_sparse(name)] == [NATIVE, RANKS_OF[NATIVE], SUMS, LATENCY]
