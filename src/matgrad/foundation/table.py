"""A table, in plain text for a terminal and in Markdown."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """A title, headings and rows, all strings; the first column has names, the others numbers."""

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
