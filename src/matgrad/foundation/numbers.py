"""Numbers: Python's, checked and recognized, and the random generator that is used where none is given."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")


def as_number(value: Any) -> Any:
    """A NumPy scalar as a Python number, which takes on the dtype of a matrix it multiplies; others as they are."""
    return value.item() if isinstance(value, np.generic) else value


RANGES: dict[str, Callable[[float], bool]] = {
    "a finite number of 0 or more": lambda x: 0 <= x < math.inf,
    "a finite number above 0": lambda x: 0 < x < math.inf,
    "a number from 0 to 1": lambda x: 0 <= x <= 1,
    "a number in [0, 1)": lambda x: 0 <= x < 1,
}


def check_number(name: str, value: Any, expected: str = "a finite number of 0 or more") -> Any:
    """The value as a Python number, after a check that it is in one of `RANGES`; a symbol is returned as it is."""
    value = as_number(value)
    if isinstance(value, int | float) and not RANGES[expected](value):
        raise ValueError(f"{name}: expected {expected}, found {value}")
    return value


def check_size(name: str, size: Any, least: int = 1) -> int:
    """The size as an int, after a check that it is a positive integer or, with ``least=0``, also 0."""
    if isinstance(size, bool) or not hasattr(size, "__index__") or size < least:
        kind = "a positive integer" if least else "an integer of 0 or more"
        raise ValueError(f"{name} must be {kind}, found {size!r}")
    return size if isinstance(size, int) else operator.index(size)


def size_text(shape: Iterable[object]) -> str:
    """Sizes in words, such as 3 × 4."""
    return " × ".join(map(str, shape))


ULPS = 4  # how far from an exact number a floating-point one may be, after a few operations


def recognized(x: float, irrationals: Iterable[tuple[T, float]]) -> tuple[Fraction, T | None] | None:
    """The number that x stands for, up to rounding: a simple fraction, a short decimal, or a multiple of an irrational.

    So 1/3, 0.1 + 0.2 and 1/math.sqrt(2) are ⅓, 3/10 and ½·√2: a fraction, and what it is a multiple of, or None for 1.
    The irrational numbers are given with their floating-point values. None if x is none of these.
    """
    fraction = Fraction(x).limit_denominator(1000) if abs(x) < 1e6 else None
    if fraction is not None and _is_close(x, fraction):
        return fraction, None
    decimal = Fraction(f"{x:.12g}")
    if _is_close(x, decimal):
        return decimal, None
    for irrational, value in irrationals:
        factor = Fraction(x / value).limit_denominator(12)
        if factor and _is_close(x, float(factor) * value):
            return factor, irrational
    return None


def _is_close(x: float, y: Fraction | float) -> bool:
    return abs(x - float(y)) <= ULPS * math.ulp(x)


# -- random numbers ----------------------------------------------------------------------------

Generator = np.random.Generator

_default = np.random.default_rng()
_own: ContextVar[Generator | None] = ContextVar("generator", default=None)


def manual_seed(seed: int) -> None:
    """Restart the generator of initial weights, supports, dropout seeds and batch orders."""
    global _default
    _default = np.random.default_rng(seed)


def generator() -> Generator:
    """The generator that is used where none is given: inside `own_generator` its own, else that of `manual_seed`."""
    return _own.get() or _default


@contextmanager
def own_generator(seed: int = 0) -> Iterator[None]:
    """Draw from a generator with this seed inside, and only in this thread; that of `manual_seed` stays as it is."""
    token = _own.set(np.random.default_rng(seed))
    try:
        yield
    finally:
        _own.reset(token)
