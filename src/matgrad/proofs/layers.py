"""Proofs of layers: every gradient, for all sizes N, D and K, and every value of feedforward that is defined."""

from __future__ import annotations

import time

from matgrad.inspection.equations import assignment
from matgrad.inspection.feedforward import feedforward_values, origin_of
from matgrad.inspection.gradients import gradients
from matgrad.inspection.verdicts import Check, failure, without_verdict
from matgrad.layers.layer import Layer
from matgrad.layers.linear import ActivationLayer
from matgrad.proofs.attempts import attempts
from matgrad.proofs.calculus import verdict
from matgrad.proofs.definitions import definition_of_layer
from matgrad.proofs.matrices import IndexMatrix
from matgrad.proofs.symbolic_layers import SMALL, MakeLayer, Symbols


def prove_layer(make: MakeLayer, *, training: bool = True, dropout: bool = False) -> list[Check]:
    """Every gradient of the layer make(D, K), for all sizes, and its values if the layer is one of the package.

    `make` may be the class of a layer. With `dropout`, all parts that can drop weights do.
    """
    make = for_equal_sizes(make)
    layer = make(*SMALL.values())
    mode = ("" if training else ", evaluation") + (", dropout" if dropout else "")
    act = f", {type(layer.act).__name__.removesuffix('Activation')}" if isinstance(layer, ActivationLayer) else ""

    def prove(symbols: Symbols, about: str) -> list[Check]:
        layer = symbols.layer(make, training=training, dropout=dropout)
        return [*_values(layer.clone(), symbols, about), *_gradients(layer, symbols, about)]

    return attempts(prove, type(layer).__name__, f"all sizes{act}{mode}")


def for_equal_sizes(make: MakeLayer) -> MakeLayer:
    """The constructor, with D for K if the class says that the output has the size of the input."""
    keeps_size = isinstance(make, type) and getattr(make, "keeps_size", False)
    return (lambda D, K: make(D, D)) if keeps_size else make


def _input(layer: Layer, symbols: Symbols) -> IndexMatrix:
    """X, of size N×D"""
    return symbols.calculus.symbols("X", symbols.sizes("N"), layer.input_size)


def _gradients(layer: Layer, symbols: Symbols, about: str) -> list[Check]:
    """The gradients of a layer with symbols in it, in order of backpropagation; those of its parts follow."""
    checks = []
    for x in gradients(layer, _input(layer, symbols), symbols.calculus):
        start, description = time.perf_counter(), (x.part, x.name, x.origin, about)
        if x.problem:
            checks.append(failure(*description, x.problem, x.prefix))
        elif x.sides is None:
            checks.append(without_verdict(*description, x.note, x.prefix))
        else:
            checks.append(verdict(*description, *x.sides(), start, x.prefix))
    return checks


def _values(layer: Layer, symbols: Symbols, about: str) -> list[Check]:
    """The values of feedforward against their definitions, if the layer has any."""
    X, cls = _input(layer, symbols), type(layer)
    expected = definition_of_layer(layer, X)  # before the run, which changes the running statistics
    if expected is None:
        where = assignment(cls, "feedforward", "Y")
        note = "feedforward has no definition to compare with"
        return [without_verdict(cls, "feedforward", (where.location, where.source), about, note)]
    start, checks = time.perf_counter(), []
    found = feedforward_values(layer, X, expected)
    for name, value in expected.items():
        checks.append(verdict(cls, name, origin_of(layer, name), about, found[name], value, start))
        start = time.perf_counter()
    return checks
