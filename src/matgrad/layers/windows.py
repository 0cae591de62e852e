"""Windows of an image or a sequence: convolution and pooling.

An image is a row of H·W·C numbers, the channels of a pixel side by side; a sequence is a row of L·C numbers.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from matgrad.foundation.limits import check_bytes
from matgrad.foundation.numbers import check_size, size_text
from matgrad.layers.composite import SequenceLayer
from matgrad.layers.layer import Layer
from matgrad.layers.linear import ActivationLayer, LinearLayer
from matgrad.matrix_operations import (
    Matrix,
    column_repeat,
    hadamard,
    one_hot,
    reciprocal,
    rows_max,
    rows_mean,
    rows_sum,
    stack,
    step,
    unstack,
)
from matgrad.sparse.support import Support

Grid = tuple[int, ...]  # (H, W, C) or (L, C)


class MeanLayer(Layer):
    """Y = X 1_D / D, the mean of each row"""

    def feedforward(self, X: Matrix) -> Matrix:
        Y = rows_mean(X)

        self.X = X
        return Y

    def backpropagate(self, Y: Matrix, DY: Matrix) -> None:
        _, D = self.X.shape

        DX = column_repeat(DY / D, D)

        self.DX = DX

    def __init__(self, input_size: int, output_size: int = 1) -> None:
        super().__init__(input_size, output_size)
        if output_size != 1:
            raise ValueError(f"{type(self).__name__}: expected one output, found {output_size}")


class MaxLayer(MeanLayer):
    """Y = max(X)_row; the greatest elements of a row share its gradient, as in torch.amax"""

    def feedforward(self, X: Matrix) -> Matrix:
        Y = rows_max(X)

        self.X = X
        return Y

    def backpropagate(self, Y: Matrix, DY: Matrix) -> None:
        X = self.X
        _, D = X.shape

        M = step(X - column_repeat(Y, D))
        DX = hadamard(M, column_repeat(hadamard(DY, reciprocal(rows_sum(M))), D))

        self.DX = DX


class WindowsLayer(SequenceLayer):
    """U = stack(X Eᵀ, P);  V = F(U);  Y = unstack(V, P), where X Eᵀ has the P windows of a row of X side by side

    What F does with a row, this does with every window: a linear-type F makes it a convolution, the maximum or the
    mean of a row pooling. `columns` is a P×Q matrix of the columns of X that are in each window, or -1 for a 0.
    """

    intermediates: tuple[str, ...] = ("U", "V", "DU", "DV")

    def feedforward(self, X: Matrix) -> Matrix:
        E, P = self.E, self.P

        U = stack(X @ E.T, P)
        V = self.F(U)
        Y = unstack(V, P)

        self.X, self.U, self.V = X, U, V
        return Y

    def backpropagate(self, Y: Matrix, DY: Matrix) -> None:
        E, P, V = self.E, self.P, self.V

        DV = stack(DY, P)
        DU = self.DF(V, DV)
        DX = unstack(DU, P) @ E

        self.DU, self.DV, self.DX = DU, DV, DX

    def __init__(self, columns: np.ndarray, input_size: int, *layers: Layer) -> None:
        super().__init__(*layers)
        self.P, Q = columns.shape
        if self.input_size != Q:
            raise ValueError(f"{type(self).__name__}: a window has {Q} elements, but {layers[0]!r} has another size")
        self.E = one_hot(columns, input_size)
        self.input_size, self.output_size = input_size, self.P * self.output_size
        self.output = "real"


# -- windows of a grid ----------------------------------------------------------------------------------


def windows(shape: Grid, size: int, stride: int = 1, padding: int = 0, dilation: int = 1) -> np.ndarray:
    """The P×Q matrix of the columns of a row in each window of a grid; -1 outside of it.

    A window has all channels of its first pixel, then those of the second, and so on.
    """
    sides = shape[:-1]
    k, span = len(sides), dilation * (size - 1) + 1
    if min(sides) + 2 * padding < span:
        expected = f"expected at most {min(sides) + 2 * padding}: the input is {size_text(shape)}, channels last"
        raise ValueError(f"a window spans {span}, {expected}")
    columns: Any = np.arange(math.prod(shape)).reshape(shape)
    columns = np.pad(columns, [(padding, padding)] * k + [(0, 0)], constant_values=-1)
    views = np.lib.stride_tricks.sliding_window_view(columns, (span,) * k, tuple(range(k)))
    every, dilated = slice(None, None, stride), slice(None, None, dilation)
    views = np.moveaxis(views[(every,) * k + (slice(None),) + (dilated,) * k], k, -1)
    return views.reshape(math.prod(views.shape[:k]), -1)


def sides_after(shape: Grid, size: int, stride: int, padding: int, dilation: int = 1) -> Grid:
    """The numbers of windows along each side of a grid."""
    return tuple((n + 2 * padding - dilation * (size - 1) - 1) // stride + 1 for n in shape[:-1])


def _by_channel(columns: np.ndarray, C: int) -> np.ndarray:
    """The same windows, one for each channel: (P·C)×(Q/C)."""
    P, Q = columns.shape
    return columns.reshape(P, Q // C, C).transpose(0, 2, 1).reshape(P * C, Q // C)


class GridLayer(WindowsLayer):
    """A layer of windows of a grid: its `input_shape` and `output_shape` are (H, W, C) or (L, C)."""

    input_shape: Grid
    output_shape: Grid

    def __repr__(self) -> str:
        return f"{self.specification()}: {size_text(self.input_shape)} → {size_text(self.output_shape)}"


def _check(name: str, shape: Grid, size: int, padding: int, channels: int = 1, **numbers: int) -> None:
    """Raise ValueError for a shape of no image or sequence, a number that is too small, or memory that is too large."""
    if len(shape) not in (2, 3):
        raise ValueError(f"{name}: expected an image (H × W × C) or tokens (L × C), found {size_text(shape)}")
    for option, n in ({"size": size, "padding": padding, "channels": channels} | numbers).items():
        check_size(f"{name}: {option}", n, least=option != "padding")
    pixels, Q = math.prod(n + 2 * padding for n in shape[:-1]), size ** (len(shape) - 1) * shape[-1]
    check_bytes(max(40 * pixels * Q, 16 * Q * channels), name)


class ConvolutionLayer(GridLayer):
    """A convolution: Y = unstack(act(stack(X Eᵀ, P) Wᵀ + 1_NP b), P), where row k of W is the kernel of channel k

    Equal to `torch.nn.Conv2d` and, for sequences, Conv1d, for channels that come last. Groups are a support of W.
    """

    def __init__(
        self,
        input_shape: Grid,
        channels: int,
        size: int,
        *,
        stride: int = 1,
        padding: int = 0,
        dilation: int = 1,
        groups: int = 1,
        act: str = "",
    ) -> None:
        _check("Conv", input_shape, size, padding, channels, stride=stride, dilation=dilation, groups=groups)
        columns = windows(input_shape, size, stride, padding, dilation)
        _, Q = columns.shape
        support = None if groups == 1 else _groups(input_shape[-1], channels, Q, groups)
        options: dict[str, Any] = {"support": support}
        inner = ActivationLayer(Q, channels, act, **options) if act else LinearLayer(Q, channels, **options)
        inner.within = support
        self.channels, self.size, self.stride, self.padding = channels, size, stride, padding
        self.dilation, self.groups, self.act = dilation, groups, act
        self.input_shape = input_shape
        self.output_shape = (*sides_after(input_shape, size, stride, padding, dilation), channels)
        super().__init__(columns, math.prod(input_shape), inner)

    def specification(self) -> str:
        defaults = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1, "act": ""}
        options = [f"{name}={x}" for name, default in defaults.items() if (x := getattr(self, name)) != default]
        return f"Conv({', '.join([str(self.channels), str(self.size), *options])})"


def _groups(C: int, channels: int, Q: int, groups: int) -> Support:
    """The support of W in which a channel of the output sees the channels of the input in its group."""
    if C % groups or channels % groups:
        raise ValueError(f"Conv: expected numbers of channels that {groups} groups divide, found {C} and {channels}")
    of_input, of_output = np.arange(Q) % C // (C // groups), np.arange(channels) // (channels // groups)
    return Support.from_mask(of_output[:, None] == of_input)


class PoolingLayer(GridLayer):
    """The mean or the maximum of every window and channel; the stride is by default the size of a window."""

    inner: type[MeanLayer]
    name = ""

    def __init__(self, input_shape: Grid, size: int, *, stride: int = 0, padding: int = 0) -> None:
        self.size, self.stride, self.padding = size, stride or size, padding
        _check(self.name, input_shape, size, padding, stride=self.stride)
        if 2 * padding > size:
            raise ValueError(f"{self.name}: expected a padding of at most half the size {size}, found {padding}")
        columns = _by_channel(windows(input_shape, size, self.stride, padding), input_shape[-1])
        self.input_shape = input_shape
        self.output_shape = (*sides_after(input_shape, size, self.stride, padding), input_shape[-1])
        super().__init__(self.filled(columns), math.prod(input_shape), self.inner(columns.shape[1]))

    def filled(self, columns: np.ndarray) -> np.ndarray:
        """The columns of the windows, with what stands for an element outside."""
        return columns

    def specification(self) -> str:
        options = [f"stride={self.stride}"] if self.stride != self.size else []
        options += [f"padding={self.padding}"] if self.padding else []
        return f"{self.name}({', '.join([str(self.size), *options])})"


class MeanPoolingLayer(PoolingLayer):
    """The mean of every window and channel; what is outside counts as 0. Equal to `torch.nn.AvgPool2d`."""

    inner, name = MeanLayer, "AvgPool"


class MaxPoolingLayer(PoolingLayer):
    """The maximum of every window and channel, of what is inside. Equal to `torch.nn.MaxPool2d`, but for ties."""

    inner, name = MaxLayer, "MaxPool"

    def filled(self, columns: np.ndarray) -> np.ndarray:
        """One that is inside is repeated for one outside."""
        return np.where(columns < 0, columns.max(axis=1, keepdims=True), columns)
