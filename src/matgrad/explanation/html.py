"""Formulas as MathML, and matrices as heat maps with their values, for a light or dark page without a script."""

from __future__ import annotations

import math
import re
import struct
import zlib
from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, lru_cache
from html import unescape
from typing import Any, Literal
from xml.etree.ElementTree import tostring

import numpy as np

from matgrad.backends import backend_of
from matgrad.explanation.text import summary
from matgrad.foundation.writing import as_html
from matgrad.sparse.matrix import values_of, with_values
from matgrad.sparse.support import Support


@lru_cache(maxsize=4096)
def mathml(latex: str, display: Literal["inline", "block"] = "inline") -> str:
    """The LaTeX of an equation, as this package writes it, as a MathML element ``<math>``."""
    from latex2mathml.converter import convert_to_element

    latex = latex.replace("{aligned}", "{split}")
    latex = re.sub(r"\\(?:operatorname|mathrm)\{((?:[^{}\\]|\\[ _&%#$])+)\}", _word, latex)
    root = convert_to_element(latex, display=display)
    for element in root.iter():
        element.text = unescape(element.text or "")  # it has entities for symbols; what is left is escaped below
        if (element.tag, element.text) == ("mi", "′"):
            element.tag = "mo"
        if align := element.attrib.pop("columnalign", ""):
            element.set("style", f"text-align: {align}")  # MathML Core leaves alignment to CSS
    return tostring(root, encoding="unicode")


def _word(found: re.Match[str]) -> str:
    """A word as one piece of upright text: a hyphen in it is no minus sign."""
    word = re.sub(r"\\([ _])", r"\1", found[1])
    return rf"\text{{{word}}}"


POSITIVE, NEGATIVE = (240, 128, 30), (37, 124, 235)  # orange and blue, safe for colour blindness
STRONGEST = 0.7  # the opacity of the color of the largest element
MOST_ROWS, MOST_COLUMNS = 8, 10  # of a matrix that is shown in full
PICTURE = 96  # the most blocks of a picture in a row or column

MUTED = "opacity:.65"
PLAIN = "border:none;background:none"  # against the style sheets of notebooks
LINE = "1px solid rgba(128,128,128,.4)"


def table_html(head: Sequence[str], rows: Iterable[Sequence[str]], styles: Sequence[str], top: str) -> str:
    """A table of cells that are HTML, with a style for each column, and one for the head, which may be empty.

    A row of a single cell spans all columns.
    """
    lines = ["".join(f'<th scope="col" style="{top}">{x}</th>' for x in head)] if head else []
    for row in rows:
        span = f' colspan="{len(styles)}"' if len(row) < len(styles) else ""
        lines.append("".join(f'<td{span} style="{style}">{x}</td>' for x, style in zip(row, styles, strict=False)))
    return _table(lines, "border-collapse:collapse;border:none;margin:6px 0")


def _table(lines: Iterable[str], style: str) -> str:
    body = "".join(f'<tr style="{PLAIN}">{line}</tr>' for line in lines)
    return f'<table style="{style};width:auto;font-variant-numeric:tabular-nums">{body}</table>'


def muted(text: str) -> str:
    """Small text that stands back."""
    return f'<span style="{MUTED};font-size:.85em">{as_html(text)}</span>'


CELL = f"{PLAIN};padding:1px 6px;text-align:right;white-space:nowrap"
INDEX = f"{CELL};font-weight:normal;font-size:.8em;opacity:.5"


def matrix_html(A: Any, symbol: str = "") -> str:
    """A as a heat map with its values, under its symbol, which is LaTeX, and its size.

    A large matrix is cut: it has its first and last rows and columns, with … between, and a summary of all elements.
    An element that a sparse matrix does not store is a dot. Rows and columns count from 1. A scalar is one number.
    """
    table = Entries(A)
    if not np.ndim(table.values):
        return mathml(f"{symbol} = {table.values:.6g}" if symbol else f"{table.values:.6g}")
    rows, columns = _shown(table.shape[0], MOST_ROWS), _shown(table.shape[1], MOST_COLUMNS)
    head = "".join(f'<th scope="col" style="{INDEX}">{"…" if j is None else j + 1}</th>' for j in columns)
    lines = [f'<td style="{CELL}"></td>{head}']
    gap = f'<td style="{CELL};text-align:center;opacity:.5">…</td>'
    for i in rows:
        cells = "".join(gap if i is None or j is None else table.cell(i, j) for j in columns)
        lines.append(f'<th scope="row" style="{INDEX}">{"…" if i is None else i + 1}</th>{cells}')
    content = _table(lines, "border-collapse:separate;border-spacing:1px;border:none;margin:0;font-size:.9em")
    return _figure(content, table, symbol, is_cut=None in rows or None in columns)


def picture_html(A: Any, symbol: str = "") -> str:
    """A as a small picture, one point for each element or block of elements, with a summary.

    A block has the color of its element that is farthest from 0.
    """
    table = Entries(A)
    if table.shape[0] <= MOST_ROWS and table.shape[1] <= MOST_COLUMNS:
        return matrix_html(A, symbol)
    blocks = table.blocks()
    height, width = blocks.shape
    zoom = max(1, min(8, 192 // max(height, width)))
    source = b64encode(_png(_colors(blocks / (table.largest or 1)))).decode()
    style = f"image-rendering:pixelated;border:{LINE};max-width:none;margin:2px 0;background:none"
    size = f'width="{width * zoom}" height="{height * zoom}"'
    alt = f'alt="heat map, {size_html(table.shape)}"'
    image = f'<img {size} style="{style}" {alt} src="data:image/png;base64,{source}"/>'
    return _figure(image, table, symbol, is_cut=True)


def size_html(shape: Iterable[Any]) -> str:
    """The sizes of a matrix: ``N × 5``."""
    return as_html(" × ".join(map(str, shape)))


class Entries:
    """The elements of a matrix of any backend, dense or sparse, as numbers of NumPy."""

    def __init__(self, A: Any) -> None:
        values = values_of(A)
        if not isinstance(values, np.ndarray | np.generic | float | int):
            values = backend_of(values).to_numpy(values)
        self.values = np.asarray(values)
        self.matrix = with_values(A, self.values)
        self.shape: tuple[int, int] = self.matrix.shape
        self.support: Support | None = getattr(self.matrix, "support", None)
        self.finite = self.values[np.isfinite(self.values)]
        self.largest = float(np.abs(self.finite).max(initial=0))

    @cached_property
    def format(self) -> Callable[[Any], str]:
        """How an element is written: integers without a point, others with three digits."""
        if np.array_equal(self.finite, np.round(self.finite)) and self.largest < 1e6:
            return "{:.0f}".format
        smallest = np.abs(self.finite[self.finite != 0]).min()
        digits = max(0, 2 - math.floor(math.log10(self.largest)))
        return (f"{{:.{digits}f}}" if digits <= 5 and smallest >= 10.0**-digits else "{:.3g}").format

    def cell(self, i: int, j: int) -> str:
        """An element as a cell of a table; a dot if it is not stored."""
        if self.support is not None:
            start, end = self.support.starts[i : i + 2]
            k = start + np.searchsorted(self.support.columns[start:end], j)
            if k == end or self.support.columns[k] != j:
                return f'<td style="{CELL};text-align:center;opacity:.35">·</td>'
        a = self.values[i, j] if self.support is None else self.values[0, k]
        if not np.isfinite(a):
            return f'<td style="{CELL};color:#e5484d;font-weight:bold">{a}</td>'
        if not a:
            return f'<td style="{CELL}">0</td>'
        rgb = ",".join(map(str, POSITIVE if a > 0 else NEGATIVE))
        color = f"rgba({rgb},{STRONGEST * abs(float(a) / self.largest):.2f})"
        return f'<td style="{CELL.replace("background:none", f"background:{color}")}">{self.format(a)}</td>'

    def blocks(self) -> np.ndarray:
        """The matrix with at most `PICTURE` rows and columns: the largest elements of blocks, nan where none is."""
        S, shape = self.support, tuple(min(n, PICTURE) for n in self.shape)
        places = np.indices(self.shape).reshape(2, -1) if S is None else (S.row_indices(), S.columns)
        at = tuple(i.astype(np.int64) * k // n for i, k, n in zip(places, shape, self.shape, strict=True))
        high, low = np.full(shape, -np.inf), np.full(shape, np.inf)
        np.maximum.at(high, at, self.values.reshape(-1))
        np.minimum.at(low, at, self.values.reshape(-1))
        return np.where(low > high, np.nan, np.where(high >= -low, high, low))


def _figure(content: str, table: Entries, symbol: str, *, is_cut: bool) -> str:
    """A matrix under its symbol and size; one that is cut with a summary below."""
    name = f"{mathml(symbol)} " if symbol else ""
    caption = f'<div style="margin:0 0 2px">{name}<span style="{MUTED}">{size_html(table.shape)}</span></div>'
    width = "width:0;min-width:max(100%,12em)"  # that of the matrix, unless it is narrow
    below = f'<div style="{MUTED};font-size:.85em;{width}">{as_html(summary(table.matrix))}</div>' if is_cut else ""
    return (
        '<div style="display:inline-block;vertical-align:top;margin:4px 20px 8px 0;text-align:left;max-width:100%;'
        f'overflow-x:auto">{caption}{content}{below}</div>'
    )


def _shown(size: int, most: int) -> list[int | None]:
    """The indices of the rows or columns that are shown, with None for those between that are not."""
    if size <= most:
        return list(range(size))
    last = most // 3
    return [*range(most - last - 1), None, *range(size - last, size)]


def _colors(A: np.ndarray) -> np.ndarray:
    """The colors of numbers from -1 to 1, as bytes for red, green, blue and opacity; nan is transparent."""
    result = np.zeros((*A.shape, 4), np.uint8)
    result[..., :3] = np.where((A > 0)[..., None], POSITIVE, NEGATIVE)
    result[..., 3] = np.round(255 * np.minimum(np.nan_to_num(np.abs(A), posinf=1), 1))
    return result


def _png(pixels: np.ndarray) -> bytes:
    """An m×n×4 array of bytes as a file."""
    height, width, _ = pixels.shape
    lines = b"".join(b"\0" + line.tobytes() for line in pixels)
    chunks = {b"IHDR": struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0), b"IDAT": zlib.compress(lines, 9)}
    result = b"\x89PNG\r\n\x1a\n"
    for name, content in {**chunks, b"IEND": b""}.items():
        result += struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
    return result
