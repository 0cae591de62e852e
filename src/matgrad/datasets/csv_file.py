"""The fields of a CSV file: delimiter, header and lines, with errors that name line and column."""

from __future__ import annotations

import io
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from csv import Error as CsvError
from csv import reader
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

import numpy as np

from matgrad.datasets.dataset import DataError
from matgrad.datasets.reading import reading

DELIMITERS = (",", ";", "\t")
MISSING = frozenset({"", "?", "na", "n/a", "nan", "null", "none"})  # in lower case
SAMPLE = 20  # lines that determine the delimiter
LARGEST = float(np.finfo(np.float32).max)

Line = tuple[int, list[str]]  # its number, counted from 1, and its fields


@dataclass(frozen=True, eq=False)
class Table:
    """The N lines of a file: numbers X, float64 N×D, and the N fields of the target column, if there is one."""

    path: Path
    delimiter: str
    header: list[str] | None
    target: int | None
    width: int
    X: np.ndarray
    targets: list[str]
    lines: list[int]

    @property
    def notes(self) -> list[str]:
        """What was found out about the format."""
        name = {",": "comma", ";": "semicolon", "\t": "tab"}.get(self.delimiter, repr(self.delimiter))
        return [f"delimiter: {name}", f"header: {'no' if self.header is None else 'yes'}"]

    @property
    def target_title(self) -> str:
        """The target column in messages: its number from 1 and its name."""
        return _title(self.header, self.target or 0)

    def target_in(self, line: int) -> str:
        """The target of a line in messages."""
        return f"{self.path}, line {line}, {self.target_title}"


def read_table(
    path: Path, target: str | int | None, header: bool | None, delimiter: str | None, width: int | None = None
) -> Table:
    """The table in a CSV file, which may be compressed; every column except the target has numbers.

    Without a target, all columns have numbers. `width` is the expected number of columns.
    """
    if delimiter is not None and len(delimiter) != 1:
        raise DataError(f"{path}: delimiter: expected one character, found {delimiter!r}")
    try:
        with reading(path) as file, io.TextIOWrapper(file, "utf-8-sig", newline="") as text:
            return _parse(path, text, target, header, delimiter, width)
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not a text file in UTF-8 ({error.reason} at byte {error.start})") from error


def parse_number(field: str) -> float | None:
    """The field as a Python number, or None if it is not a finite float32 number."""
    try:
        value = float(field)
    except ValueError:
        return None
    return value if abs(value) <= LARGEST and "_" not in field else None


def _parse(
    path: Path, text: Iterable[str], target: str | int | None, header: bool | None, d: str | None, expected: int | None
) -> Table:
    """The table in the lines of a file."""
    iterator = iter(text)
    sample = list(islice(iterator, SAMPLE))
    d = _delimiter(sample) if d is None else d
    lines = _lines(path, chain(sample, iterator), d)
    first = next(lines, None)
    if first is None:
        raise DataError(f"{path}: the file is empty, expected lines of numbers")
    names = [field.strip() for field in first[1]]
    width = len(names)
    if expected is not None and width != expected:
        raise DataError(f"{path}, line {first[0]}: found {width} columns, expected {expected}")
    if width < 2 and target is not None:
        raise DataError(f"{path}, line {first[0]}: found 1 column, expected at least 2 (is the delimiter {d!r}?)")
    column = None if target is None else _column(path, target, names, header)
    has_header = _is_header(names, column) if header is None else header
    head = names if has_header else None
    X, targets, numbers = _columns(path, lines if has_header else chain([first], lines), width, column, head)
    if not numbers:
        raise DataError(f"{path}: found a header and no lines of data, expected at least one")
    return Table(path, d, head, column, width, X, targets, numbers)


def _lines(path: Path, text: Iterable[str], delimiter: str) -> Iterator[Line]:
    """The lines that are not blank, as fields."""
    rows = reader(text, delimiter=delimiter, strict=True)
    try:
        for row in rows:
            if len(row) > 1 or any(field.strip() for field in row):
                yield rows.line_num, row
    except CsvError as error:
        raise DataError(f"{path}, line {rows.line_num}: {error}") from error


def _delimiter(sample: list[str]) -> str:
    """The delimiter for which most of the first lines have equally many fields; of several, the one with the most."""

    def score(delimiter: str) -> tuple[float, int]:
        try:
            counts = Counter(len(row) for row in reader(sample, delimiter=delimiter) if row)
        except CsvError:
            return (0, 0)
        width, lines = max(counts.items(), key=lambda item: (item[1], item[0]), default=(0, 0))
        return (lines / counts.total(), width) if width > 1 else (0, width)

    return max(DELIMITERS, key=score)


def _column(path: Path, target: str | int, first: list[str], header: bool | None) -> int:
    """The position of the target column: by name, or counted from 0, or from the end if negative."""
    width = len(first)
    if isinstance(target, str) and header is not False and target in first:
        if first.count(target) > 1:
            raise DataError(f"{path}: the header has {first.count(target)} columns {target!r}; give the position")
        return first.index(target)
    try:
        position = int(target)
    except ValueError:
        known = "there is no header" if header is False else f"the first line has {', '.join(first[:20])}"
        raise DataError(f"{path}: no target column {target!r}; {known}") from None
    if not -width <= position < width:
        raise DataError(f"{path}: no target column {position}; expected {-width} to {width - 1}")
    return position % width


def _is_header(first: list[str], target: int | None) -> bool:
    """Whether a first line has names: no field except the target's is a number, and not all are missing."""
    fields = [field for j, field in enumerate(first) if j != target]
    named = [field for field in fields if field.lower() not in MISSING]
    return bool(named) and all(parse_number(field) is None for field in fields)


def _columns(
    path: Path, lines: Iterable[Line], width: int, target: int | None, header: list[str] | None
) -> tuple[np.ndarray, list[str], list[int]]:
    """The numbers, the target fields and the line numbers of all lines."""
    content, targets, numbers = array("d"), list[str](), list[int]()
    for number, fields in lines:
        if len(fields) != width:
            raise DataError(f"{path}, line {number}: found {len(fields)} columns, expected {width}")
        if target is not None:
            targets.append(fields.pop(target).strip())
        numbers.append(number)
        try:
            content.extend(map(float, fields))
        except ValueError:
            _refuse(path, number, fields, target, header)
        if "_" in "".join(fields):
            _refuse(path, number, fields, target, header)
    X = np.frombuffer(content, np.float64).reshape(len(numbers), width - (target is not None))
    with np.errstate(over="ignore"):
        wrong = ~np.isfinite(X.astype(np.float32))
    if wrong.any():
        i = int(np.flatnonzero(wrong.any(axis=1))[0])
        _refuse(path, numbers[i], [str(x) for x in X[i]], target, header)
    return X, targets, numbers


def _refuse(path: Path, line: int, fields: list[str], target: int | None, header: list[str] | None) -> None:
    """Raise the error for the first field of a line that is not a finite number."""
    for j, field in enumerate(field.strip() for field in fields):
        if parse_number(field) is not None:
            continue
        where = f"{path}, line {line}, {_title(header, j + (target is not None and j >= target))}"
        if field.lower() in MISSING:
            raise DataError(f"{where}: missing value ({field!r}), expected a number")
        hint = "; if this line is a header, say so" if line == 1 and header is None else ""
        raise DataError(f"{where}: found {field!r}, expected a finite number{hint}")


def _title(header: list[str] | None, column: int) -> str:
    """A column in messages: its number from 1 and its name."""
    return f"column {column + 1}" + ("" if header is None else f" ({header[column]!r})")
