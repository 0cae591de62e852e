"""The cost of training an example against the size of the batch and the width of the hidden layers."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from matgrad.bench import experiments
from matgrad.bench.files import write_problem
from matgrad.bench.paper import times
from matgrad.bench.processes import Team
from matgrad.bench.tools import TOOLS
from matgrad.bench.training_tool import Setting

FEATURES, CLASSES = 784, 10  # those of MNIST
MIN_STEPS = 5


@dataclass(frozen=True)
class Axis:
    """What is varied, and what stays."""

    name: str
    title: str
    values: tuple[int, ...]
    batch_size: int
    width: int

    def settings(self, dtype: str) -> list[tuple[int, Setting]]:
        """The values with their settings."""
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
    report: Callable[[str], None],
) -> dict[str, Any]:
    """The curves of these tools along the axes; about so many examples are trained on for every point."""
    curves = []
    with tempfile.TemporaryDirectory(prefix="matgrad-bench-") as name:
        folder = Path(name)
        with Team(names, folder, threads, dtype, report) as team:
            for axis in axes:
                points = []
                for value, setting in axis.settings(dtype):
                    team.report = partial(_say, report, f"{axis.title} {value}: ")
                    points.append({"value": value} | _point(team, folder, setting, examples, rounds, seed))
                fixed = {"batch_size": axis.batch_size, "width": axis.width}
                fixed.pop(axis.name)
                curves.append({"axis": axis.name, "title": axis.title, "fixed": fixed, "points": points})
    tools = {name: {"title": TOOLS[name].title, "kind": TOOLS[name].kind, "framework": TOOLS[name].framework}
             for name in names}  # fmt: skip
    return {"tools": tools, "curves": curves, "failures": team.failures}


def _say(report: Callable[[str], None], prefix: str, text: str) -> None:
    """Report a text that begins with the point it belongs to."""
    report(prefix + text)


def _point(team: Team, folder: Path, setting: Setting, examples: int, rounds: int, seed: int) -> dict[str, Any]:
    """The times of every tool for one setting."""
    N = max(examples // setting.batch_size, MIN_STEPS) * setting.batch_size
    data = experiments.generated(FEATURES, CLASSES, N, 1, seed)
    write_problem(
        folder,
        data.Xtrain.astype(setting.dtype, copy=False),
        data.Ttrain,
        experiments.initial_parameters(setting, seed),
    )
    startup = team.setup(setting, folder)
    seconds = team.rounds(rounds)
    tools = {
        name: times(values) | {"per_example": times(values)["median"] / N, "startup": startup[name]}
        for name, values in seconds.items()
    }
    return {"batch_size": setting.batch_size, "sizes": list(setting.sizes), "examples": N, "tools": tools}
