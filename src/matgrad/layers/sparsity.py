"""What makes the linear layers of a model sparse: densities, supports, or pruning by magnitude."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matgrad.foundation.numbers import Generator
from matgrad.layers.weights import WeightedLayer
from matgrad.sparse.densities import check_density, parse_densities, random_support
from matgrad.sparse.pruning import largest_weights
from matgrad.sparse.support import Support
from matgrad.specifications.parsing import Items, at_position

Layers = Sequence[WeightedLayer]


def densities_of(layers: Layers, densities: Items) -> list[float]:
    """The densities of the layers from a list such as ``0.01;0.05;1``, or from one for all."""
    values = parse_densities(densities)
    values = values * len(layers) if len(values) == 1 else values
    if len(values) != len(layers):
        raise ValueError(f"expected 1 or {len(layers)} densities for {len(layers)} linear layers, found {len(values)}")
    return values


def set_densities(layers: Layers, densities: Items, rng: Generator | None = None) -> None:
    """Give every layer a random support; with density 1 it stays as it is."""
    values = densities_of(layers, densities)
    set_supports(
        layers, [random_support(x.output_size, x.input_size, d, rng) for x, d in zip(layers, values, strict=True)]
    )


def set_supports(layers: Layers, supports: Sequence[Any]) -> None:
    """Give every layer its support; one with None stays as it is. Nothing is changed unless all of them fit."""
    if len(supports) != len(layers):
        raise ValueError(f"expected {len(layers)} supports for {len(layers)} linear layers, found {len(supports)}")
    checked: list[Support | None] = []
    for position, (layer, support) in enumerate(zip(layers, supports, strict=True), start=1):
        with at_position("linear layer", position):
            checked.append(None if support is None else layer.checked_support(support))
    for layer, support in zip(layers, checked, strict=True):
        if support is not None:
            layer.set_support(support)


def prune(layers: Layers, densities: Items | None, overall: float | None) -> None:
    """Drop the weights nearest to 0: in each layer down to its density, or over all layers."""
    if densities is not None and overall is None:
        supports = []
        for position, (layer, d) in enumerate(zip(layers, densities_of(layers, densities), strict=True), start=1):
            with at_position("linear layer", position):
                supports += _largest([layer], d, "density")
    elif overall is not None and densities is None:
        supports = _largest(layers, overall, "overall density")
    else:
        raise ValueError("prune: expected either densities or an overall density")
    for layer, support in zip(layers, supports, strict=True):
        if support.nnz < layer.nnz:
            layer.set_support(support)


def _largest(layers: Layers, density: float, name: str) -> list[Support]:
    """The supports of the weights farthest from 0, with which the layers together have the density."""
    check_density(name, density)
    stored, elements = sum(x.nnz for x in layers), sum(x.output_size * x.input_size for x in layers)
    count = round(density * elements)
    if not len(layers) <= count <= stored:
        least = "one" if len(layers) == 1 else "one per layer"
        problem = f"expected at least {least} and at most the {stored} that are stored"
        raise ValueError(f"{name}: {density} of the {elements} weights are {count}; {problem}")
    return largest_weights([layer.W for layer in layers], count)
