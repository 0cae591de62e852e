"""What a run shows: a progress bar and one row per epoch, plain rows, or in a notebook a live table and plot."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from matgrad.callbacks.callback import Callback

if TYPE_CHECKING:
    from matgrad.training import Training

COLUMNS: dict[str, tuple[str, str | Callable[[Any], str]]] = {  # name of a value: heading, and how it is shown
    "epoch": ("epoch", "d"),
    "learning_rate": ("lr", ".4g"),
    "loss": ("loss", ".4f"),
    "accuracy": ("train acc", ".4f"),
    "validation_loss": ("val loss", ".4f"),
    "validation_accuracy": ("val acc", ".4f"),
    "test_accuracy": ("test acc", ".4f"),
    "rmse": ("train rmse", ".4f"),
    "validation_rmse": ("val rmse", ".4f"),
    "test_rmse": ("test rmse", ".4f"),
    "nnz": ("nnz", lambda nnz: f"{sum(nnz.values())}"),
    "density": ("density", ".4f"),
    "explored": ("explored", ".4f"),
    "flops": ("GFLOP", lambda flops: f"{flops / 1e9:.4g}"),
    "peak_memory": ("peak MB", lambda size: "" if size is None else f"{size / 1e6:.0f}"),
    "seconds": ("train seconds", ".2f"),
}


class Report(Callback):
    """Shows a row after each epoch, with a progress bar if standard output is a terminal.

    If nothing more can be printed, as where the reader of a pipe is gone, a `patient` report falls silent, and keeps
    the error as its `failure`: training continues.
    """

    only_first = True
    place = 1

    def __init__(self, *, silent: bool = False, patient: bool = False) -> None:
        self.silent, self.patient = silent, patient
        self.failure: OSError | None = None
        self.progress: Any = None
        self._has_headings = False
        if sys.stdout.isatty() and not silent:
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            texts = TextColumn("{task.description}"), TextColumn("{task.completed}/{task.total} batches")
            self.progress = Progress(texts[0], BarColumn(), texts[1], TimeRemainingColumn(), transient=True)
            self._task = self.progress.add_task("", visible=False)

    def start(self, run: Training) -> None:
        if self.progress is not None:
            self.progress.start()

    def poll(self, run: Training) -> None:
        if self.progress is not None:
            text = f"epoch {run.epoch + 1}/{run.epochs}"
            self.progress.update(self._task, description=text, total=run.batches, completed=run.batch, visible=True)

    def epoch(self, run: Training) -> None:
        if self.progress is not None:
            self.progress.reset(self._task, visible=False)
        shown = shown_values(run.row)
        for line in (shown.values(),) if self._has_headings else (shown, shown.values()):
            self.say("  ".join(f"{cell:>{max(7, len(heading))}}" for heading, cell in zip(shown, line, strict=True)))
        self._has_headings = True

    def end(self, run: Training) -> None:
        if self.progress is not None:
            self.progress.stop()

    def say(self, line: str = "") -> None:
        """Print a line, above the progress bar if there is one."""
        if self.silent:
            return
        try:
            if self.progress is not None:
                self.progress.console.print(line, highlight=False, markup=False, soft_wrap=True)
            else:
                print(line, flush=True)
        except OSError as error:
            if not self.patient:
                raise
            self.silent, self.failure = True, error


class LiveTable(Callback):
    """Shows the table and the plot of a run in a notebook, updated a few times per second."""

    only_first = True
    place = 1
    _INTERVAL = 0.5  # seconds from one time to the next

    def start(self, run: Training) -> None:
        from IPython.display import display

        self._display, self._last = display(run, display_id=True), time.perf_counter()

    def poll(self, run: Training) -> None:
        if time.perf_counter() - self._last >= self._INTERVAL:
            self.end(run)

    epoch = poll

    def end(self, run: Training) -> None:
        if self._display is not None:  # as it is where there is no notebook
            self._display.update(run)
        self._last = time.perf_counter()


def default_report() -> Callback:
    """A live table where Python is the kernel of a notebook, else a report on standard output."""
    IPython = sys.modules.get("IPython")
    is_notebook = IPython is not None and getattr(IPython.get_ipython(), "kernel", None) is not None
    return LiveTable() if is_notebook else Report()


def shown_values(row: Mapping[str, Any]) -> dict[str, str]:
    """The values of an epoch as strings, by heading."""
    return {
        heading: f"{row[name]:{form}}" if isinstance(form, str) else form(row[name])
        for name, (heading, form) in COLUMNS.items()
        if name in row
    }
