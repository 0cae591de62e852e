"""The numbers that expressions stand for, for all values of some indices at once, in NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from matgrad.index_notation.conditions import Flag, Order, Step
from matgrad.index_notation.expressions import Condition, Delta, Entry, Expression, Factor, Monomial
from matgrad.index_notation.functions import INFINITE, Applied, Maximum
from matgrad.index_notation.indices import Index, Label, Last, Reversed, Shifted
from matgrad.index_notation.positions import Position
from matgrad.index_notation.powers import Base, Constant
from matgrad.index_notation.sums import Sum

Array = np.ndarray[Any, Any]
FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "erf": lambda x: np.vectorize(math.erf, [float])(real(x)),
    "exp": np.exp,
    "log": np.emath.log,
    "sin": np.sin,
    "cos": np.cos,
}
CONSTANTS = {"π": math.pi, INFINITE.name: 1e30}
ROUNDING = 1e-12  # a maximum and what it is the maximum of are equal


def evaluate(e: Expression, axes: Sequence[Index], values: Mapping[str, Array], sizes: Mapping[str, int]) -> Array:
    """An array with these axes, of size 1 where e does not depend on one, by the arrays and sizes of given names.

    Labels are arrays of integers from 0.
    """
    return real(Values(values, sizes).expression(e, axes))


def real(x: Array) -> Array:
    """Complex numbers that are real; others are undefined: roots and logarithms of what is negative have to cancel."""
    return np.where(np.abs(x.imag) <= ROUNDING * (1 + np.abs(x)), x.real, np.nan) if np.iscomplexobj(x) else x


Axes = Sequence[Index]


class Values:
    """Arrays of expressions along axes; those of factors are computed once, along their own indices."""

    def __init__(self, values: Mapping[str, Array], sizes: Mapping[str, int]) -> None:
        self.values, self.sizes = values, sizes
        self.known: dict[str, Array] = {}  # by the keys of factors

    def expression(self, e: Expression, axes: Axes) -> Array:
        """The sum of products of powers."""
        return np.asarray(sum((self.term(m, c, axes) for m, c in e.terms.items()), np.zeros([1] * len(axes))))

    def term(self, m: Monomial, c: Fraction, axes: Axes) -> Array:
        """c·m, which is 0 where a condition does not hold; the rest may be undefined there."""
        holds, term = np.full([1] * len(axes), float(c)), np.ones([1] * len(axes))
        for f, p in m:
            if isinstance(f, Condition):
                holds = holds * self.factor(f, axes)
            else:
                term = term * self.power(f, p, axes)
        return np.where(holds == 0, 0, holds * term)

    def power(self, f: Factor, p: Fraction, axes: Axes) -> Array:
        """f^p"""
        x = self.factor(f, axes)
        return np.asarray(x ** int(p) if p.denominator == 1 else np.emath.power(x, float(p)))

    def factor(self, f: Factor, axes: Axes) -> Array:
        """The array of a factor, among which indices are its own."""
        own = sorted(f.free, key=axes.index)
        if f.key not in self.known:
            named = sorted(f.free)
            self.known[f.key] = np.broadcast_to(self.alone(f, named), [self.sizes[i.size] for i in named])
        x = self.known[f.key].transpose([sorted(f.free).index(i) for i in own])
        return x.reshape([self.sizes[i.size] if i in f.free else 1 for i in axes])

    def index(self, i: Index, axes: Axes) -> Array:
        """The values of an index, along its axis, or of labels."""
        if isinstance(i, Label):
            return np.asarray(self.values[i.label])[tuple(self.index(k, axes) for k in i.arguments)]
        if isinstance(i, Reversed):
            return self.sizes[i.size] - 1 - self.index(i.inner, axes)
        if isinstance(i, Shifted):
            return (self.index(i.inner, axes) + i.by) % self.sizes[i.size]
        if isinstance(i, Last):
            return np.full([1] * len(axes), self.sizes[i.size] - 1)
        return np.arange(self.sizes[i.size]).reshape([-1 if axis == i else 1 for axis in axes])

    def entries(self, name: str, indices: Sequence[Index], axes: Axes) -> Array:
        """The entries of an array of that name."""
        found = np.asarray(self.values[name], float)[tuple(self.index(i, axes) for i in indices)]
        return found.reshape([1] * (len(axes) - found.ndim) + list(found.shape))

    def summed(self, bound: Axes, m: Monomial, axes: Axes) -> Array:
        """The sum of a product, by pairs of factors; at once if some are undefined where a condition does not hold."""
        n, inner = len(axes), [*axes, *bound]
        arrays = [self.power(f, p, inner) for f, p in m]
        if not all(np.isfinite(x).all() for x in arrays):
            return np.asarray(np.sum(self.term(m, Fraction(1), inner), axis=tuple(range(n, len(inner)))))
        places = [[d for d, count in enumerate(x.shape) if count > 1] for x in arrays]
        operands = [y for x, own in zip(arrays, places, strict=True) for y in (np.squeeze(x), own)]
        kept = sorted({d for own in places for d in own if d < n})
        found = np.einsum(*operands, kept, optimize=len(arrays) > 2)
        return np.asarray(found).reshape([self.sizes[i.size] if d in kept else 1 for d, i in enumerate(axes)])

    def alone(self, f: Factor, axes: Axes) -> Array:
        """The array of a factor, along the indices that it depends on."""
        match f:
            case Entry():
                return np.asarray(float(self.sizes[f.name])) if f.is_unit else self.entries(f.name, f.indices, axes)
            case Flag():
                return self.entries(f.name, f.indices, axes)
            case Delta():
                return (self.index(f.i, axes) == self.index(f.j, axes)).astype(float)
            case Position():
                return self.index(f.index, axes).astype(float)
            case Order():
                return (self.index(f.j, axes) - self.index(f.i, axes) >= f.d).astype(float)
            case Step():
                e = real(self.expression(f.argument, axes))
                return (e > ROUNDING if f.relation == ">" else e >= -ROUNDING).astype(float)
            case Applied():
                return FUNCTIONS[f.function.name](self.expression(f.argument, axes))
            case Base():
                return self.expression(f.expression, axes)
            case Constant():
                return np.asarray(CONSTANTS.get(f.name) or float(f.name))
            case Sum():
                return self.summed(f.bound, f.body, axes)
            case Maximum():
                return np.asarray(np.max(real(self.expression(f.argument, [*axes, f.index])), axis=-1))
        raise TypeError(f"{f} has no value")
