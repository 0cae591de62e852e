"""ONNX: a model in evaluation mode as an ONNX file, and from one whose graph is a chain, with sums and products.

Nothing outside the file is read.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from matgrad import activation_functions as af
from matgrad import layers as ly
from matgrad.datasets.dataset import Normalization
from matgrad.exchange import chain, onnx_shapes, shapes
from matgrad.exchange.chain import Operation, chain_of, model_of
from matgrad.exchange.onnx_graph import DOMAINS, Graph, row_of
from matgrad.exchange.onnx_shapes import Layout, Nodes
from matgrad.foundation.files import naming
from matgrad.foundation.limits import MEMBERS, check_bytes, check_count, file_limit
from matgrad.foundation.writing import atomic_write
from matgrad.layers.composite import Shape
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.sparse.matrix import SparseMatrix
from matgrad.storage.models import model_description, read_description, with_information

OPSET, IR = 20, 9  # of November 2023, the first with Gelu
WITH_RMS = 23, 11  # of May 2025, the first with RMSNormalization; for models that have it
OLDEST = 9  # version of the operators that are read
METADATA = "matgrad"  # the name of the description in the metadata


# -- from a model ---------------------------------------------------------------------------------


def to_onnx(M: MultilayerPerceptron, path: str | Path, *, sparse: bool = False) -> None:
    """Write the model, as it is in evaluation mode, to an ONNX file, for raw examples, as `M.predict` takes.

    Sparse weights are written with their zeros or, with ``sparse=True``, as sparse initializers.
    """
    graph = Nodes(M.dtype, sparse, WRITERS)
    for where, operation in chain_of(M, trains=False):
        with naming(where):
            graph.write(operation)
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


def _batch_normalization(graph: Nodes, x: ly.BatchNormalizationLayer) -> None:
    """ONNX has ε in float32; what is left of it in float64 is added to the variance."""
    epsilon = float(np.float32(x.epsilon))
    rest = 0.0 if graph.dtype == "float32" else x.epsilon - epsilon
    *rows, variance = chain.rows_of(x)
    variance = variance + variance.dtype.type(rest)
    graph.add("BatchNormalization", *rows, variance, epsilon=epsilon, momentum=chain.complement(x.momentum))


def _normalization_of_rows(graph: Nodes, x: ly.LayerNormalizationLayer | ly.RMSNormalizationLayer) -> None:
    if graph.dtype != "float32":
        raise ValueError("ONNX normalizes rows in float32 only; expected M.to(dtype='float32')")
    graph.add(type(x).__name__.removesuffix("Layer"), *chain.rows_of(x), axis=1, epsilon=x.epsilon)


WRITERS: dict[type, Callable[[Nodes, Any], object]] = {
    **dict.fromkeys(chain.LINEAR, lambda graph, x: graph.add("Gemm", x.W, x.b[0], transB=1)),
    chain.Softmax: lambda graph, x: graph.add("Softmax", axis=1),
    chain.LogSoftmax: lambda graph, x: graph.add("LogSoftmax", axis=1),
    ly.BatchNormalizationLayer: _batch_normalization,
    ly.LayerNormalizationLayer: _normalization_of_rows,
    ly.RMSNormalizationLayer: _normalization_of_rows,
    Normalization: lambda graph, x: graph.add("Sub", x.offset).add("Div", x.scale),
    chain.Denormalize: lambda graph, x: graph.add("Mul", x.scale).add("Add", x.offset),
    **dict.fromkeys(chain.FUNCTIONS, lambda graph, f: graph.add(chain.FUNCTIONS[type(f)].capitalize())),
    # PRelu has its slope in the dtype of the model, LeakyRelu in float32
    af.AllReLUActivation: lambda graph, f: graph.add("PRelu", np.array([float(f.alpha)])),
    af.TReLUActivation: lambda graph, f: graph.add("ThresholdedRelu", alpha=graph.number(f.epsilon)),
    af.SiLUActivation: lambda graph, f: graph.add("Sigmoid").add("Mul", graph.nodes[-1].input[0]),
    af.ELUActivation: lambda graph, f: graph.add("Elu", alpha=graph.number(float(f.alpha))),
    **onnx_shapes.WRITERS,
}


# -- to a model -----------------------------------------------------------------------------------


def from_onnx(path: str | Path) -> MultilayerPerceptron:
    """The model in an ONNX file, if it is a chain of linear layers, activation functions and normalizations."""
    with naming(path, kind="an ONNX file"):
        proto = _read(path)
        texts = {entry.key: entry.value for entry in proto.metadata_props}
        information: dict[str, Any] = {}
        if METADATA in texts:
            _, information = read_description(texts[METADATA], "the description")
        graph = Graph(proto, READERS, file_limit(path))
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


# -- the operations --------------------------------------------------------------------------------


def _operations(graph: Graph) -> list[tuple[str, Operation]]:
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
            graph.ends[where] = graph.last, graph.layout
            graph.found.append((where, operation))
        graph.starts[graph.last] = len(graph.found), graph.layout
    if graph.branches:
        where, name = graph.branches[-1].where, graph.branches[-1].output
        raise ValueError(f"{where}: expected a chain of nodes, here one that takes {name!r}")
    if graph.last != graph.output:
        raise ValueError(f"the last node has the output {graph.last!r}, expected {graph.output!r}")
    return graph.found


def _affine(graph: Graph) -> Operation:
    """X Wᵀ + 1_N b, with a b that is repeated where ONNX repeats it, and 0 where there is none."""
    W, *bias = graph.matrices(1, 2)
    if len(W.shape) != 2 or 0 in W.shape:
        raise ValueError(f"found weights of shape {W.shape}, expected a matrix")
    if not (is_transposed := graph.attribute("transB", 0)) and isinstance(W, SparseMatrix):
        raise ValueError("found transposed sparse weights, expected those of a Gemm with transB=1")
    if graph.node.op_type == "MatMul" and graph.follow("Add"):
        bias = graph.matrices(1, 1, commutes=True)
    W, b = W if is_transposed else W.T, row_of(bias[0]) if bias else None
    b = np.repeat(b, W.shape[0]) if b is not None and len(b) == 1 else b
    if graph.node.op_type == "Gemm" and graph.layout is not None and not graph.layout.is_matrix:
        raise ValueError(f"takes a matrix, but found {graph.layout}")
    return onnx_shapes.affine(graph, W, b)


def _normalizing(graph: Graph) -> Operation:
    """A normalization of columns or rows; that of rows may lack β."""
    cls = chain.NORMALIZING[graph.node.op_type]
    names = (*cls.parameters, *cls.buffers)
    rows = [row_of(A) for A in graph.matrices(len(names) - (cls is ly.LayerNormalizationLayer), len(names))]
    settings = {"epsilon": graph.attribute("epsilon", 1e-5)}
    if cls is ly.BatchNormalizationLayer:
        settings["momentum"] = chain.complement(graph.attribute("momentum", 0.9))
    layer = chain.normalizing(cls, dict(zip(names, rows, strict=False)), len(rows[0]), graph.dtype, **settings)
    return onnx_shapes.normalizing(graph, layer, graph.attribute("axis", -1))


def _prelu(graph: Graph) -> Operation:
    if len(slope := graph.row()) != 1:
        raise ValueError("found several slopes, expected one")
    return af.AllReLUActivation(graph.number_of(slope.item()))


def _normalization(graph: Graph) -> Normalization:
    """(X - offset) / scale or Y·scale + offset, which are two nodes."""
    if graph.layout is not None and graph.layout.tokens() != graph.layout.columns.shape[-1:]:
        raise ValueError("expected a normalization of rows, here of images or tokens")
    is_inverse = graph.node.op_type == "Mul"
    first = graph.row(commutes=is_inverse)
    if not graph.follow("Add" if is_inverse else "Div"):
        raise ValueError("expected a Sub, then a Div, or a Mul, then an Add, as in a normalization")
    second = graph.row(commutes=is_inverse)
    found = (chain.Denormalize, second, first) if is_inverse else (Normalization, first, second)
    return chain.normalization(*found)


def _sum(graph: Graph) -> Operation:
    """X + F(X), or X + 1_N b."""
    start = next((x for x in graph.node.input if x in graph.starts and x != graph.before), None)
    if start is None:
        return onnx_shapes.positions(graph)
    if graph.starts[start][0] == len(graph.found):
        raise ValueError("expected X + F(X), for layers F")
    shape = _shared(graph.starts[start][1], graph.layout)
    return ly.ResidualLayer.on(shape, *_layers(graph.since(start)))


def _product(graph: Graph) -> Operation:
    """F(X) ⊙ G(X), or the first node of a normalization of the targets."""
    if any(x in graph.constants for x in graph.node.input):
        return _normalization(graph)
    if not graph.branches or {graph.branches[-1].output, graph.before} != {*graph.node.input}:
        raise ValueError(
            f"found the inputs {', '.join(map(repr, graph.node.input))}; expected F(X) ⊙ G(X) or a constant"
        )
    branch = graph.branches.pop()
    shape, G = _shared(graph.layout, branch.layout), graph.since(branch.start)
    return ly.GatedLayer.on(shape, *(shapes.one(shape, _layers(x)) for x in (branch.operations, G)))


def _layers(operations: list[tuple[str, Operation]]) -> list[Any]:
    """The layers that operations are."""
    M = chain.assembled(operations)
    if M.normalization is not None or M.target_normalization is not None:
        raise ValueError("follows a normalization that is not the first operation of the graph, nor the last")
    return M.layers


def _shared(a: Layout | None, b: Layout | None) -> Shape:
    """The shape of the rows, tokens or images that two branches share."""
    if a is None or b is None or a.is_folded != b.is_folded or not np.array_equal(a.columns, b.columns):
        raise ValueError("expected two branches with numbers in the same order, of known sizes")
    return a.tokens() if a.is_sorted else a.images()


def _softmax(cls: type) -> Callable[[Graph], Operation]:
    def read(graph: Graph) -> Operation:
        onnx_shapes.check_axis(graph.layout, graph.attribute("axis", -1))
        return cls()

    return read


def _reshaping(graph: Graph) -> None:
    """A Reshape, Transpose or Flatten, which change no numbers."""
    if graph.layout is None:
        if graph.node.op_type != "Flatten":
            raise ValueError("expected an input of known sizes")
    elif graph.node.op_type == "Reshape":
        graph.layout = graph.layout.reshaped(graph.integers())
    elif graph.node.op_type == "Transpose":
        graph.layout = graph.layout.transposed(graph.attribute("perm", None))
    elif not graph.layout.is_folded:
        graph.layout = Layout(graph.layout.columns.ravel())


def _plain(function: Callable[[], Operation]) -> Callable[[Graph], Operation]:
    return lambda graph: function()


READERS: dict[str, Callable[[Graph], Operation | None]] = {
    "Gemm": _affine,
    "MatMul": _affine,
    "Softmax": _softmax(chain.Softmax),
    "LogSoftmax": _softmax(chain.LogSoftmax),
    **dict.fromkeys(chain.NORMALIZING, _normalizing),
    "Sub": _normalization,
    "Mul": _product,
    "Add": _sum,
    **dict.fromkeys(("Conv", "MaxPool", "AveragePool", "GlobalAveragePool"), onnx_shapes.grid),
    "Cast": onnx_shapes.cast,
    "Gather": onnx_shapes.gather,
    **dict.fromkeys(("Reshape", "Transpose", "Flatten"), _reshaping),
    **{name.capitalize(): _plain(f) for f, name in chain.FUNCTIONS.items() if name != "SiLU"},
    "Swish": _plain(af.SiLUActivation),
    "LeakyRelu": lambda graph: af.AllReLUActivation(graph.attribute("alpha", 0.01)),
    "PRelu": _prelu,
    "ThresholdedRelu": lambda graph: af.TReLUActivation(graph.attribute("alpha", 1.0)),
    # σ(x), or x·σ(x) if a product with x follows
    "Sigmoid": lambda graph: af.SiLUActivation() if graph.follow("Mul", *graph.node.input) else af.SigmoidActivation(),
    "Elu": lambda graph: af.ELUActivation(graph.attribute("alpha", 1.0)),
    **dict.fromkeys(("Identity", "Dropout"), lambda graph: None),
}

PLAIN = {"auto_pad": ("NOTSET", "VALID")}
EXPECTED: dict[str, dict[str, tuple[Any, ...]]] = {  # the values that other attributes may have
    "Gemm": {"alpha": (1.0,), "beta": (1.0,), "transA": (0,), "transB": (0, 1)},
    "BatchNormalization": {"training_mode": (0,), "spatial": (1,)},
    "LayerNormalization": {"stash_type": (1,)},
    "RMSNormalization": {"stash_type": (1,)},
    "Gelu": {"approximate": ("none",)},
    "Flatten": {"axis": (1,)},
    "Conv": PLAIN,
    "MaxPool": {**PLAIN, "ceil_mode": (0,), "storage_order": (0,)},
    "AveragePool": {**PLAIN, "ceil_mode": (0,)},
    "Reshape": {"allowzero": (0,)},
    "Cast": {"to": (TensorProto.INT64,)},
}
