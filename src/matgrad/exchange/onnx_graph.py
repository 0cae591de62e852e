"""Graphs of ONNX: one input, one output, a chain of nodes between them, and constants.

Nothing outside the file is read.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from matgrad.backends.base import DTYPES
from matgrad.exchange.chain import Outputs
from matgrad.foundation.files import naming
from matgrad.foundation.limits import check_bytes
from matgrad.sparse.matrix import SparseMatrix
from matgrad.sparse.support import Support

DTYPE_OF = {TensorProto.FLOAT: "float32", TensorProto.DOUBLE: "float64"}


class Graph:
    """A graph with one input, one output, and nodes that take the output of the node before them and constants."""

    def __init__(self, proto: onnx.ModelProto, limit: int) -> None:
        graph, self.proto, self.limit = proto.graph, proto, limit
        self.constants: dict[str, Any] = {tensor.name: tensor for tensor in graph.initializer}
        self.constants |= {tensor.values.name: tensor for tensor in graph.sparse_initializer}
        self.left: deque[Node] = deque()  # the nodes that are not taken yet
        self.ends: dict[str, str] = {}  # the outputs of the operations, by their places
        for i, node in enumerate(graph.node, start=1):
            if node.op_type == "Constant" and len(node.attribute) == 1 and node.attribute[0].name == "value":
                self.constants |= dict.fromkeys(node.output, node.attribute[0].t)
            elif node.op_type == "Identity" and node.input and node.input[0] in self.constants:
                self.constants |= dict.fromkeys(node.output, self.constants[node.input[0]])
            else:
                self.left.append(Node(self, i, node))
        inputs = [x for x in graph.input if x.name not in self.constants]
        if len(inputs) != 1 or len(graph.output) != 1:
            raise ValueError(f"found {len(inputs)} inputs and {len(graph.output)} outputs, expected one of each")
        self.input, self.last, self.output = inputs[0], inputs[0].name, graph.output[0].name
        kind = inputs[0].type.tensor_type.elem_type
        if kind not in DTYPE_OF:
            raise ValueError(f"the input {self.last} has element type {kind}, expected {' or '.join(DTYPES)}")
        self.dtype = DTYPE_OF[kind]
        sizes = inputs[0].type.tensor_type.shape.dim
        if len(sizes) not in (0, 2) and (not self.left or self.left[0].kind != "Flatten"):
            raise ValueError(f"the input {self.last} has {len(sizes)} dimensions, expected examples × features")

    def take(self) -> Node:
        """The next node, which must take the last output; its own output is then the last one."""
        node = self.left.popleft()
        if self.last not in node.proto.input:
            raise ValueError(f"{node.where}: expected a chain of nodes, here one that takes {self.last!r}")
        self.last = node.proto.output[0]
        return node

    def follow(self, kind: str, *inputs: str) -> Node | None:
        """The next node, if it is of this kind and takes these inputs too."""
        is_next = bool(self.left) and self.left[0].kind == kind and {*inputs} <= {*self.left[0].proto.input}
        return self.take() if is_next else None

    def run(self, X: np.ndarray) -> Outputs:
        """The outputs for a batch, by ONNX's own evaluator, in which sparse constants are dense."""
        plain = onnx.ModelProto()
        plain.CopyFrom(self.proto)
        del plain.graph.sparse_initializer[:]
        for tensor in self.proto.graph.sparse_initializer:
            name = tensor.values.name
            plain.graph.initializer.append(numpy_helper.from_array(self.matrix(name).to_dense(), name))
        outputs: Any = ReferenceEvaluator(plain).run(None, {self.input.name: X}, intermediate=True)
        yield "", outputs[self.output]
        yield from ((where, outputs[name]) for where, name in self.ends.items())

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


class Node:
    """A node of a graph, with what its reader asks for."""

    def __init__(self, graph: Graph, number: int, proto: onnx.NodeProto) -> None:
        self.graph, self.proto, self.kind = graph, proto, proto.op_type
        name = f" {proto.name!r}" if proto.name else ""
        self.where = f"node {number}{name}, {proto.op_type}"

    def attribute(self, name: str, default: Any) -> Any:
        """The value of an attribute, which has the type of its default."""
        entry = next((entry for entry in self.proto.attribute if entry.name == name), None)
        if entry is None:
            return default
        value = helper.get_attribute_value(entry)
        value = value.decode() if isinstance(value, bytes) else value
        if type(value) is not type(default):
            raise ValueError(f"{name}: found {value!r}, expected {type(default).__name__}")
        return self.number_of(value) if isinstance(value, float) else value

    def number_of(self, x: float) -> float:
        """A float32 number as one writes it if the model is float32, such as 0.01; else exactly."""
        return float(str(np.float32(x))) if self.graph.dtype == "float32" else float(x)

    def matrices(self, least: int, most: int, *, commutes: bool = False) -> list[Any]:
        """The constants that the node takes beside the output of the node before it, which comes first."""
        names = [name for name in self.proto.input if name]
        before = [i for i, name in enumerate(names) if name not in self.graph.constants]
        if len(before) != 1 or (before[0] != 0 and not commutes) or not least <= len(names) - 1 <= most:
            raise ValueError(f"found the inputs {', '.join(names)}; expected a matrix, then {least} or more constants")
        return [self.graph.matrix(name) for i, name in enumerate(names) if i != before[0]]
