"""Equality of symbolic matrices: proved by algebra if that is fast, otherwise tested at random points.

The difference is evaluated at random rational points with 50 digits, and must vanish to 30 digits. If it
does, algebra is tried as well: with exponentials and roots as indeterminates, the difference is a quotient
of polynomials, which is zero or not. Only a difference that is too large for this remains unproved.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import mpmath
import sympy as sp

DIGITS = 50
TOLERANCE = mpmath.mpf(10) ** -30
POINTS = 4
LARGE = 100  # the number of operations in a difference above which algebra is not tried


@dataclass(frozen=True)
class Comparison:
    """Whether two matrices are equal, how that was found, and the first elements that differ."""

    ok: bool
    method: str  # 'algebra' or 'points'
    row: int = 0  # of those elements; rows and columns count from 0
    column: int = 0
    found: sp.Expr = sp.S.Zero
    expected: sp.Expr = sp.S.Zero
    problem: str = ""  # why they cannot be compared at all

    def __str__(self) -> str:
        """The end of a sentence that begins with the name of what was compared."""
        if self.ok:
            return "is right"
        if self.problem:
            return f"is wrong: {self.problem}"
        position = f"row {self.row}, column {self.column}"
        return f"is wrong at {position}:\n  found     {self.found}\n  expected  {self.expected}"


def compare(found: sp.Matrix, expected: sp.Matrix, seed: int = 0) -> Comparison:
    """Whether two matrices are equal as functions of the symbols in them."""
    if not isinstance(found, sp.MatrixBase):
        return Comparison(False, "algebra", problem=f"found {found!r}, expected a matrix")
    if found.shape != expected.shape:
        sizes = (" × ".join(map(str, A.shape)) for A in (found, expected))
        return Comparison(False, "algebra", problem="found a matrix of size {}, expected {}".format(*sizes))
    differences = [a - b for a, b in zip(found, expected, strict=True)]
    unknown = [i for i, d in enumerate(differences) if d != 0]
    wrong = _first_nonzero([differences[i] for i in unknown], seed)
    if wrong is None:
        return Comparison(True, "algebra" if all(_is_zero(differences[i]) for i in unknown) else "points")
    row, column = divmod(unknown[wrong], found.shape[1])
    return Comparison(False, "points", row, column, found[row, column], expected[row, column])


def _is_zero(difference: sp.Expr) -> bool:
    """Whether algebra quickly proves that the difference is zero."""
    if sp.count_ops(difference) > LARGE or difference.has(sp.Piecewise, sp.Max, sp.Heaviside, sp.erf):
        return False
    return sp.cancel(sp.together(difference.rewrite(sp.exp))) == 0


def _first_nonzero(expressions: Sequence[sp.Expr], seed: int) -> int | None:
    """The index of the first expression that is not zero at one of a few random points."""
    if not expressions:
        return None
    for i, expression in enumerate(expressions):
        if expression.has(sp.zoo, sp.nan, sp.oo, -sp.oo):
            return i
    symbols = sorted(set().union(*(e.free_symbols for e in expressions)), key=str)
    functions = {"Max": max, "Heaviside": lambda x, at_zero=0.5: at_zero if x == 0 else int(x > 0)}
    f = sp.lambdify(symbols, list(expressions), modules=[functions, "mpmath"], cse=True)
    rng = random.Random(seed)
    with mpmath.workdps(DIGITS):
        for k in range(POINTS):
            values = f(*random_point(symbols, rng, above_one=k % 2 == 1))
            for i, value in enumerate(values):
                if not abs(value) < TOLERANCE:  # also if it is nan
                    return i
    return None


def random_point(symbols: Iterable[sp.Symbol], rng: random.Random, *, above_one: bool = False) -> list[mpmath.mpf]:
    """A random rational number for each symbol: between -2 and 2, or on one side of 1 if the symbol is positive.

    A function with slope α differs for α below and above 1, and must be tested on both sides.
    """

    def number(symbol: sp.Symbol) -> mpmath.mpf:
        low, high = ((1001, 2000) if above_one else (125, 998)) if symbol.is_positive else (-2000, 2000)
        return mpmath.mpf(rng.randint(low, high) or 1) / 1000 + mpmath.mpf(rng.randint(1, 997)) / 1000003

    return [number(symbol) for symbol in symbols]


def symbols(name: str, rows: int, columns: int, *, positive: bool | None = None) -> sp.Matrix:
    """Matrix of real symbols name_11, name_12, …"""
    return sp.Matrix(rows, columns, lambda i, j: sp.Symbol(f"{name}_{i + 1}{j + 1}", real=True, positive=positive))
