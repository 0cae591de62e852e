"""Equality of symbolic matrices, tested at random points.

Both sides are evaluated at random rational points, near 0 and far from it, with 60 digits, and must agree to 30
digits; if a floating-point number is left in them, to 11.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import mpmath
import sympy as sp

from matgrad.backends.sympy_backend import SympyMatrix
from matgrad.foundation.numbers import recognized
from matgrad.index_notation.functions import FLOATS, irrationals
from matgrad.judges.algebra import shape_problem

DIGITS, MORE_DIGITS = 60, 1000  # the latter where the former give 1/0, such as for 1 / (1 - tanh(500))
TOLERANCE, FLOAT_TOLERANCE = mpmath.mpf(10) ** -30, mpmath.mpf(10) ** -11  # relative to numbers above 1
MAGNITUDES = (2, 2, 2, 30, 500)  # of the random points


def compare(found: Any, expected: sp.Matrix) -> str:
    """What is wrong with a matrix as a function of its symbols, '' if nothing is; the end of a sentence about it."""
    if problem := problem_of(found, expected):
        return f"is wrong: {problem}"
    unknown = [i for i, (a, b) in enumerate(zip(found, expected, strict=True)) if a - b != 0]
    try:
        wrong = _first_difference([(found[i], expected[i]) for i in unknown])
    except ArithmeticError as error:
        return f"is wrong: {error}"
    if wrong is None:
        return ""
    row, column = divmod(unknown[wrong], found.shape[1])
    entries = f"\n  found     {found[row, column]}\n  expected  {expected[row, column]}"
    return f"is wrong at row {row + 1}, column {column + 1}:{entries}"


def problem_of(found: Any, expected: sp.Matrix) -> str:
    """Why they cannot be equal, whatever the symbols stand for; '' if they can."""
    if problem := shape_problem(found, expected, sp.MatrixBase, "of symbols"):
        return problem
    for i, x in enumerate(found):
        if not isinstance(x, sp.Expr) or x.has(sp.zoo, sp.nan, sp.oo, -sp.oo):
            row, column = divmod(i, found.shape[1])
            return f"found {x} at row {row + 1}, column {column + 1}, expected a finite number"
    return ""


def _first_difference(pairs: Sequence[tuple[sp.Expr, sp.Expr]]) -> int | None:
    """The index of the first pair that differs at one of a few random points."""
    if not pairs:
        return None
    expressions = [e for pair in pairs for e in pair]
    symbols = sorted(set().union(*(e.free_symbols for e in expressions)), key=str)
    f = evaluated(symbols, expressions)
    tolerance = FLOAT_TOLERANCE if any(e.has(sp.Float) for e in expressions) else TOLERANCE
    rng = random.Random(0)
    for k, magnitude in enumerate(MAGNITUDES if symbols else MAGNITUDES[:1]):
        values = _values(f, random_point(symbols, rng, above_one=k % 2 == 1, magnitude=magnitude))
        if values is None and magnitude == MAGNITUDES[0]:
            raise ArithmeticError("it cannot be evaluated at random points")
        for i, (a, b) in enumerate(zip(values[::2], values[1::2], strict=True) if values else ()):
            if not abs(a - b) <= tolerance * max(1, abs(a), abs(b)):  # also if it is nan
                return i
    return None


def evaluated(symbols: Sequence[sp.Symbol], expressions: Sequence[sp.Expr]) -> Callable[..., list]:
    """The expressions as a function of the symbols in them, with the digits of mpmath."""
    functions = {"Max": max, "Heaviside": lambda x, at_zero=0.5: at_zero if x == 0 else int(x > 0)}
    return sp.lambdify(symbols, expressions, modules=[functions, "mpmath"], cse=True)


def _values(f: Callable[..., list], point: list[mpmath.mpf]) -> list | None:
    """f at a point, with more digits if need be; None if there is no value."""
    for digits in (DIGITS, MORE_DIGITS):
        with mpmath.workdps(digits):
            try:
                return f(*point)
            except (ArithmeticError, ValueError, TypeError):  # such as 1/0, or an order of complex numbers
                continue
    return None


def random_point(
    symbols: Iterable[sp.Symbol], rng: random.Random, *, above_one: bool = False, magnitude: int = 2
) -> list[mpmath.mpf]:
    """A random rational number for each symbol: up to ± `magnitude`, or on one side of 1 if the symbol is positive.

    A function with slope α differs for α below and above 1, and must be tested on both sides.
    """

    def number(symbol: sp.Symbol) -> mpmath.mpf:
        wide = 1000 * magnitude
        low, high = ((1001, 2000) if above_one else (125, 998)) if symbol.is_positive else (-wide, wide)
        return mpmath.mpf(rng.randint(low, high) or 1) / 1000 + mpmath.mpf(rng.randint(1, 997)) / 1000003

    return [number(symbol) for symbol in symbols]


def symbols(name: str, rows: int, columns: int, *, positive: bool | None = None) -> sp.Matrix:
    """Matrix of real symbols name_11, name_12, …"""
    return SympyMatrix(rows, columns, lambda i, j: sp.Symbol(f"{name}_{i + 1}{j + 1}", real=True, positive=positive))


def exact(value: Any) -> Any:
    """A matrix or expression with exact numbers for those of its floating-point numbers that stand for one."""
    floats = value.atoms(sp.Float) if isinstance(value, sp.MatrixBase | sp.Basic) else ()
    return value.xreplace({x: exact_number(float(x)) for x in floats}) if floats else value


def exact_number(x: float) -> sp.Expr:
    """The number that x stands for, up to rounding: see `recognized`.

    Any other number is left as it is, and what has it is compared only as precisely as floating-point numbers are.
    """
    found = recognized(x, zip(irrationals(sp.sqrt, sp.pi, sp.E, sp.log(2)), FLOATS, strict=True))
    if found is None:
        return sp.Float(x)
    factor, irrational = found
    return sp.Rational(factor.numerator, factor.denominator) * (1 if irrational is None else irrational)
