"""What the commands of `matgrad bench` share: the check of the tools, progress, and the files of a run."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import click

from matgrad.bench.tools.registry import TOOLS, Tool, chosen_tools
from matgrad.foundation.files import as_json as json_text
from matgrad.foundation.installing import check_matplotlib
from matgrad.foundation.machine import machine
from matgrad.foundation.writing import atomic_write, make_folder, write_json, write_or_rescue


class TurnsProgress:
    """Shows where a run is, on standard error: beside a progress bar in a terminal, else line by line."""

    def __init__(self, turns: int, *, silent: bool) -> None:
        self.turns, self.silent = turns, silent
        self._bar: Any = None

    def start(self) -> None:
        """Show the bar, if standard error is a terminal."""
        if sys.stderr.isatty() and not self.silent:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            text = TextColumn("{task.description}", markup=False)
            columns = (BarColumn(20), MofNCompleteColumn(), TimeRemainingColumn(), text)
            # without a thread, which would take time from what is measured
            self._bar = Progress(*columns, console=Console(stderr=True), auto_refresh=False, transient=True)
            self._bar.start()
            self._task = self._bar.add_task("", total=self.turns)

    def say(self, text: str, turns: int = 1) -> None:
        """Show the text, after so many more turns."""
        if self._bar is not None:
            self._bar.update(self._task, description=text, advance=turns, refresh=True)
        elif not self.silent:
            click.echo(text, err=True)

    def stop(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()


class BenchRun(AbstractContextManager):
    """One run of a benchmark: everything is checked before it starts, and nothing is written before it ends."""

    def __init__(
        self, kind: str, options: dict[str, Any], settings: int, known: Mapping[str, Tool] | None = None
    ) -> None:
        self.kind, self.options, self.started = kind, options, time.time()
        known = TOOLS if known is None else known
        names = chosen_tools(options["tools"], known)
        lacking = {name: known[name].missing() for name in names}
        self.missing = {name: reason for name, reason in lacking.items() if reason is not None}
        self.tools = [name for name in names if name not in self.missing]
        if not self.tools:
            raise ValueError("; ".join(f"{name}: {reason}" for name, reason in self.missing.items()))
        self.threads: int = options["threads"] or machine()["cores"]
        self.turns = settings * len(self.tools) * (1 + options["rounds"])  # the first is the start-up
        if options["output"] is not None and not options["no_plot"]:
            check_matplotlib()
        self.progress = TurnsProgress(self.turns, silent=options["as_json"])

    def __enter__(self) -> BenchRun:
        self.progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.progress.stop()

    def say(self, text: str, turns: int = 0) -> None:
        """Show where the run is, after so many more turns."""
        self.progress.say(text, turns)

    def arguments(self, prefix: str = "") -> dict[str, Any]:
        """The arguments of every benchmark; its messages start with `prefix`."""
        chosen = {key: self.options[key] for key in ("rounds", "dtype", "seed")}
        return chosen | {"threads": self.threads, "report": lambda text: self.say(f"{prefix}{text}", turns=1)}

    def finish(self, content: dict[str, Any]) -> None:
        """Write and print the record; exit status 1 if a tool failed."""
        from matgrad.bench.reports import tables
        from matgrad.bench.reports.record import record

        whole = record(self.kind, self.started, self.threads, self.options) | {"missing": self.missing} | content
        problem = self._write(whole)
        self.progress.stop()
        click.echo(json_text(whole) if self.options["as_json"] else tables.text(whole))
        if problem is not None:
            raise ValueError(problem)
        failed = [part["failures"] for part in (whole, *whole.get("experiments", [])) if part.get("failures")]
        if failed:
            raise click.exceptions.Exit(1)

    def _write(self, whole: dict[str, Any]) -> str | None:
        """Write bench.json, table.md and the plots, if that was asked for; what went wrong with the first."""
        folder: Path | None = self.options["output"]
        if folder is None:
            return None
        from matgrad.bench.reports import plots, tables

        with suppress(OSError):  # which is told of the record
            make_folder(folder)
        if problem := write_or_rescue(folder / "bench.json", lambda path: write_json(path, whole)):
            return problem
        with atomic_write(folder / "table.md") as file:
            file.write(tables.markdown(whole).encode())
        if not self.options["no_plot"]:
            plots.draw(whole, folder)
        return None
