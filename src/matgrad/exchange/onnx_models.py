"""ONNX: a model in evaluation mode as an ONNX file, and from one whose graph is a chain of known operators.

Nothing outside the file is read.
"""

from __future__ import annotations

import json
import os
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun
from scipy.special import log_softmax

from matgrad import activation_functions as af
from matgrad.backends.base import DTYPES
from matgrad.exchange import chain
from matgrad.exchange.chain import Operation, Outputs, always, chain_of, counterpart, model_of
from matgrad.foundation.files import naming
from matgrad.foundation.limits import MEMBERS, check_bytes, check_count, file_limit
from matgrad.foundation.writing import atomic_write
from matgrad.layers import BatchNormalizationLayer, LayerNormalizationLayer, RMSNormalizationLayer
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.sparse.matrix import SparseMatrix
from matgrad.sparse.support import Support
from matgrad.storage.models import model_description, read_description, with_information

OPSET, IR = 20, 9  # of November 2023, the first with Gelu
WITH_RMS = 23, 11  # of May 2025, the first with RMSNormalization; for models that have it
OLDEST = 9  # version of the operators that are read
WITH_MODE = 14  # from which batch normalization has an attribute for its mode
DOMAINS = ("", "ai.onnx")  # of ONNX's own operators
METADATA = "matgrad"  # the name of the description in the metadata
DTYPE_OF = {TensorProto.FLOAT: "float32", TensorProto.DOUBLE: "float64"}


# -- from a model ---------------------------------------------------------------------------------


def to_onnx(M: MultilayerPerceptron, path: str | Path, *, sparse: bool = False) -> None:
    """Write the model to an ONNX file; see `matgrad.exchange`."""
    graph = _Graph(M.dtype, sparse)
    for where, operation in chain_of(M, trains=False):
        with naming(where):
            counterpart(WRITERS, operation, "ONNX has no such operator")(graph, operation)
    graph.nodes[-1].output[0] = "Y"
    kind, sizes = helper.np_dtype_to_tensor_dtype(np.dtype(M.dtype)), (M.layers[0].input_size, M.layers[-1].output_size)
    X, Y = (helper.make_tensor_value_info(name, kind, ["N", n]) for name, n in zip("XY", sizes, strict=True))
    parts = graph.nodes, "matgrad", [X], [Y], graph.constants
    proto = helper.make_graph(*parts, sparse_initializer=graph.sparse_constants)
    opset, ir = WITH_RMS if any(node.op_type == "RMSNormalization" for node in graph.nodes) else (OPSET, IR)
    opsets = [helper.make_opsetid("", opset)]
    model = helper.make_model(proto, opset_imports=opsets, ir_version=ir, producer_name="matgrad")
    helper.set_model_props(model, {METADATA: json.dumps(model_description(M))})
    with atomic_write(path) as file:
        file.write(model.SerializeToString())


class _Graph:
    """The nodes and constants of a graph, whose last output is the input of the next node."""

    def __init__(self, dtype: str, sparse: bool) -> None:
        self.dtype, self.sparse, self.last = dtype, sparse, "X"
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.sparse_constants: list[onnx.SparseTensorProto] = []

    def add(self, kind: str, *inputs: Any, **attributes: Any) -> _Graph:
        """Add a node that takes the last output, then names and arrays; returns the graph."""
        name = f"{kind}{len(self.nodes) + 1}"
        names = [x if isinstance(x, str) else self._constant(f"{name}.{i}", x) for i, x in enumerate(inputs, start=1)]
        self.nodes.append(helper.make_node(kind, [self.last, *names], [f"{name}.Y"], name, **attributes))
        self.last = f"{name}.Y"
        return self

    def _constant(self, name: str, A: Any) -> str:
        """The name, under which a matrix or vector is added to the constants."""
        if isinstance(A, SparseMatrix) and self.sparse:
            values = numpy_helper.from_array(A.values[0], name)
            indices = numpy_helper.from_array(A.support.flat(), f"{name}.indices")
            self.sparse_constants.append(helper.make_sparse_tensor(values, indices, A.shape))
        else:
            self.constants.append(numpy_helper.from_array(chain.dense(A).astype(self.dtype, copy=False), name))
        return name

    def number(self, x: float) -> float:
        """A number as an attribute, which is a float32 number, also where all else is float64."""
        if self.dtype != "float32" and float(np.float32(x)) != x:
            raise ValueError(f"ONNX has the number {x:g} in float32 only; expected M.to(dtype='float32')")
        return x


def _batch_normalization(graph: _Graph, x: BatchNormalizationLayer) -> None:
    """ONNX has ε in float32; what is left of it in float64 is added to the variance."""
    epsilon = float(np.float32(x.epsilon))
    rest = 0.0 if graph.dtype == "float32" else x.epsilon - epsilon
    *rows, variance = chain.rows_of(x)
    variance = variance + variance.dtype.type(rest)
    graph.add("BatchNormalization", *rows, variance, epsilon=epsilon, momentum=chain.complement(x.momentum))


def _normalization_of_rows(graph: _Graph, x: LayerNormalizationLayer | RMSNormalizationLayer) -> None:
    if graph.dtype != "float32":
        raise ValueError("ONNX normalizes rows in float32 only; expected M.to(dtype='float32')")
    graph.add(type(x).__name__.removesuffix("Layer"), *chain.rows_of(x), axis=1, epsilon=x.epsilon)


WRITERS: dict[type, Callable[[_Graph, Any], object]] = {
    **dict.fromkeys(chain.LINEAR, lambda graph, x: graph.add("Gemm", x.W, x.b[0], transB=1)),
    chain.Softmax: lambda graph, x: graph.add("Softmax", axis=1),
    chain.LogSoftmax: lambda graph, x: graph.add("LogSoftmax", axis=1),
    BatchNormalizationLayer: _batch_normalization,
    LayerNormalizationLayer: _normalization_of_rows,
    RMSNormalizationLayer: _normalization_of_rows,
    chain.Normalize: lambda graph, x: graph.add("Sub", x.offset[None]).add("Div", x.scale[None]),
    chain.Denormalize: lambda graph, x: graph.add("Mul", x.scale[None]).add("Add", x.offset[None]),
    **dict.fromkeys(chain.FUNCTIONS, lambda graph, f: graph.add(chain.FUNCTIONS[type(f)].capitalize())),
    # PRelu has its slope in the dtype of the model, LeakyRelu in float32
    af.AllReLUActivation: lambda graph, f: graph.add("PRelu", np.array([f.alpha])),
    af.TReLUActivation: lambda graph, f: graph.add("ThresholdedRelu", alpha=graph.number(f.epsilon)),
    af.SiLUActivation: lambda graph, f: graph.add("Sigmoid").add("Mul", graph.nodes[-1].input[0]),
    af.ELUActivation: lambda graph, f: graph.add("Elu", alpha=graph.number(float(f.alpha))),
}


# -- to a model -----------------------------------------------------------------------------------


def from_onnx(path: str | Path) -> MultilayerPerceptron:
    """The model in an ONNX file; see `matgrad.exchange`."""
    with naming(path, kind="an ONNX file"):
        proto = _read(path)
        texts = {entry.key: entry.value for entry in proto.metadata_props}
        information: dict[str, Any] = {}
        if METADATA in texts:
            _, information = read_description(texts[METADATA], "the description")
        graph = Graph(proto, file_limit(path))
        M = model_of(_operations(graph), graph.run)
        for name, key in (("normalization", "normalize"), ("target_normalization", "normalize_targets")):
            if getattr(M, name) is not None and information.get(key) not in (None, "none"):
                setattr(M, name, replace(getattr(M, name), kind=information[key]))
        return with_information(M, information, "the description")


def _read(path: str | Path) -> onnx.ModelProto:
    """The content of a file, after a check that it is an ONNX model of a known version."""
    with open(path, "rb") as file:
        check_bytes(2 * os.fstat(file.fileno()).st_size, "the file")
        proto = onnx.ModelProto.FromString(file.read())
    versions = [entry.version for entry in proto.opset_import if entry.domain in DOMAINS]
    newest = onnx.defs.onnx_opset_version()
    if len(versions) != 1 or not OLDEST <= versions[0] <= newest:
        raise ValueError(f"expected an ONNX file of operators version {OLDEST} to {newest}, found {versions}")
    check_count(len(proto.graph.node), MEMBERS, "the graph", "nodes")
    if proto.functions:
        raise ValueError(f"found the function {proto.functions[0].name!r}, expected operators of ONNX only")
    constants = [*(x.name for x in proto.graph.initializer), *(x.values.name for x in proto.graph.sparse_initializer)]
    names = [*constants, *{x.name for x in proto.graph.input} - {*constants}]
    names += [name for node in proto.graph.node for name in node.output if name]
    if twice := [name for name, n in Counter(names).items() if n > 1]:
        raise ValueError(f"found two values with the name {twice[0]!r}, expected different names")
    return proto


# -- the graph -------------------------------------------------------------------------------------


class Graph:
    """A graph with one input, one output, and nodes that take the output of the node before them and constants."""

    node: onnx.NodeProto  # the one that is read

    def __init__(self, proto: onnx.ModelProto, limit: int) -> None:
        graph, self.proto, self.limit = proto.graph, proto, limit
        self.constants: dict[str, Any] = {tensor.name: tensor for tensor in graph.initializer}
        self.constants |= {tensor.values.name: tensor for tensor in graph.sparse_initializer}
        self.left: deque[tuple[int, onnx.NodeProto]] = deque()  # the nodes that are not read yet, with their numbers
        self.ends: dict[str, str] = {}  # the outputs of the operations, by their places
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
        if kind not in DTYPE_OF:
            raise ValueError(f"the input {self.last} has element type {kind}, expected {' or '.join(DTYPES)}")
        self.dtype = DTYPE_OF[kind]
        sizes = inputs[0].type.tensor_type.shape.dim
        if len(sizes) not in (0, 2) and (not self.left or self.left[0][1].op_type != "Flatten"):
            raise ValueError(f"the input {self.last} has {len(sizes)} dimensions, expected examples × features")

    def take(self) -> str:
        """Go to the next node, which must take the last output; returns its place."""
        number, self.node = self.left.popleft()
        kind = self.node.op_type if self.node.op_type in READERS else repr(self.node.op_type)
        where = f"node {number}{f' {self.node.name!r}' if self.node.name else ''}, {kind}"
        if self.last not in self.node.input:
            raise ValueError(f"{where}: expected a chain of nodes, here one that takes {self.last!r}")
        self.last = self.node.output[0]
        return where

    def follow(self, kind: str, *inputs: str) -> bool:
        """Go to the next node if it is of this kind and takes these inputs too; returns whether it is."""
        is_next = bool(self.left) and self.left[0][1].op_type == kind and {*inputs} <= {*self.left[0][1].input}
        return is_next and bool(self.take())

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
        outputs: Any = ReferenceEvaluator(plain, new_ops=operators).run(None, {self.input.name: X}, intermediate=True)
        yield "", outputs[self.output]
        yield from ((where, outputs[name]) for where, name in self.ends.items())

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
        return _row(*self.matrices(1, 1, commutes=commutes))

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


# -- the operations --------------------------------------------------------------------------------


def _operations(graph: Graph) -> Iterator[tuple[str, Operation]]:
    """The operations of the nodes, with their places."""
    while graph.left:
        with naming(where := graph.take()):
            if graph.node.op_type not in READERS or graph.node.domain not in DOMAINS:
                raise ValueError(f"unknown operator; known: {', '.join(READERS)}")
            if graph.node.op_type == "BatchNormalization" and len(graph.node.output) > 1:
                raise ValueError("found several outputs, as in training mode; expected one")
            chain.check_settings(EXPECTED.get(graph.node.op_type, {}), graph.attribute)
            operation = READERS[graph.node.op_type](graph)
        if operation is not None:
            graph.ends[where] = graph.last
            yield where, operation
    if graph.last != graph.output:
        raise ValueError(f"the last node has the output {graph.last!r}, expected {graph.output!r}")


def _affine(graph: Graph) -> Operation:
    """X Wᵀ + 1_N b, with a b that is repeated where ONNX repeats it, and 0 where there is none."""
    W, *bias = graph.matrices(1, 2)
    if len(W.shape) != 2 or 0 in W.shape:
        raise ValueError(f"found weights of shape {W.shape}, expected a matrix")
    if not (is_transposed := graph.attribute("transB", 0)) and isinstance(W, SparseMatrix):
        raise ValueError("found transposed sparse weights, expected those of a Gemm with transB=1")
    if graph.node.op_type == "MatMul" and graph.follow("Add"):
        bias = graph.matrices(1, 1, commutes=True)
    W, b = W if is_transposed else W.T, _row(bias[0]) if bias else None
    return chain.linear(W, np.repeat(b, W.shape[0]) if b is not None and len(b) == 1 else b)


def _row(A: Any) -> np.ndarray:
    """The numbers of a vector, or of a matrix with one row."""
    if not isinstance(A, np.ndarray) or A.ndim > 2 or A.shape[:-1] not in ((), (1,)):
        raise ValueError(f"found a constant of shape {A.shape}, expected one row")
    return A.reshape(-1)


def _normalizing(graph: Graph) -> Operation:
    """A normalization of columns or rows; that of rows may lack β."""
    cls = chain.NORMALIZING[graph.node.op_type]
    names = (*cls.parameters, *cls.buffers)
    rows = [_row(A) for A in graph.matrices(len(names) - (cls is LayerNormalizationLayer), len(names))]
    settings = {"epsilon": graph.attribute("epsilon", 1e-5)}
    if cls is BatchNormalizationLayer:
        settings["momentum"] = chain.complement(graph.attribute("momentum", 0.9))
    return chain.normalizing(cls, dict(zip(names, rows, strict=False)), len(rows[0]), graph.dtype, **settings)


def _prelu(graph: Graph) -> Operation:
    if len(slope := graph.row()) != 1:
        raise ValueError("found several slopes, expected one")
    return af.AllReLUActivation(graph.number_of(slope.item()))


def _normalization(graph: Graph) -> chain.Normalize:
    """(X - offset) / scale or Y·scale + offset, which are two nodes."""
    is_inverse = graph.node.op_type == "Mul"
    first = graph.row(commutes=is_inverse)
    if not graph.follow("Add" if is_inverse else "Div"):
        raise ValueError("expected a Sub, then a Div, or a Mul, then an Add, as in a normalization")
    second = graph.row(commutes=is_inverse)
    return chain.Denormalize(second, first) if is_inverse else chain.Normalize(first, second)


READERS: dict[str, Callable[[Graph], Operation | None]] = {
    "Gemm": _affine,
    "MatMul": _affine,
    "Softmax": always(chain.Softmax),
    "LogSoftmax": always(chain.LogSoftmax),
    **dict.fromkeys(chain.NORMALIZING, _normalizing),
    "Sub": _normalization,
    "Mul": _normalization,
    **{name.capitalize(): always(function) for function, name in chain.FUNCTIONS.items() if name != "SiLU"},
    "Swish": always(af.SiLUActivation),
    "LeakyRelu": lambda graph: af.AllReLUActivation(graph.attribute("alpha", 0.01)),
    "PRelu": _prelu,
    "ThresholdedRelu": lambda graph: af.TReLUActivation(graph.attribute("alpha", 1.0)),
    # σ(x), or x·σ(x) if a product with x follows
    "Sigmoid": lambda graph: af.SiLUActivation() if graph.follow("Mul", *graph.node.input) else af.SigmoidActivation(),
    "Elu": lambda graph: af.ELUActivation(graph.attribute("alpha", 1.0)),
    **dict.fromkeys(("Identity", "Flatten", "Dropout"), lambda graph: None),
}

COLUMNS = (-1, 1)  # of a matrix, as axes
EXPECTED: dict[str, dict[str, tuple[Any, ...]]] = {  # the values that other attributes may have
    "Gemm": {"alpha": (1.0,), "beta": (1.0,), "transA": (0,), "transB": (0, 1)},
    "Softmax": {"axis": COLUMNS},
    "LogSoftmax": {"axis": COLUMNS},
    "BatchNormalization": {"training_mode": (0,), "spatial": (1,)},
    "LayerNormalization": {"axis": COLUMNS, "stash_type": (1,)},
    "RMSNormalization": {"axis": COLUMNS, "stash_type": (1,)},
    "Gelu": {"approximate": ("none",)},
    "Flatten": {"axis": (1, -1)},
}
