"""An ONNX graph that is read node by node, and what ONNX's own evaluator computes for it."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Container
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun
from scipy.special import log_softmax

from matgrad.backends.base import DTYPES
from matgrad.exchange.chain import Operation, Outputs
from matgrad.exchange.onnx_shapes import Layout
from matgrad.foundation.files import naming
from matgrad.foundation.limits import check_bytes
from matgrad.sparse.matrix import SparseMatrix
from matgrad.sparse.support import Support

WITH_MODE = 14  # the version of the operators from which batch normalization has an attribute for its mode
DOMAINS = ("", "ai.onnx")  # of ONNX's own operators
IMAGES = ("Conv", "MaxPool", "AveragePool", "BatchNormalization")  # which take channels first
DTYPE_OF = {TensorProto.FLOAT: "float32", TensorProto.DOUBLE: "float64"}


class Branch(NamedTuple):
    """Operations beside others, after the same value."""

    output: str
    start: str
    operations: list[tuple[str, Operation]]
    layout: Layout | None
    where: str  # the place of the first node of the other branch


class Graph:
    """A graph with one input, one output, and nodes that take the output of the node before them and constants.

    A node may also begin a second branch after an earlier output, and another one join it with the first.
    """

    node: onnx.NodeProto  # the one that is read
    before: str  # the output before it, which it takes

    def __init__(self, proto: onnx.ModelProto, known: Container[str], limit: int) -> None:
        graph, self.proto, self.known, self.limit = proto.graph, proto, known, limit
        self.constants: dict[str, Any] = {tensor.name: tensor for tensor in graph.initializer}
        self.constants |= {tensor.values.name: tensor for tensor in graph.sparse_initializer}
        self.left: deque[tuple[int, onnx.NodeProto]] = deque()  # the nodes that are not read yet, with their numbers
        self.found: list[tuple[str, Operation]] = []  # the operations, with their places
        self.ends: dict[str, tuple[str, Layout | None]] = {}  # the outputs of the operations, by their places
        for i, node in enumerate(graph.node, start=1):
            if node.op_type == "Constant" and len(node.attribute) == 1 and node.attribute[0].name == "value":
                self.constants |= dict.fromkeys(node.output, node.attribute[0].t)
            elif node.op_type == "Identity" and node.input and node.input[0] in self.constants:
                self.constants |= dict.fromkeys(node.output, self.constants[node.input[0]])
            else:
                self.left.append((i, node))
        inputs = [x for x in graph.input if x.name not in self.constants]
        if len(inputs) != 1 or len(graph.output) != 1:
            raise ValueError(f"found {len(inputs)} inputs and {len(graph.output)} outputs, expected one of each")
        self.input, self.last, self.output = inputs[0], inputs[0].name, graph.output[0].name
        kind = inputs[0].type.tensor_type.elem_type
        if kind == TensorProto.INT64:  # labels, for an embedding
            self.dtype = next((DTYPE_OF[x.data_type] for x in graph.initializer if x.data_type in DTYPE_OF), "float32")
        elif kind in DTYPE_OF:
            self.dtype = DTYPE_OF[kind]
        else:
            expected = " or ".join([*DTYPES, "int64"])
            raise ValueError(f"the input {self.last} has element type {kind}, expected {expected}")
        self.layout = self._first_layout([x.dim_value for x in inputs[0].type.tensor_type.shape.dim[1:]])
        self.input_layout = self.layout
        self.starts = {self.last: (0, self.layout)}  # how many operations, and what layout, there were at each value
        self.branches: list[Branch] = []

    def _first_layout(self, sizes: list[int]) -> Layout | None:
        """That of the input; None if its size is not known. Images for a convolution have channels first."""
        if not sizes or (len(sizes) == 1 and sizes[0] <= 0):
            return None
        if min(sizes) <= 0:
            raise ValueError(f"the input {self.last} has sizes {sizes}, expected known ones after that of examples")
        self.check_bytes(64 * math.prod(sizes), f"the input {self.last}")
        has_images = bool(self.left) and self.left[0][1].op_type in IMAGES and len(sizes) > 1
        return Layout.of((*sizes[1:], sizes[0]) if has_images else tuple(sizes), has_images=has_images)

    def check_bytes(self, wanted: int, what: str) -> None:
        """Raise if more bytes are wanted than a file of this size may become."""
        check_bytes(wanted, what, self.limit)

    def sizes(self) -> Layout:
        """The layout, which must be known."""
        if self.layout is None:
            raise ValueError("takes images or tokens, but the input of the graph has no known sizes")
        return self.layout

    def take(self) -> str:
        """Go to the next node, which must take the last output; returns its place."""
        number, self.node = self.left.popleft()
        kind = self.node.op_type if self.node.op_type in self.known else repr(self.node.op_type)
        where = f"node {number}{f' {self.node.name!r}' if self.node.name else ''}, {kind}"
        if self.last not in self.node.input:
            start = next((x for x in self.node.input if x in self.starts), None)
            if start is None or len(self.found) == self.starts[start][0]:
                raise ValueError(f"{where}: expected a chain of nodes, here one that takes {self.last!r}")
            self.branches.append(Branch(self.last, start, self.since(start), self.layout, where))
            self.last, self.layout = start, self.starts[start][1]
        self.before, self.last = self.last, self.node.output[0]
        return where

    def follow(self, kind: str, *inputs: str) -> bool:
        """Go to the next node if it is of this kind and takes these inputs too; returns whether it is."""
        is_next = bool(self.left) and self.left[0][1].op_type == kind and {*inputs} <= {*self.left[0][1].input}
        return is_next and bool(self.take())

    def since(self, start: str) -> list[tuple[str, Operation]]:
        """Take away the operations since a value, and what starts after them."""
        n, _ = self.starts[start]
        self.starts = {name: x for name, x in self.starts.items() if x[0] <= n}
        self.found, operations = self.found[:n], self.found[n:]
        return operations

    def integers(self) -> list[int]:
        """The constant vector of integers that is the second and last input of the node."""
        names = [*self.node.input]
        A = self._array(self.constants[names[1]], "int64") if len(names) == 2 and names[1] in self.constants else None
        if A is None or A.ndim != 1:
            raise ValueError(f"found the inputs {', '.join(map(repr, names))}; expected a constant vector of integers")
        return [int(n) for n in A]

    def has(self, name: str, A: np.ndarray) -> bool:
        """Whether a constant is this array."""
        return np.array_equal(self._array(self.constants[name], A.dtype.name), A)

    def run(self, X: np.ndarray) -> Outputs:
        """The outputs for a batch, by ONNX's own evaluator, in which sparse constants are dense."""
        plain = onnx.ModelProto()
        plain.CopyFrom(self.proto)
        del plain.graph.sparse_initializer[:]
        for tensor in self.proto.graph.sparse_initializer:
            name = tensor.values.name
            plain.graph.initializer.append(numpy_helper.from_array(self.matrix(name).to_dense(), name))
        opset = next(entry.version for entry in plain.opset_import if entry.domain in DOMAINS)
        operators: list[type[OpRun]] = [LogSoftmax, *([BatchNormalization] if opset < WITH_MODE else [])]
        X = X.astype(helper.tensor_dtype_to_np_dtype(self.input.type.tensor_type.elem_type))
        X = X if self.input_layout is None else self.input_layout.tensor(X)
        outputs: Any = ReferenceEvaluator(plain, new_ops=operators).run(None, {self.input.name: X}, intermediate=True)
        yield "", _rows(self.layout, outputs[self.output])
        yield from ((where, _rows(layout, outputs[name])) for where, (name, layout) in self.ends.items())

    def attribute(self, name: str, default: Any) -> Any:
        """The value of an attribute of the node."""
        values = {entry.name: helper.get_attribute_value(entry) for entry in self.node.attribute}
        value = values.get(name, default)
        if isinstance(value, bytes):
            return value.decode()
        return self.number_of(value) if isinstance(value, float) else value

    def number_of(self, x: float) -> float:
        """A float32 number as one writes it if the model is float32, such as 0.01; else exactly."""
        return float(str(np.float32(x))) if self.dtype == "float32" else float(x)

    def matrices(self, least: int, most: int, *, commutes: bool = False) -> list[Any]:
        """The constants that the node takes beside the output of the node before it, which comes first."""
        names = [name for name in self.node.input if name]
        before = [i for i, name in enumerate(names) if name not in self.constants]
        if len(before) != 1 or (before[0] != 0 and not commutes) or not least <= len(names) - 1 <= most:
            found = ", ".join(map(repr, names))
            raise ValueError(f"found the inputs {found}; expected a matrix, then {least} or more constants")
        return [self.matrix(name) for i, name in enumerate(names) if i != before[0]]

    def row(self, *, commutes: bool = False) -> np.ndarray:
        """The numbers of the one constant that the node takes, a vector or a matrix with one row."""
        return row_of(*self.matrices(1, 1, commutes=commutes))

    def matrix(self, name: str) -> Any:
        """A constant: an array, or a sparse matrix."""
        with naming(f"tensor {name!r}"):
            tensor = self.constants[name]
            if isinstance(tensor, TensorProto):
                return self._array(tensor)
            values, flat, sizes = self._array(tensor.values), self._array(tensor.indices, "int64"), tuple(tensor.dims)
            check_bytes(64 * sum(map(abs, sizes)), f"sizes {sizes}", self.limit)
            if flat.ndim == 2:  # rows and columns
                if ((flat < 0) | (flat >= sizes)).any():
                    raise ValueError(f"found indices outside of the sizes {sizes}")
                flat = flat[:, 0] * sizes[1] + flat[:, 1]
            return SparseMatrix(Support.from_flat(sizes, flat), values[None])

    def _array(self, tensor: onnx.TensorProto, dtype: str | None = None) -> np.ndarray:
        """The array of a tensor, which must have this dtype, by default that of the model, and be in the file."""
        if tensor.data_location == TensorProto.EXTERNAL or tensor.external_data:
            raise ValueError("is in another file; expected all tensors in this one")
        A = numpy_helper.to_array(tensor)
        if A.dtype != (dtype or self.dtype):
            raise ValueError(f"found element type {A.dtype}, expected {dtype or self.dtype}")
        return A


def row_of(A: Any) -> np.ndarray:
    """The numbers of a vector, or of a matrix with one row."""
    if not isinstance(A, np.ndarray) or A.ndim > 2 or A.shape[:-1] not in ((), (1,)):
        raise ValueError(f"found a constant of shape {A.shape}, expected one row")
    return A.reshape(-1)


def _rows(layout: Layout | None, X: np.ndarray) -> np.ndarray:
    """The rows of matgrad that a tensor has."""
    return X if layout is None else layout.rows(X)


class LogSoftmax(OpRun):
    """That of ONNX's evaluator is log(softmax(X)), which is -∞ from -104 on in float32."""

    op_domain = ""

    def _run(self, X: np.ndarray, axis: int | None = None) -> tuple[np.ndarray]:
        return (log_softmax(X, axis=-1 if axis is None else axis),)


class BatchNormalization(OpRun):
    """Before `WITH_MODE`, in evaluation mode if it has one output; ONNX's evaluator takes it to train."""

    op_domain = ""

    def _run(self, X: np.ndarray, *rows: np.ndarray, epsilon: float | None = None, **others: Any) -> tuple[np.ndarray]:
        gamma, beta, mean, variance = rows
        scale = np.sqrt(variance + variance.dtype.type(1e-5 if epsilon is None else epsilon))
        return ((X - mean) / scale * gamma + beta,)
