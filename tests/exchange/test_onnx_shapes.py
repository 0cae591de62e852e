"""Images and tokens in ONNX: models that go out and come back, networks of PyTorch's exporter, and odd graphs."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from exchange_support import assert_near, run_onnx
from onnx import TensorProto, helper, numpy_helper
from test_shapes import MODELS, examples, model
from torch import nn

import matgrad as mg

ALSO = {
    "groups of heads": ("Residual(Each(RMSNormalization;Linear(16));Attention(4, groups=2);Each(Linear(8)));Linear",
                        "5x8;3"),
    "nested": ("Residual(Gated(Sequence(Each(SiLU(6));Residual(Each(Linear(6);Dropout(0.3))));Each(Linear(6))));Linear",
               "4x6;3"),
    "an image": ("Conv(2, 3)", "6x5x3"),
    "rotary": ("Residual(Each(Linear(32));Rotary(4, groups=2);Attention(4, groups=2);Each(Linear(16)));"
               "Each(Linear(24));Rotary(2);Attention(2);Linear", "5x16;3"),
}  # fmt: skip


@pytest.mark.parametrize("name", [*MODELS, *ALSO])
def test_models_go_to_onnx_and_come_back(name: str, tmp_path: Path):
    M = model(name) if name in MODELS else mg.create_model(*ALSO[name])
    X, path = examples(M), tmp_path / "model.onnx"
    mg.to_onnx(M, path)
    onnx.checker.check_model(onnx.load(path), full_check=True)
    assert_near(run_onnx(path, X), M.predict(X), "float32")
    np.testing.assert_array_equal(mg.from_onnx(path).predict(X), M.predict(X))


def test_float64_and_sparse_weights_go_to_onnx(tmp_path: Path):
    M = mg.create_model("Conv(4, 3);MaxPool(2);Each(Linear(12));Attention(2);Linear", "6x2;3", densities=0.5)
    M, path = M.to(dtype="float64"), tmp_path / "model.onnx"
    X = examples(M).astype("float64")
    mg.to_onnx(M, path, sparse=True)
    again = mg.from_onnx(path)
    assert again.dtype == "float64"
    np.testing.assert_allclose(again.predict(X), M.predict(X), rtol=1e-13)


# -- PyTorch's exporter ------------------------------------------------------------------------------


class Residual(nn.Sequential):
    def forward(self, X: torch.Tensor) -> torch.Tensor:
        return X + super().forward(X)


class Viewed(nn.Sequential):
    def forward(self, X: torch.Tensor) -> torch.Tensor:
        return super().forward(X).reshape(-1, 50)


STRANGERS = {
    "LeNet": (
        lambda: nn.Sequential(nn.Conv2d(3, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 8, 3), nn.ReLU(),
                              nn.Flatten(), nn.Linear(72, 10), nn.Tanh(), nn.Linear(10, 3), nn.LogSoftmax(dim=1)),
        (10, 10, 3), "Conv(6, 5, padding=2, act=ReLU);MaxPool(2);Conv(8, 3, act=ReLU);HyperbolicTangent;LogSoftmax",
    ),
    "normalized": (
        lambda: nn.Sequential(nn.BatchNorm2d(3), nn.Conv2d(3, 6, 3, stride=2, groups=3), nn.AvgPool2d(2, padding=1),
                              nn.Flatten(), nn.Linear(54, 4)),
        (10, 10, 3),
        "Each(BatchNormalization(epsilon=1e-05, momentum=0.1));Conv(6, 3, stride=2, groups=3);AvgPool(2, padding=1);"
        "Linear",
    ),
    "residual": (
        lambda: nn.Sequential(Viewed(nn.Conv2d(1, 2, 3),
                                     Residual(nn.Conv2d(2, 2, 3, padding=1), nn.SiLU(), nn.Conv2d(2, 2, 1))),
                              nn.Linear(50, 4)),
        (7, 7, 1), "Conv(2, 3);Residual(Conv(2, 3, padding=1, act=SiLU);Conv(2, 1));Linear",
    ),
    "mean": (
        lambda: nn.Sequential(nn.Conv2d(3, 5, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(5, 4)),
        (6, 6, 3), "Conv(5, 3);AvgPool(4, stride=1);Linear",
    ),
    "sequences": (
        lambda: nn.Sequential(nn.Conv1d(3, 6, 3, dilation=2), nn.ReLU(), nn.MaxPool1d(2), nn.Flatten(),
                              nn.Linear(18, 4)),
        (11, 3), "Conv(6, 3, dilation=2, act=ReLU);MaxPool(2);Linear",
    ),
    "ResNet": (
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), Residual(nn.BatchNorm2d(4), nn.SiLU(), nn.Conv2d(4, 4, 1)),
                              nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3), nn.LayerNorm(3), nn.Tanh()),
        (6, 6, 3),
        "Conv(4, 3, padding=1);"
        "Residual(Each(BatchNormalization(epsilon=1e-05, momentum=0.1));Function(SiLU);Conv(4, 1));Function(ReLU);"
        "MaxPool(2);Linear;LayerNormalization(epsilon=1e-05);Function(HyperbolicTangent)",
    ),
    "labels": (
        lambda: nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 5), nn.ReLU(), nn.LayerNorm(5), nn.Flatten(),
                              nn.Linear(30, 2)),
        (6,), "Embedding(4, vocabulary=7);Each(ReLU(5));Each(LayerNormalization(epsilon=1e-05));Linear",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STRANGERS)
def test_what_pytorch_exports_is_read(name: str, tmp_path: Path):
    make, shape, expected = STRANGERS[name]
    torch.manual_seed(0)
    module, path, rng = make().eval(), str(tmp_path / "model.onnx"), np.random.default_rng(1)
    A = rng.integers(7, size=(6, *shape)) if len(shape) == 1 else rng.normal(size=(6, *shape)).astype("float32")
    X = torch.tensor(A if len(shape) == 1 else np.moveaxis(A, -1, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # this exporter is the older of two
        options = {"input_names": ["X"], "dynamic_axes": {"X": {0: "N"}}, "opset_version": 20}
        torch.onnx.export(module, (X,), path, dynamo=False, **options)
    M = mg.from_onnx(path)
    assert ";".join(layer.specification() for layer in M.layers) == expected
    assert_near(M.predict(A.reshape(6, -1)), module(X).detach().numpy(), "float32")


# -- odd graphs --------------------------------------------------------------------------------------

K = {
    "W": np.ones((4, 2, 3, 3), np.float32), "V": np.ones((4, 3), np.float32), "wide": np.ones((2, 2, 3, 1), np.float32),
    "i": np.array([0, 1]), "rows": np.array([-1, 3]), "bad": np.array([2, 25]),
}  # fmt: skip
CONV = ("Conv", "X W")
REFUSED = {
    r"node 1, Conv: found pads=\[0, 0, 1, 1\], expected one number": [(*CONV, {"pads": [0, 0, 1, 1]})],
    "node 1, Conv: found auto_pad='SAME_UPPER', expected 'NOTSET'": [(*CONV, {"auto_pad": "SAME_UPPER"})],
    r"node 1, Conv: found kernel_shape=\[3, 1\], expected one number": [("Conv", "X wide")],
    "node 1, MaxPool: found ceil_mode=1, expected 0": [("MaxPool", "X", {"kernel_shape": [2, 2], "ceil_mode": 1})],
    "node 1, AveragePool: expected dilations of 1, and count_include_pad=1": [
        ("AveragePool", "X", {"kernel_shape": [2, 2], "pads": 4 * [1]})],
    "node 2, Softmax: found axis=1, expected -1 or 3": [CONV, ("Softmax", "A1", {"axis": 1})],
    "node 2, MatMul: takes the last axis, but channels are first": [CONV, ("MatMul", "A1 V")],
    r"node 2, Reshape: found the sizes \[2, 25\], expected -1, then": [CONV, ("Reshape", "A1 bad")],
    r"node 2, Transpose: found perm=\[1, 0, 2, 3\], expected the axis of the examples": [
        CONV, ("Transpose", "A1", {"perm": [1, 0, 2, 3]})],
    "node 1, Cast: expected a Gather of the rows": [("Cast", "X", {"to": TensorProto.INT64}), ("Relu", "A1")],
    "node 1, Gather: expected the rows of an embedding, or attention": [("Gather", "X i", {"axis": 1})],
    "node 3, Add: expected two branches with numbers in the same order": [
        CONV, ("Conv", "A1 U", {"pads": 4 * [1]}), ("Add", "A2 X")],
    "node 3, Conv: expected a chain of nodes, here one that takes 'A2'": [CONV, ("Conv", "A1 U"), ("Conv", "A1 U")],
    "node 1, Sub: expected a normalization of rows, here of images": [("Sub", "X c")],
}  # fmt: skip


def saved(path: Path, nodes: list, sizes: tuple = ("N", 2, 7, 7)) -> Path:
    made = [
        helper.make_node(kind, inputs.split(), [f"A{i}"], **dict(*settings))
        for i, (kind, inputs, *settings) in enumerate(nodes, start=1)
    ]
    constants = K | {"U": np.ones((4, 4, 3, 3), np.float32), "c": np.ones(2, np.float32)}
    tensors = [numpy_helper.from_array(A, name) for name, A in constants.items()]
    X, Y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, size)
        for name, size in (("X", sizes), (f"A{len(nodes)}", None))
    )
    graph = helper.make_graph(made, "graph", [X], [Y], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)
    return path


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_be_read_is_refused_with_its_node(message: str, tmp_path: Path):
    with pytest.raises(ValueError, match=message):
        mg.from_onnx(saved(tmp_path / "m.onnx", REFUSED[message]))


def test_sizes_are_checked_before_memory_is_asked_for(tmp_path: Path):
    with pytest.raises(ValueError, match=r"the input X: asks for .* GB"):
        mg.from_onnx(saved(tmp_path / "m.onnx", [CONV], ("N", 2, 10**6, 10**6)))
    with pytest.raises(ValueError, match=r"node 1, Conv: its windows: asks for .* MB"):
        mg.from_onnx(saved(tmp_path / "m.onnx", [CONV], ("N", 2, 900, 900)))


def test_attention_of_another_form_is_refused(tmp_path: Path):
    """Scores with another scale, a mask that is not causal, or values that are not those of the head."""
    M, path = mg.create_model("Attention(2);Linear", "3x12;2"), tmp_path / "m.onnx"
    mg.to_onnx(M, path)
    proto = onnx.load(path)
    for tensor in proto.graph.initializer[1:6]:  # the heads of Q, K and V, √e and B
        other = onnx.load(path)
        (found,) = (x for x in other.graph.initializer if x.name == tensor.name)
        A = numpy_helper.to_array(found).copy()
        found.CopyFrom(numpy_helper.from_array(A[::-1].copy() if A.ndim else A * 2, found.name))
        onnx.save(other, path.with_stem("other"))
        with pytest.raises(ValueError, match=r"node \d 'Gather\d', Gather: expected the rows of an embedding, or att"):
            mg.from_onnx(path.with_stem("other"))
