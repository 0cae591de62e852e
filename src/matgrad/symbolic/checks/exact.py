"""Exact numbers in place of floating-point ones, and layers with symbols for their matrices and numbers."""

from __future__ import annotations

import copy
from typing import Any, TypeVar

import numpy as np
import sympy as sp

from matgrad.activation_functions import ActivationFunction
from matgrad.foundation.numbers import recognized
from matgrad.inspection.gradients import suffixed
from matgrad.layers.dropout import DropoutLayer
from matgrad.layers.layer import Layer, check_layers
from matgrad.layers.linear import LinearLayer
from matgrad.symbolic.checks.equality import symbols

T = TypeVar("T")

DROPOUT = sp.Rational(3, 10)  # the rate with which dropout is checked
IRRATIONALS = (
    *(sp.sqrt(2), sp.sqrt(3), sp.pi, sp.sqrt(sp.pi), sp.sqrt(2 * sp.pi), sp.sqrt(2 / sp.pi)),
    *(1 / sp.sqrt(sp.pi), 1 / sp.sqrt(2 * sp.pi), 1 / sp.pi, sp.E, sp.log(2), 1 / sp.log(2)),
)


def exact(value: Any) -> Any:
    """A matrix or expression with exact numbers for those of its floating-point numbers that stand for one."""
    floats = value.atoms(sp.Float) if isinstance(value, sp.MatrixBase | sp.Basic) else ()
    return value.xreplace({x: exact_number(float(x)) for x in floats}) if floats else value


def exact_number(x: float) -> sp.Expr:
    """The number that x stands for, up to rounding: see `recognized`.

    Any other number is left as it is, and what has it is compared only as precisely as floating-point numbers are.
    """
    found = recognized(x, ((c, float(c)) for c in IRRATIONALS))
    if found is None:
        return sp.Float(x)
    factor, irrational = found
    return sp.Rational(factor.numerator, factor.denominator) * (1 if irrational is None else irrational)


def numbers_as_symbols(thing: T, suffix: str = "") -> T:
    """A copy in which every attribute that is a floating-point number is a positive symbol of that name plus a suffix.

    What holds for all ε, α or μ holds for the numbers that training uses.
    """
    clone = copy.copy(thing)
    for name, value in vars(thing).items():
        if isinstance(value, float):
            setattr(clone, name, sp.Symbol(f"{name}{suffix}", positive=True))
    return clone


def symbolic_layer(layer: Layer, dropout: bool = False, *, numbers: bool = False) -> Layer:
    """The layer with symbols for its parameters, its statistics and the numbers in its equations, parts included.

    With `numbers`, the numbers in its equations, such as ε or α, stay as they are.
    """
    check_layers([layer])
    layer = layer.clone()
    for path, part in layer.walk():
        if not numbers:
            vars(part).update(vars(numbers_as_symbols(part, path)))
        for name, value in vars(part).items():
            if isinstance(value, ActivationFunction) and not numbers:
                setattr(part, name, numbers_as_symbols(value, path))
        for name in (*part.parameters, *part.buffers):
            if len(shape := np.shape(getattr(part, name))) == 2:
                is_positive = ("variance" in name and name in part.buffers) or None
                setattr(part, name, symbols(suffixed(name, path), *shape, positive=is_positive))
        if isinstance(part, LinearLayer):
            part.dropout = DROPOUT if dropout else 0
        elif isinstance(part, DropoutLayer):
            part.dropout = DROPOUT
    return layer
