"""Models from text: ``ReLU;BatchNormalization;AllReLU(0.3);Linear`` with sizes ``784;1024;512;10``."""

from __future__ import annotations

from typing import Any

from matgrad.activation_functions import ACTIVATIONS
from matgrad.layers import (
    ActivationLayer,
    BatchNormalizationLayer,
    Layer,
    LinearLayer,
    LogSoftmaxLayer,
    SoftmaxLayer,
    SReLULayer,
)
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.sparse.densities import density_text, parse_densities, random_support
from matgrad.sparse.matrix import SparseMatrix
from matgrad.specifications.parsing import at_position, create, lookup, parse_call, parse_numbers, split_items

LAYERS: dict[str, type[Layer]] = {
    "Linear": LinearLayer,
    "Softmax": SoftmaxLayer,
    "LogSoftmax": LogSoftmaxLayer,
    "SReLU": SReLULayer,
    "BatchNormalization": BatchNormalizationLayer,
}


def create_model(
    layers: str,
    sizes: str,
    *,
    weights: str = "XavierNormalized",
    optimizers: str = "GradientDescent",
    dropouts: str = "0",
    renew: str = "step",
    densities: str = "1",
) -> MultilayerPerceptron:
    """The model with the given layers, where `sizes` are the number of features and those of the linear layers.

    `weights`, `dropouts` and `densities` have one item for each linear layer, `optimizers` one for each
    layer; a single item serves all. A layer with a density below 1 is sparse, with a random support.
    """
    items = split_items(layers, "layer")
    keeps_size = _keep_sizes(items)
    linear = keeps_size.count(False)
    numbers = parse_numbers(sizes, "layer size")
    if len(numbers) != linear + 1:
        raise ValueError(
            f"expected {linear + 1} layer sizes for {linear} linear layers (the number of features, then "
            f"one for each), found {len(numbers)}: {sizes}"
        )
    rates = _one_each(parse_numbers(dropouts, "dropout", float), linear, "dropouts", "linear layers")
    distributions = _one_each(split_items(weights, "layer weights"), linear, "layer weights", "linear layers")
    rules = _one_each(split_items(optimizers, "optimizer"), len(items), "optimizers", "layers")
    parts = _one_each(parse_densities(densities), linear, "densities", "linear layers")

    M = MultilayerPerceptron()
    i = 0  # the number of linear layers so far
    for position, item in enumerate(items, start=1):
        D, K = (numbers[i], numbers[i]) if keeps_size[position - 1] else (numbers[i], numbers[i + 1])
        with at_position("layer", position):
            if keeps_size[position - 1]:
                layer = _create_layer(item, D, K)
            else:
                options: dict[str, Any] = {"dropout": rates[i], "renew": renew} if rates[i] else {}
                if parts[i] < 1:
                    options["support"] = random_support(K, D, parts[i])
                layer = _create_layer(item, D, K, **options)
                if isinstance(layer, LinearLayer):
                    layer.set_weights(distributions[i])
                i += 1
            layer.set_optimizer(rules[position - 1])
        M.layers.append(layer)
    return M


def count_linear(layers: str) -> int:
    """How many of the layers have a size of their own."""
    return _keep_sizes(split_items(layers, "layer")).count(False)


def model_specification(M: MultilayerPerceptron) -> dict[str, str]:
    """The `layers`, `sizes`, `dropouts` and `renew` that `create_model` needs to make such a model again.

    Where a layer is sparse, also the `densities`; the supports are not part of it.
    """
    linear = [layer for layer in M.layers if not layer.keeps_size]
    sizes = [M.layers[0].input_size, *(layer.output_size for layer in linear)]
    dropouts = [layer.dropout if isinstance(layer, LinearLayer) else 0 for layer in linear]
    renew = next((x.renew for x in linear if isinstance(x, LinearLayer) and x.dropout), "step")
    weights = [getattr(layer, "W", None) for layer in linear]
    densities = [density_text(W.support) if isinstance(W, SparseMatrix) else "1" for W in weights]
    return {
        "layers": ";".join(layer.specification() for layer in M.layers),
        "sizes": ";".join(map(str, sizes)),
        "dropouts": ";".join(map(str, dropouts or [0])),
        "renew": renew,
        **({"densities": ";".join(densities)} if any(isinstance(W, SparseMatrix) for W in weights) else {}),
    }


def _create_layer(item: str, D: int, K: int, **options: Any) -> Layer:
    """The layer, or the activation layer with the activation function, that the item names."""
    if parse_call(item).name in ACTIVATIONS:
        return ActivationLayer(D, K, item, **options)
    return create(item, LAYERS, "layer", D, K, **options)


def _keep_sizes(items: list[str]) -> list[bool]:
    """For every layer whether it has no size of its own in the list of sizes."""
    kinds = []
    for position, item in enumerate(items, start=1):
        with at_position("layer", position):
            kinds.append(lookup(parse_call(item).name, {**LAYERS, **ACTIVATIONS}, "layer"))
    return [issubclass(kind, Layer) and kind.keeps_size for kind in kinds]


def _one_each(values: list[Any], number: int, what: str, of: str) -> list[Any]:
    """The values, one for each of `number` layers; a single one serves all."""
    if len(values) not in (1, number):
        raise ValueError(f"expected 1 or {number} {what} for {number} {of}, found {len(values)}")
    return values * number if len(values) == 1 else values
