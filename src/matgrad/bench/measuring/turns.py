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


def with_prefix(report: Report, prefix: str) -> Report:
    """A report whose messages begin with what they belong to."""
    return lambda text: report(prefix + text)


@dataclass(frozen=True)
class Turns:
    """What the tools did: the times of their start-ups and of every round, and the parameters they ended with."""

    startup: dict[str, dict[str, Any]]
    seconds: dict[str, list[float]]
    parameters: dict[str, Parameters]
    failures: dict[str, str]
    waiting: dict[str, list[float]]  # for other processes, in every round


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
    with (
        tempfile.TemporaryDirectory(prefix="matgrad-bench-") as name,
        Team(names, Path(name), threads, setting.dtype, report) as team,
    ):
        return turns_of(team, setting, data, initial, rounds, rehearse)


def turns_of(
    team: Team, setting: Setting, data: Data, initial: Parameters, rounds: int, rehearse: bool = False
) -> Turns:
    """Let the tools of a team train one epoch per round, from the initial parameters."""
    write_problem(team.folder, data.Xtrain.astype(setting.dtype, copy=False), data.Ttrain, initial)
    startup = team.setup(setting, team.folder, rehearse)
    seconds = team.rounds(rounds)
    return Turns(startup, seconds, team.parameters(), team.failures, team.waiting)
