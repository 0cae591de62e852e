"""What the feedforward of a layer computes: the values of its equations, by name, and where they are in the source."""

from __future__ import annotations

from collections.abc import Iterable

from matgrad.backends.base import Matrix
from matgrad.inspection.equations import Equation, assignment, equations, last_line, observed_if_readable
from matgrad.layers.dropout import LayerWithDropout
from matgrad.layers.layer import Layer


def feedforward_values(layer: Layer, X: Matrix, names: Iterable[str]) -> dict[str, Matrix]:
    """What feedforward computes: the values of its equations, the output Y, and other values of these names."""
    found: dict[str, Matrix] = {}

    def hook(layer: Layer, equation: Equation, value: Matrix) -> Matrix:
        found[equation.name] = value
        return value

    with observed_if_readable([layer], hook):
        result = layer.feedforward(X)
    return found | {name: getattr(layer, name, None) for name in names if name not in found} | {"Y": result}


def origin_of(layer: Layer, name: str) -> tuple[str, str]:
    """The location and source of what feedforward computes; R and running statistics are set in other methods."""
    if name == "R" and isinstance(layer, LayerWithDropout):
        return last_line(type(layer).dropout_matrix)
    equation = next((e for e in equations(type(layer), "feedforward") if e.name == name), None)
    equation = equation or assignment(type(layer), "feedforward", name)
    return equation.location, equation.source
