"""Turns: the tools train the same problem one after another, each in its own process."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matgrad.bench.measuring.files import write_problem
from matgrad.bench.measuring.problems import Data
from matgrad.bench.measuring.processes import Team
from matgrad.bench.tools.training_tool import Parameters, Setting

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
    """Let the tools train one epoch per round, from the initial parameters, each in its own process.

    They rehearse if it matters how much memory they take.
    """
    with tempfile.TemporaryDirectory(prefix="matgrad-bench-") as name:
        folder = Path(name)
        write_problem(folder, data.Xtrain.astype(setting.dtype, copy=False), data.Ttrain, initial)
        with Team(names, folder, threads, setting.dtype, report) as team:
            startup = team.setup(setting, folder, rehearse)
            seconds = team.rounds(rounds)
            return Turns(startup, seconds, team.parameters(), team.failures)
