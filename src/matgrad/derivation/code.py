"""Terms as Python code over the table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from matgrad.derivation.terms import Term
from matgrad.program.shapes import size_name

SUM, PRODUCT, UNARY, POWER, ATOM = range(5)  # how tightly an expression binds
Piece = tuple[str, int]


def code(term: Term, names: Mapping[Term, str] | None = None, like: str = "X") -> str:
    """The expression of a term; those in `names` are written as names, and new matrices are made like `like`."""
    return CodePrinter(names or {}, like).piece(term)[0]


class CodePrinter:
    """Writes terms as Python expressions."""

    def __init__(self, names: Mapping[Term, str], like: str) -> None:
        self.names, self.like = names, like

    def operand(self, term: Term, level: int) -> str:
        """The code of an operand, in parentheses if it binds less tightly than `level`."""
        text, binds = self.piece(term)
        return text if binds >= level else f"({text})"

    def piece(self, term: Term, *, defined: bool = False) -> Piece:
        """The code of a term, and how tightly it binds; if it is `defined` here, its own name is not used."""
        if term in self.names and not defined:
            return self.names[term], ATOM
        if term.operation in _WRITTEN:
            return _WRITTEN[term.operation](self, term, *term.operands)
        name = term.label if term.operation == "call" else term.operation
        operands = [self.operand(x, SUM) for x in term.operands]
        return f"{name}({', '.join(operands)})", ATOM

    def repeat(self, term: Term, x: Term) -> Piece:
        """row_repeat(x, m) or column_repeat(x, n)"""
        n = term.shape[0 if term.operation == "row_repeat" else 1]
        return f"{term.operation}({self.operand(x, SUM)}, {size_name(n)})", ATOM

    def full(self, term: Term, c: Term) -> Piece:
        """c * ones(m, n)"""
        m, n = map(size_name, term.shape)
        if c.operation == "number" and c.label == 0:
            return f"zeros({m}, {n}, like={self.like})", ATOM
        ones = f"ones({m}, {n}, like={self.like})"
        is_one = c.operation == "number" and c.label == 1
        return (ones, ATOM) if is_one else (f"{self.operand(c, UNARY)} * {ones}", PRODUCT)

    def inv_sqrt(self, term: Term, X: Term, epsilon: Term) -> Piece:
        """inv_sqrt(X, epsilon), without an epsilon of 0"""
        is_zero = epsilon.operation == "number" and epsilon.label == 0
        return f"inv_sqrt({self.operand(X, SUM)}{'' if is_zero else f', {self.operand(epsilon, SUM)}'})", ATOM

    def power(self, term: Term, X: Term, p: Term) -> Piece:
        """X**p, which the table writes with `apply` for matrices"""
        exponent = self.operand(p, ATOM if p.operation == "number" and p.label >= 0 else SUM)
        if term.shape == ():
            return f"{self.operand(X, ATOM)}**{exponent}", POWER
        return f"apply(lambda x: x**{exponent}, {self.operand(X, SUM)})", ATOM

    def infix(self, symbol: str, binds: int, right: int) -> Callable[..., Piece]:
        """An operator between two operands, of which the right one has to bind as tightly as `right`."""
        return lambda A, B: (f"{self.operand(A, binds)} {symbol} {self.operand(B, right)}", binds)


def number_text(x: Any) -> Piece:
    """A number, which binds like a sign if it is negative."""
    if isinstance(x, Fraction):
        x = x.numerator if x.denominator == 1 else float(x)
    return repr(x), ATOM if x >= 0 else UNARY


def _hadamard(p: CodePrinter, term: Term, A: Term, B: Term) -> Piece:
    if term.shape == ():
        return p.infix("*", PRODUCT, UNARY)(A, B)
    return f"hadamard({p.operand(A, SUM)}, {p.operand(B, SUM)})", ATOM


_WRITTEN: dict[str, Callable[..., Piece]] = {
    "input": lambda p, t: (t.label, ATOM),
    "size": lambda p, t: (t.label, ATOM),
    "number": lambda p, t: number_text(t.label),
    "transpose": lambda p, t, X: (f"{p.operand(X, ATOM)}.T", ATOM),
    "row_repeat": CodePrinter.repeat,
    "column_repeat": CodePrinter.repeat,
    "full": CodePrinter.full,
    "add": lambda p, t, A, B: p.infix("+", SUM, SUM if B.operation != "subtract" else PRODUCT)(A, B),
    "subtract": lambda p, t, A, B: p.infix("-", SUM, PRODUCT)(A, B),
    "hadamard": _hadamard,
    "negative": lambda p, t, X: (f"-{p.operand(X, UNARY)}", UNARY),
    "copy": lambda p, t, X: p.piece(X),
    "scale": lambda p, t, c, X: p.infix("*", PRODUCT, UNARY)(c, X),
    "divide": lambda p, t, X, c: p.infix("/", PRODUCT, UNARY)(X, c),
    "reciprocal": lambda p, t, X: (
        (f"1 / {p.operand(X, UNARY)}", PRODUCT) if t.shape == () else (f"reciprocal({p.operand(X, SUM)})", ATOM)
    ),
    "power": CodePrinter.power,
    "inv_sqrt": CodePrinter.inv_sqrt,
    "matmul": lambda p, t, A, B: p.infix("@", PRODUCT, UNARY)(A, B),
    "identity": lambda p, t: (f"identity({size_name(t.shape[0])}, like={p.like})", ATOM),
}
