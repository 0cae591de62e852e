"""Output: files that are written completely or not at all, JSON, and tables for a terminal or Markdown."""

from __future__ import annotations

import errno
import html
import json
import math
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

PREFIX = ".matgrad-"  # of temporary files


@contextmanager
def atomic_write(path: str | Path) -> Iterator[IO[bytes]]:
    """A binary file that appears at `path` only when the block ends without an exception.

    A symbolic link stays, and its target is replaced. A replaced file keeps its mode.
    """
    place = replaceable(path)
    temporary = place.with_name(f"{PREFIX}{secrets.token_hex(8)}")
    try:
        file = open(temporary, "xb")  # noqa: SIM115
    except OSError as error:  # which names the temporary file
        raise OSError(error.errno, error.strerror, str(path)) from None
    try:
        with file:
            if place.exists():
                shutil.copymode(place, temporary)
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, place)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def replaceable(path: str | Path) -> Path:
    """The real path of a file to write. Raise an OSError if something other than a writable file is there."""
    place = Path(os.path.realpath(path))
    if place.exists() and not place.is_file():
        raise OSError(errno.EISDIR, f"expected a file, found a {'folder' if place.is_dir() else 'device'}", str(path))
    if place.exists() and not os.access(place, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    return place


def as_json(value: Any, indent: int | None = 2) -> str:
    """The value as a JSON string in ASCII, for any terminal, on one line without `indent`; nan and inf are null.

    What is no Unicode, in the name of a file, is escaped as JSON does: it comes back, and can be printed.
    """
    return json.dumps(finite(value), indent=indent, allow_nan=False, default=str)


def finite(value: Any, instead: Callable[[float], Any] = lambda x: None) -> Any:
    """The value with numbers of Python, and something instead of nan and infinities, which JSON does not have."""
    value = value.item() if getattr(value, "ndim", None) == 0 and hasattr(value, "item") else value
    if isinstance(value, dict):
        return {key: finite(item, instead) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item, instead) for item in value]
    return instead(value) if isinstance(value, float) and not math.isfinite(value) else value


def write_json(path: str | Path, value: Any) -> None:
    """Write a value as JSON."""
    with atomic_write(path) as file:
        file.write((as_json(value) + "\n").encode())


def write_or_rescue(path: Path, write: Callable[[Path], object]) -> str | None:
    """Call write(path) or, if it fails, write(a temporary file); None, or a message that names the file."""
    try:
        write(path)
        return None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
    rescued = Path(tempfile.mkdtemp(prefix="matgrad-")) / path.name
    write(rescued)
    return f"{path}: cannot be written ({reason}); it is in {rescued}"


def visible(text: object, kept: str = "") -> str:
    """The text with escapes, such as \\x1b and \\u202e, for what commands a terminal, turns text around or is not seen.

    Names from data, files and plugins are shown so: in terminals, messages, HTML, pictures and CSV files.
    """
    escaped = (c if c.isprintable() or c in kept else c.encode("unicode_escape").decode() for c in str(text))
    return "".join(escaped)


def as_html(text: object) -> str:
    """Text in a page: visible, and without markup."""
    return html.escape(visible(text, kept="\n\t"))


def csv_cell(text: str) -> str:
    """A name in a CSV file: visible, and with a ' before what a spreadsheet would take as a formula."""
    is_formula = text.lstrip().startswith(tuple("=+-@")) and re.fullmatch(r"[-+]?[\d.]+([eE][-+]?\d+)?", text) is None
    return f"'{visible(text)}" if is_formula else visible(text)


def columns(lines: Sequence[Sequence[str]], side: str = "<") -> str:
    """Lines of cells in columns, of which the first is aligned on the left, and the others on a side, < or >."""
    cells = [[*map(visible, line)] for line in lines]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    forms = [f"{side if k else '<'}{width}" for k, width in enumerate(widths)]
    return "\n".join("  ".join(map(format, line, forms)).rstrip() for line in cells)


@dataclass(frozen=True)
class Table:
    """A title, headings and rows, all strings; the first column has names, the others numbers."""

    title: str
    headings: list[str]
    rows: list[list[str]]

    def text(self) -> str:
        """Aligned columns."""
        return f"{self.title}\n\n{columns([self.headings, *self.rows], '>')}"

    def markdown(self) -> str:
        """A heading and a table."""
        rule = ["---", *["---:"] * (len(self.headings) - 1)]
        lines = [f"| {' | '.join(map(visible, line))} |" for line in (self.headings, rule, *self.rows)]
        return "\n".join([f"### {self.title}", "", *lines])
