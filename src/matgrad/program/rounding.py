"""Matrices with bounds of their rounding errors: how far what a program computes may be from its exact value.

The model is that of N. J. Higham, Accuracy and Stability of Numerical Algorithms (2002), with u = 2^-24 for float32:
fl(x ∘ y) = (x ∘ y)(1 + δ) with |δ| ≤ u for + - · /, sums of k terms in any order have γ_k = k·u / (1 - k·u), functions
such as exp may be 4 units in the last place wrong, and results below the normal range may be 0. Terms that are 0 do not
count.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from scipy.special import erf

Array = np.ndarray
FUNCTIONS = (np.exp, np.log, np.log1p, np.sqrt, np.tanh, erf, np.power)  # monotone, or largest at ends of intervals
ACCURACY = 8  # units of rounding of a function: 4 in the last place


class Rounded(NDArrayOperatorsMixin):
    """Computed values are at most `error` from `value`, element by element, in arithmetic of a dtype."""

    def __init__(self, value: Any, error: Any, dtype: str) -> None:
        self.value, self.dtype = np.asarray(value, np.float64), np.dtype(dtype)
        self.error = np.broadcast_to(np.asarray(error, np.float64), self.value.shape)

    def made(self, value: Any, error: Any) -> Self:
        """What is computed without rounding."""
        return type(self)(value, error, self.dtype.name)

    def rounded(self, value: Any, error: Any, units: Any = 1, absolute: Any = None) -> Self:
        """What is computed with so many units of rounding of |value| + error, or of what is given."""
        limits = np.finfo(self.dtype)
        u = float(limits.eps) / 2 + 2.0**-53  # and that of float64, in which the value is computed
        with np.errstate(all="ignore"):
            size = np.abs(value) + error if absolute is None else absolute
            gamma = np.where(units * u < 1, units * u / (1 - units * u), np.inf)
            found = error + np.where(units == 0, 0, gamma * size + units * float(limits.tiny))
            is_known = np.isfinite(found) & (np.abs(value) + found <= float(limits.max))
        return self.made(value, np.where(is_known, found, np.inf))

    # -- what NumPy calls ---------------------------------------------------------------------------
    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        operands = [x if isinstance(x, Rounded) else self.made(x, 0) for x in inputs]
        with np.errstate(all="ignore"):
            value = ufunc(*(x.value for x in operands))
            rule = RULES.get(ufunc, Rounded._function)
            return rule(self, value, *operands, *([ufunc] if ufunc not in RULES else []))

    def __array_function__(self, function: Any, types: Any, arguments: Any, options: Any) -> Any:
        """A function that moves elements, such as np.diag."""
        return self.made(*(function(x, *arguments[1:], **options) for x in (self.value, self.error)))

    # -- arithmetic ---------------------------------------------------------------------------------
    def _sum(self, value: Array, x: Rounded, y: Rounded) -> Self:
        return self.rounded(value, x.error + y.error)

    def _product(self, value: Array, x: Rounded, y: Rounded) -> Self:
        return self.rounded(value, np.abs(x.value) * y.error + np.abs(y.value) * x.error + x.error * y.error)

    def _quotient(self, value: Array, x: Rounded, y: Rounded) -> Self:
        least = np.abs(y.value) - y.error
        error = np.where(least > 0, (x.error + np.abs(value) * y.error) / least, np.inf)
        return self.rounded(value, np.where(y.error == 0, x.error / np.abs(y.value), error))

    def _negative(self, value: Array, x: Rounded) -> Self:
        return self.made(value, x.error)

    def _at_least(self, value: Array, x: Rounded, y: Rounded) -> Self:
        """x ≥ y, which may be another one where x and y are closer than their errors."""
        error = x.error + y.error
        return self.made(value, (error > 0) & (np.abs(x.value - y.value) <= error))

    def _equal(self, value: Array, x: Rounded, y: Rounded) -> Self:
        return self.made(value, 0)

    def _matmul(self, value: Array, x: Rounded, y: Rounded) -> Self:
        a, b = np.abs(x.value), np.abs(y.value)
        error = a @ y.error + x.error @ b + x.error @ y.error
        terms = ((a + x.error) > 0).astype(float) @ ((b + y.error) > 0).astype(float)
        return self.rounded(value, error, terms, (a + x.error) @ (b + y.error))

    def _function(self, value: Array, x: Rounded, *others: Any) -> Self:
        """f(x) for a function that is furthest away at the ends of the interval of x."""
        *rest, f = others
        if f not in FUNCTIONS:
            raise TypeError(f"no rounding error is known of {f.__name__}")
        ends = [f(x.value + d, *(c.value for c in rest)) for d in (-x.error, x.error)]
        is_exact = (f is np.power) & np.isin([c.value for c in rest], (0, 1)).any()
        error = np.where(x.error == 0, 0, np.maximum(*(np.abs(end - value) for end in ends)))
        return self.rounded(value, error, 0 if is_exact else ACCURACY)

    # -- methods of arrays --------------------------------------------------------------------------
    def sum(self, axis: int | None = None) -> Self:
        """The sum, in any order."""
        sizes = np.abs(self.value) + self.error
        terms = np.maximum((sizes > 0).sum(axis) - 1, 0)
        return self.rounded(self.value.sum(axis), self.error.sum(axis), terms, sizes.sum(axis))

    def max(self, axis: int) -> Self:
        """The maximum."""
        return self.made(self.value.max(axis), self.error.max(axis))

    def reshape(self, shape: Any) -> Self:
        """The same elements in another shape."""
        return self.made(self.value.reshape(shape), self.error.reshape(shape))

    def swapaxes(self, i: int, j: int) -> Self:
        """Transposed blocks."""
        return self.made(self.value.swapaxes(i, j), self.error.swapaxes(i, j))

    def __getitem__(self, key: Any) -> Self:
        return self.made(self.value[key], self.error[key])

    def __setitem__(self, key: Any, x: Rounded) -> None:
        self.error = np.array(self.error)
        self.value[key], self.error[key] = x.value, x.error

    T = property(lambda self: self.swapaxes(0, 1))
    shape = property(lambda self: self.value.shape)


RULES: dict[Any, Callable[..., Rounded]] = {
    np.add: Rounded._sum,
    np.subtract: Rounded._sum,
    np.multiply: Rounded._product,
    np.true_divide: Rounded._quotient,
    np.negative: Rounded._negative,
    np.greater_equal: Rounded._at_least,
    np.equal: Rounded._equal,
    np.matmul: Rounded._matmul,
}
