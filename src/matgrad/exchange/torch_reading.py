"""The layers of PyTorch's modules for rows, images and tokens, one after the other."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import nn

from matgrad import layers as ly
from matgrad.exchange import chain, shapes
from matgrad.exchange.chain import Operation
from matgrad.exchange.torch_shapes import IMAGES, Gated, Images, Labels, Positions, Residual, Rows, SelfAttention
from matgrad.layers.composite import Shape, output_shape, shape_of

LISTS = (nn.Sequential, nn.ModuleList, nn.TransformerEncoder)


class Reader:
    """The layers of modules, one after the other; `shape` is that of an example, with channels last."""

    def __init__(self, of_row: Any, shape: Shape | None) -> None:
        self.of_row, self.shape = of_row, shape
        self.layout = "rows" if shape is None else "images" if len(shape) == 3 else "tokens"
        self.order: np.ndarray | None = None  # of our columns, among those of rows that are images with channels first

    def read(self, module: Any) -> Iterator[Operation]:
        """The operations of a module, and where it leads."""
        kind = type(module)
        if kind is Images:
            self.layout, self.shape = "images", tuple(module.shape)
        elif kind is nn.Unflatten:
            yield from self._unflattened(tuple(module.unflattened_size))
        elif kind in (Rows, nn.Flatten) and self.layout != "rows":
            if kind is nn.Flatten and self.layout == "images":
                assert self.shape is not None
                *sides, C = self.shape
                self.order = np.moveaxis(np.arange(np.prod(self.shape)).reshape(C, *sides), 0, -1).reshape(-1)
            self.layout, self.shape = "rows", None
        elif kind is Labels:
            self.shape = (module.count,)
        elif kind is nn.Embedding:
            yield self._embedding(module)
        elif kind in IMAGES:
            yield self._of_images(module)
        elif kind is Residual:
            parts = self._inner(list(module))
            yield ly.ResidualLayer.on(self.shape or shape_of(parts[0]), *parts)
        elif self.layout == "tokens":
            yield from self._of_tokens(module)
        elif kind in (nn.MultiheadAttention, nn.TransformerEncoderLayer):
            raise ValueError("takes tokens, but found rows: expected from_torch(…, shape=(L, d))")
        else:
            yield from self._of_rows(module)

    def _unflattened(self, sizes: Shape) -> Iterator[Operation]:
        if len(sizes) == 2:
            self.layout, self.shape = "tokens", sizes
        elif len(sizes) == 3 and sizes[0] == 1:
            self.layout, self.shape = "images", (*sizes[1:], 1)
        else:
            expected = "expected rows with channels last, or the module after it, with from_torch(…, shape=(H, W, C))"
            raise ValueError(f"makes images of channels first, {' × '.join(map(str, sizes))}: {expected}")
        yield from ()

    def _of_rows(self, module: Any) -> Iterator[Operation]:
        operation = self.of_row(module)
        if operation is None:
            return
        if isinstance(operation, ly.LinearLayer) and self.order is not None:
            operation = chain.linear(chain.dense(operation.W)[:, self.order], chain.dense(operation.b)[0])
            self.order = None
        if self.layout == "images" and isinstance(operation, ly.BatchNormalizationLayer):
            yield ly.EachLayer.on(self.shape or (), operation)
        elif self.layout == "images" and isinstance(operation, ly.Layer):
            raise ValueError("takes rows, but what is before it are images: expected nn.Flatten before it")
        elif self.order is not None and isinstance(operation, ly.Layer) and type(operation) is not ly.DropoutLayer:
            raise ValueError("follows images with channels first: expected a linear layer after nn.Flatten")
        else:
            yield operation

    def _embedding(self, module: nn.Embedding) -> Operation:
        if module.max_norm is not None:
            raise ValueError("found max_norm, expected None")
        if self.shape is None or len(self.shape) != 1:
            raise ValueError("takes labels of any length: expected from_torch(…, shape=(L,)), the number of tokens")
        layer = shapes.embedding(self.shape, array(module.weight))
        self.layout, self.shape = "tokens", output_shape(layer)
        return layer

    def _of_images(self, module: Any) -> Operation:
        if self.layout != "images" and not (self.layout == "tokens" and len(self.shape or ()) == 2):
            raise ValueError("takes images, but found rows: expected from_torch(…, shape=(H, W, C)) or (L, C)")
        if isinstance(module, nn.BatchNorm2d):
            return ly.EachLayer.on(self.shape or (), self.of_row(module))
        layer = _grid(module, self.shape or ())
        self.layout, self.shape = "images", output_shape(layer)
        return layer

    def _of_tokens(self, module: Any) -> Iterator[Operation]:
        assert self.shape is not None
        kind, shape = type(module), self.shape
        if kind is Positions:
            is_trained = isinstance(module.b, nn.Parameter)
            layer: Any = ly.PositionsLayer(math.prod(shape)) if is_trained else ly.SinusoidalLayer(*shape)
            layer.b, layer.input_shape, layer.output_shape = array(module.b).reshape(1, -1), shape, shape
            yield layer
        elif kind in (SelfAttention, nn.MultiheadAttention):
            yield from _attention(module, shape, kind is SelfAttention and module.causal)
        elif kind is nn.TransformerEncoderLayer:
            yield ly.SequenceLayer.on(shape, *_encoder(module, shape, self.of_row))
        elif kind is Gated:
            yield ly.GatedLayer.on(shape, *(shapes.one(shape, self._inner([*part])) for part in (module.F, module.G)))
        else:
            operation = self.of_row(module)
            if isinstance(operation, ly.DropoutLayer):
                yield ly.DropoutLayer(math.prod(shape), dropout=operation.dropout)
            elif isinstance(operation, ly.Layer):
                yield ly.EachLayer.on(shape, operation)
                self.shape = (*shape[:-1], operation.output_size)
            elif operation is not None:
                yield operation

    def check_end(self) -> None:
        """Raise if the outputs are images with channels first, in another order than ours."""
        if self.order is not None and (self.order != np.arange(len(self.order))).any():
            raise ValueError("gives images with channels first as rows: expected a linear layer after nn.Flatten")

    def _inner(self, modules: list[Any]) -> list[Any]:
        """The layers of modules that begin where this reader is."""
        inner = Reader(self.of_row, self.shape)
        inner.layout = self.layout
        parts = [module for _, module in flattened(("", module) for module in modules)]
        operations = [operation for part in parts for operation in inner.read(part)]
        size = next((x.input_size for x in operations if isinstance(x, ly.Layer)), 0)
        found: list[Any] = []
        for operation in operations:
            if isinstance(operation, ly.Layer):
                found.append(operation)
            else:
                last = found[-1] if found else None
                found[-1:] = chain.with_function(last, operation, size if last is None else last.output_size)
        return found


def example(X: torch.Tensor, shape: Shape, first: nn.Module) -> torch.Tensor:
    """Rows as a module takes them: images and sequences with channels first, tokens, or labels."""
    if len(shape) == 1:
        return X.long() if isinstance(first, nn.Embedding) else X
    X = X.reshape(len(X), *shape)
    return X.movedim(-1, 1) if len(shape) == 3 or isinstance(first, IMAGES) else X


def rows_in(Y: torch.Tensor) -> torch.Tensor:
    """The rows of images or tokens."""
    return (Y.movedim(1, -1) if Y.ndim == 4 else Y).flatten(1)


def flattened(modules: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Modules with their names, and those in an `nn.Sequential` or an `nn.TransformerEncoder` in their place."""
    for name, module in modules:
        if isinstance(module, LISTS) and not isinstance(module, Residual):
            children = module._modules.items()  # named_children() leaves out what is there twice
            yield from flattened((f"{name}.{x}" if name else x, part) for x, part in children if part is not None)
        elif not isinstance(module, nn.Identity):
            yield name, module


def array(tensor: Any) -> Any:
    """The elements of a tensor, if there is one."""
    return None if tensor is None else tensor.detach().cpu().numpy().copy()


def _grid(module: Any, shape: Shape) -> Any:
    """A convolution or a pooling layer."""
    numbers = {name: shapes.single(name, getattr(module, name)) for name in ("kernel_size", "stride", "padding")}
    if isinstance(module, nn.Conv1d | nn.Conv2d):
        if module.padding_mode != "zeros":
            raise ValueError(f"found padding_mode={module.padding_mode!r}, expected 'zeros'")
        is_pruned = hasattr(module, "weight_mask")
        A, b = (array(module.weight_orig if is_pruned else module.weight), module.bias)
        stored = np.moveaxis(array(module.weight_mask), 1, -1) if is_pruned else None
        settings = {"stride": numbers["stride"], "padding": numbers["padding"], "groups": module.groups}
        settings["dilation"] = shapes.single("dilation", module.dilation)
        return shapes.convolution(shape, np.moveaxis(A, 1, -1), array(b), stored, **settings)
    is_mean = isinstance(module, nn.AvgPool1d | nn.AvgPool2d)
    expected: dict[str, tuple[Any, ...]] = {"ceil_mode": (False,)}
    expected |= {"count_include_pad": (True,), "divisor_override": (None,)} if is_mean else {}
    expected |= {} if is_mean else {"dilation": (1, (1, 1)), "return_indices": (False,)}
    chain.check_settings(expected, lambda name, value: getattr(module, name, value))
    kind = ly.MeanPoolingLayer if is_mean else ly.MaxPoolingLayer
    return kind(shape, numbers["kernel_size"], stride=numbers["stride"], padding=numbers["padding"])


def _attention(module: nn.MultiheadAttention, shape: Shape, causal: bool) -> list[Any]:
    """Self-attention with its projections."""
    if not module.batch_first or module.in_proj_weight is None or module.bias_k is not None or module.add_zero_attn:
        raise ValueError("expected batch_first=True, equal sizes of queries, keys and values, and no added ones")
    if module.dropout:
        raise ValueError(f"found dropout={module.dropout}, expected 0: dropout of attention is no layer of matgrad")
    out, (L, _) = module.out_proj, shape
    first = chain.linear(array(module.in_proj_weight), array(module.in_proj_bias))
    last = chain.linear(array(out.weight), array(out.bias))
    middle = ly.AttentionLayer((L, first.output_size), module.num_heads, causal=causal)
    middle.B = middle.B.astype(array(out.weight).dtype)
    return [ly.EachLayer.on(shape, first), middle, ly.EachLayer.on((L, last.input_size), last)]


def _encoder(module: Any, shape: Shape, of_row: Any) -> list[Any]:
    """The layers of an `nn.TransformerEncoderLayer`, whose normalizations are before or after its two halves."""
    for name in ("dropout", "dropout1", "dropout2"):
        if getattr(module, name).p:
            raise ValueError(f"found dropout={getattr(module, name).p}, expected 0")
    functions: dict[Any, nn.Module] = {nn.functional.relu: nn.ReLU(), nn.functional.gelu: nn.GELU()}
    act = module.activation if isinstance(module.activation, nn.Module) else functions.get(module.activation)
    if act is None:
        raise ValueError(f"found the activation {module.activation!r}, expected relu, gelu or a module")
    norms = [ly.EachLayer.on(shape, of_row(x)) for x in (module.norm1, module.norm2)]
    first, second = of_row(module.linear1), of_row(module.linear2)
    hidden = chain.linear(first.W, first.b[0], of_row(act))
    halves = [_attention(module.self_attn, shape, False), [ly.EachLayer.on(shape, hidden, second)]]
    if module.norm_first:
        return [ly.ResidualLayer.on(shape, norm, *half) for norm, half in zip(norms, halves, strict=True)]
    return [x for norm, half in zip(norms, halves, strict=True) for x in (ly.ResidualLayer.on(shape, *half), norm)]
