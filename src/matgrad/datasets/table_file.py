"""Tables from CSV, Parquet and Arrow files and from data frames, all read by pyarrow."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Collection, Iterable, Sequence
from csv import reader
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from matgrad.foundation.files import naming, opened
from matgrad.foundation.limits import FLOAT32, check_bytes, file_limit
from matgrad.foundation.writing import visible

if TYPE_CHECKING:
    import pyarrow

Source = str | os.PathLike[str] | Any  # a file, or a data frame of pandas, polars or Arrow

DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab"}
MISSING = ("", "?", "na", "n/a", "nan", "null", "none")  # in lower case
NUMBER = r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"
SAMPLE = 1 << 20  # bytes of a CSV file that determine its delimiter and header
BLOCK = 4 << 20  # bytes of a CSV file that are parsed at a time: the longest line


@dataclass(frozen=True, eq=False)
class Table:
    """The columns of a file or data frame, their names, which may all be None, and the position of the target, if any.

    Columns are Arrow arrays, null where a value is missing. Those of a CSV file are strings without spaces around
    them; others have the types that the file or frame gives them.
    """

    source: str
    columns: list[pyarrow.Array]
    names: Sequence[str | None]
    target: int | None = None
    delimiter: str | None = None
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.columns[0])

    @property
    def width(self) -> int:
        """The number of columns."""
        return len(self.columns)

    def position(self, column: str | int) -> int:
        """The position of a column, given by name, or counted from 0, or from the end if negative."""
        return _position(self.source, column, self.names)

    def title(self, j: int) -> str:
        """A column in messages: its number from 1 and its name."""
        return f"column {j + 1}" + ("" if self.names[j] is None else f" ({self.names[j]!r})")

    def is_missing(self, j: int) -> np.ndarray:
        """Whether the value of a column is missing, for each row."""
        return self.columns[j].is_null().to_numpy(zero_copy_only=False)

    def words(self, j: int) -> pyarrow.Array:
        """The values of a column as strings."""
        import pyarrow as pa

        with naming(f"{self.source}, {self.title(j)}"):
            return self.columns[j].cast(pa.large_string())

    def numbers(self, j: int) -> np.ndarray:
        """The float64 numbers of a column, NaN where a value is missing or not a finite float32 number."""
        import pyarrow as pa
        import pyarrow.compute as pc

        column = self.columns[j]
        try:
            column = column.cast(pa.float64(), safe=pa.types.is_large_string(column.type))
        except pa.ArrowNotImplementedError:
            found = f"found {column.type}, expected numbers or strings"
            raise ValueError(f"{self.source}, {self.title(j)}: {found}") from None
        except pa.ArrowInvalid:  # some string is not a number
            column = pc.if_else(pc.match_substring_regex(column, f"^{NUMBER}$"), column, None).cast(pa.float64())
        x = column.to_numpy(zero_copy_only=False)
        return np.where(np.abs(x) <= FLOAT32, x, np.nan)

    def check(self, j: int, rows: np.ndarray, is_valid: np.ndarray, expected: str) -> None:
        """Raise if the value of a column is invalid in one of some rows; rows count from 1, without the header."""
        if is_valid.all():
            return
        row = int(rows[np.argmin(is_valid)])
        if self.columns[j][row].is_valid:
            problem = f"found {self.words(j)[row].as_py()[:100]!r}, expected {expected}"
            problem += "; if this line is a header, say so" * (row == 0 and self.names[0] is None)
        elif j == self.target:
            problem = "missing value, expected a target"
        else:
            problem = "missing value; train with --features \"missing=median\" (in Python, missing='median') to fill it"
        raise ValueError(f"{self.source}, row {row + 1}, {self.title(j)}: {problem}")


def read_table(
    source: Source,
    target: str | int | None = None,
    header: bool | None = None,
    delimiter: str | None = None,
    known: Collection[str] = (),
) -> Table:
    """The table in a file, compressed or not, or a data frame; in CSV, a first line with a known name is a header."""
    import pyarrow as pa

    if not isinstance(source, str | os.PathLike):
        if not hasattr(source, "__arrow_c_stream__"):
            found = type(source).__name__
            raise TypeError(f"expected a file or a data frame of pandas, polars or Arrow, found {found}")
        return _typed("the table", pa.table(source), target)
    path = Path(source)
    with opened(path, is_text=True) as file:
        content = io.BufferedReader(file, SAMPLE)  # type: ignore[type-var]
        start = content.peek(SAMPLE)
        if start.startswith((b"PAR1", b"ARROW1", b"\xff\xff\xff\xff")):
            with naming(path, kind="a table"):
                table = _read_batches(path, content, start)
            return _typed(str(path), table, target)
        return _read_csv(path, content, start, target, header, delimiter, known)


# -- names of classes and categories --------------------------------------------------------------
def number(word: str) -> int | float | None:
    """The finite float32 number that a word spells, exact if it is an integer; None with leading zeros, as in 01."""
    if not re.fullmatch(NUMBER, word, re.ASCII) or re.match(r"[+-]?0\d", word):
        return None
    x = int(word) if re.fullmatch(r"[+-]?\d+", word) else float(word)
    if abs(x) > FLOAT32:
        return None
    return int(x) if x == int(x) else x


def named(words: pyarrow.Array, labels: Iterable[str]) -> pyarrow.Array:
    """The names of words that are classes or categories: if all labels are numbers, that of 1, 1.0 and 1e0 is 1.

    Otherwise, each spelling is a name of its own.
    """
    import pyarrow as pa

    if any(number(label) is None for label in labels):
        return words
    encoded = words.dictionary_encode()
    names = [word if (x := number(word)) is None else str(x) for word in encoded.dictionary.to_pylist()]
    return pa.array(names, pa.large_string()).take(encoded.indices)


# -- Parquet, Arrow and data frames ---------------------------------------------------------------
def _typed(source: str, table: pyarrow.Table, target: str | int | None) -> Table:
    """The table without the index that pandas stores beside the columns."""
    stored = (table.schema.pandas_metadata or {}).get("index_columns", ())
    index = [name for name in stored if isinstance(name, str) and name in table.column_names]
    notes = (f"not a feature: the index of pandas ({', '.join(index)})",) if index else ()
    table = table.drop_columns(index)
    if not table.num_columns or not table.num_rows:
        raise ValueError(f"{source}: found {table.num_rows} rows and {table.num_columns} columns, expected some")
    names = list(table.column_names)
    position = None if target is None else _position(source, target, names)
    return Table(source, [_plain(column) for column in table.columns], names, position, notes=notes)


def _plain(column: pyarrow.ChunkedArray) -> pyarrow.Array:
    """A column without categories of its own, null where a value is missing, and without spaces around strings."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type.value_type if (is_encoded := pa.types.is_dictionary(column.type)) else column.type
    is_text = str(kind) in ("string", "large_string", "string_view")
    kind = pa.large_string() if is_text else kind
    chunks = [x.dictionary.cast(kind).take(x.indices) if is_encoded else x.cast(kind) for x in column.chunks]
    values = pa.chunked_array(chunks, kind).combine_chunks()
    if is_text:
        values = pc.utf8_trim_whitespace(values)
        return pc.if_else(pc.is_in(pc.ascii_lower(values), pa.array(MISSING, kind)), None, values)
    return pc.if_else(pc.is_nan(values), None, values) if pa.types.is_floating(kind) else values


def _read_batches(path: Path, file: IO[bytes], start: bytes) -> pyarrow.Table:
    """The table in a Parquet file or in an Arrow (Feather) file or stream, batch by batch until it is too large."""
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    batches: Iterable[pa.RecordBatch]
    if start.startswith(b"PAR1"):
        content = ParquetFile(file)
        schema, batches = content.schema_arrow, content.iter_batches()
    elif start.startswith(b"ARROW1"):
        content = pa.ipc.open_file(file)
        schema, batches = content.schema, map(content.get_batch, range(content.num_record_batches))
    else:
        batches = content = pa.ipc.open_stream(file)
        schema = content.schema
    kept, size = [], 0
    for batch in batches:
        size += batch.nbytes
        check_bytes(size, "the content", file_limit(path))
        kept.append(batch)
    table = pa.Table.from_batches(kept, schema)
    table.validate(full=True)
    return table


# -- CSV ------------------------------------------------------------------------------------------
def _read_csv(
    path: Path,
    file: IO[bytes],
    start: bytes,
    target: str | int | None,
    header: bool | None,
    delimiter: str | None,
    known: Collection[str],
) -> Table:
    """The table in a CSV file, whose first bytes are `start`; all columns are strings."""
    import pyarrow as pa
    from pyarrow import csv

    text = start.decode("utf-8-sig", errors="replace").strip("\r\n")
    if not text.strip():
        raise ValueError(f"{path}: the file is empty, expected lines of numbers")
    if delimiter is None:
        delimiter = max(DELIMITERS, key=re.sub(r'"[^"]*"', "", text.splitlines()[0]).count)
    if len(delimiter) != 1:
        raise ValueError(f"{path}: delimiter: expected one character, found {delimiter!r}")
    with naming(path):
        names = [name.strip() for name in next(reader(io.StringIO(text, newline=""), delimiter=delimiter))]
    if target is not None and len(names) < 2:
        raise ValueError(f"{path}: found 1 column, expected at least 2 (is the delimiter {delimiter!r}?)")
    nameless = [None] * len(names)
    column = None if target is None else _position(str(path), target, nameless if header is False else names)
    if header is None:
        fields = [name for j, name in enumerate(names) if j != column]
        are_words = not any(re.fullmatch(NUMBER, field) for field in fields)
        header = any(name in known for name in names) or (are_words and any(f.lower() not in MISSING for f in fields))
    with naming(path):
        parsed = csv.read_csv(
            file,
            csv.ReadOptions(use_threads=False, block_size=BLOCK, autogenerate_column_names=True),
            csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            csv.ConvertOptions(column_types={f"f{j}": pa.large_string() for j in range(len(names))}),
        )
    if parsed.num_columns != len(names):
        raise ValueError(f"{path}: found a first line with more than {SAMPLE} bytes, expected a shorter one")
    table = parsed.slice(int(header))
    if not len(table):
        raise ValueError(f"{path}: found a header and no lines of data, expected at least one")
    if any("\n" in value for value in table.slice(len(table) - 1).to_pylist()[0].values()):
        raise ValueError(f"{path}, row {len(table)}: found a quote that is not closed")
    notes = (f"delimiter: {DELIMITERS.get(delimiter, delimiter)}", f"header: {'yes' if header else 'no'}")
    return Table(str(path), [*map(_plain, table.columns)], names if header else nameless, column, delimiter, notes)


def _position(source: str, wanted: str | int, names: Sequence[str | None]) -> int:
    """The position of a column: by name, or counted from 0, or from the end if negative."""
    found = [j for j, name in enumerate(names) if name == wanted]
    if len(found) > 1:
        raise ValueError(f"{source}: there are {len(found)} columns {wanted!r}, expected one; rename the others")
    try:
        return found[0] if found else range(len(names))[int(wanted)]
    except (ValueError, IndexError):
        known = f"{listed(filter(None, names))} or " * any(names) + f"{-len(names)} to {len(names) - 1}"
        raise ValueError(f"{source}: no column {wanted!r}; expected {known}") from None


def listed(names: Iterable[str]) -> str:
    """The first names, for messages."""
    first = [*map(visible, islice(names, 11))]
    return ", ".join(first[:10]) + ", …" * (len(first) > 10)
