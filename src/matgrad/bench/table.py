"""One table, as plain text for a terminal and as Markdown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Record = dict[str, Any]


@dataclass(frozen=True)
class Table:
    """A title, the headings and the rows, all text; the first column is a name and the others are numbers."""

    title: str
    headings: list[str]
    rows: list[list[str]]

    def text(self) -> str:
        """Aligned columns."""
        lines = [self.headings, *self.rows]
        widths = [max(len(line[k]) for line in lines) for k in range(len(self.headings))]
        aligned = (
            "  ".join([f"{line[0]:<{widths[0]}}", *(f"{x:>{w}}" for x, w in zip(line[1:], widths[1:], strict=True))])
            for line in lines
        )
        return "\n".join([self.title, "", *(line.rstrip() for line in aligned)])

    def markdown(self) -> str:
        """A heading and a table."""
        rule = ["---", *["---:"] * (len(self.headings) - 1)]
        lines = ["| " + " | ".join(line) + " |" for line in (self.headings, rule, *self.rows)]
        return "\n".join([f"### {self.title}", "", *lines])
