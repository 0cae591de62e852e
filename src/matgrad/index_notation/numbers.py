"""The exact numbers that floating-point numbers stand for."""

from __future__ import annotations

import math
from fractions import Fraction

from matgrad.foundation.numbers import recognized
from matgrad.index_notation.expressions import ONE, Expression, as_expression
from matgrad.index_notation.functions import exp, log, sqrt
from matgrad.index_notation.powers import PI

_TWO, _THREE = as_expression(2), as_expression(3)
IRRATIONALS = (
    (sqrt(_TWO), math.sqrt(2)),
    (sqrt(_THREE), math.sqrt(3)),
    (PI, math.pi),
    (1 / PI, 1 / math.pi),
    (sqrt(PI), math.sqrt(math.pi)),
    (1 / sqrt(PI), 1 / math.sqrt(math.pi)),
    (sqrt(_TWO * PI), math.sqrt(2 * math.pi)),
    (1 / sqrt(_TWO * PI), 1 / math.sqrt(2 * math.pi)),
    (sqrt(_TWO / PI), math.sqrt(2 / math.pi)),
    (exp(ONE), math.e),
    (log(_TWO), math.log(2)),
    (1 / log(_TWO), 1 / math.log(2)),
)


def exact(x: float) -> Expression:
    """The number that x stands for, up to rounding, such as 1/3, 3/10 or √2/2; any other is the binary fraction x."""
    if isinstance(x, int):
        return as_expression(x)
    if not math.isfinite(x):
        raise ArithmeticError(f"expected a finite number, found {x}")
    factor, irrational = recognized(x, IRRATIONALS) or (Fraction(x), None)
    return (ONE if irrational is None else irrational) * factor
