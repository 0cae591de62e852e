"""The fields of a CSV file: delimiter, header and lines, with errors that name line and column."""

from __future__ import annotations

import io
import re
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from csv import Error as CsvError
from csv import reader
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import TextIO

import numpy as np

from matgrad.datasets.dataset import DataError
from matgrad.datasets.reading import reading
from matgrad.foundation.limits import LINE

DELIMITERS = (",", ";", "\t")
MISSING = frozenset({"", "?", "na", "n/a", "nan", "null", "none"})  # in lower case
SAMPLE = 20  # lines that determine the delimiter
LARGEST = float(np.finfo(np.float32).max)
EXACT = 2**53  # from here on, float64 lacks integers

Line = tuple[int, list[str]]  # its number, counted from 1, and its fields
Spellings = dict[int, list[str]]  # all fields of some columns, by column from 0
Words = dict[int, dict[int, str]]  # fields that are not numbers, by column and row, both from 0


@dataclass(frozen=True, eq=False)
class Table:
    """The N lines of a file: numbers X, float64 N×width, with NaN where a field is not one, and these fields.

    The fields of the target column, if there is one, are the `targets`; X has 0 in their place. Those of columns
    with categories are kept as the file spells them.
    """

    path: Path
    delimiter: str
    header: list[str] | None
    target: int | None
    X: np.ndarray
    words: Words
    targets: list[str]
    spellings: Spellings
    lines: list[int]

    @property
    def width(self) -> int:
        """The number of columns."""
        return self.X.shape[1]

    @property
    def notes(self) -> list[str]:
        """What was found out about the format."""
        name = {",": "comma", ";": "semicolon", "\t": "tab"}.get(self.delimiter, repr(self.delimiter))
        return [f"delimiter: {name}", f"header: {'no' if self.header is None else 'yes'}"]

    def position(self, column: str | int) -> int:
        """The position of a column, given by name or position."""
        return _position(self.path, column, self.header, self.width, "column")

    def name(self, column: int) -> str | None:
        """The name of a column in the header, if there is one."""
        return None if self.header is None else self.header[column]

    def title(self, column: int) -> str:
        """A column in messages: its number from 1 and its name."""
        return f"column {column + 1}" + ("" if self.header is None else f" ({self.header[column]!r})")

    def place(self, row: int, column: int) -> str:
        """A field in messages."""
        return f"{self.path}, line {self.lines[row]}, {self.title(column)}"

    def word(self, row: int, column: int) -> str:
        """A field that is not a number."""
        return self.words.get(column, {}).get(row, "nan")

    def is_missing(self, column: int) -> np.ndarray:
        """Whether the field of each line in a column other than the target is missing."""
        result = np.isnan(self.X[:, column])
        for row, word in self.words.get(column, {}).items():
            result[row] = is_missing(word)
        return result


def read_table(
    path: Path,
    target: str | int | None = None,
    header: bool | None = None,
    delimiter: str | None = None,
    names: Collection[str] = (),
    spelled: Callable[[Table], Collection[int]] = lambda table: (),
) -> Table:
    """The table in a CSV file, which may be compressed; a first line with one of the `names` is a header.

    `spelled` says, from the table without its lines, which columns are kept as the file spells them.
    """
    if delimiter is not None and len(delimiter) != 1:
        raise DataError(f"{path}: delimiter: expected one character, found {delimiter!r}")
    try:
        with reading(path, is_text=True) as file, io.TextIOWrapper(file, "utf-8-sig", newline="") as text:
            return _parse(path, text, target, header, delimiter, names, spelled)
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not a text file in UTF-8 ({error.reason} at byte {error.start})") from error


def is_missing(field: str) -> bool:
    """Whether a field stands for a missing value."""
    return field.lower() in MISSING


def parse_number(field: str) -> float | None:
    """The field as a Python number, or None if it is not a finite float32 number."""
    try:
        value = float(field)
    except ValueError:
        return None
    return value if abs(value) <= LARGEST and "_" not in field else None


def are_numbers(labels: Iterable[str]) -> bool:
    """Whether labels (classes or categories) are compared as numbers: all are, and none has leading zeros, as 01."""
    return all(map(_is_plain, labels))


def naming(labels: Iterable[str]) -> Callable[[str], str]:
    """The function from a field to the name of its class or category, where the others have these labels or names.

    Among numbers, the name of 1, 1.0 and 1e0 is 1; otherwise, each spelling is a name of its own.
    """
    return _name_of_number if are_numbers(labels) else str


def _is_plain(field: str) -> bool:
    """Whether a field is a number without leading zeros."""
    return parse_number(field) is not None and re.match(r"[+-]?0\d", field) is None


def _name_of_number(field: str) -> str:
    """The shortest spelling of a plain number; other fields are unchanged."""
    if not _is_plain(field):
        return field
    number = float(field)
    if abs(number) >= EXACT and re.fullmatch(r"[+-]?\d+", field):
        return str(int(field))
    return str(int(number)) if number.is_integer() else repr(number)


def _parse(
    path: Path,
    text: TextIO,
    target: str | int | None,
    header: bool | None,
    d: str | None,
    known: Collection[str],
    spelled: Callable[[Table], Collection[int]],
) -> Table:
    """The table in the lines of a file."""
    iterator = _short_lines(path, text)
    sample = list(islice(iterator, SAMPLE))
    d = _delimiter(sample) if d is None else d
    lines = _lines(path, chain(sample, iterator), d)
    first = next(lines, None)
    if first is None:
        raise DataError(f"{path}: the file is empty, expected lines of numbers")
    names = [field.strip() for field in first[1]]
    width = len(names)
    column = None
    if target is not None:
        if width < 2:
            raise DataError(f"{path}, line {first[0]}: found 1 column, expected at least 2 (is the delimiter {d!r}?)")
        column = _position(path, target, None if header is False else names, width, "target column")
    if header is None:
        header = any(name in known for name in names) or _is_header(names, column)
    empty = Table(path, d, names if header else None, column, np.empty((0, width)), {}, [], {}, [])
    empty = replace(empty, spellings={j: [] for j in spelled(empty)})
    table = _filled(empty, lines if header else chain([first], lines))
    if not table.lines:
        raise DataError(f"{path}: found a header and no lines of data, expected at least one")
    return table


def _short_lines(path: Path, text: TextIO) -> Iterator[str]:
    """The lines of a file, after a check that none is endless."""
    while line := text.readline(LINE + 1):
        if len(line) > LINE:
            raise DataError(f"{path}: found a line with more than {LINE} characters, expected shorter ones")
        yield line


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


def _position(path: Path, wanted: str | int, names: list[str] | None, width: int, what: str) -> int:
    """The position of a column: by name, or counted from 0, or from the end if negative."""
    if names is not None and isinstance(wanted, str) and wanted in names:
        if names.count(wanted) > 1:
            raise DataError(f"{path}: the header has {names.count(wanted)} columns {wanted!r}; give the position")
        return names.index(wanted)
    try:
        position = int(wanted)
    except ValueError:
        known = "there is no header" if names is None else f"the first line has {', '.join(names[:20])}"
        raise DataError(f"{path}: no {what} {wanted!r}; {known}") from None
    if not -width <= position < width:
        raise DataError(f"{path}: no {what} {position}; expected {-width} to {width - 1}")
    return position % width


def _is_header(first: list[str], target: int | None) -> bool:
    """Whether a first line has names: no field except the target's is a number, and not all are missing."""
    fields = [field for j, field in enumerate(first) if j != target]
    return not all(map(is_missing, fields)) and all(parse_number(field) is None for field in fields)


def _filled(table: Table, lines: Iterable[Line]) -> Table:
    """A table without lines, filled with these."""
    content, words, width = array("d"), table.words, table.width
    for number, fields in lines:
        if len(fields) != width:
            raise DataError(f"{table.path}, line {number}: found {len(fields)} columns, expected {width}")
        for j, spellings in table.spellings.items():
            spellings.append(fields[j].strip())
        if table.target is not None:
            table.targets.append(fields[table.target].strip())
            fields[table.target] = "0"
        content.extend(_numbers(fields, len(table.lines), words))
        table.lines.append(number)
    X = np.frombuffer(content, np.float64).reshape(len(table.lines), width)
    for i, j in np.argwhere((X > LARGEST) | (X < -LARGEST)).tolist():
        words.setdefault(j, {})[i] = str(X[i, j])
        X[i, j] = np.nan
    return replace(table, X=X)


def _numbers(fields: list[str], row: int, words: Words) -> list[float]:
    """The fields of a line as numbers, NaN for those that are not; these are added to the words."""
    if "_" not in "".join(fields):
        try:
            return list(map(float, fields))
        except ValueError:
            pass
    values = [parse_number(field) for field in fields]
    for j, value in enumerate(values):
        if value is None:
            words.setdefault(j, {})[row] = fields[j].strip()
    return [np.nan if value is None else value for value in values]
