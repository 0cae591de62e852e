"""Sparse training: time and memory against the density, and time against the batch size."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from math import exp, log
from typing import Any

import numpy as np

from matgrad.bench.experiments.comparison import describe, difference, ratio, times
from matgrad.bench.measuring.problems import Data, generated, sparse_parameters
from matgrad.bench.measuring.turns import Report, Turns, take_turns
from matgrad.bench.tools.registry import DENSE, SPARSE, SPARSE_TOOLS
from matgrad.bench.tools.training_tool import Setting
from matgrad.sparse.matrix import SparseMatrix, values_of

# the setting, for a record
DESCRIPTION = {
    "layers": "ReLU;ReLU;Linear",
    "loss": "SoftmaxCrossEntropy",
    "optimizer": "GradientDescent",
    "densities": "Erdős–Rényi",
    "weights": "XavierNormalized",
    # not zero: many inputs of ReLU would be 0, where its derivative is 1 in the paper and 0 in PyTorch
    "biases": "Xavier",
    "learning_rate": 0.01,
}
SIZES = (3072, 1024, 512, 10)  # of CIFAR-10
STEPS = 500  # an epoch of it
BATCH_SIZE = 100
DENSITY = 0.05  # where the batch size varies
EXAMPLES = 10000  # the most that are trained on per batch size
MIN_STEPS = 5


@dataclass(frozen=True)
class Plan:
    """What is measured: the densities, and the batch sizes at one density, for a model of these sizes."""

    densities: tuple[float, ...]
    batch_sizes: tuple[int, ...]
    sizes: tuple[int, ...] = SIZES
    steps: int = STEPS


def run_sparse(
    plan: Plan,
    names: list[str],
    *,
    dtype: str,
    seed: int,
    rounds: int,
    threads: int,
    report: Report,
) -> dict[str, Any]:
    """The record of these tools: one point per density and per batch size."""
    measure = partial(_point, names, seed=seed, rounds=rounds, threads=threads, report=report)
    setting = _setting(plan.sizes, BATCH_SIZE, dtype)
    data = _data(plan.sizes, plan.steps * BATCH_SIZE, seed)
    points = [measure(setting, data, density) for density in plan.densities]
    batches = []
    for B in plan.batch_sizes:
        N = max(min(plan.steps * BATCH_SIZE, EXAMPLES) // B, MIN_STEPS) * B
        batches.append(measure(_setting(plan.sizes, B, dtype), _data(plan.sizes, N, seed), DENSITY))
    failures = {f"{name} {where(p)}": text for p in (*points, *batches) for name, text in p.pop("failures").items()}
    return {
        "setting": DESCRIPTION,
        "data": describe(data),
        "sizes": list(plan.sizes),
        "batch_size": BATCH_SIZE,
        "steps": plan.steps,
        "tools": {name: SPARSE_TOOLS[name].about() for name in names},
        "points": points,
        "batches": batches,
        "fit": fit(points),
        "break_even": break_even(points),
        "failures": failures,
    }


def _setting(sizes: tuple[int, ...], batch_size: int, dtype: str) -> Setting:
    """Plain gradient descent with batches of this size."""
    return Setting(sizes, batch_size, learning_rate=0.01, momentum=0.0, dtype=dtype)


def _data(sizes: tuple[int, ...], count: int, seed: int) -> Data:
    """`count` generated examples, which are as fast to train on as real ones."""
    return generated(sizes[0], sizes[-1], count, 1, seed)


# -- one point -----------------------------------------------------------------------------------


def _point(
    names: list[str],
    setting: Setting,
    data: Data,
    density: float,
    *,
    seed: int,
    rounds: int,
    threads: int,
    report: Report,
) -> dict[str, Any]:
    """The times and memory of the tools at one density."""
    initial = sparse_parameters(setting, density, seed)
    weights = [W for W, _ in initial]
    head = {
        "density": density,
        "densities": [W.support.density if isinstance(W, SparseMatrix) else 1.0 for W in weights],
        "nnz": sum(values_of(W).size for W in weights),
        "batch_size": setting.batch_size,
        "steps": len(data.Xtrain) // setting.batch_size,
    }

    def say(text: str) -> None:
        report(f"{where(head)}: {text}")

    turns = take_turns(names, setting, data, initial, rounds=rounds, threads=threads, report=say, rehearse=True)
    tools = {name: _row(name, turns, len(data.Xtrain)) for name in turns.parameters}
    return head | {"tools": tools, "failures": turns.failures}


def _row(name: str, turns: Turns, examples: int) -> dict[str, Any]:
    """The times of a tool, their ratios to all others, its memory, and its difference from masked PyTorch."""
    found = times(turns.seconds[name])
    others = {other: ratio(turns.seconds, name, other) for other in turns.seconds if other != name}
    return found | {
        "per_example": found["median"] / examples,
        "startup": turns.startup[name],
        "memory": turns.startup[name]["memory"],
        "ratios": others,
        "difference": difference(name, turns.parameters, SPARSE_TOOLS),
    }


def where(point: dict[str, Any]) -> str:
    """A point in words."""
    return f"density {point['density']:g}, batch size {point['batch_size']}"


# -- what the points show ------------------------------------------------------------------------


def fit(points: list[dict[str, Any]], name: str = SPARSE) -> dict[str, float] | None:
    """a and b such that a step takes about a + b·nnz seconds at best, by least squares of relative errors."""
    known = [p for p in points if name in p["tools"]]
    nnz = np.array([p["nnz"] for p in known], dtype=float)
    if len(set(nnz)) < 2:
        return None
    y = np.array([p["tools"][name]["best"] / p["steps"] for p in known])
    A = np.column_stack([np.ones_like(nnz), nnz]) / y[:, None]
    (a, b), *_ = np.linalg.lstsq(A, np.ones_like(y), rcond=None)
    error = float(np.abs(A @ (a, b) - 1).max())
    return {"step": float(a), "weight": float(b), "largest_error": error}


def break_even(points: list[dict[str, Any]]) -> float | None:
    """The density at which sparse training takes as long as dense training; None if there is none.

    Between two densities, the logarithm of the ratio is taken as linear in that of the density.
    """
    known = [
        (log(p["density"]), log(p["tools"][SPARSE]["ratios"][DENSE]["median"]))
        for p in sorted(points, key=lambda p: p["density"])
        if SPARSE in p["tools"] and DENSE in p["tools"]
    ]
    for (x, y), (u, v) in pairwise(known):
        if y < 0 <= v:
            return exp(x - y * (u - x) / (v - y))
    return None
