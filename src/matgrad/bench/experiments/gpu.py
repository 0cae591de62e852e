"""Training on a GPU: the paper's models and a large one, beside native PyTorch and JAX, and epochs of `M.fit`."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from matgrad.bench.experiments.comparison import difference, ratio, times
from matgrad.bench.experiments.gpu_sparse import LAYER, LayerPlan, run_layers
from matgrad.bench.experiments.gpu_wide import NETWORKS, WideNetwork, run_wide
from matgrad.bench.measuring.files import write_problem
from matgrad.bench.measuring.problems import EXPERIMENTS, OPTIMIZERS, generated, initial_parameters
from matgrad.bench.measuring.processes import Team
from matgrad.bench.measuring.turns import Report, with_prefix
from matgrad.bench.tools.registry import (
    EPOCH_TOOLS,
    FIT,
    GPU_GRAPH,
    GPU_JAX_TOOLS,
    GPU_NATIVE,
    GPU_OWN,
    GPU_TOOLS,
    STEPS,
)
from matgrad.bench.tools.training_tool import Parameters, Setting

MATMULS = ("float32", "tf32")
PAUSE = 0.02  # seconds between two turns
COMPARED = 20  # steps after which parameters are compared: later, those of float32 and float64 differ by 10 % too
TOOLS = GPU_TOOLS | GPU_JAX_TOOLS | EPOCH_TOOLS

LARGE = Setting((3072, 16384, 16384, 10), 1024)

# the setting, for a record
DESCRIPTION = {
    "layers": "ReLU;ReLU;Linear",
    "loss": "SoftmaxCrossEntropy",
    "weights": "XavierNormalized",
    "biases": "zero",
    "learning_rate": 0.01,
    "data": "generated, on the device from the start",
}


@dataclass(frozen=True)
class Plan:
    """What is measured, and how much of it: steps per round, the sizes of the large model, the sparse layers …"""

    parts: tuple[str, ...]
    steps: int = 200
    epoch: int = 600  # batches
    large: Setting = LARGE
    large_steps: int = 5
    layers: LayerPlan = LAYER
    networks: tuple[WideNetwork, ...] = NETWORKS


@dataclass(frozen=True)
class Run:
    """How it is measured."""

    device: str
    seed: int
    rounds: int
    threads: int
    report: Report


def run_gpu(plan: Plan, run: Run) -> Iterator[dict[str, Any]]:
    """The record of a plan, after each of its parts: what was measured stays, whatever comes next."""
    found: dict[str, Any] = {"setting": DESCRIPTION, "gpu": describe_device(run.device), "missing": _missing()}
    for part in (part for part in PARTS if part in plan.parts):
        found = found | {part: PARTS[part](plan, run)}
        yield found


def _missing() -> dict[str, str]:
    """The tools that are left out, and why."""
    return {name: reason for name, tool in TOOLS.items() if (reason := tool.missing()) is not None}


def describe_device(name: str) -> dict[str, Any]:
    """The GPU, and what PyTorch reaches it with."""
    import torch

    if torch.device(name).type != "cuda":
        return {"name": name}
    found = torch.cuda.get_device_properties(name)
    return {"name": found.name, "memory_GB": round(found.total_memory / 1e9, 1), "cuda": torch.version.cuda}


# -- parts ----------------------------------------------------------------------------------------


def _steps(plan: Plan, run: Run) -> list[dict[str, Any]]:
    """The paper's models on PyTorch, with both optimizers, in float32 and TF32: one record each."""
    return _measured(list(GPU_TOOLS), _settings(run, *OPTIMIZERS.values()), plan.steps, run)


def _jax(plan: Plan, run: Run) -> list[dict[str, Any]]:
    """The same on JAX, with momentum: XLA compiles for many seconds."""
    return _measured(list(GPU_JAX_TOOLS), _settings(run, OPTIMIZERS["Momentum(0.9)"]), plan.steps, run)


def _settings(run: Run, *momenta: float) -> list[tuple[str, Setting]]:
    """Those of the paper's models, with their titles."""
    return [
        (e.title, replace(e.setting("float32"), device=run.device, momentum=momentum, matmul=matmul))
        for matmul in MATMULS
        for e in EXPERIMENTS.values()
        for momentum in momenta
    ]


def _epoch(plan: Plan, run: Run) -> list[dict[str, Any]]:
    """An epoch of `M.fit` on examples of MNIST's shape, beside as many steps on one batch."""
    experiment = EXPERIMENTS["mnist"]
    setting = replace(experiment.setting("float32"), device=run.device)
    return _measured([STEPS, GPU_OWN, FIT], [(experiment.title, setting)], plan.epoch, run, compare=False)


def _large(plan: Plan, run: Run) -> list[dict[str, Any]]:
    """A large dense model, whose parameters are too many to compare."""
    settings = [("large", replace(plan.large, device=run.device, matmul=matmul)) for matmul in MATMULS]
    return _measured([GPU_NATIVE, GPU_GRAPH, GPU_OWN], settings, plan.large_steps, run, compare=False)


def _sparse(plan: Plan, run: Run) -> dict[str, Any]:
    """A sparse layer against the density."""
    return run_layers(plan.layers, run.device, run.seed, run.rounds, with_prefix(run.report, "sparse layer, "))


def _wide(plan: Plan, run: Run) -> list[dict[str, Any]]:
    """Networks with millions of neurons."""
    return [run_wide(network, run.device, run.seed, run.report) for network in plan.networks]


PARTS = {"steps": _steps, "jax": _jax, "epoch": _epoch, "large": _large, "sparse": _sparse, "wide": _wide}


# -- tools that take turns ------------------------------------------------------------------------


def _measured(
    names: list[str], settings: list[tuple[str, Setting]], steps: int, run: Run, compare: bool = True
) -> list[dict[str, Any]]:
    """The records of tools that train models in several settings, with their titles; the processes stay the same."""
    names = [name for name in names if TOOLS[name].missing() is None]
    with (
        tempfile.TemporaryDirectory(prefix="matgrad-bench-") as folder,
        Team(names, Path(folder), run.threads, "float32", run.report, run.device) as team,
    ):
        team.pause = PAUSE
        team.imports()
        problems = _Problems(steps, run.seed)
        return [_record(title, setting, problems, team, run, compare) for title, setting in settings]


class _Problems:
    """Data and initial parameters, of which the last are kept for a setting with the same sizes."""

    def __init__(self, steps: int, seed: int) -> None:
        self.steps, self.seed = steps, seed
        self.sizes: tuple[int, ...] = ()

    def write(self, setting: Setting, folder: Path) -> None:
        """Write the problem of a setting, unless it is there."""
        if setting.sizes != self.sizes:
            data = generated(setting.sizes[0], setting.sizes[-1], self.steps * setting.batch_size, 1, self.seed)
            write_problem(folder, data.Xtrain, data.Ttrain, initial_parameters(setting, self.seed))
            self.sizes = setting.sizes


def _record(title: str, setting: Setting, problems: _Problems, team: Team, run: Run, compare: bool) -> dict[str, Any]:
    """The record of one setting."""
    team.report = with_prefix(run.report, f"{title}, {setting.optimizer}, {setting.matmul}: ")
    known = dict(team.failures)  # tools that have left the team
    problems.write(setting, team.folder)
    startup, seconds = team.setup(setting, team.folder), team.rounds(run.rounds)
    parameters = team.parameters(min(COMPARED, problems.steps)) if compare else {}
    tools = {name: _row(name, startup[name], seconds, parameters, problems.steps) for name in seconds}
    return {
        "title": title,
        "optimizer": setting.optimizer,
        "matmul": setting.matmul,
        "sizes": list(setting.sizes),
        "batch_size": setting.batch_size,
        "steps": problems.steps,
        "compared_after": COMPARED if compare else None,
        "tools": tools,
        "failures": {name: reason for name, reason in team.failures.items() if name not in known},
    }


def _row(
    name: str,
    startup: dict[str, Any],
    seconds: dict[str, list[float]],
    parameters: dict[str, Parameters],
    steps: int,
) -> dict[str, Any]:
    """The times of a tool, their ratios to all others, and how far its parameters are from those of its baseline."""
    found = times(seconds[name])
    return TOOLS[name].about() | {
        "per_step": found["median"] / steps,
        **found,
        "startup": {part: startup[part] for part in ("import", "load", "prepare")},
        "ratios": {other: ratio(seconds, name, other) for other in seconds if other != name},
        "difference": difference(name, parameters, TOOLS),
    }
