"""Training on several processes: one process and two, beside DistributedDataParallel, and what they exchange."""

from __future__ import annotations

import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from matgrad.bench.experiments.comparison import describe, difference, ratio, times
from matgrad.bench.experiments.prediction import fits, network, predictions, rank_cost
from matgrad.bench.measuring.problems import DESCRIPTION, generated, initial_parameters, sparse_parameters
from matgrad.bench.measuring.processes import Team
from matgrad.bench.measuring.turns import Report, Turns, turns_of, with_prefix
from matgrad.bench.tools.matgrad_tool import model
from matgrad.bench.tools.registry import DDP, DISTRIBUTED_TOOLS, RANKS, RANKS_OF, REFERENCE
from matgrad.bench.tools.training_tool import Setting

SIZES = (3072, 1024, 512, 10)  # of CIFAR-10


@dataclass(frozen=True)
class Plan:
    """What is measured: every batch size at every density, on so many examples, for a model of these sizes."""

    batch_sizes: tuple[int, ...]
    densities: tuple[float, ...]
    examples: int
    sizes: tuple[int, ...] = SIZES


def run_distributed(
    plan: Plan, names: list[str], *, dtype: str, seed: int, rounds: int, threads: int, report: Report
) -> dict[str, Any]:
    """The record of these tools: one point per density and batch size, the fitted costs, and what these predict."""
    points, failures = [], dict[str, str]()
    with tempfile.TemporaryDirectory(prefix="matgrad-bench-") as name:
        for density in plan.densities:
            chosen = [name for name in names if density == 1 or _is_for_sparse(name)]
            with Team(chosen, Path(name), threads, dtype, report) as team:
                for batch_size in plan.batch_sizes:
                    team.report = with_prefix(report, f"density {density:g}, batch size {batch_size}: ")
                    setting = Setting(plan.sizes, batch_size, dtype=dtype)
                    points.append(_point(team, setting, density, plan.examples, rounds, seed))
                failures |= {f"{name}, density {density:g}": text for name, text in team.failures.items()}
    fitted = fits(points)
    return {
        "setting": DESCRIPTION | {"order": "as generated, not shuffled"},
        "sizes": list(plan.sizes),
        "tools": {name: DISTRIBUTED_TOOLS[name].about() | _processes(name, threads) for name in names},
        "points": points,
        "network": network(points),
        "fits": fitted,
        "predictions": predictions(fitted, plan.sizes, dtype, seed),
        "failures": failures,
    }


def _is_for_sparse(name: str) -> bool:
    """Whether a tool trains sparse weights in reasonable time: PyTorch takes a second per step."""
    return DISTRIBUTED_TOOLS[name].kind == "sums" or DISTRIBUTED_TOOLS[name].framework == "C++"


def _processes(name: str, threads: int) -> dict[str, int]:
    count = DISTRIBUTED_TOOLS[name].processes
    return {"processes": count, "threads": max(threads // count, 1)}


def _point(team: Team, setting: Setting, density: float, examples: int, rounds: int, seed: int) -> dict[str, Any]:
    """The times of the tools for one batch size and density, and what the programs of their ranks cost."""
    steps = max(examples // setting.batch_size, 2)
    data = generated(setting.sizes[0], setting.sizes[-1], steps * setting.batch_size, 1, seed)
    parameters = initial_parameters(setting, seed) if density == 1 else sparse_parameters(setting, density, seed)
    turns = turns_of(team, setting, data, parameters, rounds)
    M = model(setting, parameters)
    return {
        "density": density,
        "batch_size": setting.batch_size,
        "steps": steps,
        "data": describe(data),
        "costs": {str(p): asdict(rank_cost(M, setting.batch_size, p)) for p in (1, RANKS)},
        "tools": {name: _row(name, turns, steps) for name in turns.parameters},
    }


def _others(name: str) -> list[str]:
    """What a tool is compared with: one process, or PyTorch on as many."""
    if name in RANKS_OF.values():
        return [DDP, next(alone for alone, ranks in RANKS_OF.items() if ranks == name)]
    return [] if name == REFERENCE else [REFERENCE]


def _row(name: str, turns: Turns, steps: int) -> dict[str, Any]:
    """The times of a tool, per step too, the share of waiting, ratios to the others, and the difference."""
    found = times(turns.seconds[name])
    shares = [a / b for a, b in zip(turns.waiting[name], turns.seconds[name], strict=True)]
    return found | {
        "per_step": found["median"] / steps,
        "waiting": median(shares),
        "ratios": {other: ratio(turns.seconds, name, other) for other in _others(name) if other in turns.seconds},
        "difference": difference(name, turns.parameters, DISTRIBUTED_TOOLS),
    }
