"""The paper's table of experiments, measured anew: every tool from the same weights, in turns."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from matgrad.bench import experiments
from matgrad.bench.experiments import Data, Experiment
from matgrad.bench.files import write_problem
from matgrad.bench.matgrad_tools import model, state_of
from matgrad.bench.processes import Team
from matgrad.bench.tools import REFERENCE, TOOLS, Tool
from matgrad.bench.training_tool import Parameters, Setting
from matgrad.datasets import DataLoader
from matgrad.evaluation.measures import measure
from matgrad.loss_functions import create_loss
from matgrad.sparse.matrix import values_of

Report = Callable[[str], None]


@dataclass(frozen=True)
class Turns:
    """What the tools did: the times of their start-ups and of every round, and the parameters they ended with."""

    startup: dict[str, dict[str, Any]]
    seconds: dict[str, list[float]]
    parameters: dict[str, Parameters]
    failures: dict[str, str]


def take_turns(
    names: list[str],
    setting: Setting,
    data: Data,
    initial: Parameters,
    *,
    rounds: int,
    threads: int,
    report: Report,
    rehearse: bool = False,
) -> Turns:
    """Let the tools train one epoch in every round, from the initial parameters, each in its own process.

    They rehearse where it matters how much memory they take.
    """
    with tempfile.TemporaryDirectory(prefix="matgrad-bench-") as name:
        folder = Path(name)
        write_problem(folder, data.Xtrain.astype(setting.dtype, copy=False), data.Ttrain, initial)
        with Team(names, folder, threads, setting.dtype, report) as team:
            startup = team.setup(setting, folder, rehearse)
            seconds = team.rounds(rounds)
            return Turns(startup, seconds, team.parameters(), team.failures)


def run_experiment(
    experiment: Experiment,
    names: list[str],
    data: Data,
    *,
    dtype: str,
    seed: int,
    rounds: int,
    threads: int,
    report: Report,
) -> dict[str, Any]:
    """The record of one experiment with these tools."""
    setting = experiment.setting(dtype)
    initial = experiments.initial_parameters(setting, seed)
    turns = take_turns(names, setting, data, initial, rounds=rounds, threads=threads, report=report)
    return head(experiment, setting, data) | {
        "tools": [
            row(name, turns) | {"measures": measures(setting, P, data), "paper": paper_row(experiment, name)}
            for name, P in turns.parameters.items()
        ],
        "failures": turns.failures,
    }


def head(experiment: Experiment, setting: Setting, data: Data) -> dict[str, Any]:
    """What was trained, and on what."""
    return {
        "experiment": experiment.name,
        "title": experiment.title,
        "data": describe(data),
        "sizes": list(setting.sizes),
        "batch_size": setting.batch_size,
        "steps": len(data.Xtrain) // setting.batch_size,
        "is_whole_epoch": len(data.Xtrain) == experiment.examples[0],
    }


def row(name: str, turns: Turns, tools: Mapping[str, Tool] = TOOLS) -> dict[str, Any]:
    """The times of a tool, their ratios to those of its baselines, and how far its parameters are from theirs."""
    tool = tools[name]
    return {
        "tool": name,
        "title": tool.title,
        "kind": tool.kind,
        "framework": tool.framework,
        "startup": turns.startup[name],
        **times(turns.seconds[name]),
        "ratios": ratios(name, turns.seconds, tools),
        "difference": difference(name, turns.parameters, tools),
    }


def describe(data: Data) -> dict[str, Any]:
    """Where the data comes from, and its sizes."""
    (N, D), M = data.Xtrain.shape, len(data.Xtest)
    return {
        "source": data.source,
        "is_generated": data.is_generated,
        "training_examples": N,
        "test_examples": M,
        "features": D,
    }


def times(seconds: list[float]) -> dict[str, Any]:
    """The net seconds of the rounds, their median and the best."""
    return {"seconds": seconds, "median": median(seconds), "best": min(seconds)}


def measures(setting: Setting, parameters: Parameters, data: Data) -> dict[str, float]:
    """Loss, train and test accuracy of these parameters, computed by matgrad on NumPy for every tool."""
    M = model(setting)
    M.load_state(M.state() | state_of(parameters))
    loss = create_loss("SoftmaxCrossEntropy")
    classes = setting.sizes[-1]
    with np.errstate(all="ignore"):  # a tool that diverged has a loss that is not finite
        train, test = (
            measure(M, DataLoader(X, t, 1000, classes=classes).to(dtype=setting.dtype), loss)
            for X, t in ((data.Xtrain, data.Ttrain), (data.Xtest, data.Ttest))
        )
    return {"loss": train.loss, "train_accuracy": train.accuracy, "test_accuracy": test.accuracy}


def ratios(name: str, seconds: dict[str, list[float]], tools: Mapping[str, Tool] = TOOLS) -> dict[str, Any]:
    """The tool's time over that of the paper's baseline, and over that of its own, in each round."""
    own = [other for other in tools[name].baselines if other in seconds]
    fastest = min(own, key=lambda other: median(seconds[other]), default=None)
    return {
        "reference": ratio(seconds, name, REFERENCE),
        "own": ratio(seconds, name, fastest),
    }


def ratio(seconds: dict[str, list[float]], name: str, baseline: str | None) -> dict[str, Any] | None:
    """Ratios of the rounds; None without a baseline, or of a tool to itself."""
    if baseline not in seconds or baseline == name:
        return None
    values = [a / b for a, b in zip(seconds[name], seconds[baseline], strict=True)]
    return {"to": baseline, "values": values, "median": median(values), "best": min(values)}


def difference(
    name: str, parameters: dict[str, Parameters], tools: Mapping[str, Tool] = TOOLS
) -> dict[str, Any] | None:
    """The largest max|θ - θ'| / max|θ'| over the parameters θ, with θ' those of the first baseline that trains."""
    candidates = [other for other in (REFERENCE, *tools[name].baselines) if parameters.get(other)]
    if not candidates or candidates[0] == name or not parameters[name]:
        return None
    found, expected = ([values_of(A) for pair in parameters[x] for A in pair] for x in (name, candidates[0]))
    pairs = zip(found, expected, strict=True)
    largest = max(float(np.abs(A - B).max() / np.abs(B).max()) for A, B in pairs)
    return {"to": candidates[0], "relative": largest}


def paper_row(experiment: Experiment, name: str) -> dict[str, float] | None:
    """What the paper's table has for the tool, with the ratio to its own baseline."""
    row = experiment.paper.get(TOOLS[name].paper or "")
    if row is None:
        return None
    ratio = row[3] / experiment.paper["PyTorch-Native"][3]
    keys = ("loss", "train_accuracy", "test_accuracy", "seconds", "ratio")
    return dict(zip(keys, (*row, round(ratio, 3)), strict=True))
