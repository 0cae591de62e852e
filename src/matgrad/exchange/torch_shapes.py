"""PyTorch's modules for images and tokens: convolution, pooling, embedding, attention, and layers of layers.

Modules take and give images with channels first, N×C×H×W, and tokens as N×L×d; `Images` and `Rows` are where rows of
matgrad, whose channels come last, become images and images become rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, cast

import numpy as np
import torch
from torch import nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear
from torch.nn.utils import prune

from matgrad import layers as ly
from matgrad.exchange import chain, shapes
from matgrad.foundation.files import naming
from matgrad.layers.composite import Shape, output_shape, shape_of


class Images(nn.Module):
    """Rows of N images or sequences, with channels last, as N×C×H×W or N×C×L"""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        """The images."""
        return X.reshape(len(X), *self.shape).movedim(-1, 1)

    def extra_repr(self) -> str:
        """The shape."""
        return " × ".join(map(str, self.shape))


class Rows(nn.Module):
    """The inverse of `Images`"""

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        """The rows."""
        return X.movedim(1, -1).flatten(1)


class Labels(nn.Module):
    """Rows of L labels as integers"""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count

    def extra_repr(self) -> str:
        """Their number."""
        return str(self.count)

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        """The integers."""
        return X.long()


class Positions(nn.Module):
    """Y = X + b, with a vector for each token"""

    def __init__(self, b: torch.Tensor, is_trained: bool) -> None:
        super().__init__()
        if is_trained:
            self.b: Any = nn.Parameter(b)
        else:
            self.register_buffer("b", b)

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        """X + b"""
        return X + self.b


class SelfAttention(nn.MultiheadAttention):
    """Self-attention in an `nn.Sequential`, which gives the output alone"""

    def __init__(self, size: int, heads: int, causal: bool = False) -> None:
        super().__init__(size, heads, batch_first=True)
        self.causal = causal

    def forward(self, X: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        """The output for X as queries, keys and values."""
        mask = nn.Transformer.generate_square_subsequent_mask(X.shape[1], X.device, X.dtype) if self.causal else None
        return super().forward(X, X, X, attn_mask=mask, need_weights=False)[0]

    def extra_repr(self) -> str:
        """The sizes."""
        return f"{self.embed_dim}, heads={self.num_heads}, causal={self.causal}"


class Residual(nn.Sequential):
    """Y = X + F(X)"""

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        """X + F(X)"""
        return X + super().forward(X)


class Gated(nn.Module):
    """Y = F(X) ⊙ G(X)"""

    def __init__(self, F: nn.Module, G: nn.Module) -> None:
        super().__init__()
        self.F, self.G = F, G

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        """F(X) ⊙ G(X)"""
        return self.F(X) * self.G(X)


OWN = (Images, Rows, Labels, Positions, SelfAttention, Residual, Gated)
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d)
IMAGES = (*CONVOLUTIONS, nn.MaxPool1d, nn.MaxPool2d, nn.AvgPool1d, nn.AvgPool2d, nn.BatchNorm2d)
OF_ATTENTION = (nn.MultiheadAttention, nn.TransformerEncoderLayer, NonDynamicallyQuantizableLinear)
MODULES = (*IMAGES, nn.Embedding, nn.Unflatten, nn.TransformerEncoder, nn.ModuleList, *OF_ATTENTION, *OWN)

# -- from a model ---------------------------------------------------------------------------------


class Writer:
    """Modules for layers, one after the other: between them are rows, images or tokens."""

    def __init__(self, of_row: Any) -> None:
        self.of_row = of_row  # the module of a layer on rows
        self.modules: list[nn.Module] = []
        self.layout, self.shape = "rows", cast(Shape, ())

    def to(self, layout: str, shape: Shape) -> None:
        """Go to rows, images or tokens of this shape."""
        if self.layout == layout and (layout == "rows" or self.shape == shape):
            return
        if self.layout != "rows":
            self.modules.append(Rows() if self.layout == "images" else nn.Flatten())
        if layout != "rows":
            self.modules.append(Images(shape) if layout == "images" else nn.Unflatten(1, shape))
        self.layout, self.shape = layout, shape

    def write(self, operations: Sequence[tuple[str, Any]]) -> None:
        """Add the modules of operations, with their places; attention and the linear layers around it are one."""
        i = 0
        while i < len(operations):
            where, x = operations[i]
            following = [x for _, x in operations[i : i + 3]]
            with naming(where) if where else nullcontext():
                if (attention := _attention_of(following)) is not None:
                    first, _, last = following
                    self._each(first, first.layers[:-1])
                    self.modules.append(attention)
                    self._each(last, last.layers[1:])
                    i += 2
                else:
                    self._add(x)
            i += 1

    def _each(self, x: Any, layers: list[Any]) -> None:
        """Layers on every token of the input of a layer; PyTorch computes on the last dimension."""
        shape = shape_of(x)
        self.to("tokens", (math.prod(shape[:-1]), shape[-1]))
        if any(isinstance(layer, ly.BatchNormalizationLayer) for layer in layers):
            raise ValueError("PyTorch has batch normalization of channels alone: expected Each(BatchNormalization)")
        for module in [self.of_row(y) for layer in layers for y in chain.parts_of(layer)]:
            if isinstance(module, nn.Softmax | nn.LogSoftmax):
                module.dim = -1
            self.modules.append(module)
        self.shape = (self.shape[0], layers[-1].output_size if layers else self.shape[1])

    def _add(self, x: Any) -> None:
        """The modules of one operation."""
        if type(x) in chain.GRIDS:
            self.to("images", x.input_shape)
            self.modules += _of_grid(x, self.of_row)
            self.shape = x.output_shape
        elif type(x) is ly.EachLayer and [*map(type, x.layers)] == [ly.BatchNormalizationLayer]:
            self.to("images", shape_of(x))
            self.modules.append(_of_channels(cast(Any, x.layers[0]), len(self.shape)))
        elif type(x) is ly.EachLayer:
            self._each(x, x.layers)
        elif type(x) is ly.SequenceLayer:
            self.write([("", y) for layer in x.layers for y in chain.parts_of(layer)])
        elif isinstance(x, ly.EmbeddingLayer):
            self.modules += [Labels(x.L), nn.Embedding.from_pretrained(_tensor(x.W), freeze=False)]
            self.layout, self.shape = "tokens", x.output_shape
        elif isinstance(x, ly.PositionsLayer):
            self.to("tokens", shape_of(x))
            self.modules.append(Positions(_tensor(x.b).reshape(self.shape), bool(x.parameters)))
        elif isinstance(x, ly.AttentionLayer):
            raise ValueError(
                "PyTorch has attention with projections only: Each(Linear(3d));Attention(h);Each(Linear(d))"
            )
        elif isinstance(x, ly.ResidualLayer | ly.GatedLayer):
            shape = shape_of(x)
            self.to("tokens" if len(shape) == 2 else "rows", shape if len(shape) == 2 else ())
            if isinstance(x, ly.ResidualLayer):
                self.modules.append(Residual(*self._inner(x.layers, shape)))
            else:
                made = output_shape(x)
                self.modules.append(Gated(*(nn.Sequential(*self._inner([part], made)) for part in x.layers)))
                self.shape = made if self.layout == "tokens" else self.shape
        else:
            if isinstance(x, ly.Layer) and type(x) is not ly.DropoutLayer:
                self.to("rows", ())
            self.modules.append(self.of_row(x))

    def _inner(self, layers: list[Any], shape: Shape) -> list[nn.Module]:
        """The modules of layers that begin where this writer is, and end with this shape."""
        inner = Writer(self.of_row)
        inner.layout, inner.shape = self.layout, self.shape
        inner.write([("", y) for layer in layers for y in chain.parts_of(layer)])
        inner.to(self.layout, shape if self.layout == "tokens" else ())
        return inner.modules


def _tensor(A: Any) -> torch.Tensor:
    return torch.tensor(chain.dense(A))


def _attention_of(layers: list[Any]) -> SelfAttention | None:
    """The module of ``Each(…;Linear(3d));Attention(h);Each(Linear(d);…)``, if the layers are that."""
    if [*map(type, layers)] != [ly.EachLayer, ly.AttentionLayer, ly.EachLayer]:
        return None
    first, middle, last = layers[0].layers[-1], layers[1], layers[2].layers[0]
    d = first.input_size
    are_linear = type(first) is ly.LinearLayer and type(last) is ly.LinearLayer
    if not are_linear or first.output_size != 3 * d or last.output_size != d or middle.groups or middle.has_mask:
        return None
    module = SelfAttention(d, middle.heads, middle.causal)
    values = _tensor(first.W), _tensor(first.b)[0], _tensor(last.W), _tensor(last.b)[0]
    names = "in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"
    module.load_state_dict(dict(zip(names, values, strict=True)), assign=True)
    return module


def _of_grid(x: Any, of_row: Any) -> list[nn.Module]:
    """A convolution with its function, or a pooling layer."""
    k = len(x.input_shape) - 1
    if isinstance(x, ly.ConvolutionLayer):
        sizes, inner = (x.input_shape[-1], x.channels, x.size, x.stride, x.padding, x.dilation, x.groups), x.layers[0]
        module = (nn.Conv1d if k == 1 else nn.Conv2d)(*sizes)
        weight = torch.tensor(np.moveaxis(shapes.kernel(x), -1, 1))
        module.load_state_dict({"weight": weight, "bias": _tensor(cast(Any, inner).b)[0]}, assign=True)
        if (stored := shapes.mask(x)) is not None:
            prune.custom_from_mask(module, "weight", torch.tensor(np.moveaxis(stored, -1, 1)))
        return [module, *map(of_row, list(chain.parts_of(inner))[1:])]
    kinds = {1: (nn.MaxPool1d, nn.AvgPool1d), 2: (nn.MaxPool2d, nn.AvgPool2d)}[k]
    return [kinds[isinstance(x, ly.MeanPoolingLayer)](x.size, x.stride, x.padding)]


def _of_channels(x: ly.BatchNormalizationLayer, dimensions: int) -> nn.Module:
    """Batch normalization of the channels of images, or of sequences."""
    kind = nn.BatchNorm2d if dimensions == 3 else nn.BatchNorm1d
    module = kind(x.input_size, eps=x.epsilon, momentum=x.momentum)
    names = "weight", "bias", "running_mean", "running_var"
    tensors = dict(zip(names, map(torch.tensor, chain.rows_of(x)), strict=True))
    module.load_state_dict(tensors, strict=False, assign=True)
    return module
