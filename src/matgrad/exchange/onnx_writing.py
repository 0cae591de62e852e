"""ONNX: a model in evaluation mode as an ONNX file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from matgrad import activation_functions as af
from matgrad.exchange import chain
from matgrad.exchange.chain import chain_of, counterpart
from matgrad.foundation.files import naming
from matgrad.foundation.limits import check_count
from matgrad.foundation.writing import atomic_write
from matgrad.layers import BatchNormalizationLayer, LayerNormalizationLayer, RMSNormalizationLayer
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.sparse.matrix import SparseMatrix
from matgrad.storage.models import model_description

OPSET, IR = 20, 9  # of November 2023, the first with Gelu
WITH_RMS = 23, 11  # of May 2025, the first with RMSNormalization; for models that have it
LARGEST = 2**31 - 1  # bytes of an ONNX file
METADATA = "matgrad"  # the name of the description in the metadata


def to_onnx(M: MultilayerPerceptron, path: str | Path, *, sparse: bool = False) -> None:
    """Write the model to an ONNX file; see `matgrad.exchange`."""
    graph = _Graph(M.dtype, sparse)
    for where, operation in chain_of(M, trains=False):
        with naming(where):
            counterpart(WRITERS, operation, "ONNX has no such operator")(graph, operation)
    check_count(graph.bytes, LARGEST, str(path), "bytes of weights")
    model = graph.model(M.layers[0].input_size, M.layers[-1].output_size)
    helper.set_model_props(model, {METADATA: json.dumps(model_description(M))})
    with atomic_write(path) as file:
        file.write(model.SerializeToString())


class _Graph:
    """The nodes and constants of a graph, whose last output is the input of the next node."""

    def __init__(self, dtype: str, sparse: bool) -> None:
        self.dtype, self.sparse, self.bytes = dtype, sparse, 0
        self.opset, self.ir = OPSET, IR
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.sparse_constants: list[onnx.SparseTensorProto] = []
        self.last = "X"

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
            self.bytes += len(values.raw_data) + len(indices.raw_data)
        else:
            tensor = numpy_helper.from_array(chain.dense(A).astype(self.dtype, copy=False), name)
            self.constants.append(tensor)
            self.bytes += len(tensor.raw_data)
        return name

    def number(self, x: float) -> float:
        """A number as an attribute, which is a float32 number, also where all else is float64."""
        if self.dtype != "float32" and float(np.float32(x)) != x:
            raise ValueError(f"ONNX has the number {x:g} in float32 only; expected M.to(dtype='float32')")
        return x

    def model(self, D: int, K: int) -> onnx.ModelProto:
        """The model with D inputs and K outputs."""
        self.nodes[-1].output[0] = "Y"
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype))
        X, Y = (helper.make_tensor_value_info(name, kind, ["N", n]) for name, n in (("X", D), ("Y", K)))
        constants, sparse = self.constants, self.sparse_constants
        graph = helper.make_graph(self.nodes, "matgrad", [X], [Y], constants, sparse_initializer=sparse)
        opsets = [helper.make_opsetid("", self.opset)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=self.ir, producer_name="matgrad")


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
    if isinstance(x, RMSNormalizationLayer):
        graph.opset, graph.ir = WITH_RMS
    graph.add(type(x).__name__.removesuffix("Layer"), *chain.rows_of(x), axis=1, epsilon=x.epsilon)


def _silu(graph: _Graph, f: af.SiLUActivation) -> None:
    X = graph.last
    graph.add("Sigmoid").add("Mul", X)


WRITERS: dict[type, Callable[[_Graph, Any], object]] = {
    chain.Affine: lambda graph, x: graph.add("Gemm", x.W, x.b, transB=1),
    chain.Softmax: lambda graph, x: graph.add("Softmax", axis=1),
    chain.LogSoftmax: lambda graph, x: graph.add("LogSoftmax", axis=1),
    BatchNormalizationLayer: _batch_normalization,
    LayerNormalizationLayer: _normalization_of_rows,
    RMSNormalizationLayer: _normalization_of_rows,
    chain.Normalize: lambda graph, x: graph.add("Sub", x.normalization.offset).add("Div", x.normalization.scale),
    chain.Denormalize: lambda graph, x: graph.add("Mul", x.normalization.scale).add("Add", x.normalization.offset),
    **dict.fromkeys(chain.FUNCTIONS, lambda graph, f: graph.add(chain.FUNCTIONS[type(f)].onnx)),
    # PRelu has its slope in the dtype of the model, LeakyRelu in float32
    af.LeakyReLUActivation: lambda graph, f: graph.add("PRelu", np.array([chain.slope_of(f)])),
    af.AllReLUActivation: lambda graph, f: graph.add("PRelu", np.array([f.alpha])),
    af.TReLUActivation: lambda graph, f: graph.add(
        "ThresholdedRelu", alpha=graph.number(chain.below(f.epsilon, graph.dtype))
    ),
    af.SiLUActivation: _silu,
    af.ELUActivation: lambda graph, f: graph.add("Elu", alpha=graph.number(float(f.alpha))),
}
