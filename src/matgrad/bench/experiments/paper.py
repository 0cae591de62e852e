"""The paper's table of experiments, measured again: all tools start from the same weights and take turns."""

from __future__ import annotations

from typing import Any

import numpy as np

from matgrad.bench.experiments.comparison import head, row
from matgrad.bench.measuring.problems import Data, Experiment, initial_parameters
from matgrad.bench.measuring.turns import Report, take_turns
from matgrad.bench.tools.matgrad_tool import model, state_of
from matgrad.bench.tools.registry import TOOLS
from matgrad.bench.tools.training_tool import Parameters, Setting
from matgrad.datasets import DataLoader
from matgrad.evaluation.measures import measure
from matgrad.loss_functions import create_loss


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
    initial = initial_parameters(setting, seed)
    turns = take_turns(names, setting, data, initial, rounds=rounds, threads=threads, report=report)
    return head(experiment, setting, data) | {
        "tools": [
            row(name, turns) | {"measures": measures(setting, P, data), "paper": paper_row(experiment, name)}
            for name, P in turns.parameters.items()
        ],
        "failures": turns.failures,
    }


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


def paper_row(experiment: Experiment, name: str) -> dict[str, float] | None:
    """The row of the tool in the paper's table, with the ratio to the paper's baseline."""
    row = experiment.paper.get(TOOLS[name].paper or "")
    if row is None:
        return None
    ratio = row[3] / experiment.paper["PyTorch-Native"][3]
    keys = ("loss", "train_accuracy", "test_accuracy", "seconds", "ratio")
    return dict(zip(keys, (*row, round(ratio, 3)), strict=True))
