"""Graphs of ONNX: one input, one output, a chain of nodes between them, and constants.

Nothing outside the file is read, and every tensor must have as many bytes as its dimensions say.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from matgrad.backends.base import DTYPES
from matgrad.exchange.chain import at
from matgrad.foundation.limits import check_bytes
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.sparse.matrix import SparseMatrix
from matgrad.sparse.support import Support

DTYPE_OF = {TensorProto.FLOAT: "float32", TensorProto.DOUBLE: "float64"}
# the number of an element type, and where a tensor has its elements if not as bytes
KINDS = {
    "float32": (TensorProto.FLOAT, "float_data"),
    "float64": (TensorProto.DOUBLE, "double_data"),
    "int64": (TensorProto.INT64, "int64_data"),
}


class Graph:
    """A graph with one input and one output, and a chain of nodes between them."""

    def __init__(self, proto: onnx.ModelProto, limit: int) -> None:
        graph, self.proto, self.limit = proto.graph, proto, limit
        self.constants: dict[str, Any] = {tensor.name: tensor for tensor in graph.initializer}
        self.constants |= {tensor.values.name: tensor for tensor in graph.sparse_initializer}
        self.left: dict[int, Node] = {}  # the nodes that are not taken yet
        for i, node in enumerate(graph.node, start=1):
            if node.op_type == "Constant" and len(node.attribute) == 1 and node.attribute[0].name == "value":
                self.constants |= dict.fromkeys(node.output, node.attribute[0].t)
            elif node.op_type == "Identity" and len(node.input) == 1 and node.input[0] in self.constants:
                self.constants |= dict.fromkeys(node.output, self.constants[node.input[0]])
            else:
                self.left[i] = Node(self, i, node)
        self.users: dict[str, list[Node]] = {}
        for node in self.left.values():
            for name in {*node.proto.input} - self.constants.keys():
                self.users.setdefault(name, []).append(node)
        inputs = [x for x in graph.input if x.name not in self.constants]
        if len(inputs) != 1 or len(graph.output) != 1:
            raise ValueError(f"found {len(inputs)} inputs and {len(graph.output)} outputs, expected one of each")
        self.input, self.last, self.output = inputs[0], inputs[0].name, graph.output[0].name
        kind = inputs[0].type.tensor_type.elem_type
        if kind not in DTYPE_OF:
            raise ValueError(f"the input {self.last} has element type {kind}, expected {' or '.join(DTYPES)}")
        self.dtype = DTYPE_OF[kind]
        sizes = inputs[0].type.tensor_type.shape.dim
        if len(sizes) not in (0, 2) and [node.kind for node in self.users.get(self.last, [])] != ["Flatten"]:
            raise ValueError(f"the input {self.last} has {len(sizes)} dimensions, expected examples × features")

    def next(self) -> Node:
        """The node that takes the last output; of x·σ(x), which takes it twice, σ."""
        users = self.users.get(self.last, [])
        if not users:
            raise ValueError(f"no node takes {self.last!r}, which is not the output {self.output!r}")
        if len(users) > 1 and sorted(user.kind for user in users) != ["Mul", "Sigmoid"]:
            places = ", ".join(user.where for user in users)
            raise ValueError(f"{places}: take the same matrix; expected a chain of nodes")
        return max(users, key=lambda user: user.kind == "Sigmoid")

    def take(self, node: Node) -> Node:
        """The node, whose output is now the last one."""
        if node.number not in self.left:
            raise ValueError("occurs in a circle of nodes")
        if node.proto.domain not in ("", "ai.onnx"):
            raise ValueError(f"belongs to {node.proto.domain!r}, expected the operators of ONNX itself")
        outputs = [name for name in node.proto.output if name]
        if len(outputs) != 1 and not (node.kind == "Dropout" and outputs):
            raise ValueError(f"found {len(outputs)} outputs, expected one")
        del self.left[node.number]
        self.last = outputs[0]
        return node

    def follow(self, kind: str) -> Node | None:
        """The only node that takes the last output, if it is of this kind."""
        users = self.users.get(self.last, [])
        return self.take(users[0]) if len(users) == 1 and users[0].kind == kind else None

    def check_size(self, M: MultilayerPerceptron) -> None:
        """Raise if the input has another size than the model's."""
        sizes = [size.dim_value for size in self.input.type.tensor_type.shape.dim]
        D = M.layers[0].input_size
        if len(sizes) == 2 and sizes[1] not in (0, D):
            raise ValueError(f"the input {self.input.name} has {sizes[1]} columns, expected {D}")

    def run(self, X: np.ndarray) -> np.ndarray:
        """The output for a batch, by ONNX's own evaluator, in which sparse constants are dense."""
        plain = onnx.ModelProto()
        plain.CopyFrom(self.proto)
        del plain.graph.sparse_initializer[:]
        for tensor in self.proto.graph.sparse_initializer:
            name = tensor.values.name
            plain.graph.initializer.append(numpy_helper.from_array(matrix_of(name, self).to_dense(), name))
        outputs: Any = ReferenceEvaluator(plain).run(None, {self.input.name: X})
        return outputs[0]


class Node:
    """A node of a graph, with what its reader asks for."""

    def __init__(self, graph: Graph, number: int, proto: onnx.NodeProto) -> None:
        self.graph, self.number, self.proto, self.kind = graph, number, proto, proto.op_type
        name = f" {proto.name!r}" if proto.name else ""
        self.where = f"node {number}{name}, {proto.op_type}"

    def attribute(self, name: str, default: Any) -> Any:
        """The value of an attribute, which has the type of its default."""
        entry = next((entry for entry in self.proto.attribute if entry.name == name), None)
        if entry is None:
            return default
        value = helper.get_attribute_value(entry) if entry.type else None
        value = value.decode(errors="replace") if isinstance(value, bytes) else value
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
        return [matrix_of(name, self.graph) for i, name in enumerate(names) if i != before[0]]


def matrix_of(name: str, graph: Graph) -> Any:
    """A constant of a graph: an array, or a sparse matrix."""
    with at(f"tensor {name!r}"):
        tensor = graph.constants[name]
        if isinstance(tensor, TensorProto):
            return _array(tensor, graph.dtype)
        values, sizes = _array(tensor.values, graph.dtype), tuple(tensor.dims)
        check_bytes(64 * sum(map(abs, sizes)), f"sizes {sizes}", graph.limit)
        flat = _array(tensor.indices, "int64")
        if flat.ndim == 2 and flat.shape[1] == 2 and len(sizes) == 2:
            if ((flat < 0) | (flat >= sizes)).any():
                raise ValueError(f"found indices outside of the sizes {sizes}")
            flat = flat[:, 0] * sizes[1] + flat[:, 1]
        if flat.ndim != 1 or values.ndim != 1:
            raise ValueError(f"found indices of shape {flat.shape} and values of shape {values.shape}")
        return SparseMatrix(Support.from_flat(sizes, flat), values[None])


def _array(tensor: onnx.TensorProto, dtype: str) -> np.ndarray:
    """The array of a tensor, which must have this dtype and be in the file."""
    kind, name = KINDS[dtype]
    if tensor.data_location == TensorProto.EXTERNAL or tensor.external_data:
        raise ValueError("is in another file; expected all tensors in this one")
    if tensor.data_type != kind:
        raise ValueError(f"found element type {tensor.data_type}, expected {kind} ({dtype})")
    shape, elements = tuple(tensor.dims), getattr(tensor, name)
    size = 8 * len(elements) if not tensor.raw_data else len(tensor.raw_data) * 8 // np.dtype(dtype).itemsize
    if any(n < 0 for n in shape) or 8 * math.prod(shape) != size:
        raise ValueError(f"found {size / 8:g} elements, expected a tensor of shape {shape}")
    if tensor.raw_data:
        return np.frombuffer(tensor.raw_data, np.dtype(dtype).newbyteorder("<")).astype(dtype).reshape(shape)
    return np.array(elements, dtype=dtype).reshape(shape)
