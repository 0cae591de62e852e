"""Dense training in the C++ core, compared with PyTorch and with the bare products of a step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from matgrad.bench.experiments.comparison import head, row
from matgrad.bench.measuring.problems import OPTIMIZERS, Data, Experiment, initial_parameters
from matgrad.bench.measuring.turns import Report, take_turns
from matgrad.bench.tools.registry import NATIVE_TOOLS


def run_native(
    experiment: Experiment,
    optimizer: str,
    names: list[str],
    data: Data,
    *,
    dtype: str,
    seed: int,
    rounds: int,
    threads: int,
    report: Report,
) -> dict[str, Any]:
    """The record of one experiment with an optimizer."""
    setting = replace(experiment.setting(dtype), momentum=OPTIMIZERS[optimizer])
    initial = initial_parameters(setting, seed)
    turns = take_turns(names, setting, data, initial, rounds=rounds, threads=threads, report=report)
    return head(experiment, setting, data) | {
        "title": f"{experiment.title}, {optimizer}",
        "optimizer": optimizer,
        "tools": [row(name, turns, NATIVE_TOOLS) for name in turns.parameters],
        "failures": turns.failures,
    }
