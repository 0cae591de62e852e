"""Logs: the values of each epoch in a file, as JSON lines, as CSV or for TensorBoard, written as the epoch ends."""

from __future__ import annotations

import csv
import errno
import io
import os
import socket
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from matgrad.callbacks.callback import Callback
from matgrad.callbacks.statistics import measure_and_part
from matgrad.foundation.files import as_json
from matgrad.foundation.installing import check_tensorboard
from matgrad.foundation.writing import atomic_write, make_folder

if TYPE_CHECKING:
    from matgrad.training import Training

Row = dict[str, Any]  # the values of an epoch, by name; a table such as `nnz` has its values by name too

EVENTS = "events.out.tfevents.*.matgrad"  # the files that `TensorBoard` writes


class _RowsFile(Callback):
    """A file with all rows of the run so far, written when an epoch ends, so that a crash does not lose them.

    It is written at the start, with the rows that a resumed run has already. What cannot be written later is told in
    a warning, and is tried again after the next epoch.
    """

    only_first = True
    place = 1
    _path: Path
    _format: _Format
    _file: IO[bytes] | None = None

    def start(self, run: Training) -> None:
        self._replace(run.rows)

    def epoch(self, run: Training) -> None:
        new = run.rows[self._count :]
        try:
            if self._format.fits(new):
                self._append(new)
            else:
                self._replace(run.rows)
        except OSError as error:
            warnings.warn(f"{self._path}: cannot be written ({error.strerror or error})", stacklevel=2)

    def end(self, run: Training) -> None:
        if self._file is not None:
            self._file.close()

    def _replace(self, rows: Sequence[Row]) -> None:
        """Write the whole file, and keep it open: a run that puts another one in its place does not mix with it."""
        content = self._format.content(rows)
        with atomic_write(self._path) as file:
            file.write(content)
        if self._file is not None:
            self._file.close()
        self._file = open(self._path, "r+b", buffering=0)  # noqa: SIM115 (until the end)
        self._count, self._size = len(rows), len(content)

    def _append(self, rows: Sequence[Row]) -> None:
        """Write these rows at the end; no part of a line is left behind."""
        assert self._file is not None
        lines = self._format.lines(rows)
        self._file.seek(self._size)
        if self._file.write(lines) < len(lines):
            self._file.truncate(self._size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._count, self._size = self._count + len(rows), self._size + len(lines)


class Log(_RowsFile):
    """Writes a line per epoch to a file: JSON if its name ends in .jsonl, and CSV, with a header, if in .csv.

    JSON has null for a number that is not finite. In CSV a table of values by layer has a column per layer, such as
    ``nnz.1``. A value that some epochs lack has an empty field there: when a column appears for the first time, the
    file is written again with all columns, in the order in which they appeared.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = self._path = Path(path)
        if self.path.suffix not in FORMATS:
            raise ValueError(f"{path}: expected the name of a log that ends in {' or '.join(FORMATS)}")
        self._format = FORMATS[self.path.suffix]()


class TensorBoard(_RowsFile):
    """Writes an event file to a folder, for TensorBoard, whose steps are the epochs; needs the package tensorboard.

    The scalars are such as ``loss/training``, ``accuracy/validation``, ``learning_rate`` and ``nnz/1``. Event files
    that this class wrote to the folder before are removed.
    """

    def __init__(self, folder: str | Path) -> None:
        check_tensorboard()
        self.folder = Path(folder)
        self._format = _Events()

    def start(self, run: Training) -> None:
        make_folder(self.folder)
        others = set(self.folder.glob(EVENTS))
        name = EVENTS.replace("*", f"{time.time():.0f}.{socket.gethostname()}.{os.getpid()}")
        self._path = self.folder / name
        super().start(run)
        for other in others - {self._path}:
            other.unlink(missing_ok=True)


# -- the formats ----------------------------------------------------------------------------------


class _Format:
    """How rows become the content of a file."""

    def content(self, rows: Sequence[Row]) -> bytes:
        """A whole file with these rows."""
        return self.lines(rows)

    def fits(self, rows: Sequence[Row]) -> bool:
        """Whether these rows can be added to the file."""
        return True

    def lines(self, rows: Sequence[Row]) -> bytes:
        """What these rows add to the file."""
        raise NotImplementedError


class _JsonLines(_Format):
    def lines(self, rows: Sequence[Row]) -> bytes:
        return "".join(as_json(_plain(row), indent=None) + "\n" for row in rows).encode()


class _Csv(_Format):
    columns: dict[str, None]  # in the order in which they appeared

    def content(self, rows: Sequence[Row]) -> bytes:
        self.columns = dict.fromkeys(name for row in rows for name, _ in _flat(row))
        return (_csv([[*self.columns]]) if self.columns else b"") + self.lines(rows)

    def fits(self, rows: Sequence[Row]) -> bool:
        return all(name in self.columns for row in rows for name, _ in _flat(row))

    def lines(self, rows: Sequence[Row]) -> bytes:
        tables = [dict(_flat(row)) for row in rows]
        return _csv([[table.get(name) for name in self.columns] for table in tables])


class _Events(_Format):
    def content(self, rows: Sequence[Row]) -> bytes:
        return _records([{"file_version": "brain.Event:2", "wall_time": time.time()}]) + self.lines(rows)

    def lines(self, rows: Sequence[Row]) -> bytes:
        now = time.time()
        return _records([{"wall_time": now, "step": row["epoch"], "summary": _summary(row)} for row in rows])


FORMATS: dict[str, type[_Format]] = {".jsonl": _JsonLines, ".csv": _Csv}  # of logs, by the ending of a file


def _flat(row: Row, separator: str = ".") -> Iterator[tuple[str, Any]]:
    """The values of a row, those of a table under names such as ``nnz.1``."""
    for name, value in row.items():
        if isinstance(value, dict):
            yield from ((f"{name}{separator}{key}", item) for key, item in _flat(value, separator))
        else:
            yield name, _scalar(value)


def _plain(value: Any) -> Any:
    """A value that JSON can hold; what is unknown is a string."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    value = _scalar(value)
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _scalar(value: Any) -> Any:
    """The value as a number of Python, if it is a scalar of NumPy or of another backend."""
    return value.item() if getattr(value, "ndim", None) == 0 and hasattr(value, "item") else value


def _csv(lines: Sequence[Sequence[Any]]) -> bytes:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(lines)
    return buffer.getvalue().encode()


def _summary(row: Row) -> dict[str, Any]:
    """The numbers of a row as TensorBoard's scalars."""
    numbers = {_tag(name): x for name, x in _flat(row, "/") if name != "epoch" and isinstance(x, int | float)}
    return {"value": [{"tag": tag, "simple_value": float(x)} for tag, x in numbers.items()]}


def _tag(name: str) -> str:
    measure, part = measure_and_part(name)
    return name if part is None else f"{measure}/{part}"


def _records(events: Sequence[dict[str, Any]]) -> bytes:
    """The events in the format of TensorBoard, whose modules for this do not import TensorFlow."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.summary.writer.record_writer import RecordWriter

    buffer = io.BytesIO()
    for event in events:
        RecordWriter(buffer).write(Event(**event).SerializeToString())
    return buffer.getvalue()
