"""Keras's layers for images and sequences, whose channels come last, as in the rows of matgrad."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from matgrad import layers as ly
from matgrad.exchange import chain, shapes
from matgrad.exchange.chain import Operation
from matgrad.exchange.shapes import single
from matgrad.layers.composite import Shape, shape_of

Written = tuple[Any, ...]  # the class of a layer, its settings and its weights

# -- from a model ---------------------------------------------------------------------------------


def shape_for(operation: Any, shape: Shape) -> Shape:
    """The shape in which Keras has the input of an operation: that of images and tokens; () of rows."""
    if type(operation) in (*chain.GRIDS, ly.EachLayer):
        return shape_of(operation)
    return () if isinstance(operation, ly.Layer) and type(operation) is not ly.DropoutLayer else shape


def written(operation: Any, of_row: Callable[[Any], Written]) -> list[Written]:
    """The layers of Keras for an operation, with their settings and weights."""
    if isinstance(operation, ly.EachLayer):  # Keras has dense layers and normalizations of the last axis
        return [x for part in operation.layers for y in chain.parts_of(part) for x in written(y, of_row)]
    if type(operation) in chain.GRIDS:
        return [x if isinstance(x, tuple) else of_row(x) for x in _of_grid(operation)]
    return [of_row(operation)]


def _of_grid(x: Any) -> Iterator[Any]:
    """A convolution with its function, or pooling, with a layer before it that pads with zeros."""
    dimensions = f"{len(x.input_shape) - 1}D"
    if x.padding and isinstance(x, ly.MaxPoolingLayer):
        raise ValueError("Keras pads with zeros, which could be the maximum; expected no padding")
    if x.padding:
        yield f"ZeroPadding{dimensions}", {"padding": x.padding}
    if isinstance(x, ly.ConvolutionLayer):
        settings = {"filters": x.channels, "kernel_size": x.size, "strides": x.stride, "groups": x.groups}
        kernel, inner = np.moveaxis(shapes.kernel(x), 0, -1), list(chain.parts_of(x.layers[0]))
        weights = {"kernel_initializer": "zeros", "dilation_rate": x.dilation}
        yield f"Conv{dimensions}", settings | weights, kernel, chain.dense(x.layers[0].b)[0]  # type: ignore[attr-defined]
        yield from inner[1:]
    else:
        kind = "MaxPooling" if isinstance(x, ly.MaxPoolingLayer) else "AveragePooling"
        yield f"{kind}{dimensions}", {"pool_size": x.size, "strides": x.stride}


# -- to a model -----------------------------------------------------------------------------------


def each(shape: Shape, operation: Any) -> Operation:
    """A layer on every pixel or token; a function stays one of all elements."""
    is_of_rows = isinstance(operation, ly.LinearLayer) or type(operation) in chain.NORMALIZING.values()
    if isinstance(operation, chain.Softmax | chain.LogSoftmax):
        raise ValueError("takes pixels or tokens; expected a layer Flatten before it")
    if not is_of_rows:
        return operation
    return ly.EachLayer.on(shape, operation)


GRIDS = ("Conv1D", "Conv2D", "MaxPooling1D", "MaxPooling2D", "AveragePooling1D", "AveragePooling2D")


def grid(layer: Any, shape: Shape, padding: int, activation: Callable[[Any], list[Operation]]) -> list[Operation]:
    """A convolution with its function, or a pooling layer."""
    if len(shape) != int(layer.kind[-2]) + 1:
        raise ValueError(f"takes images, but found the shape {shape}: expected (H, W, C) or (L, C)")
    if layer.config["padding"] == "same" and layer.kind.startswith("Conv") and not padding:
        dilation, size = (single(name, layer.config[name]) for name in ("dilation_rate", "kernel_size"))
        span = dilation * (size - 1)
        if span % 2 or single("strides", layer.config["strides"]) > 1:
            raise ValueError("found padding='same' with an even window or a stride; expected 'valid'")
        padding = span // 2
    elif layer.config["padding"] != "valid":
        raise ValueError(f"found padding={layer.config['padding']!r}, expected 'valid', after ZeroPadding2D if needed")
    if not layer.kind.startswith("Conv"):
        kind = ly.MaxPoolingLayer if layer.kind.startswith("Max") else ly.MeanPoolingLayer
        if padding and kind is ly.MaxPoolingLayer:
            raise ValueError("follows a layer that pads with zeros, which could be the maximum; expected none")
        size, stride = (single(name, layer.config[name]) for name in ("pool_size", "strides"))
        return [kind(shape, size, stride=stride, padding=padding)]
    arrays = layer.named("kernel", *(["bias"] if layer.config["use_bias"] else []))
    settings = {"stride": single("strides", layer.config["strides"]), "groups": layer.config["groups"]}
    settings |= {"dilation": single("dilation_rate", layer.config["dilation_rate"]), "padding": padding}
    made = shapes.convolution(shape, np.moveaxis(arrays["kernel"], -1, 0), arrays.get("bias"), **settings)
    return [made, *activation(layer)]
