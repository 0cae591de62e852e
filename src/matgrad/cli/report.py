"""What a run shows while it goes on: a progress bar and one row an epoch, or plain rows."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from types import FrameType, TracebackType
from typing import Any

import click

COLUMNS = {  # name of a value: heading, format
    "epoch": ("epoch", "d"),
    "lr": ("lr", ".4g"),
    "loss": ("loss", ".4f"),
    "train_accuracy": ("train acc", ".4f"),
    "validation_loss": ("val loss", ".4f"),
    "validation_accuracy": ("val acc", ".4f"),
    "test_accuracy": ("test acc", ".4f"),
    "train_rmse": ("train rmse", ".4f"),
    "validation_rmse": ("val rmse", ".4f"),
    "test_rmse": ("test rmse", ".4f"),
    "seconds": ("seconds", ".2f"),
}


class Report(AbstractContextManager):
    """Shows rows, with a live progress bar where standard output is a terminal."""

    def __init__(self, *, silent: bool) -> None:
        self.silent = silent
        self.started = False
        self.progress: Any = None
        if sys.stdout.isatty() and not silent:
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            self.progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.completed}/{task.total} batches"),
                TimeRemainingColumn(),
                transient=True,
            )

    def __enter__(self) -> Report:
        if self.progress is not None:
            self.progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.progress is not None:
            self.progress.stop()

    def say(self, text: str = "") -> None:
        """Print a line, above the bar where there is one."""
        if self.silent:
            return
        if self.progress is not None:
            self.progress.console.print(text, highlight=False, markup=False, soft_wrap=True)
        else:
            click.echo(text)

    def row(self, values: dict[str, Any]) -> None:
        """Print the values of an epoch as one row, after the headings the first time."""
        columns = [(values[name], *COLUMNS[name]) for name in COLUMNS if name in values]
        if not self.started:
            self.say("  ".join(f"{heading:>{max(7, len(heading))}}" for _, heading, _ in columns))
            self.started = True
        self.say("  ".join(f"{value:>{max(7, len(heading))}{form}}" for value, heading, form in columns))

    def batches(self, loader: Any, description: str) -> Iterator[Any]:
        """The batches of a loader, moving the bar along."""
        if self.progress is None:
            yield from loader
            return
        task = self.progress.add_task(description, total=len(loader))
        for batch in loader:
            yield batch
            self.progress.advance(task)
        self.progress.remove_task(task)


class Interruptible(AbstractContextManager):
    """Lets Ctrl-C end a run between two batches, where the model is whole; a second one ends it at once."""

    def __init__(self) -> None:
        self.requested = False

    def __enter__(self) -> Interruptible:
        self._previous = signal.signal(signal.SIGINT, self._request)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        signal.signal(signal.SIGINT, self._previous)

    def _request(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True

    def check(self) -> None:
        """Raise KeyboardInterrupt where Ctrl-C was pressed."""
        if self.requested:
            raise KeyboardInterrupt
