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
    """A matrix or expression with its floating-point numbers as the decimal fractions they are written as."""
    floats = value.atoms(sp.Float) if isinstance(value, sp.MatrixBase | sp.Basic) else ()
    return value.xreplace({x: sp.Rational(repr(float(x))) for x in floats}) if floats else value


def exact_numbers(thing: T, suffix: str = "") -> T:
    """A copy whose attributes that are floating-point numbers are positive symbols of the same names, and a suffix.

    What holds for all ε, α or μ holds for the numbers that training uses.
    """
    twin = copy.copy(thing)
    for name, value in vars(thing).items():
        if isinstance(value, float):
            setattr(twin, name, sp.Symbol(f"{name}{suffix}", positive=True))
    return twin


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
