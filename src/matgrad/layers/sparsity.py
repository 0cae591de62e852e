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


class SparseModel:
    """The methods of a model that make its linear layers sparse; lists are in the order of `linear_layers`."""

    def linear_layers(self) -> Sequence[WeightedLayer]:
        """The layers that have weights W and b, parts of layers included."""
        raise NotImplementedError

    def set_densities(self, densities: Items, rng: Generator | None = None) -> None:
        """Give every linear layer a random support; densities are a list such as ``0.01;0.05;1``, or one for all.

        A layer keeps its weights at the support, so those of a new model are too small for it until `set_weights`;
        with density 1 it stays as it is.
        """
        pairs = with_densities(self.linear_layers(), densities)
        self.set_supports([random_support(layer.output_size, layer.input_size, d, rng) for layer, d in pairs])

    def set_supports(self, supports: Sequence[Any]) -> None:
        """Give every linear layer its support: a `Support`, a mask or a SciPy matrix; None leaves it as it is.

        A layer keeps its weights and the state of its optimizer at the support; weights that it did not store are 0.
        Nothing is changed unless all supports fit.
        """
        layers, checked = self.linear_layers(), []
        if len(supports) != len(layers):
            raise ValueError(f"expected {len(layers)} supports for {len(layers)} linear layers, found {len(supports)}")
        for position, (layer, support) in enumerate(zip(layers, supports, strict=True), start=1):
            with at_position("linear layer", position):
                checked.append(None if support is None else layer.checked_support(support))
        for layer, support in zip(layers, checked, strict=True):
            if support is not None:
                layer.set_support(support)

    def prune(self, densities: Items | None = None, *, overall: float | None = None) -> None:
        """Keep the weights that are farthest from 0: in each linear layer by its density, or over all layers.

        The densities are a list such as ``0.01;0.05;1``, or one for all. With an `overall` density there is one
        threshold for all layers, but each keeps at least one weight. Numbers of weights are exact: equal weights are
        dropped in the order of their positions. The optimizers keep their state for the weights that stay.
        """
        layers = self.linear_layers()
        if densities is not None and overall is None:
            supports = []
            for position, (layer, d) in enumerate(with_densities(layers, densities), start=1):
                with at_position("linear layer", position):
                    supports += _largest([layer], d, "density")
        elif overall is not None and densities is None:
            supports = _largest(layers, overall, "overall density")
        else:
            raise ValueError("prune: expected either densities or an overall density")
        for layer, support in zip(layers, supports, strict=True):
            if support.nnz < layer.nnz:
                layer.set_support(support)


def with_densities(layers: Sequence[WeightedLayer], densities: Items) -> list[tuple[WeightedLayer, float]]:
    """The layers with their densities, from a list such as ``0.01;0.05;1``, or from one for all."""
    values = parse_densities(densities)
    values = values * len(layers) if len(values) == 1 else values
    if len(values) != len(layers):
        raise ValueError(f"expected 1 or {len(layers)} densities for {len(layers)} linear layers, found {len(values)}")
    return list(zip(layers, values, strict=True))


def _largest(layers: Sequence[WeightedLayer], density: float, name: str) -> list[Support]:
    """The supports of the weights farthest from 0, with which the layers together have the density."""
    check_density(name, density)
    stored, elements = sum(x.nnz for x in layers), sum(x.output_size * x.input_size for x in layers)
    count = round(density * elements)
    if not len(layers) <= count <= stored:
        least = "one" if len(layers) == 1 else "one per layer"
        problem = f"expected at least {least} and at most the {stored} that are stored"
        raise ValueError(f"{name}: {density} of the {elements} weights are {count}; {problem}")
    return largest_weights([layer.W for layer in layers], count)
