"""The records and logs of runs, as read from untrusted files."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matgrad.foundation.files import conform, naming, parse_json, read_text
from matgrad.foundation.limits import JSON, LOG, LOG_VALUES, check_count

RECORD = "run.json"

Row = dict[str, float | None]  # the numbers of an epoch, by name; those that are not finite are None


@dataclass
class Data:
    """What a record says of the data."""

    name: str


@dataclass
class Record:
    """What is read of a run.json, which has more."""

    started: str
    seconds: float
    seed: int
    data: Data
    model: dict[str, str]
    configuration: dict[str, Any]
    epochs: list[dict[str, Any]]
    results: dict[str, float | None]


@dataclass(frozen=True)
class Run:
    """A run: where it was found, its epochs and, unless it was read from a log, its record."""

    path: Path
    rows: list[Row]
    record: Record | None = None

    def values(self, name: str) -> list[tuple[float, float]]:
        """Pairs of an epoch and its value; nan where that is missing or not finite."""
        pairs = [(row["epoch"], row.get(name)) for row in self.rows]
        return [(epoch, math.nan if x is None else x) for epoch, x in pairs if epoch is not None]


def read_run(path: Path) -> Run:
    """The run in a folder with a run.json, in such a file, or in a log."""
    file = path / RECORD if path.is_dir() else path
    if file.suffix in READERS:
        return Run(path, read_text(file, lambda text: _rows(READERS[file.suffix](text)), LOG))
    record = read_text(file, lambda text: conform(parse_json(text), Record), JSON)
    with naming(file):
        return Run(path, _rows(enumerate(record.epochs, 1)), record)


# -- rows: the number of a line, and its values by name -------------------------------------------


def _json_lines(text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(io.StringIO(text), 1):
        if line.strip():
            with naming(f"line {number}"):
                yield number, conform(parse_json(line), dict[str, Any])


def _csv_lines(text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    lines = csv.reader(io.StringIO(text), strict=True)
    try:
        header = next(lines, [])
        if len(set(header)) < len(header):
            raise ValueError("found two columns with the same name")
        for fields in filter(None, lines):
            if len(fields) != len(header):
                raise ValueError(f"found {len(fields)} columns, expected {len(header)}")
            yield lines.line_num, dict(zip(header, fields, strict=True))
    except (ValueError, csv.Error) as error:
        raise ValueError(f"line {lines.line_num}: {error}") from None


READERS = {".jsonl": _json_lines, ".csv": _csv_lines}  # of logs, by the ending of a file


def _rows(lines: Iterable[tuple[int, dict[str, Any]]]) -> list[Row]:
    """The numbers of each line, after a check that they are those of an epoch after that of the line before."""
    rows: list[Row] = []
    count, last = 0, 0.0
    for number, line in lines:
        row: Row = {}
        for name, value in line.items():
            with suppress(ValueError, TypeError, OverflowError):  # a table, or a word
                x = math.nan if value is None else float(value)
                row[name] = x if math.isfinite(x) else None
        epoch = row.get("epoch")
        if epoch is None or epoch <= last:
            raise ValueError(f"line {number}: expected an epoch after {last:g}, found {line.get('epoch')!r:.40}")
        last, count = epoch, count + len(line)
        check_count(count, LOG_VALUES, "epochs", "values")
        rows.append(row)
    return rows
