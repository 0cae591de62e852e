"""Tables from CSV, Parquet and Arrow files and from data frames, all read by pyarrow."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from csv import Error as CsvError
from csv import reader
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from matgrad.datasets.dataset import DataError
from matgrad.datasets.reading import reading
from matgrad.foundation.limits import FLOAT32, check_bytes, file_limit

if TYPE_CHECKING:
    import pyarrow

Source = str | os.PathLike[str] | Any  # a file, or a data frame of pandas, polars or Arrow

DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab"}
MISSING = frozenset({"", "?", "na", "n/a", "nan", "null", "none"})  # in lower case
SAMPLE = 1 << 20  # bytes of a CSV file that determine its delimiter and header
BLOCK = 4 << 20  # bytes of a CSV file that are parsed at a time: the longest line
EXACT = 2**53  # from here on, float64 lacks integers


@dataclass(frozen=True, eq=False)
class Table:
    """The columns of a file or data frame, their names if there are some, and the position of the target, if any.

    Those of a CSV file are strings, in its spelling; others have the types that the file or frame gives them.
    """

    source: str
    columns: list[pyarrow.ChunkedArray]
    names: list[str] | None
    target: int | None = None
    delimiter: str | None = None
    notes: tuple[str, ...] = ()
    _words: dict[int, tuple[np.ndarray, list[str]]] = field(default_factory=dict)

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.columns[0])

    @property
    def width(self) -> int:
        """The number of columns."""
        return len(self.columns)

    def position(self, column: str | int) -> int:
        """The position of a column, given by name or position."""
        return _position(self.source, column, self.names, self.width, "column")

    def name(self, j: int) -> str | None:
        """The name of a column, if there is one."""
        return None if self.names is None else self.names[j]

    def title(self, j: int) -> str:
        """A column in messages: its number from 1 and its name."""
        return f"column {j + 1}" + ("" if self.names is None else f" ({self.names[j]!r})")

    def place(self, row: int, j: int) -> str:
        """A value in messages; rows count from 1, without the header."""
        return f"{self.source}, row {row + 1}, {self.title(j)}"

    def is_text(self, j: int) -> bool:
        """Whether a column has strings by its type, not because CSV files have nothing else."""
        return self.delimiter is None and _is_string(self.columns[j].type)

    def words(self, j: int) -> tuple[np.ndarray, list[str]]:
        """(k, words) of a column: row i has words[k_i], and k_i = -1 where the value is missing."""
        if j not in self._words:
            import pyarrow as pa
            import pyarrow.compute as pc

            with _arrow_errors(f"{self.source}, {self.title(j)}"):
                text = pc.utf8_trim_whitespace(self.columns[j].cast(pa.large_string()).combine_chunks())
            encoded = text.dictionary_encode()
            words = encoded.dictionary.to_pylist()
            codes = np.array([*(-1 if word.lower() in MISSING else k for k, word in enumerate(words)), -1])
            self._words[j] = codes[encoded.indices.fill_null(len(words)).to_numpy(zero_copy_only=False)], words
        return self._words[j]

    def numbers(self, j: int) -> np.ndarray:
        """The float64 numbers of a column, NaN where a value is missing or not a finite float32 number."""
        import pyarrow as pa

        column = self.columns[j]
        if pa.types.is_boolean(column.type):
            column = column.cast(pa.uint8())
        try:
            x = column.cast(pa.float64(), safe=_is_string(column.type)).to_numpy()
        except pa.ArrowNotImplementedError:
            found = f"found {column.type}, expected numbers or strings"
            raise DataError(f"{self.source}, {self.title(j)}: {found}") from None
        except pa.ArrowInvalid:
            x = np.array([np.inf])  # some string is not a number
        if not (np.abs(x) > FLOAT32).any():
            return x
        codes, words = self.words(j)
        numbers = [parse_number(word) for word in words]
        return np.array([*(np.nan if number is None else number for number in numbers), np.nan])[codes]


def read_table(
    source: Source,
    target: str | int | None = None,
    header: bool | None = None,
    delimiter: str | None = None,
    known: Collection[str] = (),
) -> Table:
    """The table in a file, compressed or not, or a data frame; in CSV, a first line with a known name is a header."""
    if not isinstance(source, str | os.PathLike):
        return _typed("the table", _from_frame(source), target)
    path = Path(source)
    with reading(path, is_text=True) as file, _arrow_errors(str(path)):
        content = io.BufferedReader(file, SAMPLE)  # type: ignore[type-var]
        start = content.peek(SAMPLE)
        if start.startswith(b"PAR1"):
            return _typed(str(path), _read_parquet(path, content), target)
        if start.startswith((b"ARROW1", b"\xff\xff\xff\xff")):
            return _typed(str(path), _read_arrow(path, content, start), target)
        return _read_csv(path, content, start, target, header, delimiter, known)


# -- values ---------------------------------------------------------------------------------------
def parse_number(word: str) -> float | None:
    """The word as a Python number, or None if it is not a finite float32 number."""
    try:
        value = float(word)
    except ValueError:
        return None
    return value if abs(value) <= FLOAT32 and "_" not in word else None


def naming(labels: Iterable[str]) -> Callable[[str], str]:
    """The function from a word to the name of its class or category, where the others have these labels or names.

    Among numbers, the name of 1, 1.0 and 1e0 is 1; otherwise, each spelling is a name of its own.
    """
    return _name_of_number if are_numbers(labels) else str


def are_numbers(labels: Iterable[str]) -> bool:
    """Whether labels (classes or categories) are compared as numbers: all are, and none has leading zeros, as 01."""
    return all(map(_is_plain, labels))


def _is_plain(word: str) -> bool:
    """Whether a word is a number without leading zeros."""
    return parse_number(word) is not None and re.match(r"[+-]?0\d", word) is None


def _name_of_number(word: str) -> str:
    """The shortest spelling of a plain number; other words are unchanged."""
    if not _is_plain(word):
        return word
    number = float(word)
    if abs(number) >= EXACT and re.fullmatch(r"[+-]?\d+", word):
        return str(int(word))
    return str(int(number)) if number.is_integer() else repr(number)


def _is_string(kind: pyarrow.DataType) -> bool:
    return str(kind) in ("string", "large_string", "string_view")


# -- Parquet, Arrow and data frames ---------------------------------------------------------------
def _typed(source: str, table: pyarrow.Table, target: str | int | None) -> Table:
    """The table without the index that pandas stores beside the columns."""
    stored = (table.schema.pandas_metadata or {}).get("index_columns", ())
    index = [name for name in stored if isinstance(name, str) and name in table.column_names]
    notes = (f"not a feature: the index of pandas ({', '.join(index)})",) if index else ()
    table = table.drop_columns(index)
    if not table.num_columns or not table.num_rows:
        raise DataError(f"{source}: found {table.num_rows} rows and {table.num_columns} columns, expected some")
    names = list(table.column_names)
    position = None if target is None else _position(source, target, names, len(names))
    return Table(source, list(map(_decoded, table.columns)), names, position, notes=notes)


def _decoded(column: pyarrow.ChunkedArray) -> pyarrow.ChunkedArray:
    """A column of categories as a column of their values; others are unchanged."""
    import pyarrow as pa

    if not pa.types.is_dictionary(column.type):
        return column
    kind = pa.large_string() if _is_string(column.type.value_type) else column.type.value_type
    return pa.chunked_array([chunk.dictionary.cast(kind).take(chunk.indices) for chunk in column.chunks])


def _from_frame(frame: Any) -> pyarrow.Table:
    """A data frame as an Arrow table."""
    import pyarrow as pa

    if not hasattr(frame, "__arrow_c_stream__"):
        found = type(frame).__name__
        raise TypeError(f"expected a file or a data frame of pandas, polars or Arrow, found {found}")
    with _arrow_errors("the table"):
        return pa.table(frame)


def _read_parquet(path: Path, file: IO[bytes]) -> pyarrow.Table:
    """The table in a Parquet file, which says how large it is."""
    from pyarrow.parquet import ParquetFile

    content = ParquetFile(file)
    about = content.metadata
    stated = sum(about.row_group(i).total_byte_size for i in range(about.num_row_groups))
    wanted = max(stated, 8 * about.num_rows * about.num_columns)
    check_bytes(wanted, f"{path}: {about.num_rows} rows and {about.num_columns} columns", file_limit(path))
    return content.read()


def _read_arrow(path: Path, file: IO[bytes], start: bytes) -> pyarrow.Table:
    """The table in an Arrow (Feather) file or stream, batch by batch."""
    import pyarrow as pa

    if start.startswith(b"ARROW1"):
        content = pa.ipc.open_file(file)
        batches: Iterable[Any] = map(content.get_batch, range(content.num_record_batches))
    else:
        batches = content = pa.ipc.open_stream(file)
    kept, size = [], 0
    for batch in batches:
        size += batch.nbytes
        check_bytes(size, str(path), file_limit(path))
        kept.append(batch)
    table = pa.Table.from_batches(kept, content.schema)
    table.validate(full=True)
    return table


@contextmanager
def _arrow_errors(where: str) -> Iterator[None]:
    """Turn the errors of pyarrow into a DataError that says where."""
    import pyarrow as pa

    try:
        yield
    except DataError:
        raise
    except (pa.ArrowException, CsvError, ValueError, MemoryError) as error:
        reason = str(error).partition("\n")[0]
        raise DataError(f"{where}: cannot be read as a table ({reason})") from error


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
    text = start.decode("utf-8-sig", errors="replace").strip("\r\n")
    if not text.strip():
        raise DataError(f"{path}: the file is empty, expected lines of numbers")
    if delimiter is None:
        delimiter = max(DELIMITERS, key=re.sub(r'"[^"]*"', "", text.splitlines()[0]).count)
    if len(delimiter) != 1:
        raise DataError(f"{path}: delimiter: expected one character, found {delimiter!r}")
    names = [name.strip() for name in next(reader(io.StringIO(text, newline=""), delimiter=delimiter))]
    if target is not None and len(names) < 2:
        raise DataError(f"{path}: found 1 column, expected at least 2 (is the delimiter {delimiter!r}?)")
    column = None if target is None else _position(path, target, None if header is False else names, len(names))
    if header is None:
        header = any(name in known for name in names) or _is_header(names, column)
    table = _parse(path, file, delimiter, len(names), header)
    if not len(table):
        raise DataError(f"{path}: found a header and no lines of data, expected at least one")
    if any("\n" in (value or "") for value in table.slice(len(table) - 1).to_pylist()[0].values()):
        raise DataError(f"{path}, row {len(table)}: found a quote that is not closed")
    notes = (f"delimiter: {DELIMITERS.get(delimiter, delimiter)}", f"header: {'yes' if header else 'no'}")
    return Table(str(path), table.columns, names if header else None, column, delimiter, notes)


def _parse(path: Path, file: IO[bytes], delimiter: str, width: int, header: bool) -> pyarrow.Table:
    """The lines of a CSV file, without its header."""
    import pyarrow as pa
    from pyarrow import csv

    spellings = {f(word) for word in MISSING for f in (str.lower, str.upper, str.capitalize)} | {"NaN"}
    strings = {f"f{j}": pa.string() for j in range(width)}
    try:
        table = csv.read_csv(
            file,
            csv.ReadOptions(use_threads=False, block_size=BLOCK, autogenerate_column_names=True),
            csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            csv.ConvertOptions(column_types=strings, null_values=sorted(spellings), strings_can_be_null=True),
        )
    except pa.ArrowInvalid as error:
        found = re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+)", str(error))
        if found is None:
            raise
        row, expected, actual = map(int, found.groups())
        raise DataError(f"{path}, row {row - header}: found {actual} columns, expected {expected}") from None
    if table.num_columns != width:
        raise DataError(f"{path}: found a first line with more than {SAMPLE} bytes, expected a shorter one")
    return table.slice(int(header))


def _is_header(first: list[str], target: int | None) -> bool:
    """Whether a first line has names: no field except the target's is a number, and not all are missing."""
    fields = [field for j, field in enumerate(first) if j != target]
    return any(field.lower() not in MISSING for field in fields) and all(parse_number(x) is None for x in fields)


def _position(
    source: str | Path, wanted: str | int, names: list[str] | None, width: int, what: str = "target column"
) -> int:
    """The position of a column: by name, or counted from 0, or from the end if negative."""
    if names is not None and isinstance(wanted, str) and wanted in names:
        if names.count(wanted) > 1:
            raise DataError(f"{source}: there are {names.count(wanted)} columns {wanted!r}; give the position")
        return names.index(wanted)
    try:
        return range(width)[int(wanted)]
    except ValueError:
        found = "the columns have no names" if names is None else f"found {', '.join(names[:20])}"
        raise DataError(f"{source}: no {what} {wanted!r}; {found}") from None
    except IndexError:
        raise DataError(f"{source}: no {what} {wanted}; expected {-width} to {width - 1}") from None
