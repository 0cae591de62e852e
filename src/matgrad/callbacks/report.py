"""What a run shows and logs: a progress bar and rows, a live table and plot in a notebook, and files of rows."""

from __future__ import annotations

import csv
import io
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matgrad.callbacks.callback import Callback, warned
from matgrad.callbacks.statistics import measure_and_part
from matgrad.foundation.imports import check_installed
from matgrad.foundation.writing import as_json, atomic_write, csv_cell, finite, visible

if TYPE_CHECKING:
    from matgrad.training import Training

COLUMNS: dict[str, tuple[str, Callable[[Any], str]]] = {  # name of a value: heading, and how it is shown
    "epoch": ("epoch", "{:d}".format),
    "learning_rate": ("lr", "{:.4g}".format),
    "loss": ("loss", "{:.4f}".format),
    "accuracy": ("train acc", "{:.4f}".format),
    "validation_loss": ("val loss", "{:.4f}".format),
    "validation_accuracy": ("val acc", "{:.4f}".format),
    "test_accuracy": ("test acc", "{:.4f}".format),
    "rmse": ("train rmse", "{:.4f}".format),
    "validation_rmse": ("val rmse", "{:.4f}".format),
    "test_rmse": ("test rmse", "{:.4f}".format),
    "perplexity": ("train perplexity", "{:.3f}".format),
    "validation_perplexity": ("val perplexity", "{:.3f}".format),
    "test_perplexity": ("test perplexity", "{:.3f}".format),
    "nnz": ("nnz", lambda nnz: f"{sum(nnz.values())}"),
    "density": ("density", "{:.4f}".format),
    "explored": ("explored", "{:.4f}".format),
    "flops": ("GFLOP", lambda flops: f"{flops / 1e9:.4g}"),
    "peak_memory": ("peak MB", lambda size: "" if size is None else f"{size / 1e6:.0f}"),
    "seconds": ("train seconds", "{:.2f}".format),
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
        line = visible(line, kept="\n\t")
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
    return {heading: show(row[name]) for name, (heading, show) in COLUMNS.items() if name in row}


Row = dict[str, Any]  # the values of an epoch, by name; a table such as `nnz` has its values by name too

SUFFIXES = (".jsonl", ".csv")  # of logs
EVENTS = "events.out.tfevents.*.matgrad"  # the files that `TensorBoard` writes


class _RowsFile(Callback):
    """A file with all rows of the run so far, of which each is appended when its epoch ends.

    The whole file is written at the start, with the rows of a resumed run, and wherever a row cannot be appended: if it
    has new columns, or if an earlier one could not be written.
    """

    only_first = True
    place = 1
    _path: Path
    _is_complete = False  # whether the file has all rows before this epoch

    def start(self, run: Training) -> None:
        with atomic_write(self._path) as file:
            file.write(self._content(run.rows, is_whole=True))
        self._is_complete = True

    def epoch(self, run: Training) -> None:
        with warned(self._path):
            if self._is_complete and self._fits(run.rows[-1]):
                self._is_complete = False
                with open(self._path, "ab") as file:
                    file.write(self._content(run.rows[-1:], is_whole=False))
                self._is_complete = True
            else:
                _RowsFile.start(self, run)

    def _fits(self, row: Row) -> bool:
        """Whether a row can be appended."""
        return True

    def _content(self, rows: Sequence[Row], is_whole: bool) -> bytes:
        """These rows in the format of the file: a part of it, or the whole with its header."""
        raise NotImplementedError


class Log(_RowsFile):
    """Writes a line per epoch to a file: JSON if its name ends in .jsonl, and CSV, with a header, if in .csv.

    JSON has null for a number that is not finite. In CSV a table of values by layer has a column per layer, such as
    ``nnz.1``. A value that some epochs lack has an empty field there: when a column appears for the first time, the
    file is written again with all columns, in the order in which they appeared.
    """

    _columns: Sequence[str] = ()

    def __init__(self, path: str | Path) -> None:
        self.path = self._path = Path(path)
        if self.path.suffix not in SUFFIXES:
            raise ValueError(f"{path}: expected the name of a log that ends in {' or '.join(SUFFIXES)}")
        self._is_csv = self.path.suffix == ".csv"

    def _fits(self, row: Row) -> bool:
        return not self._is_csv or _flat(row).keys() <= {*self._columns}

    def _content(self, rows: Sequence[Row], is_whole: bool) -> bytes:
        if not self._is_csv:
            return "".join(as_json(row, indent=None) + "\n" for row in rows).encode()
        if is_whole:
            self._columns = [*dict.fromkeys(name for row in rows for name in _flat(row))]
        buffer = io.StringIO()
        writer = csv.DictWriter(buffer, self._columns, lineterminator="\n")
        if is_whole and rows:
            writer.writerow({name: csv_cell(name) for name in self._columns})
        for row in map(_flat, rows):
            writer.writerow({name: csv_cell(x) if isinstance(x, str) else x for name, x in row.items()})
        return buffer.getvalue().encode()


class TensorBoard(_RowsFile):
    """Writes an event file to a folder, for TensorBoard, whose steps are the epochs; needs the package tensorboard.

    The scalars are such as ``loss/training``, ``accuracy/validation``, ``learning_rate`` and ``nnz/1``. Event files
    that this class wrote to the folder before are removed.
    """

    def __init__(self, folder: str | Path) -> None:
        check_installed("tensorboard", "tensorboard", "event files")
        self.folder = Path(folder)

    def start(self, run: Training) -> None:
        self.folder.mkdir(exist_ok=True)
        others = set(self.folder.glob(EVENTS))
        self._path = self.folder / EVENTS.replace("*", f"{time.time():.0f}.{socket.gethostname()}.{os.getpid()}")
        super().start(run)
        for other in others - {self._path}:
            other.unlink(missing_ok=True)

    def _content(self, rows: Sequence[Row], is_whole: bool) -> bytes:
        from tensorboard.compat.proto.event_pb2 import Event  # which does not import TensorFlow
        from tensorboard.summary.writer.record_writer import RecordWriter

        buffer, now = io.BytesIO(), time.time()
        writer = RecordWriter(buffer)
        if is_whole:
            writer.write(Event(wall_time=now, file_version="brain.Event:2").SerializeToString())
        for row in rows:
            numbers = {name: x for name, x in _flat(row, "/").items() if name != "epoch" and isinstance(x, int | float)}
            tags = ("/".join(filter(None, measure_and_part(name))) for name in numbers)  # such as loss/validation
            values = [{"tag": tag, "simple_value": float(x)} for tag, x in zip(tags, numbers.values(), strict=True)]
            event = Event(wall_time=now, step=row["epoch"], summary={"value": values})
            writer.write(event.SerializeToString())
        return buffer.getvalue()


def _flat(row: Row, separator: str = ".") -> Row:
    """The values of a row, those of a table under names such as ``nnz.1``."""
    flat: Row = {}
    for name, value in row.items():
        if isinstance(value, dict):
            flat |= {f"{name}{separator}{key}": item for key, item in _flat(value, separator).items()}
        else:
            flat[name] = finite(value, lambda x: x)
    return flat
