"""Layers whose specification carries the shape of an image (H × W × C), of tokens (L × d) or of labels (L).

Their sizes follow from the shape of their input, so they have none in the list of sizes, whose first item is a shape
such as ``28x28x1``. Layers inside others have their size first: ``Residual(Each(LayerNormalization;Linear(192)))``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import partial
from typing import Any

from matgrad.activation_functions import ACTIVATIONS
from matgrad.foundation.limits import check_bytes
from matgrad.foundation.numbers import check_size, size_text
from matgrad.layers.composite import (
    EachLayer,
    GatedLayer,
    ResidualLayer,
    SequenceLayer,
    Shape,
    output_shape,
    shaped,
    with_size,
)
from matgrad.layers.layer import Layer
from matgrad.layers.linear import ActivationLayer, FunctionLayer
from matgrad.layers.tokens import AttentionLayer, EmbeddingLayer, PositionsLayer, RotaryLayer, SinusoidalLayer
from matgrad.layers.windows import ConvolutionLayer, MaxPoolingLayer, MeanPoolingLayer
from matgrad.specifications.parsing import create, lookup, parse_call


def parse_shape(item: str) -> Shape:
    """The shape that a size such as ``28x28x1`` or ``784`` stands for."""
    try:
        found = tuple(int(n) for n in re.split("[x×,]", str(item).strip("()[] ")))
    except ValueError:
        raise ValueError(f"layer size 1: expected an integer or a shape such as 28x28x1, found {item!r}") from None
    return tuple(check_size("layer size 1", n) for n in found)


def tokens(name: str, shape: Shape) -> tuple[int, int]:
    """The shape, after a check that it is one of tokens."""
    if len(shape) != 2:
        raise ValueError(f"{name}: expected tokens (L × d), found {size_text(shape)}")
    L, d = shape
    return L, d


def embedding(shape: Shape, size: int, *, vocabulary: int = 0) -> Layer:
    """An embedding of labels."""
    if len(shape) != 1:
        raise ValueError(f"Embedding: expected labels (L), found {size_text(shape)}")
    if not vocabulary:
        raise ValueError("Embedding: expected the number of different labels, as in Embedding(64, vocabulary=100)")
    check_bytes(16 * vocabulary * size, "Embedding")
    return EmbeddingLayer(*shape, size, vocabulary)


POSITIONS = ("learned", "sinusoidal")


def positions(shape: Shape, kind: str = "learned") -> Layer:
    """Positions that are learned, or sines and cosines."""
    if kind not in POSITIONS:
        raise ValueError(f"Positions: expected {' or '.join(POSITIONS)}, found {kind!r}")
    L, d = tokens("Positions", shape)
    check_bytes(64 * L * d, "Positions")
    return shaped(PositionsLayer(L * d), shape, shape) if kind == "learned" else SinusoidalLayer(L, d)


def each(shape: Shape, *layers: Any) -> Layer:
    """Layers on every token or pixel."""
    if len(shape) < 2:
        raise ValueError(f"Each: expected tokens (L × d) or an image (H × W × C), found {size_text(shape)}")
    return EachLayer.on(shape, *chained(layers, shape[-1:]))


def function(shape: Shape, act: str) -> Layer:
    """An activation function alone."""
    return shaped(FunctionLayer(math.prod(shape), act), shape, shape)


def residual(shape: Shape, *layers: Any) -> Layer:
    """Layers beside a shortcut."""
    parts = chained(layers, shape)
    if (found := output_shape(parts[-1])) != shape:
        raise ValueError(f"Residual: expected an output of {size_text(shape)} as its input, found {size_text(found)}")
    return ResidualLayer.on(shape, *parts)


def sequence(shape: Shape, *layers: Any) -> Layer:
    """Layers one after the other."""
    return SequenceLayer.on(shape, *chained(layers, shape))


def gated(shape: Shape, *layers: Any) -> Layer:
    """The product of two layers, such as ``Gated(SiLU(256);Linear(256))``, which with a Linear after it is SwiGLU."""
    return GatedLayer.on(shape, *(create_inner(item, shape) for item in layers))


def transformer(
    shape: Shape, blocks: int = 1, *, heads: int = 1, causal: bool = True, hidden: int = 0, act: str = "GELU"
) -> Layer:
    """Blocks of self-attention and a feedforward, each beside a shortcut and after a layer normalization."""
    _, d = tokens("Transformer", shape)
    check_size("Transformer: blocks", blocks)
    check_size("Transformer: heads", heads)
    if d % heads:
        raise ValueError(f"Transformer: expected a number of features that {heads} heads divide, found {d}")
    masked = f"Attention({heads})" if causal else f"Attention({heads}, causal=False)"
    items = (
        f"Residual(Each(LayerNormalization;Linear({3 * d}));{masked};Each(Linear({d})))",
        f"Residual(Each(LayerNormalization;{with_size(act, hidden or 4 * d)};Linear({d})))",
    )
    layer = sequence(shape, *(blocks * items))
    options = [f"heads={heads}", *(() if causal else ("causal=False",))]
    options += [f"hidden={hidden}"] if hidden else []
    options += [f"act={act}"] if act != "GELU" else []
    layer.text = f"Transformer({', '.join([str(blocks), *options])})"  # type: ignore[attr-defined]
    return layer


# by the name in a specification; each makes a layer for an input of a shape
SHAPED: dict[str, Callable[..., Layer]] = {
    "Conv": partial(ConvolutionLayer),  # a class would have its size in the list
    "MaxPool": partial(MaxPoolingLayer),
    "AvgPool": partial(MeanPoolingLayer),
    "Embedding": embedding,
    "Positions": positions,
    "Rotary": partial(RotaryLayer),
    "Attention": partial(AttentionLayer),
    "Function": function,
    "Each": each,
    "Residual": residual,
    "Sequence": sequence,
    "Gated": gated,
    "Transformer": transformer,
}


def chained(items: tuple[Any, ...], shape: Shape) -> list[Layer]:
    """Layers inside another one, each for the output of the one before."""
    if not items:
        raise ValueError("expected at least one layer inside, found none")
    layers: list[Layer] = []
    for item in items:
        layers.append(create_inner(item, shape))
        shape = output_shape(layers[-1])
    return layers


def create_inner(item: Any, shape: Shape) -> Layer:
    """A layer inside another one: the first argument of one that is connected with all of its input is its size."""
    from matgrad.specifications.models import LAYERS  # which imports this module

    call = parse_call(item)
    if call.name in SHAPED:
        return create(item, SHAPED, "layer", shape)
    kind, D = lookup(call.name, {**LAYERS, **SHAPED, **ACTIVATIONS}, "layer"), math.prod(shape)
    if getattr(kind, "keeps_size", False):
        return shaped(create(item, LAYERS, "layer", D, D), shape, shape)
    if not call.arguments or not isinstance(call.arguments[0], int) or isinstance(call.arguments[0], bool):
        raise ValueError(f"layer {item!r}: expected its size as the first argument, as in {call.name}(64)")
    K = check_size(call.name, call.arguments[0])
    check_bytes(16 * D * K, f"{call.name}({K})")
    rest = [str(x) for x in call.arguments[1:]] + [f"{name}={x}" for name, x in call.keywords.items()]
    own = f"{call.name}({', '.join(rest)})" if rest else call.name
    return ActivationLayer(D, K, own) if call.name in ACTIVATIONS else create(own, LAYERS, "layer", D, K)
