"""The harness: turns, ratios, a failing tool, parameters in files, and tables of the committed records."""

from __future__ import annotations

import argparse
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest

from harness import team as teams
from harness.problems import Setting, dense, generated, initial_parameters, stored
from harness.reports import FOLDER, head, items, markdown, read, script
from harness.team import Team, difference, measure, ratio
from harness.tools import Tool, matgrad
from matgrad.foundation.machine import process_memory

SETTING = Setting((6, 4, 3), batch_size=5)
NUMPY = matgrad("numpy", "NumPy")


class Recorder:
    """In place of a process: writes down who is asked."""

    def __init__(self, name: str, asked: list[str]) -> None:
        self.name, self.asked = name, asked

    def ask(self, request):
        self.asked.append(self.name)
        return float(len(self.asked)), 0.0

    def close(self):
        pass


def test_the_tools_take_turns_and_another_begins_every_round():
    asked: list[str] = []
    with Team({}, SETTING, threads=1) as team:
        team.processes = {name: Recorder(name, asked) for name in "abc"}
        found = team.rounds(4)
    assert "".join(asked) == "abcbcacababc"
    seconds = {name: [t for t, _ in turns] for name, turns in found.items()}
    assert seconds == {"a": [1.0, 6.0, 8.0, 10.0], "b": [2.0, 4.0, 9.0, 11.0], "c": [3.0, 5.0, 7.0, 12.0]}


class Dying(Team):
    """A team whose tool `dies` ends before it is asked."""

    def __init__(self, *arguments, **options) -> None:
        super().__init__(*arguments, **options)
        (process,) = self.processes["dies"].pools[0]._processes.values()
        process.kill()


def test_a_tool_that_fails_is_reported_and_the_others_go_on(monkeypatch, capsys):
    monkeypatch.setattr(teams, "Team", Dying)
    tools = {"broken": Tool("broken", "compiled", "NumPy", "own.Nothing"), "numpy": NUMPY, "dies": NUMPY}
    options = argparse.Namespace(threads=1, rounds=2, seed=0)
    record, parameters = measure("tiny", tools, SETTING, generated(6, 3, 20), options)
    assert list(record["tools"]) == list(parameters) == ["numpy"]
    assert len(record["tools"]["numpy"]["seconds"]) == 2
    assert record["failures"]["tiny: broken"].startswith("failed: AttributeError: ")
    assert record["failures"]["tiny: dies"].startswith("failed: BrokenProcessPool: ")
    assert "dies failed: BrokenProcessPool: " in capsys.readouterr().err
    if "RssAnon" in process_memory():
        assert record["tools"]["numpy"]["startup"]["memory"]["training"] >= 0


def test_ratios_are_taken_round_by_round():
    seconds = {"a": [2.0, 10.0, 6.0], "b": [2.0, 4.0, 2.0]}
    assert ratio(seconds, "a", "b") == {"to": "b", "values": [1.0, 2.5, 3.0], "median": 2.5, "best": 1.0}


def test_the_difference_is_relative_to_the_largest_element_of_a_parameter():
    a = [(np.array([[1.0, 2.0]]), np.array([[0.1]]))]
    b = [(np.array([[1.0, 4.0]]), np.array([[0.2]]))]
    assert difference("b", {"a": a, "b": b}, ["none", "a"]) == {"to": "a", "relative": pytest.approx(1.0)}
    assert difference("a", {"a": a, "b": []}, ["b", "a"]) is None


def test_parameters_on_their_way_to_another_process():
    setting = Setting((40, 30, 20, 5), dtype="float64")
    parameters = initial_parameters(setting, 3, density=0.1)
    assert stored(parameters) == pytest.approx(0.1 * (1200 + 600 + 100), abs=1.5)
    parameters[0][0].support.kept_flat()  # which is not sent
    for (W, b), (U, c) in zip(parameters, pickle.loads(pickle.dumps(parameters)), strict=True):
        assert np.array_equal(dense(W), dense(U))
        assert np.array_equal(b, c)
        assert not hasattr(getattr(U, "support", None), "_cache")


@pytest.mark.parametrize("name", ["paper", "native", "float64", "sparse", "cost", "distributed", "gpu"])
def test_the_committed_tables_are_those_of_the_records(name: str):
    assert markdown(read(FOLDER / name)) == (FOLDER / name / "table.md").read_text()


def test_the_rows_of_the_paper_are_those_of_the_record():
    for experiment in read(FOLDER / "paper")["experiments"]:
        for row in experiment["tools"]:
            assert script("paper").paper_row(experiment["experiment"], row["tool"]) == row["paper"], row["tool"]


def test_lists_of_numbers():
    assert items(float)("0.1,2") == [0.1, 2.0]
    with pytest.raises(ValueError, match="x"):
        items(int)("1,x")


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
    distributed, flops, memory, between = script("distributed"), 40e9, 5e9, (1e9, 50e-6)
    RankCost = distributed.RankCost
    points = []
    for N in (100, 1000):
        costs = {p: RankCost(p, 2000 * N // p, 4000 + 30 * N // p, 4000 * (p - 1), p - 1) for p in (1, 2)}
        seconds = {f"matgrad-native{x}": costs[p].seconds(flops / p, memory / p, between)
                   for p, x in ((1, ""), (2, "-ranks"))}  # fmt: skip
        seconds |= {"all-reduce-small": 2 * between[1], "all-reduce": 2 * between[1] + costs[2].sent / between[0]}
        tools = {name: {"per_step": x} for name, x in seconds.items()}
        points.append({"density": 1.0, "batch_size": N, "tools": tools,
                       "costs": {str(p): vars(cost) for p, cost in costs.items()}})  # fmt: skip
    assert distributed.network(points) == pytest.approx(between)
    (fit,) = distributed.fits(points)
    assert (fit["flops"], fit["memory"]) == pytest.approx((flops, memory))
    assert RankCost(4, 0, 0, 1000, 3).seconds(1, 1, (100, 2)) == 15 + 36


def test_the_record_names_the_command_that_made_it(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/somewhere/benchmarks/paper.py", "--rounds", "3"])
    record = head("paper", argparse.Namespace(output=Path("x")))
    assert record["command"] == "python benchmarks/paper.py --rounds 3"
    assert {"processor", "cores", "memory_GB", "system", "blas", "threads"} == set(record["machine"])
