"""Checks of what derivatives cannot see: the values of layers, losses and activation functions.

SymPy matrices run through the code that trains, and the result is compared with the definitions of `matgrad.proofs`
for one entry, with plain sums, exponentials and piecewise functions: nothing from the table is used. A class
from outside the package has no definition, which the verdict on it says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import sympy as sp

from matgrad import activation_functions as activations
from matgrad import layers
from matgrad.activation_functions import ActivationFunction
from matgrad.backends.numpy_backend import NumpyBackend
from matgrad.backends.sympy_backend import SympyMatrix
from matgrad.inspection.equations import assignment, last_line
from matgrad.inspection.verdicts import Check, feedforward_values, judged, origin_of
from matgrad.layers.layer import Layer
from matgrad.loss_functions import LossFunction
from matgrad.proofs.definitions import (
    ACTIVATIONS,
    LOSSES,
    Entries,
    definition_of_layer,
    definition_of_loss,
    has_definition,
)
from matgrad.symbolic.derivatives import GRID
from matgrad.symbolic.equality import numbers_as_symbols, symbolic_layer, symbols, verdict


class SymPyEntries(Entries):
    """Definitions with SymPy's functions, at fixed sizes."""

    first, half = 0, sp.Rational(1, 2)
    exp, log, erf = sp.exp, sp.log, sp.erf
    sqrt, number = staticmethod(sp.sqrt), staticmethod(sp.sympify)
    matrix = staticmethod(lambda shape, entry: sp.Matrix(*shape, entry))

    def is_one(self, size: int) -> bool:
        """Whether a size is 1."""
        return size == 1

    def sum(self, f: Callable[[int], sp.Expr], size: int) -> sp.Expr:
        """Σ_i f(i)"""
        return sp.Add(*map(f, range(size)))

    def pieces(self, left: sp.Expr, x: sp.Expr, right: sp.Expr) -> sp.Expr:
        """`left` where x < 0, and `right` where x ≥ 0"""
        return sp.Piecewise((left, x < 0), (right, True))

    def uniform(self, m: int, n: int, *, seed: Any, count: Any, like: Any) -> sp.Matrix:
        """The random numbers of NumPy's backend."""
        U = NumpyBackend().uniform(m, n, int(seed), int(count), like=np.zeros((1, 1)))
        return sp.Matrix(m, n, lambda i, j: sp.Rational(float(U[i, j])))


SYMPY = SymPyEntries()


def defined_activation(act: ActivationFunction, x: sp.Expr, k: int) -> sp.Expr:
    """f(x) in column k, by its definition."""
    return ACTIVATIONS[type(act)](SYMPY, act, x, k)


def check_definition_of_layer(layer: Layer, *, N: int = 3) -> list[Check]:
    """Everything that a layer's feedforward computes, in its present mode, against its elementwise definition.

    For batch normalization in training mode this includes the running statistics and a batch of one
    example; with dropout it includes R.
    """
    if not has_definition(layer):
        where = assignment(type(layer), "feedforward", "Y")
        return [_undefined(type(layer), "feedforward", (where.location, where.source))]
    checks = _check_feedforward(symbolic_layer(layer), N)
    if type(layer) is layers.BatchNormalizationLayer and layer.training and N != 1:
        checks += _check_feedforward(symbolic_layer(layer), 1)
    return checks


def check_definition_of_loss(loss: LossFunction, *, N: int = 3, K: int = 4) -> list[Check]:
    """The value of a loss against its elementwise definition, for arbitrary targets."""
    if type(loss) not in LOSSES:
        return [_undefined(type(loss), "value", last_line(type(loss).__call__))]
    loss = numbers_as_symbols(loss)
    is_probability = loss.accepts == {"probability"}
    Y, T = symbols("Y", N, K, positive=is_probability or None), symbols("T", N, K)
    found, expected = sp.Matrix([[loss(Y, T)]]), sp.Matrix([[definition_of_loss(loss, Y, T, SYMPY)]])
    return [verdict(type(loss), "value", last_line(type(loss).__call__), f"N={N} K={K}", found, expected)]


def check_definition_of_activation(act: ActivationFunction) -> list[Check]:
    """The values of an activation function against its definition, and its derivative at the corners."""
    if type(act) not in ACTIVATIONS:
        return [_undefined(type(act), "value", last_line(type(act).__call__))]
    act = numbers_as_symbols(act)
    if isinstance(act, activations.SReLUActivation):
        act = activations.SReLUActivation(*(symbols(p, 1, 3) for p in ("al", "tl", "ar", "tr")))
    origin, checks = last_line(type(act).__call__), []
    for sizes, X in (("2×3", symbols("X", 2, 3)), ("-430 … 430", SympyMatrix(len(GRID), 3, lambda i, j: GRID[i]))):
        expected = sp.Matrix(*X.shape, lambda i, j, X=X: defined_activation(act, X[i, j], j))
        checks.append(verdict(type(act), "value", origin, sizes, act(X), expected))
    for x, slope in CORNERS.get(type(act), ()):
        C = SympyMatrix(2, 3, lambda i, j, x=x: x(act, j))
        expected = sp.Matrix(2, 3, lambda i, j, slope=slope: slope(act, j))
        origin = last_line(type(act).gradient)
        checks.append(verdict(type(act), "gradient", origin, f"x={C[0]}", act.gradient(C), expected))
    return checks


def _undefined(cls: type, quantity: str, origin: tuple[str, str]) -> Check:
    return judged(cls, quantity, origin, "", "", note=f"{quantity} has no definition to compare with")


def _check_feedforward(layer: Layer, N: int) -> list[Check]:
    """Each equation of feedforward, and whatever else it stores in the layer, against the definition."""
    X = symbols("X", N, layer.input_size)
    sizes = f"N={N} D={layer.input_size} K={layer.output_size}{'' if layer.training else ' evaluation'}"
    expected = definition_of_layer(layer, X, SYMPY) or {}  # before the run, which changes the running statistics
    found = feedforward_values(layer, X, expected)
    checks = []
    for name, value in expected.items():
        checks.append(verdict(type(layer), name, origin_of(layer, name), sizes, found[name], value))
    return checks


# the corners of f, and f' there: that of the right-hand piece, as in the paper; SReLU's outer pieces are closed
_at_zero = ((lambda act, k: sp.S.Zero, lambda act, k: sp.S.One),)
CORNERS: dict[type[ActivationFunction], tuple[tuple[Callable, Callable], ...]] = {
    activations.ReLUActivation: _at_zero,
    activations.LeakyReLUActivation: _at_zero,
    activations.AllReLUActivation: _at_zero,
    activations.ELUActivation: _at_zero,
    activations.TReLUActivation: ((lambda act, k: act.epsilon, lambda act, k: sp.S.One),),
    activations.SReLUActivation: (
        (lambda act, k: act.tl[0, k], lambda act, k: act.al[0, k]),
        (
            lambda act, k: act.tr[0, k],
            lambda act, k: SYMPY.pieces(act.ar[0, k], act.tl[0, k] - act.tr[0, k], act.al[0, k]),
        ),
    ),
}
