"""Values as Python expressions over the table of operations."""

from __future__ import annotations

from typing import Any

from matgrad.program.program import Value
from matgrad.program.shapes import TIMES, Size
from matgrad.program.text import Piece, Printer


class CodePrinter(Printer):
    """Writes values as Python expressions; those in `names` as names. New matrices are made like `like`."""

    style = "code"

    def __init__(self, names: dict[Value, str], like: str) -> None:
        self.names, self.like = names, like

    def number(self, x: Any) -> Piece:
        """A number or a size, and how tightly it binds."""
        if isinstance(x, Size):
            return self.size(x.name), "product" if TIMES in x.name else "atom"
        return repr(x), "atom" if x >= 0 else "unary"

    def size(self, n: Any) -> str:
        """A size, or a product of sizes."""
        return str(n).replace(TIMES, " * ")

    def expression(self, value: Value) -> Piece:
        """The expression that gives a value, and how tightly it binds."""
        return (value.name, "atom") if value.operation == "input" else super().expression(value)
