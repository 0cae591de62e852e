"""Layers whose specification carries the shape of an image (H × W × C), of tokens (L × d) or of labels (L).

Their sizes follow from the shape of their input, so they have none in the list of sizes, whose first item is a shape
such as ``28x28x1``. Layers inside others have their size first: ``Residual(Each(LayerNormalization;Linear(192)))``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from matgrad.activation_functions import ACTIVATIONS
from matgrad.foundation.limits import check_bytes
from matgrad.foundation.numbers import check_size
from matgrad.layers.composite import EachLayer, GatedLayer, ResidualLayer, SequenceLayer, with_size
from matgrad.layers.layer import Layer
from matgrad.layers.linear import ActivationLayer
from matgrad.layers.tokens import AttentionLayer, EmbeddingLayer, PositionsLayer, RotaryLayer, SinusoidalLayer
from matgrad.layers.windows import ConvolutionLayer, MaxPoolingLayer, MeanPoolingLayer, PoolingLayer
from matgrad.specifications.parsing import create, lookup, parse_call

LayerShape = tuple[int, ...]
Registry = Mapping[str, Any]  # of the layers by name, and the activation functions


def parse_shape(item: str) -> LayerShape:
    """The shape that a size such as ``28x28x1`` or ``784`` stands for."""
    try:
        found = tuple(int(n) for n in re.split("[x×,]", str(item).strip("()[] ")))
    except ValueError:
        raise ValueError(f"layer size 1: expected an integer or a shape such as 28x28x1, found {item!r}") from None
    return tuple(check_size("layer size 1", n) for n in found)


def shape_words(shape: LayerShape) -> str:
    """A shape in messages."""
    return " × ".join(map(str, shape))


def tokens(name: str, shape: LayerShape) -> tuple[int, int]:
    """The shape, after a check that it is one of tokens."""
    if len(shape) != 2:
        raise ValueError(f"{name}: expected tokens (L × d), found {shape_words(shape)}")
    L, d = shape
    return L, d


def convolution(
    shape: LayerShape,
    channels: int,
    size: int,
    *,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    groups: int = 1,
    act: str = "",
) -> Layer:
    """A convolution, after a check of the memory that it takes."""
    _check_windows("Conv", shape, size, padding)
    check_bytes(16 * size ** (len(shape) - 1) * shape[-1] * channels, "Conv")
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups, "act": act}
    return ConvolutionLayer(shape, channels, size, **options)  # type: ignore[arg-type]


def pooling(kind: type[PoolingLayer]) -> Callable[..., Layer]:
    """The constructor of a pooling layer, after a check of the memory that it takes."""

    def made(shape: LayerShape, size: int, *, stride: int = 0, padding: int = 0) -> Layer:
        _check_windows(kind.name, shape, size, padding)
        return kind(shape, size, stride=stride, padding=padding)

    return made


def _check_windows(name: str, shape: LayerShape, size: int, padding: int) -> None:
    if len(shape) not in (2, 3):
        raise ValueError(f"{name}: expected an image (H × W × C) or tokens (L × C), found {shape_words(shape)}")
    pixels = math.prod(n + 2 * padding for n in shape[:-1])
    check_bytes(40 * pixels * size ** (len(shape) - 1) * shape[-1], name)


def embedding(shape: LayerShape, size: int, *, vocabulary: int = 0) -> Layer:
    """An embedding of labels."""
    if len(shape) != 1:
        raise ValueError(f"Embedding: expected labels (L), found {shape_words(shape)}")
    if not vocabulary:
        raise ValueError("Embedding: expected the number of different labels, as in Embedding(64, vocabulary=100)")
    check_bytes(16 * vocabulary * size, "Embedding")
    return EmbeddingLayer(*shape, size, vocabulary)


POSITIONS = ("learned", "sinusoidal")


def positions(shape: LayerShape, kind: str = "learned") -> Layer:
    """Positions that are learned, or sines and cosines."""
    if kind not in POSITIONS:
        raise ValueError(f"Positions: expected {' or '.join(POSITIONS)}, found {kind!r}")
    L, d = tokens("Positions", shape)
    check_bytes(64 * L * d, "Positions")
    return shaped(PositionsLayer(L * d), shape, shape) if kind == "learned" else SinusoidalLayer(L, d)


def rotary(shape: LayerShape, heads: int = 1, *, groups: int = 0) -> Layer:
    """Rotary positions of queries and keys."""
    L, width = tokens("Rotary", shape)
    check_bytes(64 * L * width, "Rotary")
    return RotaryLayer((L, width), heads, groups=groups)


def attention(shape: LayerShape, heads: int = 1, *, causal: bool = True, groups: int = 0) -> Layer:
    """Self-attention of tokens with queries, keys and values."""
    L, width = tokens("Attention", shape)
    check_size("Attention: heads", heads)
    check_bytes(64 * L * (width + L * heads), "Attention")
    return AttentionLayer((L, width), heads, causal=causal, groups=groups)


def each(shape: LayerShape, *layers: Any) -> Layer:
    """Layers on every token or pixel."""
    if len(shape) < 2:
        raise ValueError(f"Each: expected tokens (L × d) or an image (H × W × C), found {shape_words(shape)}")
    parts = chained(layers, shape[-1:])
    return shaped(EachLayer(math.prod(shape[:-1]), *parts), shape, (*shape[:-1], parts[-1].output_size))


def residual(shape: LayerShape, *layers: Any) -> Layer:
    """Layers beside a shortcut."""
    parts = chained(layers, shape)
    if (found := output_shape(parts[-1])) != shape:
        raise ValueError(
            f"Residual: expected an output of {shape_words(shape)} as its input, found {shape_words(found)}"
        )
    return shaped(ResidualLayer(*parts), shape, shape)


def sequence(shape: LayerShape, *layers: Any) -> Layer:
    """Layers one after the other."""
    parts = chained(layers, shape)
    return shaped(SequenceLayer(*parts), shape, output_shape(parts[-1]))


def gated(shape: LayerShape, *layers: Any) -> Layer:
    """The product of two layers, such as ``Gated(SiLU(256);Linear(256))``, which with a Linear after it is SwiGLU."""
    parts = [create_inner(item, shape) for item in layers]
    return shaped(GatedLayer(*parts), shape, output_shape(parts[0]))


def transformer(
    shape: LayerShape, blocks: int = 1, *, heads: int = 1, causal: bool = True, hidden: int = 0, act: str = "GELU"
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
    "Conv": convolution,
    "MaxPool": pooling(MaxPoolingLayer),
    "AvgPool": pooling(MeanPoolingLayer),
    "Embedding": embedding,
    "Positions": positions,
    "Rotary": rotary,
    "Attention": attention,
    "Each": each,
    "Residual": residual,
    "Sequence": sequence,
    "Gated": gated,
    "Transformer": transformer,
}


def shaped(layer: Any, given: LayerShape, made: LayerShape) -> Any:
    """The layer, which knows the shapes of its input and its output."""
    layer.input_shape, layer.output_shape = given, made
    return layer


def output_shape(layer: Layer) -> LayerShape:
    """The shape of the output: that of a layer which has none is its size."""
    return getattr(layer, "output_shape", (layer.output_size,))


def chained(items: tuple[Any, ...], shape: LayerShape) -> list[Layer]:
    """Layers inside another one, each for the output of the one before."""
    if not items:
        raise ValueError("expected at least one layer inside, found none")
    layers: list[Layer] = []
    for item in items:
        layers.append(create_inner(item, shape))
        shape = output_shape(layers[-1])
    return layers


def create_inner(item: Any, shape: LayerShape) -> Layer:
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
