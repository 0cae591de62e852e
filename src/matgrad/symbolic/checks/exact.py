"""Exact numbers in place of floating-point ones."""

from __future__ import annotations

import copy
import math
from typing import Any, TypeVar

import sympy as sp

from matgrad.activation_functions import ActivationFunction

T = TypeVar("T")

ROOTS = {math.sqrt(2): sp.sqrt(2), math.sqrt(2 * math.pi): sp.sqrt(2 * sp.pi)}  # irrational constants of classes


def exact(value: Any) -> Any:
    """A matrix or expression with its floating-point numbers as the decimal fractions that they are printed as."""
    floats = value.atoms(sp.Float) if isinstance(value, sp.MatrixBase | sp.Basic) else ()
    return value.xreplace({x: sp.Rational(repr(float(x))) for x in floats}) if floats else value


def numbers_as_symbols(thing: T, suffix: str = "") -> T:
    """A copy in which every attribute that is a floating-point number is a positive symbol of that name plus a suffix.

    What holds for all ε, α or μ holds for the numbers that training uses. The constants of its class, and of the
    activation functions it has as attributes, are the exact roots that they stand for.
    """
    clone = _exact_constants(thing)
    for name, value in vars(thing).items():
        if isinstance(value, float):
            setattr(clone, name, sp.Symbol(f"{name}{suffix}", positive=True))
    return clone


def _exact_constants(thing: T) -> T:
    """A copy with the exact roots that class attributes stand for, also in its activation functions."""
    clone = copy.copy(thing)
    constants = {name: value for cls in reversed(type(thing).__mro__) for name, value in vars(cls).items()}
    for name, value in {**constants, **vars(thing)}.items():
        if isinstance(value, ActivationFunction):
            setattr(clone, name, _exact_constants(value))
        elif isinstance(value, float) and name not in vars(thing) and value in ROOTS:
            setattr(clone, name, ROOTS[value])
    return clone
