"""Functions and comparisons of numbers, entry by entry, by the names of PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from matgrad.index_notation.conditions import positive
from matgrad.index_notation.expressions import Expression, as_expression, delta
from matgrad.index_notation.functions import cos, erf, exact, exp, log, sin, sqrt, tanh
from matgrad.writers.slots import broadcast, keys
from matgrad.writers.tensors import Tensor, greatest, lift

HALF = Fraction(1, 2)


# -- functions of numbers ------------------------------------------------------------------------


def sign(e: Expression) -> Expression:
    """[e > 0] - [-e > 0]"""
    return positive(e) - positive(-e)


def sigmoid(e: Expression) -> Expression:
    """1 / (1 + e^-x)"""
    return 1 / (1 + exp(-e))


def softplus(e: Expression) -> Expression:
    """log(1 + e^x)"""
    return log(1 + exp(e))


def clipped(e: Expression, low: Any, high: Any) -> Expression:
    """The number between two others that is the nearest."""
    e = e if low is None else greatest(e, low)
    return e if high is None else -greatest(-e, -high)


FUNCTIONS: dict[str, Callable[[Expression], Expression]] = {
    "exp": exp,
    "log": log,
    "erf": erf,
    "sin": sin,
    "cos": cos,
    "tanh": tanh,
    "sqrt": sqrt,
    "sigmoid": sigmoid,
    "abs": lambda e: e * sign(e),
    "sign": sign,
    "neg": lambda e: -e,
    "square": lambda e: e * e,
    "rsqrt": lambda e: e**-HALF,
    "reciprocal": lambda e: 1 / e,
    "expm1": lambda e: exp(e) - 1,
    "log1p": lambda e: log(1 + e),
    "log2": lambda e: log(e) / log(as_expression(2)),
    "exp2": lambda e: exp(e * log(as_expression(2))),
    "erfc": lambda e: 1 - erf(e),
    "sinh": lambda e: (exp(e) - exp(-e)) / 2,
    "cosh": lambda e: (exp(e) + exp(-e)) / 2,
    "relu": lambda e: e * positive(e),
    "relu6": lambda e: clipped(e, as_expression(0), as_expression(6)),
    "silu": lambda e: e * sigmoid(e),
    "mish": lambda e: e * tanh(softplus(e)),
    "softsign": lambda e: e / (1 + e * sign(e)),
    "logsigmoid": lambda e: -softplus(-e),
    "hardsigmoid": lambda e: clipped(e / 6 + HALF, as_expression(0), as_expression(1)),
    "hardswish": lambda e: e * clipped(e / 6 + HALF, as_expression(0), as_expression(1)),
    "logical_not": lambda e: 1 - e,
}


def elementwise(f: Callable[[Expression], Expression]) -> Callable[..., Tensor]:
    """f, entry by entry."""
    return lambda x: lift(x).map(f)


def by_sign(x: Any, f: Callable[..., Expression], *others: Any) -> Tensor:
    """f(x, [x > 0], …), entry by entry"""
    return lift(x).map(lambda e, *more: f(e, positive(e), *more), *others)


def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """x·Φ(x), or its approximation by tanh"""
    if approximate == "none":
        return x.map(lambda e: e * (1 + erf(e / sqrt(as_expression(2)))) / 2)
    c = exact(math.sqrt(2 / math.pi))
    return x.map(lambda e: e * (1 + tanh(c * (e + exact(0.044715) * e * e * e))) / 2)


def clamp(x: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """Between two numbers."""
    if lift(x).is_index and max is None and min == 0:
        return lift(x)
    x = lift(x) if min is None else lift(x).map(greatest, min)
    return x if max is None else -(-x).map(greatest, -lift(max))


# -- conditions ----------------------------------------------------------------------------------


def compared(f: Callable[[Expression], Expression]) -> Callable[[Any, Any], Tensor]:
    """Whether x - y is what f says."""
    return lambda x, y: lift(x).map(lambda a, b: f(a - b), y, is_bool=True)


def equal(x: Any, y: Any) -> Tensor:
    """x = y, which of labels and positions is [i = j]"""
    a, b = lift(x), lift(y)
    if not (a.is_index and b.is_index and a.data[()].size == b.data[()].size):
        return compared(lambda e: 1 - not_zero(e))(a, b)
    dims = broadcast(a.dims, b.dims)
    return Tensor(dims, dict.fromkeys(keys(dims), delta(a.data[()], b.data[()])), is_bool=True)


def not_zero(e: Expression) -> Expression:
    """[e > 0] + [-e > 0]"""
    return positive(e) + positive(-e)


COMPARISONS: dict[str, Callable[[Any, Any], Tensor]] = {
    "gt": compared(positive),
    "lt": compared(lambda e: positive(-e)),
    "ge": compared(lambda e: 1 - positive(-e)),
    "le": compared(lambda e: 1 - positive(e)),
    "eq": equal,
    "ne": lambda x, y: equal(x, y).map(lambda e: 1 - e, is_bool=True),
}
