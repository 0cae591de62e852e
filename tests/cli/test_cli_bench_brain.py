"""`matgrad bench brain`: the command for 50 million neurons with a few hundred, and its memory with a million."""

from __future__ import annotations

import json
import re
import sys

import pytest

from cli_support import in_process_of_its_own, run, succeed
from matgrad.bench.experiments.brain import Clock, Network

SMALL = ("bench", "brain", "--layers", 3, "--neurons", 400, "--connections", 10, "--features", 50)


def test_the_record(tmp_path):
    record = json.loads(succeed(*SMALL, "--batch-size", 8, "--steps", 20, "--json", "--output", tmp_path / "out"))
    assert record == json.loads((tmp_path / "out" / "bench.json").read_text())
    assert (record["kind"], record["hidden_neurons"], record["engine"]) == ("brain", 1200, "native")
    assert record["weights"] == 3 * 400 * 10 + 400 * 10  # ten inputs per hidden neuron, and a dense output layer
    assert record["build_seconds"] > 0
    assert record["first_step_seconds"] >= record["seconds_per_step"] > 0
    assert record["peak_bytes"] > 0
    before, after = record["losses"]
    assert after < before
    assert {"processor", "cores", "memory_GB", "threads"} <= set(record["machine"])


def test_what_is_printed():
    result = run(*SMALL, "--steps", 2)
    assert result.exit_code == 0, result.output
    for pattern in (r"hidden neurons +1,200 in 3 layers", r"weights +16,000", r"seconds per step +\S+, batch 8",
                    r"loss +\d\.\d{4} before, \d\.\d{4} after 2 steps", r"peak memory +\d+\.\d\d GB"):  # fmt: skip
        assert re.search(f"^{pattern}$", result.stdout, re.M), (pattern, result.stdout)
    told = [f"layer {i} of 4 is built" for i in range(1, 5)]
    assert result.stderr.splitlines()[:4] == told
    assert result.stderr.splitlines()[-1] == "step 2 of 2 is done"


def test_json_and_nothing_else():
    assert not run(*SMALL, "--steps", 1, "--json").stderr


def test_every_neuron_has_as_many_inputs_on_average_also_if_there_are_fewer_features():
    M = Network(layers=2, neurons=300, connections=10, features=4, classes=3).build(lambda layer: None)
    assert [layer.W.shape for layer in M.layers] == [(300, 4), (300, 300), (3, 300)]
    assert [layer.density for layer in M.layers] == [1, 10 / 300, 1]


def test_the_first_step_counts_only_if_it_is_the_only_one():
    clock = Clock(lambda text, turns: None)
    clock.done = [(0, 1.0), (1, 9.0), (2, 11.0), (3, 13.0)]
    assert clock.seconds_per_step() == 2
    clock.done = [(0, 1.0), (4, 9.0)]
    assert clock.seconds_per_step() == 2


@pytest.mark.parametrize(
    ("option", "value"),
    [*((x, 0) for x in ("--layers", "--neurons", "--connections", "--batch-size", "--steps")), ("--layers", 10**9)],
)
def test_bad_sizes_are_refused(option: str, value: int):
    result = run(*SMALL, option, value)
    assert result.exit_code == 2
    assert f"Invalid value for '{option}'" in result.stderr


def test_a_network_that_does_not_fit_is_refused(monkeypatch):
    monkeypatch.setenv("MATGRAD_MEMORY_LIMIT", "1M")
    result = run("bench", "brain", "--layers", 3, "--neurons", 10_000)
    assert result.exit_code == 2
    assert re.search(r"the model with sizes .*: asks for [\d.]+ MB, expected at most 1 MB", result.stderr)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell in this way")
def test_a_million_neurons_take_little_memory_per_weight():
    """Weights twice, indices, and two matrices per layer for a batch: 33 bytes per weight, and 120 MB for libraries."""
    arguments = ("bench", "brain", "--layers", 4, "--neurons", 250_000, "--steps", 2, "--json")
    status, output, errors = in_process_of_its_own(*arguments)
    assert status == 0, errors
    record = json.loads(output)
    assert record["weights"] == 12_500_000
    assert record["peak_bytes"] < 120e6 + 33 * record["weights"]
