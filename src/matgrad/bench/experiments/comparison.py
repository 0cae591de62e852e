"""What a record says about the tools: their times, how these compare, and how far apart their parameters are."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Any

import numpy as np

from matgrad.bench.measuring.problems import Data, Experiment
from matgrad.bench.measuring.turns import Turns
from matgrad.bench.tools.registry import REFERENCE, TOOLS, Tool
from matgrad.bench.tools.training_tool import Parameters, Setting
from matgrad.sparse.matrix import values_of


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
    return {
        "tool": name,
        **tools[name].about(),
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
    """The net seconds of the rounds, their median and their minimum."""
    return {"seconds": seconds, "median": median(seconds), "best": min(seconds)}


def ratios(name: str, seconds: dict[str, list[float]], tools: Mapping[str, Tool] = TOOLS) -> dict[str, Any]:
    """The tool's time divided by that of the paper's baseline, and by that of its own fastest baseline, per round."""
    own = [other for other in tools[name].baselines if other in seconds]
    fastest = min(own, key=lambda other: median(seconds[other]), default=None)
    return {
        "reference": ratio(seconds, name, REFERENCE),
        "own": ratio(seconds, name, fastest),
    }


def ratio(seconds: dict[str, list[float]], name: str, baseline: str | None) -> dict[str, Any] | None:
    """The ratios of the rounds; None without a baseline, or if the tool is the baseline."""
    if baseline not in seconds or baseline == name:
        return None
    values = [a / b for a, b in zip(seconds[name], seconds[baseline], strict=True)]
    return {"to": baseline, "values": values, "median": median(values), "best": min(values)}


def difference(
    name: str, parameters: dict[str, Parameters], tools: Mapping[str, Tool] = TOOLS
) -> dict[str, Any] | None:
    """The largest max|θ - θ'| / max|θ'| over the parameters θ, with θ' those of the first baseline that trains."""
    candidates = [other for other in (REFERENCE, *tools[name].baselines) if parameters.get(other)]
    if not candidates or candidates[0] == name or not parameters.get(name):
        return None
    found, expected = ([values_of(A) for pair in parameters[x] for A in pair] for x in (name, candidates[0]))
    pairs = zip(found, expected, strict=True)
    largest = max(float(np.abs(A - B).max() / np.abs(B).max()) for A, B in pairs)
    return {"to": candidates[0], "relative": largest}
