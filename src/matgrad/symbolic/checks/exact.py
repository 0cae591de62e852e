"""Exact numbers in place of floating-point ones."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import sympy as sp

from matgrad import activation_functions

T = TypeVar("T")


def exact(value: Any) -> Any:
    """A matrix or expression with its floating-point numbers as the decimal fractions that they are printed as."""
    floats = value.atoms(sp.Float) if isinstance(value, sp.MatrixBase | sp.Basic) else ()
    return value.xreplace({x: sp.Rational(repr(float(x))) for x in floats}) if floats else value


def numbers_as_symbols(thing: T, suffix: str = "") -> T:
    """A copy in which every attribute that is a floating-point number is a positive symbol of that name plus a suffix.

    What holds for all ε, α or μ holds for the numbers that training uses.
    """
    result = copy.copy(thing)
    for name, value in vars(thing).items():
        if isinstance(value, float):
            setattr(result, name, sp.Symbol(f"{name}{suffix}", positive=True))
    return result


@contextmanager
def exact_constants() -> Iterator[None]:
    """Exact roots in place of the constants of the activation functions."""
    constants = {"SQRT_2": sp.sqrt(2), "SQRT_2_PI": sp.sqrt(2 * sp.pi)}
    before = {name: getattr(activation_functions, name) for name in constants}
    vars(activation_functions).update(constants)
    try:
        yield
    finally:
        vars(activation_functions).update(before)
