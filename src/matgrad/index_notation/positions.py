"""Positions: the numbers 0, 1, …, N - 1 that an index stands for, as factors."""

from __future__ import annotations

from fractions import Fraction

from matgrad.index_notation.expressions import ZERO, Entry, Expression, Factor, as_expression, delta, of, size, total
from matgrad.index_notation.indices import Colors, Index, Indices, Last, Reversed, apart, color, shifted, unshifted


class Position(Factor):
    """i - 1, for an index i that runs over 1, …, N."""

    is_analytic = False

    def __init__(self, i: Index) -> None:
        self.index, self.free, self.key = i, i.free, f"#{i.name}:{i.size}"

    def shape(self, colors: Colors) -> str:
        """The position with a color."""
        return f"#{color(self.index, colors)}"

    def substituted(self, indices: Indices) -> Expression:
        """The position of another index."""
        return position(self.index.at(indices))

    def derivative(self, variable: Factor) -> Expression:
        """0"""
        return ZERO


def position(i: Index) -> Expression:
    """0, 1, …, N - 1; that of N + 1 - i is N - i, and that of i + d is d more, or d - N more after the last one."""
    inner, d = unshifted(i)
    if d:
        apart(i.size, d)
        ends = (shifted(Last(i.size), -r if d > 0 else 1 + r) for r in range(abs(d)))
        around = total(delta(inner, end) for end in ends) * size(i.size)
        return position(inner) + d - (around if d > 0 else -around)
    if isinstance(i, Last):
        return size(i.size) - 1
    return size(i.size) - 1 - position(i.inner) if isinstance(i, Reversed) else of(Position(i))


def least(e: Expression) -> Fraction | None:
    """A number that e is not below, if it is a sum of multiples of positions and of products of sizes."""
    low = []
    for m, c in e.terms.items():
        match m:
            case ((Position() as f, 1),):
                low.append(as_expression(0) if c > 0 else (size(f.index.size) - 1).scaled(c))
            case _ if all(isinstance(f, Entry) and f.is_unit and p > 0 for f, p in m):
                low.append(Expression({m: c}))
            case _:
                return None
    terms = total(low).terms
    return sum(terms.values(), Fraction(0)) if all(c > 0 for m, c in terms.items() if m) else None
