"""The numbers that expressions stand for, for all values of some indices at once, in NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from matgrad.index_notation.conditions import Flag, Order, Step
from matgrad.index_notation.expressions import Condition, Delta, Entry, Expression, Factor
from matgrad.index_notation.functions import INFINITE, Applied, Maximum
from matgrad.index_notation.indices import Index, Label, Reversed
from matgrad.index_notation.positions import Position
from matgrad.index_notation.powers import Base, Constant
from matgrad.index_notation.sums import Sum

Array = np.ndarray[Any, Any]
FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "erf": np.vectorize(math.erf, [float]),
    "exp": np.exp,
    "log": np.log,
    "sin": np.sin,
    "cos": np.cos,
}
CONSTANTS = {"π": math.pi, INFINITE.name: 1e30}
ROUNDING = 1e-12  # a maximum and what it is the maximum of are equal


def evaluate(e: Expression, axes: Sequence[Index], values: Mapping[str, Array], sizes: Mapping[str, int]) -> Array:
    """An array with these axes, of size 1 where e does not depend on one, by the arrays and sizes of given names.

    Labels are arrays of integers from 0.
    """
    return Values(axes, values, sizes).expression(e)


class Values:
    """Arrays of expressions."""

    def __init__(self, axes: Sequence[Index], values: Mapping[str, Array], sizes: Mapping[str, int]) -> None:
        self.axes, self.values, self.sizes = list(axes), values, sizes

    def expression(self, e: Expression) -> Array:
        """The sum of products of powers."""
        found = np.zeros([1] * len(self.axes))
        for m, c in e.terms.items():
            holds, term = np.full([1] * len(self.axes), float(c)), np.ones([1] * len(self.axes))
            for f, p in m:
                if isinstance(f, Condition):
                    holds = holds * self.factor(f)
                else:
                    term = term * self.factor(f) ** (int(p) if p.denominator == 1 else float(p))
            found = found + np.where(holds == 0, 0, holds * term)  # where it does not hold, the rest may be undefined
        return found

    def index(self, i: Index) -> Array:
        """The values of an index, along its axis, or of labels."""
        if isinstance(i, Label):
            return np.asarray(self.values[i.label])[tuple(map(self.index, i.arguments))]
        if isinstance(i, Reversed):
            return self.sizes[i.size] - 1 - self.index(i.inner)
        return np.arange(self.sizes[i.size]).reshape([-1 if axis == i else 1 for axis in self.axes])

    def entries(self, name: str, indices: Sequence[Index]) -> Array:
        """The entries of an array of that name."""
        found = np.asarray(self.values[name], float)[tuple(map(self.index, indices))]
        return found.reshape([1] * (len(self.axes) - found.ndim) + list(found.shape))

    def over(self, bound: Sequence[Index], e: Expression, reduce: Callable[..., Array]) -> Array:
        """A sum or a maximum."""
        n, sizes = len(self.axes), [self.sizes[i.size] for i in bound]
        inner = Values([*self.axes, *bound], self.values, self.sizes).expression(e)
        return reduce(np.broadcast_to(inner, [*inner.shape[:n], *sizes]), axis=tuple(range(n, n + len(bound))))

    def factor(self, f: Factor) -> Array:
        """The array of a factor."""
        match f:
            case Entry():
                return np.asarray(float(self.sizes[f.name])) if f.is_unit else self.entries(f.name, f.indices)
            case Flag():
                return self.entries(f.name, f.indices)
            case Delta():
                return (self.index(f.i) == self.index(f.j)).astype(float)
            case Position():
                return self.index(f.index).astype(float)
            case Order():
                return (self.index(f.j) - self.index(f.i) >= f.d).astype(float)
            case Step():
                e = self.expression(f.argument)
                return (e > ROUNDING if f.relation == ">" else e >= -ROUNDING).astype(float)
            case Applied():
                return FUNCTIONS[f.function.name](self.expression(f.argument))
            case Base():
                return self.expression(f.expression)
            case Constant():
                return np.asarray(CONSTANTS.get(f.name) or float(f.name))
            case Sum():
                return self.over(f.bound, Expression({f.body: Fraction(1)}), np.sum)
            case Maximum():
                return self.over([f.index], f.argument, np.max)
        raise TypeError(f"{f} has no value")
