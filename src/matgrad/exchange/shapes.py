"""What the tools share of layers for images and tokens, whose shapes are H × W × C and L × d: channels come last.

A row of matgrad has the channels of a pixel side by side, as Keras has them; PyTorch and ONNX have channels first.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from matgrad.exchange import chain
from matgrad.layers import ConvolutionLayer, EmbeddingLayer, Layer, SequenceLayer
from matgrad.layers.composite import Shape
from matgrad.sparse.matrix import SparseMatrix
from matgrad.sparse.support import Support


def single(name: str, value: Any) -> int:
    """The number that a setting has along each side: 1 or more, but of padding 0 or more."""
    found = {*np.ravel(value).tolist()} if isinstance(value, int | list | tuple) else set()
    if len(found) != 1 or not isinstance(n := found.pop(), int) or n < (name not in ("padding", "pads")):
        raise ValueError(f"found {name}={value!r}, expected one number for all sides")
    return n


# -- kernels ----------------------------------------------------------------------------------------


def kernel(layer: Any, W: Any = None) -> np.ndarray:
    """The K×k×…×C/g kernel of a convolution: channels of the output, pixels of a window, channels of a group."""
    C, K, g = layer.input_shape[-1], layer.channels, layer.groups
    A = chain.dense(layer.layers[0].W if W is None else W).reshape(K, -1, C)
    own = [A[o, :, (o * g // K) * (C // g) : (o * g // K + 1) * (C // g)] for o in range(K)]
    return np.stack(own).reshape(K, *(len(layer.input_shape) - 1) * [layer.size], C // g)


def mask(layer: Any) -> np.ndarray | None:
    """Where the kernel of a sparse convolution has weights; None if that is everywhere."""
    W = layer.layers[0].W
    if not isinstance(W, SparseMatrix):
        return None
    found = kernel(layer, W.with_values(np.ones_like(W.values)))
    return None if found.all() else found


def convolution(shape: Shape, A: np.ndarray, b: np.ndarray | None, stored: Any = None, **settings: Any) -> Layer:
    """The convolution with a K×k×…×C/g kernel and a bias, on images or tokens; it is sparse where `stored` is 0."""
    K, *sides, _ = A.shape
    if len({*sides}) != 1 or len(shape) != len(sides) + 1:
        raise ValueError(f"found a window of {' × '.join(map(str, sides))}, expected a square one, for an image")
    layer = ConvolutionLayer(shape, K, sides[0], **settings)
    C, g, inner = shape[-1], layer.groups, layer.layers[0]
    if A.shape[-1] * g != C:
        raise ValueError(f"takes {A.shape[-1] * g} channels, but what is before it has {C}")

    def spread(A: np.ndarray) -> np.ndarray:
        wide = np.zeros((K, math.prod(sides), C), A.dtype)
        for o in range(K):
            first = (o * g // K) * (C // g)
            wide[o, :, first : first + C // g] = A.reshape(K, -1, C // g)[o]
        return wide.reshape(K, -1)

    made = chain.linear(spread(A), b)
    if stored is not None or g > 1:
        support = Support.from_mask(spread(np.ones_like(A) if stored is None else stored) != 0)
        made = chain.linear(SparseMatrix.from_dense(made.W, support), b)
    inner.W, inner.b = made.W, made.b  # type: ignore[attr-defined]
    return layer


def one(shape: Shape, layers: list[Any]) -> Layer:
    """The only one of some layers, or these as a sequence."""
    return layers[0] if len(layers) == 1 else SequenceLayer.on(shape, *layers)


def embedding(shape: Shape, W: np.ndarray) -> Layer:
    """An embedding of L labels with the rows of W."""
    (L,), (V, d) = shape, W.shape
    layer = EmbeddingLayer(L, d, V)
    layer.W = W
    return layer
