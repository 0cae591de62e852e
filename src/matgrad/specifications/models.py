"""Models from strings: ``ReLU;BatchNormalization;AllReLU(0.3);Linear`` with sizes ``784;1024;512;10``."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import accumulate, chain, cycle, pairwise, repeat, zip_longest
from typing import Any

from matgrad import layers as ly
from matgrad.activation_functions import ACTIVATIONS, ActivationFunction
from matgrad.foundation.callers import is_builtin
from matgrad.foundation.limits import LAYERS as MOST_LAYERS
from matgrad.foundation.limits import check_bytes, check_count
from matgrad.foundation.numbers import check_size, own_generator
from matgrad.layers.composite import output_shape
from matgrad.layers.dropout import RENEWALS, LinearDropoutLayer, add_dropout
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.sparse.densities import erdos_renyi_rule, format_density, layer_densities, parse_densities, random_support
from matgrad.sparse.matrix import SparseMatrix
from matgrad.sparse.support import Support, as_support
from matgrad.specifications.parsing import Items, at_position, create, lookup, parse_call, parse_numbers, split_items
from matgrad.specifications.shaped import SHAPED, parse_shape

LAYERS: dict[str, type[ly.Layer]] = {
    "Linear": ly.LinearLayer,
    "Softmax": ly.SoftmaxLayer,
    "LogSoftmax": ly.LogSoftmaxLayer,
    "SReLU": ly.SReLULayer,
    "BatchNormalization": ly.BatchNormalizationLayer,
    "LayerNormalization": ly.LayerNormalizationLayer,
    "RMSNormalization": ly.RMSNormalizationLayer,
    "Dropout": ly.DropoutLayer,
}

WEIGHTS, OPTIMIZER = "XavierNormalized", "Momentum(0.9)"  # defaults


def create_model(
    layers: Items,
    sizes: Items,
    *,
    weights: Items = WEIGHTS,
    optimizers: Items = OPTIMIZER,
    dropouts: Items = 0,
    renew: Items = "step",
    densities: Items | None = None,
    supports: Sequence[Any] | None = None,
) -> MultilayerPerceptron:
    """The model with the given layers; `sizes` are the number of features, then the sizes of the layers.

    A layer that keeps its size, such as batch normalization, has none in the list. `weights`, `dropouts`, `densities`
    and `renew` (whether dropout is renewed every 'step' or every 'epoch') have one item per linear layer, parts of
    layers included, in the order of `M.walk`; `optimizers` has one per layer. A single item serves all. A linear layer
    with a density below 1 is sparse, with a random support and weights drawn for that; ``ER(0.05)`` divides the density
    of the whole model among the layers, by the Erdős–Rényi rule. Instead of densities, `supports`
    has one item per linear layer: a `Support`, a mask or a SciPy matrix, or None for a dense layer. The model trains
    in the C++ core if it is built, else on NumPy; see `M.to`.

        >>> M = create_model("ReLU;ReLU;Linear", [64, 128, 64, 10])
    """
    if densities is not None and supports is not None:
        raise ValueError("densities and supports: expected one of them")
    per_layer: dict[str, Sequence[Any]] = {  # lists with an item per linear layer; the first one serves all others
        "dropouts": parse_numbers(dropouts, "dropout", float),
        "values of renew": split_items(renew, "renew"),
    }
    if unknown := {*per_layer["values of renew"]} - {*RENEWALS}:
        raise ValueError(f"renew: expected 'step' or 'epoch', found {unknown.pop()!r}")
    items = split_items(layers, "layer")
    kinds = _kinds(items)
    rule = erdos_renyi_rule(densities)
    is_divided = rule is not None and _is_shaped(kinds)  # after the sizes of all layers are known
    if supports is None:
        given = 1 if densities is None or is_divided else densities
        fractions = layer_densities(given, [] if _is_shaped(kinds) else parse_numbers(sizes, "layer size"))
        per_layer["densities"] = fractions
    else:
        per_layer["supports"] = [None if S is None else as_support(S) for S in supports]  # of which none serves all
        fractions = [1.0 if S is None else S.density or 1.0 for S in per_layer["supports"]]  # an empty one fails below
    per_layer["layer weights"] = split_items(weights, "layer weights")
    check_bytes(model_bytes(layers, sizes, fractions), f"the model with sizes {sizes}")
    *settings, distributions = (
        chain(values, repeat(None if what == "supports" else values[0])) for what, values in per_layer.items()
    )
    rows = zip(*settings, strict=False)
    M = MultilayerPerceptron()
    shape, *numbers = _checked_sizes(kinds, sizes)
    outputs = iter(numbers)
    for position, (item, kind) in enumerate(zip(items, kinds, strict=True), start=1):
        with at_position("layer", position):
            K = next(outputs) if _has_size(kind) else math.prod(shape)
            M.layers.append(_create_layer(item, kind, shape, K, rows))
            shape = shape if getattr(kind, "keeps_size", False) else output_shape(M.layers[-1])
            for _, part in M.layers[-1].walk():
                if isinstance(part, ly.LinearLayer):
                    part.set_weights(next(distributions))
    n = len(M.linear_layers())
    for what, values in per_layer.items():
        if len(values) not in (n, n if what == "supports" else 1):
            expected = n if what == "supports" else f"1 or {n}"
            raise ValueError(f"expected {expected} {what} for {n} linear layers, found {len(values)}")
    if densities is not None and is_divided:
        M.set_densities(densities)
        for layer, distribution in zip(M.linear_layers(), cycle(per_layer["layer weights"]), strict=False):
            layer.set_weights(distribution)
    set_optimizers(M, optimizers)
    return M.to("auto")


def model_bytes(layers: Items, sizes: Items, densities: Items = 1) -> int:
    """About as many bytes as `create_model` takes: for weights, momentum and indices, and to draw the largest layer."""
    kinds, fractions = _kinds(split_items(layers, "layer")), parse_densities(densities)
    if _is_shaped(kinds):
        return 0  # layers of shapes ask by themselves before they take memory
    pairs = [pair for kind, pair in zip(kinds, _sizes(kinds, sizes), strict=True) if _has_size(kind)]
    if len(fractions) != len(pairs):  # one for all, or layers whose parts have their own
        fractions = [max(fractions)] * len(pairs)
    kept, drawn = 16 * sum(D + K for D, K in pairs), [0]
    for (D, K), density in zip(pairs, fractions, strict=True):
        weights = round(Fraction(density) * D * K)  # sizes may be too large for a float
        kept += (8 if density == 1 else 20) * weights
        drawn.append(8 * D * K if density > 1 / 8 else 28 * weights)
    return kept + max(drawn)


def _checked_sizes(kinds: list[Any], sizes: Items) -> list[Any]:
    """The shape of the input, and the sizes of the layers that have one in the list."""
    items = split_items(sizes, "layer size")
    shape = parse_shape(items[0]) if _is_shaped(kinds) and items else ()
    first, *rest = parse_numbers(["1", *items[1:]] if shape else items, "layer size") or [0]
    found = [shape or (first,), *rest]
    if len(found) != (expected := 1 + sum(map(_has_size, kinds))):
        others = "; layers of images and tokens have none: a function is in one, as in Conv(8, 3, act=ReLU)"
        raise ValueError(
            f"expected {expected} layer sizes for {expected - 1} linear layers (the number of features, then "
            f"one per layer{others if _is_shaped(kinds) else ''}), found {len(found)}: {sizes}"
        )
    check_size("layer size 1", first)
    return found[:1] + [check_size(f"layer size {position}", n) for position, n in enumerate(found[1:], start=2)]


def _is_shaped(kinds: list[Any]) -> bool:
    """Whether the specification of a layer carries a shape."""
    return any(not isinstance(kind, type) for kind in kinds)


def _sizes(kinds: list[type], sizes: Items) -> list[tuple[int, int]]:
    """The number of inputs and outputs (D, K) of each layer."""
    (features,), *numbers = _checked_sizes(kinds, sizes)
    rest = iter(numbers)
    return [*pairwise(accumulate(kinds, lambda D, kind: next(rest) if _has_size(kind) else D, initial=features))]


def set_optimizers(M: MultilayerPerceptron, optimizers: Items) -> None:
    """Give every layer its optimizer from a list; a single one serves all."""
    rules = split_items(optimizers, "optimizer")
    if len(rules) not in (1, len(M.layers)):
        raise ValueError(f"expected 1 or {len(M.layers)} optimizers for {len(M.layers)} layers, found {len(rules)}")
    for position, layer in enumerate(M.layers, start=1):
        with at_position("layer", position):
            layer.set_optimizer(rules[position - 1 if len(rules) > 1 else 0])


def count_linear(layers: Items) -> int:
    """How many of the layers have a size of their own."""
    return sum(map(_has_size, _kinds(split_items(layers, "layer"))))


def _has_size(kind: type) -> bool:
    """Whether a layer of this kind, or with this activation function, has a size of its own in the list of sizes."""
    return isinstance(kind, type) and not getattr(kind, "keeps_size", False)


def model_specification(M: MultilayerPerceptron) -> dict[str, str]:
    """The `layers`, `sizes`, `dropouts` and `renew` from which `create_model` makes such a model again.

    If a layer is sparse, also the `densities`, but not the supports. It is an error if the settings of a user's layer,
    or the parts of any layer, differ from those that its specification makes.
    """
    linear, first = M.linear_layers(), M.layers[0]
    start = "x".join(map(str, getattr(first, "input_shape", (first.input_size,))))
    sizes = [start, *(x.output_size for x in M.layers if not (x.keeps_size or hasattr(x, "output_shape")))]
    rates, renewals = zip(*map(_dropout, linear), strict=True) if linear else (("0",), ("step",))
    renewed = {renew for rate, renew in zip(rates, renewals, strict=True) if rate} or {"step"}
    densities = [format_density(x.W.support) if isinstance(x.W, SparseMatrix) else "1" for x in linear]
    for i, layer in enumerate(M.layers, start=1):
        _check_names(f"layer {i}, {layer!r}", layer)
        if layer.parts() or not is_builtin(layer):
            _check_specification(f"layer {i}, {layer!r}", layer)
    return {
        "layers": ";".join(layer.specification() for layer in M.layers),
        "sizes": ";".join(map(str, sizes)),
        "dropouts": ";".join(map(str, rates)),
        "renew": renewed.pop() if len(renewed) == 1 else ";".join(renewals),
        **({"densities": ";".join(densities)} if any(density != "1" for density in densities) else {}),
    }


def _dropout(layer: ly.LinearLayer) -> tuple[float, str]:
    """The rate at which the weights of a layer are dropped, and when that is renewed."""
    return (layer.dropout, layer.renew) if isinstance(layer, LinearDropoutLayer) else (0.0, "step")


def _check_names(name: str, layer: ly.Layer) -> None:
    """Raise if a user's layer, part or activation function is called what another class is found by."""
    for _, part in layer.walk():
        things: list[tuple[str, object]] = [(part.specification(), part)]
        if isinstance(part, ly.ActivationLayer):
            things.append((repr(part.act), part.act))
        for specification, thing in things:
            found = {**LAYERS, **ACTIVATIONS}.get(parse_call(specification).name)
            if found not in (None, type(thing)) and not is_builtin(thing):
                what = f"{specification!r} is the specification of {type(thing).__qualname__}"
                raise ValueError(f"{name}: {what}, but that names {found.__module__}.{found.__qualname__}")


def _check_specification(name: str, layer: ly.Layer) -> None:
    """Raise if a layer differs from the one its specification makes."""
    specification = layer.specification()
    dropouts = [_dropout(x) for _, x in layer.walk() if isinstance(x, ly.LinearLayer)]
    rows = ((*dropout, None) for dropout in chain(dropouts, repeat((0.0, "step"))))
    try:
        with own_generator():
            name_of_kind = parse_call(specification).name
            kind = type(layer) if name_of_kind in LAYERS else SHAPED.get(name_of_kind, type(layer))
            shape = getattr(layer, "input_shape", (layer.input_size,))
            made = _create_layer(specification, kind, shape, layer.output_size, rows)
    except Exception as error:  # whatever a constructor with other arguments than (D, K) raises
        raise ValueError(f"{name}: cannot be made from its specification {specification!r}: {error}") from None
    for found, expected in zip_longest(_settings(layer), _settings(made), fillvalue="nothing"):
        if found != expected:
            raise ValueError(f"{name}: its specification {specification!r} makes {expected}, but it has {found}")


def _settings(layer: ly.Layer) -> Iterator[str]:
    """A layer and its parts in words: names, specifications, numbers and strings, which a specification must give."""
    for name, part in layer.walk():
        plain = {k: v for k, v in vars(part).items() if isinstance(v, bool | int | float | str) and k != "training"}
        values = ", ".join(f"{attribute} = {value}" for attribute, value in plain.items())
        yield f"{f'part {name}' if name else 'a layer'} {part.specification()} with {values}"


def _create_layer(item: str, kind: Any, shape: tuple[int, ...], K: int, rows: Iterator[Sequence[Any]]) -> ly.Layer:
    """The layer, or the activation layer with the activation function, that the item names.

    For the layer and its linear parts, in this order, a row has a dropout rate, when dropout is renewed, and a support
    or a density.
    """
    is_shaped = not isinstance(kind, type)
    is_activation, options = not is_shaped and issubclass(kind, ActivationFunction), {}
    made, D = ly.ActivationLayer if is_activation else kind, math.prod(shape)
    if not is_shaped and issubclass(made, ly.LinearLayer):
        check_bytes(8 * D * K if len(shape) > 1 else 0, item)
        rate, renew, sparsity = next(rows)
        if (support := _support(sparsity, K, D)) is not None:
            options["support"] = support
        if issubclass(made, LinearDropoutLayer):
            options |= {"dropout": rate, "renew": renew}
    if is_activation:
        layer: ly.Layer = made(D, K, item, **options)
    elif is_shaped:
        layer = create(item, SHAPED, "layer", shape)
    else:
        layer = create(item, {parse_call(item).name: made}, "layer", D, K, **options)
    for _, part in layer.walk():
        if isinstance(part, ly.LinearLayer):
            if part is not layer:
                rate, renew, sparsity = next(rows)
                if (support := _support(sparsity, part.output_size, part.input_size, part.within)) is not None:
                    part.set_support(support)
            if rate and isinstance(part, LinearDropoutLayer):
                part.set_dropout(rate, renew)
            elif rate:
                add_dropout(part, rate, renew)
    return layer


def _support(item: float | Support | None, K: int, D: int, within: Support | None = None) -> Support | None:
    """The given support, or a random one with a density below 1; None for a layer that stays as it is."""
    return item if item is None or isinstance(item, Support) else random_support(K, D, item, within=within)


def _kinds(items: list[str]) -> list[Any]:
    """The class of each layer, or of its activation function."""
    check_count(len(items), MOST_LAYERS, "layers", "layers")
    kinds: list[Any] = []
    for position, item in enumerate(items, start=1):
        with at_position("layer", position):
            name = parse_call(item).name
            if name == "Flatten":
                raise ValueError("no 'Flatten' is needed: a linear layer sees the whole row of an image")
            kinds.append(lookup(name, {**LAYERS, **SHAPED, **ACTIVATIONS}, "layer"))
    return kinds
