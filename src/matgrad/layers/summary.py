"""What printing a model shows: where it lives, and a table of its layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from matgrad.backends.base import MATMULS
from matgrad.layers.layer import Layer
from matgrad.layers.weights import WeightedLayer
from matgrad.sparse.densities import format_density
from matgrad.sparse.matrix import SparseMatrix, values_of

if TYPE_CHECKING:
    from matgrad.multilayer_perceptron import MultilayerPerceptron


def summary(M: MultilayerPerceptron) -> str:
    """The headline and a table: for each layer and part its name, sizes, density (if any is sparse) and parameters."""
    lines: list[tuple[str, ...]] = [("", "layer", "sizes", "density", "parameters")]
    for name, layer in M.walk():
        sizes, count = f"{layer.input_size} → {layer.output_size}", f"{parameter_count(layer):,}"
        lines.append((name, f"{'  ' * name.count('.')}{layer!r}", sizes, density_of(layer), count))
    lines.append(("", "total", "", "", f"{sum(parameter_count(layer) for _, layer in M.walk()):,}"))
    if not any(layer.is_sparse for layer in M.layers):
        lines = [(*line[:3], line[4]) for line in lines]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    sides = "><<>>"
    table = ("  ".join(f"{x:{s}{n}}" for x, s, n in zip(line, sides, widths, strict=False)) for line in lines)
    return "\n".join([headline(M), *table])


def headline(M: MultilayerPerceptron) -> str:
    """The name of the class, and where the model lives."""
    where = f" on {M.engine}, {M.dtype}" if M.layers else ""
    if M.matmul != MATMULS[0]:
        where += f", products in {M.matmul}"
    if M.normalization is not None and M.normalization.kind != "none":
        where += f", inputs normalized ({M.normalization})"
    if M.target_normalization is not None:
        where += f", targets normalized ({M.target_normalization})"
    return f"MultilayerPerceptron{where}"


def parameter_count(layer: Layer) -> int:
    """The number of trained numbers in a layer, not counting its parts."""
    return sum(int(np.prod(values_of(getattr(layer, name)).shape)) for name in layer.parameters)


def density_of(layer: Layer) -> str:
    """The density of a linear-type layer as a string; empty for other layers."""
    if not isinstance(layer, WeightedLayer):
        return ""
    return format_density(layer.W.support) if isinstance(layer.W, SparseMatrix) else "1"
