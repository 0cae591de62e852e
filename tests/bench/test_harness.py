"""The harness: turns, ratios, a failing tool, parameters in files, and tables of the committed records."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from baselines.prediction import RankCost, fits, network
from harness.problems import (
    Setting,
    generated,
    initial_parameters,
    read_parameters,
    values_of,
    write_parameters,
    write_problem,
)
from harness.reports import difference, markdown, numbers, ratio, read, script
from harness.team import FOLDER, Team
from harness.tools import Tool, matgrad
from matgrad.foundation.machine import process_memory
from support import PATIENCE

SETTING = Setting((6, 4, 3), batch_size=5)
NUMPY = matgrad("numpy", "NumPy")


class Recorder:
    """In place of a process: writes down who is asked."""

    def __init__(self, name: str, asked: list[str]) -> None:
        self.name, self.asked = name, asked

    def ask(self, **request):
        self.asked.append(self.name)
        return {"seconds": float(len(self.asked)), "waiting": 0.0}

    def close(self):
        pass


def test_the_tools_take_turns_and_another_begins_every_round():
    asked: list[str] = []
    with Team({}, threads=1) as team:
        team.processes = {name: Recorder(name, asked) for name in "abc"}  # type: ignore[misc]
        seconds, _ = team.rounds(4)
    assert "".join(asked) == "abcbcacababc"
    assert seconds == {"a": [1.0, 6.0, 8.0, 10.0], "b": [2.0, 4.0, 9.0, 11.0], "c": [3.0, 5.0, 7.0, 12.0]}


def test_a_tool_that_fails_is_reported_and_the_others_go_on():
    said: list[str] = []
    broken = Tool("broken", "compiled", "NumPy", "baselines.own.Nothing")
    data, initial = generated(6, 3, 20), initial_parameters(SETTING, 0)
    with Team({"broken": broken, "numpy": NUMPY, "dies": NUMPY}, threads=1, report=said.append) as team:
        team.processes["dies"].process.kill()
        turns = team.train(SETTING, data, initial, rounds=2)
    assert list(turns.seconds) == list(turns.parameters) == ["numpy"]
    assert len(turns.seconds["numpy"]) == 2
    assert team.failures["broken"].startswith("failed: AttributeError: ")
    assert "it printed last: " in team.failures["broken"]
    assert team.failures["dies"] == "ended with exit status -9"
    assert "dies ended with exit status -9" in said
    assert not team.folder.exists()


def test_what_a_framework_prints_is_no_reply(tmp_path):
    write_problem(tmp_path, *(x for x in (generated(6, 3, 20).Xtrain, generated(6, 3, 20).Ttrain)),
                  initial_parameters(SETTING, 0))  # fmt: skip
    code = """
import os
from harness import worker
create = worker.create
def noisy(*arguments):
    print("chatter")
    os.write(1, b"more chatter\\n")
    return create(*arguments)
worker.create = noisy
worker.main('{"class_name": "baselines.own.Matgrad", "arguments": ["numpy"], "threads": 1}')
"""
    request = {"do": "setup", "setting": {"sizes": [6, 4, 3], "batch_size": 5}, "folder": str(tmp_path)}
    lines = "\n".join(json.dumps(x) for x in (request, {"do": "epoch"}))
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=FOLDER, input=lines, capture_output=True, text=True, timeout=PATIENCE
    )
    replies = [json.loads(line) for line in done.stdout.splitlines()]
    assert [set(x) for x in replies] == [{"import", "load", "prepare", "pools", "memory"}, {"seconds", "waiting"}]
    assert "more chatter" in done.stderr
    if "RssAnon" in process_memory():
        assert replies[0]["memory"]["training"] >= 0


def test_ratios_are_taken_round_by_round():
    seconds = {"a": [2.0, 10.0, 6.0], "b": [2.0, 4.0, 2.0]}
    assert ratio(seconds, "a", "b") == {"to": "b", "values": [1.0, 2.5, 3.0], "median": 2.5, "best": 1.0}
    assert ratio(seconds, "a", "a") is ratio(seconds, "a", None) is ratio(seconds, "a", "c") is None


def test_the_difference_is_relative_to_the_largest_element_of_a_parameter():
    a = [(np.array([[1.0, 2.0]]), np.array([[0.1]]))]
    b = [(np.array([[1.0, 4.0]]), np.array([[0.2]]))]
    assert difference("b", {"a": a, "b": b}, ["none", "a"]) == {"to": "a", "relative": pytest.approx(1.0)}
    assert difference("a", {"a": a, "b": []}, ["b", "a"]) is None


def test_parameters_survive_a_file(tmp_path):
    setting = Setting((40, 30, 20, 5), dtype="float64")
    parameters = initial_parameters(setting, 3, density=0.1)
    assert sum(values_of(W).size for W, _ in parameters) == pytest.approx(0.1 * (1200 + 600 + 100), abs=1.5)
    write_parameters(tmp_path / "p.npz", parameters)
    for (W, b), (U, c) in zip(parameters, read_parameters(tmp_path / "p.npz"), strict=True):
        assert np.array_equal(W.to_dense(), U.to_dense())
        assert np.array_equal(b, c)


@pytest.mark.parametrize("name", ["paper", "native", "float64", "sparse", "cost", "distributed", "gpu"])
def test_the_committed_tables_are_those_of_the_records(name: str):
    assert markdown(read(FOLDER / name)) == (FOLDER / name / "table.md").read_text()


def test_the_rows_of_the_paper_are_those_of_the_record():
    for experiment in read(FOLDER / "paper")["experiments"]:
        for row in experiment["tools"]:
            assert script("paper").paper_row(experiment["experiment"], row["tool"]) == row["paper"], row["tool"]


def test_lists_of_numbers():
    assert numbers(float)("0.1,2") == [0.1, 2.0]
    with pytest.raises(ValueError, match="x"):
        numbers(int)("1,x")


# -- what the points of a sparse benchmark, and of one on several processes, show --------------------


def point(density: float, seconds: float, to_dense: float) -> dict:
    """A point of 10 steps with a million weights at density 1."""
    row = {"best": seconds, "ratios": {"matgrad-native-dense": {"median": to_dense}}}
    tools = {"matgrad-native": row, "matgrad-native-dense": {}}
    return {"density": density, "nnz": 1e6 * density, "steps": 10, "tools": tools}


def test_the_cost_of_a_weight_and_the_density_at_which_dense_training_is_as_fast():
    sparse = script("sparse")
    found = sparse.fit([point(d, 10 * (2e-4 + 3e-9 * 1e6 * d), 1) for d in (0.001, 0.01, 0.3)])
    assert (found["step"], found["weight"]) == (pytest.approx(2e-4), pytest.approx(3e-9))
    assert sparse.break_even([point(0.4, 1, 2.0), point(0.1, 1, 0.5)]) == pytest.approx(0.2)
    assert sparse.break_even([point(0.1, 1, 0.5), point(0.3, 1, 0.9)]) is None


def test_the_fit_finds_the_rates_behind_the_times():
    flops, memory, between = 40e9, 5e9, (1e9, 50e-6)
    points = []
    for N in (100, 1000):
        costs = {p: RankCost(p, 2000 * N // p, 4000 + 30 * N // p, 4000 * (p - 1), p - 1) for p in (1, 2)}
        seconds = {f"matgrad-native{x}": costs[p].seconds(flops / p, memory / p, between)
                   for p, x in ((1, ""), (2, "-ranks"))}  # fmt: skip
        seconds |= {"all-reduce-small": 2 * between[1], "all-reduce": 2 * between[1] + costs[2].sent / between[0]}
        tools = {name: {"per_step": x} for name, x in seconds.items()}
        points.append({"density": 1.0, "batch_size": N, "tools": tools,
                       "costs": {str(p): vars(cost) for p, cost in costs.items()}})  # fmt: skip
    assert network(points) == pytest.approx(between)
    (fit,) = fits(points)
    assert (fit["flops"], fit["memory"]) == pytest.approx((flops, memory))
    assert RankCost(4, 0, 0, 1000, 3).seconds(1, 1, (100, 2)) == 15 + 36


def test_the_record_names_the_command_that_made_it(monkeypatch):
    import argparse

    from harness.reports import head

    monkeypatch.setattr(sys, "argv", ["/somewhere/benchmarks/paper.py", "--rounds", "3"])
    record = head("paper", 0.0, argparse.Namespace(output=Path("x")))
    assert record["command"] == "python benchmarks/paper.py --rounds 3"
    assert {"processor", "cores", "memory_GB", "system", "blas", "threads"} == set(record["machine"])
