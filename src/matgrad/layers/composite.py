"""Layers of layers: one after the other, beside a shortcut, multiplied, and on every part of a row.

The state of part i has the prefix 'i.', from 1, as in '3.1.W'.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Self

from matgrad.layers.layer import Layer
from matgrad.matrix_operations import Matrix, hadamard, stack, unstack
from matgrad.specifications.parsing import stem

Shape = tuple[int, ...]  # of images (H, W, C), tokens (L, d) or labels (L,)


def shape_of(layer: Any) -> Shape:
    """The shape of the input: that of a layer which has none is its size."""
    return tuple(getattr(layer, "input_shape", (layer.input_size,)))


def output_shape(layer: Any) -> Shape:
    """The shape of the output."""
    return tuple(getattr(layer, "output_shape", (layer.output_size,)))


def shaped(layer: Any, given: Shape, made: Shape) -> Any:
    """The layer, which knows the shapes of its input and its output."""
    layer.input_shape, layer.output_shape = given, made
    return layer


def _inner_specification(layer: Layer) -> str:
    """The specification of a layer inside another one, with its size unless that follows from its input."""
    own = layer.specification()
    return own if layer.keeps_size or hasattr(layer, "input_shape") else with_size(own, layer.output_size)


def with_size(specification: str, size: int) -> str:
    """The specification with a size as its first argument."""
    name, parenthesis, rest = specification.partition("(")
    return f"{name}({size}, {rest}" if parenthesis else f"{name}({size})"


class CompositeLayer(Layer):
    """A layer of `layers`, and its specification, such as ``Residual(Each(RMSNormalization;Linear(8)))``."""

    text = ""  # the specification, if it is another one

    def __init__(self, *layers: Layer) -> None:
        if not layers:
            raise ValueError(f"{type(self).__name__}: expected at least one layer, found none")
        self.layers = list(layers)
        super().__init__(layers[0].input_size, layers[-1].output_size)

    @classmethod
    def on(cls, shape: Shape, *layers: Layer) -> Self:
        """The layer for an input of this shape."""
        return shaped(cls(*layers), shape, output_shape(layers[-1]))

    def parts(self) -> Sequence[Layer]:
        return self.layers

    def specification(self) -> str:
        inner = ";".join(map(_inner_specification, self.layers))
        return self.text or f"{stem(type(self), 'Layer')}({inner})"


class SequenceLayer(CompositeLayer):
    """Y = F(X), for layers F one after the other"""

    def feedforward(self, X: Matrix) -> Matrix:
        Y = self.F(X)

        self.X = X
        return Y

    def backpropagate(self, Y: Matrix, DY: Matrix) -> None:
        DX = self.DF(Y, DY)

        self.DX = DX

    def F(self, X: Matrix) -> Matrix:
        """The output of the layers, one after the other."""
        for layer in self.layers:
            X = layer.feedforward(X)
        return X

    def DF(self, Y: Matrix, DY: Matrix) -> Matrix:
        """The gradient of their input, from their output Y and its gradient."""
        for layer in reversed(self.layers):
            layer.backpropagate(Y, DY)
            Y, DY = layer.X, layer.DX
        return DY

    def __init__(self, *layers: Layer) -> None:
        super().__init__(*layers)
        for before, after in pairwise(layers):
            if before.output_size != after.input_size:
                sizes = f"{before!r} has {before.output_size} outputs, but {after!r} has {after.input_size} inputs"
                raise ValueError(f"{type(self).__name__}: {sizes}")
        self.output = layers[-1].output


class ResidualLayer(SequenceLayer):
    """Y = X + F(X)"""

    intermediates: tuple[str, ...] = ("Z",)
    output = "real"

    def feedforward(self, X: Matrix) -> Matrix:
        Z = self.F(X)
        Y = X + Z

        self.X, self.Z = X, Z
        return Y

    def backpropagate(self, Y: Matrix, DY: Matrix) -> None:
        Z = self.Z

        DX = DY + self.DF(Z, DY)

        self.DX = DX

    def __init__(self, *layers: Layer) -> None:
        super().__init__(*layers)
        self.output = "real"
        if self.input_size != self.output_size:
            sizes = f"found {self.input_size} inputs and {self.output_size} outputs"
            raise ValueError(f"ResidualLayer: {sizes}, expected as many outputs as inputs")


class GatedLayer(CompositeLayer):
    """Y = F(X) ⊙ G(X), for two layers, as in a gated feedforward: with SiLU as F and linear G it is SwiGLU"""

    intermediates: tuple[str, ...] = ("A", "B")

    def feedforward(self, X: Matrix) -> Matrix:
        F, G = self.layers

        A = F.feedforward(X)
        B = G.feedforward(X)
        Y = hadamard(A, B)

        self.X, self.A, self.B = X, A, B
        return Y

    def backpropagate(self, Y: Matrix, DY: Matrix) -> None:
        (F, G), A, B = self.layers, self.A, self.B

        F.backpropagate(A, hadamard(DY, B))
        G.backpropagate(B, hadamard(DY, A))
        DX = F.DX + G.DX

        self.DX = DX

    def __init__(self, *layers: Layer) -> None:
        sizes = {(layer.input_size, layer.output_size) for layer in layers}
        if len(layers) != 2 or len(sizes) != 1:
            found = ", ".join(f"{layer.input_size} → {layer.output_size}" for layer in layers)
            raise ValueError(f"GatedLayer: expected two layers of equal sizes, found {found or 'none'}")
        super().__init__(*layers)


class EachLayer(SequenceLayer):
    """U = stack(X, P);  V = F(U);  Y = unstack(V, P)

    What F does with a row, this does with each of P parts of a row, such as the tokens of a text or the pixels of an
    image: batch normalization becomes one of channels.
    """

    intermediates: tuple[str, ...] = ("U", "V", "DU", "DV")

    def feedforward(self, X: Matrix) -> Matrix:
        P = self.P

        U = stack(X, P)
        V = self.F(U)
        Y = unstack(V, P)

        self.X, self.U, self.V = X, U, V
        return Y

    def backpropagate(self, Y: Matrix, DY: Matrix) -> None:
        P, V = self.P, self.V

        DV = stack(DY, P)
        DU = self.DF(V, DV)
        DX = unstack(DU, P)

        self.DU, self.DV, self.DX = DU, DV, DX

    @classmethod
    def on(cls, shape: Shape, *layers: Layer) -> Self:
        return shaped(cls(math.prod(shape[:-1]), *layers), shape, (*shape[:-1], layers[-1].output_size))

    def __init__(self, P: int, *layers: Layer) -> None:
        super().__init__(*layers)
        self.P = P
        self.input_size, self.output_size = P * self.input_size, P * self.output_size
        self.output = "real"
