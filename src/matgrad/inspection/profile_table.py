"""A profile as a table for people, with a bar for every row."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from matgrad.inspection.profiling import Row

BLOCKS = " ▏▎▍▌▋▊▉█"  # 0 to 8 eighths
SHORTEST, WIDTH = 10, 120  # the shortest bar, and the width of a table outside a terminal


class Column(NamedTuple):
    """A heading, the text of a row under it, and a rank: the highest ranks are left out first if space is short."""

    heading: str
    text: Callable[[Row], str]
    rank: int

    def width(self, rows: list[Row]) -> int:
        """The width, including the space before it."""
        return 2 + max(len(self.heading), *(len(self.text(row)) for row in rows))


def _rate(amount: int | None, seconds: float) -> str:
    """The amount per second, in units of 10⁹."""
    return "" if amount is None or not seconds else f"{amount / seconds / 1e9:.1f}"


COLUMNS = (
    Column("seconds", lambda row: f"{row.seconds:.4f}" if row.seconds else "–", 0),
    Column("share", lambda row: f"{100 * row.share:.1f} %", 0),
    Column("calls", lambda row: f"{row.calls}", 1),
    Column("FLOP", lambda row: quantity(row.flops), 3),
    Column("GFLOP/s", lambda row: _rate(row.flops, row.seconds), 2),
    Column("bytes", lambda row: quantity(row.bytes), 3),
    Column("GB/s", lambda row: _rate(row.bytes, row.seconds), 2),
)


def table(rows: list[Row], width: int | None = None) -> list[tuple[str, str]]:
    """The lines of the table, each as a text and a bar; the default width is that of the terminal."""
    if not rows:
        return []
    width = shutil.get_terminal_size((WIDTH, 24)).columns if width is None else width
    names = max(len(row.name) for row in rows)
    columns = list(COLUMNS)
    while names + sum(c.width(rows) for c in columns) + 2 + SHORTEST > width and any(c.rank for c in columns):
        last = max(c.rank for c in columns)
        columns = [c for c in columns if c.rank < last]
    widths = [c.width(rows) for c in columns]
    room = max(width - names - sum(widths) - 2, SHORTEST)
    largest = max(row.share for row in rows)
    headings = "".join(f"{c.heading:>{n}}" for c, n in zip(columns, widths, strict=True))
    lines = [(f"{'':<{names}}{headings}", "")]
    for row in rows:
        values = "".join(f"{c.text(row):>{n}}" for c, n in zip(columns, widths, strict=True))
        shown = bar(row.share / largest, room)
        lines.append((f"{row.name:<{names}}{values}", f"  {shown}" if shown else ""))
    return lines


def bar(fraction: float, width: int) -> str:
    """A bar that fills a fraction of the width, to an eighth of a character."""
    whole, eighths = divmod(round(8 * fraction * width), 8)
    return (BLOCKS[8] * whole + BLOCKS[eighths]).rstrip()


def quantity(x: float | None) -> str:
    """A number with three digits, such as ``40.3 M``."""
    if x is None:
        return ""
    for prefix in ("", " k", " M", " G", " T"):
        if x < 999.5:
            return f"{x:.3g}{prefix}"
        x /= 1000
    return f"{x:.3g} P"
