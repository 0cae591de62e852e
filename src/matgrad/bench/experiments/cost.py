"""The time per example against the batch size and the width of the hidden layers."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matgrad.bench.experiments.comparison import times
from matgrad.bench.measuring.files import write_problem
from matgrad.bench.measuring.problems import generated, initial_parameters
from matgrad.bench.measuring.processes import Team
from matgrad.bench.measuring.turns import Report, with_prefix
from matgrad.bench.tools.registry import TOOLS
from matgrad.bench.tools.training_tool import Setting

FEATURES, CLASSES = 784, 10  # those of MNIST
MIN_STEPS = 5


@dataclass(frozen=True)
class Axis:
    """A quantity that is varied, its values, and the other settings."""

    name: str
    title: str
    values: tuple[int, ...]
    batch_size: int
    width: int

    def settings(self, dtype: str) -> list[tuple[int, Setting]]:
        """Each value with its setting."""
        points = [{"batch_size": self.batch_size, "width": self.width} | {self.name: value} for value in self.values]
        return [
            (point[self.name], Setting((FEATURES, *[point["width"]] * 2, CLASSES), point["batch_size"], dtype=dtype))
            for point in points
        ]


def run_cost(
    axes: list[Axis],
    names: list[str],
    *,
    examples: int,
    rounds: int,
    threads: int,
    dtype: str,
    seed: int,
    report: Report,
) -> dict[str, Any]:
    """The curves of these tools along the axes; each point is measured on about `examples` examples."""
    curves = []
    with tempfile.TemporaryDirectory(prefix="matgrad-bench-") as name:
        folder = Path(name)
        with Team(names, folder, threads, dtype, report) as team:
            for axis in axes:
                points = []
                for value, setting in axis.settings(dtype):
                    team.report = with_prefix(report, f"{axis.title} {value}: ")
                    points.append({"value": value} | _point(team, folder, setting, examples, rounds, seed))
                fixed = {"batch_size": axis.batch_size, "width": axis.width}
                fixed.pop(axis.name)
                curves.append({"axis": axis.name, "title": axis.title, "fixed": fixed, "points": points})
    return {"tools": {name: TOOLS[name].about() for name in names}, "curves": curves, "failures": team.failures}


def _point(team: Team, folder: Path, setting: Setting, examples: int, rounds: int, seed: int) -> dict[str, Any]:
    """The times of every tool for one setting."""
    N = max(examples // setting.batch_size, MIN_STEPS) * setting.batch_size
    data = generated(FEATURES, CLASSES, N, 1, seed)
    write_problem(
        folder,
        data.Xtrain.astype(setting.dtype, copy=False),
        data.Ttrain,
        initial_parameters(setting, seed),
    )
    startup = team.setup(setting, folder)
    seconds = team.rounds(rounds)
    tools = {
        name: times(values) | {"per_example": times(values)["median"] / N, "startup": startup[name]}
        for name, values in seconds.items()
    }
    return {"batch_size": setting.batch_size, "sizes": list(setting.sizes), "examples": N, "tools": tools}
