"""`--timer`: the profile of a run as a table or for its record."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import click

from matgrad.callbacks import Report
from matgrad.inspection.profiling import Profile, profile, table
from matgrad.multilayer_perceptron import MultilayerPerceptron


class Timer:
    """Times the training of M by the parts of a step (brief), by its equations (full), or not at all (disabled)."""

    def __init__(self, M: MultilayerPerceptron, kind: str) -> None:
        self.M, self.kind = M, kind
        self.profile: Profile | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Time the training within this context."""
        if self.kind == "disabled":
            yield
            return
        with profile(self.M) as self.profile:
            yield

    def record(self) -> list[dict[str, Any]]:
        """The rows as values that JSON can hold."""
        return [] if self.profile is None else [asdict(row) for row in self.profile.rows(self.kind)]

    def show(self, report: Report) -> None:
        """Print the table, with colour in a terminal."""
        if self.profile is None or report.silent:
            return
        color = False if os.environ.get("NO_COLOR") else None  # None: if there is a terminal
        for text, bar in table(self.profile.rows(self.kind)):
            click.echo(text + click.style(bar, fg="cyan") if bar else text.rstrip(), color=color)
        for note in self.profile.notes(self.kind):
            click.echo(note)
