"""ONNX's operators for images and tokens: convolution, pooling, embedding, attention, and layers of layers.

Between layers, a file that we write has rows; a layer of images reshapes and transposes them, for ONNX has channels
first. `Layout` is what is read of that: which columns of a row a tensor has, where.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from matgrad import layers as ly
from matgrad.exchange import chain, shapes
from matgrad.layers.composite import Shape, output_shape, shape_of
from matgrad.sparse.matrix import SparseMatrix

# -- from a model ---------------------------------------------------------------------------------


class Nodes:
    """The nodes and constants of a graph, whose last output is the input of the next node."""

    def __init__(self, dtype: str, sparse: bool, writers: Mapping[type, Callable[[Nodes, Any], object]]) -> None:
        self.dtype, self.sparse, self.writers, self.last = dtype, sparse, writers, "X"
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.sparse_constants: list[onnx.SparseTensorProto] = []

    def write(self, operation: Any) -> None:
        """Add the nodes of an operation."""
        chain.counterpart(self.writers, operation, "ONNX has no such operator")(self, operation)

    def after(self, name: str) -> Nodes:
        """Go on from a value that is there already; returns the graph."""
        self.last = name
        return self

    def add(self, kind: str, *inputs: Any, first: Any = None, **attributes: Any) -> Nodes:
        """Add a node that takes the last output, then names and arrays, or these after `first`; returns the graph."""
        name = f"{kind}{len(self.nodes) + 1}"
        taken = [self.last, *inputs] if first is None else [first, self.last, *inputs]
        names = [x if isinstance(x, str) else self._constant(f"{name}.{i}", x) for i, x in enumerate(taken)]
        self.nodes.append(helper.make_node(kind, names, [f"{name}.Y"], name, **attributes))
        return self.after(f"{name}.Y")

    def reshape(self, *sizes: int) -> Nodes:
        """Give every example these sizes, or, if they are too few numbers for an example, every part of one."""
        return self.add("Reshape", np.array([-1, *sizes]))

    def _constant(self, name: str, A: Any) -> str:
        """The name, under which a matrix or vector is added to the constants."""
        if isinstance(A, SparseMatrix) and self.sparse:
            values = numpy_helper.from_array(A.values[0], name)
            indices = numpy_helper.from_array(A.support.flat(), f"{name}.indices")
            self.sparse_constants.append(helper.make_sparse_tensor(values, indices, A.shape))
        else:
            A = chain.dense(A)
            A = A if A.dtype.kind == "i" else A.astype(self.dtype, copy=False)
            self.constants.append(numpy_helper.from_array(A, name))
        return name

    def number(self, x: float) -> float:
        """A number as an attribute, which is a float32 number, also where all else is float64."""
        if self.dtype != "float32" and float(np.float32(x)) != x:
            raise ValueError(f"ONNX has the number {x:g} in float32 only; expected M.to(dtype='float32')")
        return x


def _parts(graph: Nodes, layers: Any) -> Nodes:
    """Layers one after the other."""
    for operation in (x for layer in layers for x in chain.parts_of(layer)):
        graph.write(operation)
    return graph


def _grid(graph: Nodes, x: Any) -> None:
    """A convolution with its function, or pooling, of images with channels first."""
    k = len(x.input_shape) - 1
    settings: dict[str, Any] = {"kernel_shape": k * [x.size], "strides": k * [x.stride], "pads": 2 * k * [x.padding]}
    graph.reshape(*x.input_shape).add("Transpose", perm=[0, k + 1, *range(1, k + 1)])
    if isinstance(x, ly.ConvolutionLayer):
        weights = np.moveaxis(shapes.kernel(x), -1, 1), chain.dense(x.layers[0].b)[0]  # type: ignore[attr-defined]
        graph.add("Conv", *weights, dilations=k * [x.dilation], group=x.groups, **settings)
        for function in list(chain.parts_of(x.layers[0]))[1:]:
            graph.write(function)
    elif isinstance(x, ly.MaxPoolingLayer):
        graph.add("MaxPool", **settings)
    else:
        graph.add("AveragePool", count_include_pad=1, **settings)
    graph.add("Transpose", perm=[0, *range(2, k + 2), 1]).reshape(x.output_size)


def _positions(graph: Nodes, x: Any) -> None:
    shape = shape_of(x)
    graph.reshape(*shape).add("Add", chain.dense(x.b).reshape(shape)).reshape(x.output_size)


def _attention(graph: Nodes, x: ly.AttentionLayer) -> None:
    """The queries, and the keys and values of the group of each head; A = softmax(Q Kᵀ / √e + B), A V."""
    (L, width), h, G = x.input_shape, x.heads, x.groups or x.heads
    e, heads = width // (h + 2 * G), np.arange(h)
    own = h + heads // (h // G)
    X = graph.reshape(L, h + 2 * G, e).last
    parts = (heads, [0, 2, 1, 3]), (own, [0, 2, 3, 1]), (own + G, [0, 2, 1, 3])
    Q, K, V = (graph.after(X).add("Gather", i, axis=2).add("Transpose", perm=perm).last for i, perm in parts)
    graph.after(Q).add("MatMul", K).add("Div", np.array(x.c))
    if x.causal:
        graph.add("Add", chain.dense(x.B)[0, : L * L].reshape(L, L))
    graph.add("Softmax", axis=-1).add("MatMul", V).add("Transpose", perm=[0, 2, 1, 3]).reshape(x.output_size)


def _rotary(graph: Nodes, x: ly.RotaryLayer) -> None:
    """c ⊙ X + s ⊙ X Eᵀ, where X Eᵀ has the halves of each head in the other order."""
    (L, width), h, G = x.input_shape, x.heads, x.groups or x.heads
    e = width // (h + 2 * G)
    c, s = (A.reshape(L, -1, e) for A in (x.c, x.s))
    X = graph.reshape(L, h + 2 * G, e).last
    turned = graph.add("Gather", np.roll(np.arange(e), e // 2), axis=3).add("Mul", s).last
    graph.after(X).add("Mul", c).add("Add", turned).reshape(x.output_size)


def _gated(graph: Nodes, x: ly.GatedLayer) -> None:
    X, (F, G) = graph.last, x.layers
    A = _parts(graph, [F]).last
    B = _parts(graph.after(X), [G]).last
    graph.after(A).add("Mul", B)


def _residual(graph: Nodes, x: ly.ResidualLayer) -> None:
    X = graph.last
    _parts(graph, x.layers).add("Add", X)


WRITERS: dict[type, Callable[[Nodes, Any], object]] = {
    **dict.fromkeys(chain.GRIDS, _grid),
    ly.EachLayer: lambda graph, x: _parts(graph.reshape(x.layers[0].input_size), x.layers).reshape(x.output_size),
    ly.SequenceLayer: lambda graph, x: _parts(graph, x.layers),
    ly.ResidualLayer: _residual,
    ly.GatedLayer: _gated,
    ly.EmbeddingLayer: lambda graph, x: (
        graph.add("Cast", to=TensorProto.INT64).add("Gather", first=x.W, axis=0).reshape(x.output_size)
    ),
    ly.PositionsLayer: _positions,
    ly.SinusoidalLayer: _positions,
    ly.RotaryLayer: _rotary,
    ly.AttentionLayer: _attention,
    ly.DropoutLayer: lambda graph, x: None,  # in evaluation mode
}

# -- to a model -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layout:
    """The columns of a row of matgrad that a tensor has after its first axis, entry by entry.

    If it is folded, the first axis of `columns` is in the first axis of the tensor, beside that of the examples.
    """

    columns: np.ndarray
    is_folded: bool = False

    @classmethod
    def of(cls, shape: Shape, *, is_folded: bool = False, has_images: bool = False) -> Layout:
        """That of rows, tokens or, with channels first, images of a shape, which is channels last."""
        columns = np.arange(math.prod(shape)).reshape(shape)
        return cls(np.moveaxis(columns, -1, 0) if has_images else columns, is_folded)

    def __str__(self) -> str:
        return " × ".join(map(str, ("N", *self.columns.shape)))

    @property
    def is_flat(self) -> bool:
        """Whether the tensor is a matrix with a row for every example."""
        return self.columns.ndim == 1

    @property
    def is_matrix(self) -> bool:
        """Whether the tensor is a matrix, with a row for every example or for every part of one."""
        return self.is_flat or self.is_folded

    @property
    def is_sorted(self) -> bool:
        """Whether the numbers are in the order of a row."""
        return bool((self.columns.ravel() == np.arange(self.columns.size)).all())

    def tokens(self) -> Shape:
        """The shape of rows or tokens whose features are the last axis."""
        if not self.is_sorted:
            raise ValueError("takes the last axis, but channels are first: expected a Transpose or Flatten before it")
        return self.columns.shape

    def images(self) -> Shape:
        """The shape H × W × C or L × C of images or sequences with channels first."""
        A = np.moveaxis(self.columns, 0, -1)
        if self.is_folded or A.ndim not in (2, 3) or (A.ravel() != np.arange(A.size)).any():
            raise ValueError(f"takes images with channels first, but found {self} in another order")
        return A.shape

    def reshaped(self, sizes: list[int]) -> Layout:
        """After a Reshape to these sizes."""
        first, *rest = sizes or [0]
        D, n = self.columns.size, math.prod(rest)
        if first == 0 and not self.is_folded and rest.count(-1) == 1 and n and D % n == 0:
            first, rest[rest.index(-1)], n = -1, D // -n, D
        keeps = first == -1 or (first == 0 and not self.is_folded)
        if keeps and rest and n == D and min(rest) > 0:
            return Layout(self.columns.reshape(rest))
        if first == -1 and len(rest) == 1 and n > 0 and D % n == 0:
            return Layout(self.columns.reshape(-1, n), is_folded=True)
        raise ValueError(f"found the sizes {sizes}, expected -1, then those of an example, here of {D} numbers")

    def transposed(self, perm: Any) -> Layout:
        """After a Transpose."""
        if self.is_folded or sorted(perm or ()) != [*range(self.columns.ndim + 1)] or perm[0] != 0:
            raise ValueError(f"found perm={perm}, expected the axis of the examples, 0, to stay the first")
        return Layout(self.columns.transpose([i - 1 for i in perm[1:]]))

    def rows(self, X: np.ndarray) -> np.ndarray:
        """The rows of matgrad that a tensor has."""
        return X.reshape(-1, self.columns.size)[:, np.argsort(self.columns, axis=None)]

    def tensor(self, X: np.ndarray) -> np.ndarray:
        """The tensor with these rows."""
        return X[:, self.columns.ravel()].reshape(len(X), *self.columns.shape)


def affine(graph: Any, W: Any, b: np.ndarray | None) -> ly.Layer:
    """A linear layer on rows, whose columns are sorted, or on every token."""
    layout: Layout | None = graph.layout
    if layout is not None and not layout.is_flat:
        return _each(graph, chain.linear(W, b))
    if layout is not None and not layout.is_sorted and W.shape[1] == layout.columns.size:
        W = np.ascontiguousarray(chain.dense(W)[:, np.argsort(layout.columns)])
    graph.layout = Layout.of(W.shape[:1])
    return chain.linear(W, b)


def _each(graph: Any, layer: ly.Layer) -> ly.Layer:
    """A layer on every token or pixel."""
    *sides, d = graph.layout.tokens()
    if layer.input_size != d:
        raise ValueError(f"takes {layer.input_size} columns, but what is before it has {d}")
    graph.check_bytes(64 * math.prod(sides) * layer.output_size, "its output")
    made = ly.EachLayer.on((*sides, d), layer)
    graph.layout = Layout.of(output_shape(made), is_folded=graph.layout.is_folded)
    return made


def normalizing(graph: Any, layer: Any, axis: int) -> ly.Layer:
    """A normalization of rows or columns, of tokens, or of the channels of images."""
    layout: Layout | None = graph.layout
    if isinstance(layer, ly.LayerNormalizationLayer | ly.RMSNormalizationLayer):
        check_axis(layout, axis)
    elif layout is not None and not layout.is_matrix:
        return ly.EachLayer.on(layout.images(), layer)
    if layout is None or (layout.is_flat and layout.tokens()):
        return layer
    return _each(graph, layer)


def check_axis(layout: Layout | None, axis: int) -> None:
    """Raise if an axis is not the last one."""
    last = 1 if layout is None or layout.is_folded else layout.columns.ndim
    if axis not in (-1, last):
        raise ValueError(f"found axis={axis}, expected -1 or {last}")


def grid(graph: Any) -> ly.Layer:
    """A convolution or a pooling layer; the layout becomes that of its output."""
    kind = graph.node.op_type
    arrays = graph.matrices(1, 2) if kind == "Conv" else graph.matrices(0, 0)
    shape = graph.sizes().images()
    k = len(shape) - 1
    sides = [*(arrays[0].shape[2:] if arrays else shape[:-1])]  # by default those of the kernel, or of the whole image
    size = shapes.single("kernel_shape", graph.attribute("kernel_shape", sides))
    defaults = {"strides": k * [1], "pads": 2 * k * [0], "dilations": k * [1]}
    stride, padding, dilation = (shapes.single(name, graph.attribute(name, x)) for name, x in defaults.items())
    pixels = math.prod((n + 2 * padding) // stride for n in shape[:-1])
    channels = arrays[0].shape[0] if arrays else shape[-1]
    graph.check_bytes(40 * pixels * (size**k * shape[-1] + channels), "its windows")
    if kind == "Conv":
        A, b = np.moveaxis(arrays[0], 1, -1), arrays[1] if len(arrays) > 1 else None
        settings = {"stride": stride, "padding": padding, "dilation": dilation, "groups": graph.attribute("group", 1)}
        layer: Any = shapes.convolution(shape, A, b, **settings)
    else:
        if dilation != 1 or (kind == "AveragePool" and padding and not graph.attribute("count_include_pad", 0)):
            raise ValueError("expected dilations of 1, and count_include_pad=1 where an average has padding")
        layer = (ly.MaxPoolingLayer if kind == "MaxPool" else ly.MeanPoolingLayer)(
            shape, size, stride=stride, padding=padding
        )
    graph.layout = Layout.of(output_shape(layer), has_images=True)
    return layer


def cast(graph: Any) -> None:
    """Labels as integers, which an embedding takes."""
    if not graph.left or graph.left[0][1].op_type != "Gather" or graph.last not in graph.left[0][1].input[1:]:
        raise ValueError("expected a Gather of the rows of an embedding after it")


def gather(graph: Any) -> ly.Layer:
    """The rows of an embedding; or the queries of attention, of which it is the first node."""
    if graph.node.input[0] not in graph.constants:
        return _rotary_of(graph) if graph.attribute("axis", 0) == 3 else _attention_of(graph)
    (W,), sizes = graph.matrices(1, 1, commutes=True), graph.sizes()
    if not sizes.is_flat or W.ndim != 2 or graph.attribute("axis", 0) != 0:
        raise ValueError("expected the rows of an embedding, for labels of N × L")
    layer: Any = shapes.embedding(sizes.tokens(), W)
    graph.layout = Layout.of(layer.output_shape)
    return layer


def _attention_of(graph: Any) -> ly.Layer:
    """Attention, which is read if its nodes are those that we write."""
    L, parts, e = _heads(graph)
    heads = len(graph.integers())
    groups = (parts - heads) // 2
    graph.check_bytes(64 * L * (parts * e + L * heads), "attention")
    for causal in (True, False) if groups > 0 and heads % groups == 0 and parts == heads + 2 * groups else ():
        own = 0 if groups == heads else groups
        layer: Any = ly.AttentionLayer((L, parts * e), heads, causal=causal, groups=own)
        if _is_taken(graph, layer, (L, heads, e)):
            layer.B = layer.B.astype(graph.dtype)
            return layer
    raise ValueError("expected the rows of an embedding, or attention as to_onnx writes it")


def _rotary_of(graph: Any) -> ly.Layer:
    """Rotary positions, likewise."""
    L, parts, e = _heads(graph)
    graph.check_bytes(64 * L * parts * e, "rotary positions")
    for groups in range(1, parts // 3 + 1) if e % 2 == 0 else ():
        if (heads := parts - 2 * groups) % groups:
            continue
        layer: Any = ly.RotaryLayer((L, parts * e), heads, groups=0 if groups == heads else groups)
        if _is_taken(graph, layer, (L, parts, e)):
            layer.c, layer.s = layer.c.astype(graph.dtype), layer.s.astype(graph.dtype)
            return layer
    raise ValueError("expected rotary positions as to_onnx writes them")


def _heads(graph: Any) -> tuple[int, int, int]:
    """The numbers of tokens, of queries, keys and values of heads, and of their features; 0 if the input has none."""
    sizes = graph.sizes()
    return sizes.tokens() if sizes.columns.ndim == 3 else (0, 0, 0)


def _is_taken(graph: Any, layer: ly.Layer, shape: Shape) -> bool:
    """Whether the next nodes are those of a layer, with an output of this shape; they are taken then."""
    wanted, nodes = Nodes(graph.dtype, False, {}), [graph.node, *(node for _, node in graph.left)]
    WRITERS[type(layer)](wanted, layer)
    if not _is_same(graph, graph.node.input[0], wanted, nodes):
        return False
    for _ in wanted.nodes[2:-1]:
        _, graph.node = graph.left.popleft()
    graph.last, graph.layout = graph.node.output[0], Layout.of(shape)
    return True


def _is_same(graph: Any, X: str, wanted: Nodes, nodes: list[onnx.NodeProto]) -> bool:
    """Whether nodes of a graph are those of a layer without the Reshape before and after it, for this input."""
    arrays, names = {x.name: numpy_helper.to_array(x) for x in wanted.constants}, {wanted.nodes[0].output[0]: X}

    def settings(node: onnx.NodeProto) -> tuple[Any, ...]:
        values = {x.name: helper.get_attribute_value(x) for x in node.attribute}
        return node.op_type, node.domain, len(node.input), len(node.output), values

    for a, b in zip(wanted.nodes[1:-1], nodes, strict=False):
        names[a.output[0]] = b.output[0]
        for x, y in zip(a.input, b.input, strict=False):
            if names.get(x) != y and not (x in arrays and y in graph.constants and graph.has(y, arrays[x])):
                return False
        if settings(a) != settings(b):
            return False
    return len(nodes) >= len(wanted.nodes) - 2


def positions(graph: Any) -> ly.Layer:
    """Y = X + 1_N b, with a vector for each token."""
    (b,), shape = graph.matrices(1, 1, commutes=True), graph.sizes().tokens()
    if b.ndim > len(shape) + 1 or b.size != math.prod(shape) or b.shape[-len(shape) :] != shape:
        raise ValueError(f"found a constant of shape {b.shape}, expected {' × '.join(map(str, shape))}")
    layer: Any = ly.SinusoidalLayer(*shape) if len(shape) == 2 else None
    if layer is None or not np.array_equal(layer.b.astype(b.dtype), b.reshape(1, -1)):
        layer = ly.PositionsLayer(b.size)
    layer.b, layer.input_shape, layer.output_shape = b.reshape(1, -1).copy(), shape, shape
    return layer
