"""ONNX: files of PyTorch's exporter are read, files say what they are of, and odd ones are refused by the node."""

from __future__ import annotations

import json
import warnings

import numpy as np
import onnx
import pytest
import torch
from exchange_support import D, K, assert_near, assert_same, examples, normalized, run_onnx, trained
from onnx import TensorProto, helper, numpy_helper
from torch import nn

import matgrad as mg

W, B = np.ones((4, D), np.float32), np.ones(4, np.float32)


def saved(path, *nodes: onnx.NodeProto, constants: dict | None = None, opset: int = 20) -> str:
    """A file with these nodes from X to Y."""
    tensors = [numpy_helper.from_array(A, name) for name, A in ({"W": W, "b": B} | (constants or {})).items()]
    X, Y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "XY")
    graph = helper.make_graph(nodes, "graph", [X], [Y], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9), path)
    return str(path)


def node(kind: str, inputs: str, output: str = "Y", **attributes) -> onnx.NodeProto:
    return helper.make_node(kind, inputs.split(), [output], f"my {kind}", **attributes)


def constant(name: str, A: np.ndarray) -> onnx.NodeProto:
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(A, name))


LINEAR = node("Gemm", "X W b", "Z", transB=1)


def test_the_file_is_sound_and_says_what_the_model_is(tmp_path):
    M = normalized(trained("ReLU;BatchNormalization;Softmax", f"{D};6;{K}", densities="0.5;1"))
    M.target_normalization = None
    M.information = {"loss": "NegativeLogLikelihood", "classes": K, "class_names": ["a", "b", "c"]}
    for sparse in (False, True):
        mg.to_onnx(M, tmp_path / "m.onnx", sparse=sparse)
        proto = onnx.load(tmp_path / "m.onnx")
        onnx.checker.check_model(proto, full_check=not sparse)  # which knows no sparse weights of a Gemm
        assert [len(x.values.dims) for x in proto.graph.sparse_initializer] == [1] * sparse
        (entry,) = proto.metadata_props
        assert json.loads(entry.value)["information"]["class_names"] == ["a", "b", "c"]
        back = mg.from_onnx(tmp_path / "m.onnx")
        assert back.information == {**M.information, "normalize": "unit"}
        assert back.normalization.kind == "unit"
        if sparse:
            assert_same(back, M)


def test_what_pytorch_exports_is_read(tmp_path):
    """Its exporter writes a Gemm per linear module, and folds batch normalization where it can."""
    path = str(tmp_path / "m.onnx")
    torch.manual_seed(0)
    parts = (nn.Linear(D, 6), nn.ReLU(), nn.BatchNorm1d(6), nn.Linear(6, 4), nn.LeakyReLU(0.3), nn.Dropout(0.2))
    module = nn.Sequential(*parts, nn.LayerNorm(4), nn.Linear(4, K), nn.LogSoftmax(dim=1)).eval()
    X, _ = examples()
    expected = module(torch.tensor(X)).detach().numpy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # this exporter is the older of two
        torch.onnx.export(module, (torch.tensor(X),), path, dynamo=False, do_constant_folding=False, opset_version=17)
    M = mg.from_onnx(path)
    assert [layer.specification().partition("(")[0] for layer in M.layers] == [
        "ReLU", "BatchNormalization", "LeakyReLU", "LayerNormalization", "LogSoftmax"
    ]  # fmt: skip
    assert_near(M.predict(X), expected, "float32")


@pytest.mark.parametrize(
    ("nodes", "constants", "expected"),
    [
        ([node("MatMul", "X V", "Z"), node("Add", "b Z")], {"V": W.T}, "Linear"),
        ([node("MatMul", "X V")], {"V": W.T}, "Linear"),
        ([node("Gemm", "X V c")], {"V": W.T, "c": np.array([2], np.float32)}, "Linear"),
        ([LINEAR, node("Sigmoid", "Z", "S"), node("Mul", "S Z")], {}, "SiLU"),
        ([LINEAR, node("LeakyRelu", "Z", alpha=3.0)], {}, "AllReLU(alpha=3.0)"),
        ([LINEAR, node("PRelu", "Z s")], {"s": np.array([0.25], np.float32)}, "LeakyReLU(alpha=0.25)"),
        ([LINEAR, node("Identity", "Z", "A"), node("Flatten", "A", "C"), node("Elu", "C")], {}, "ELU"),
        ([LINEAR, node("ThresholdedRelu", "Z", alpha=0.5)], {}, "TReLU(epsilon=0.50000006)"),
        ([constant("V", W.T), node("MatMul", "X V", "Z"), node("Softmax", "Z")], {}, "Softmax"),
    ],
)
def test_other_forms_of_the_same_are_read(tmp_path, nodes, constants, expected: str):
    path = saved(tmp_path / "m.onnx", *nodes, constants=constants)
    M = mg.from_onnx(path)
    X, _ = examples()
    assert [layer.specification() for layer in M.layers] == [expected]
    assert_near(M.predict(X), run_onnx(path, X), "float32")


@pytest.mark.parametrize("opset", [9, 13, 14, 20])
def test_batch_normalization_of_all_versions_is_read(tmp_path, opset: int):
    """ONNX's own evaluator takes one before version 14 to train."""
    rng = np.random.default_rng(4)
    constants = {name: rng.uniform(0.5, 2, 4).astype(np.float32) for name in "gmvc"}
    nodes = [LINEAR, node("BatchNormalization", "Z g c m v")]
    path = saved(tmp_path / "m.onnx", *nodes, constants=constants, opset=opset)
    M, (X, _) = mg.from_onnx(path), examples()
    assert_near(M.predict(X), run_onnx(path, X), "float32")
    nodes[1].output.extend(["a", "b2", "c2", "d"])
    path = saved(tmp_path / "m.onnx", *nodes, constants=constants, opset=opset)
    with pytest.raises(ValueError, match=r"node 2 .*: found several outputs, as in training mode"):
        mg.from_onnx(path)


@pytest.mark.parametrize("kind", ["LogSoftmax", "Softplus", "Sigmoid", "Elu", "Gelu"])
def test_functions_are_compared_where_they_are_steep(tmp_path, kind: str):
    """ONNX's own evaluator has log(0) and e^1000 there."""
    rng = np.random.default_rng(4)
    constants = {"V": 300 * rng.normal(size=W.shape).astype(np.float32)}
    path = saved(tmp_path / "m.onnx", node("Gemm", "X V b", "Z", transB=1), node(kind, "Z"), constants=constants)
    M, (X, _) = mg.from_onnx(path), examples()
    assert_near(M.predict(X), run_onnx(path, X), "float32")


def test_functions_of_a_file_are_refused(tmp_path):
    """One could compute anything under the name of an operator."""
    path = saved(tmp_path / "m.onnx", LINEAR, node("Relu", "Z"))
    for domain in ("", "mine"):
        proto = onnx.load(path)
        body = [helper.make_node("Tanh", ["x"], ["y"])]
        opsets = [helper.make_opsetid("", 20), helper.make_opsetid("mine", 1)]
        proto.functions.append(helper.make_function(domain, "Relu", ["x"], ["y"], body, opsets[:1]))
        proto.graph.node[1].domain = domain
        del proto.opset_import[:]
        proto.opset_import.extend(opsets)
        onnx.save(proto, tmp_path / "f.onnx")
        with pytest.raises(ValueError, match="found the function 'Relu', expected operators of ONNX only"):
            mg.from_onnx(tmp_path / "f.onnx")


@pytest.mark.parametrize(("kind", "opset"), [("LayerNormalization", 20), ("RMSNormalization", 23)])
def test_normalizations_of_rows_are_read(tmp_path, kind: str, opset: int):
    """Of another tool: without β, and with the defaults of ONNX."""
    rng = np.random.default_rng(4)
    constants = {"W": rng.normal(size=W.shape).astype(np.float32), "c": rng.normal(size=4).astype(np.float32)}
    path = saved(tmp_path / "m.onnx", LINEAR, node(kind, "Z c"), constants=constants, opset=opset)
    M, (X, _) = mg.from_onnx(path), examples()
    assert [layer.specification() for layer in M.layers] == ["Linear", f"{kind}(epsilon=1e-05)"]
    assert_near(M.predict(X), run_onnx(path, X), "float32")


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([node("Erf", "X")], r"node 1 'my Erf', 'Erf': unknown operator; known: Gemm, "),
        ([node("Conv", "X W")], "node 1 'my Conv', Conv: takes images or tokens, but the input of the graph has no"),
        ([LINEAR, node("Conv", "Z W")], "node 2 'my Conv', Conv: takes images with channels first, but found N × 4"),
        ([LINEAR, node("Gelu", "Z", approximate="tanh")], "node 2 .*: found approximate='tanh', expected 'none'"),
        ([LINEAR, node("Softmax", "Z", axis=0)], "node 2 'my Softmax', Softmax: found axis=0, expected -1 or 1"),
        ([LINEAR, node("Mul", "Z X")], "node 2 .*: found the inputs 'Z', 'X'; expected F"),
        ([LINEAR, node("Relu", "X")], "node 2 .*: expected a chain of nodes, here one that takes 'Z'"),
        ([LINEAR, node("Tanh", "Z"), node("Tanh", "b", "T")], "node 3 'my Tanh', Tanh: expected a chain"),
        ([node("Gemm", "X W b", transB=1, speed=2.0)], "cannot be run on a batch"),
        ([node("Gemm", "W X", transB=1)], "found the inputs 'W', 'X'"),
        ([node("Gemm", "X W b")], r"found a bias of shape \(4,\), expected 5 numbers"),
        ([LINEAR, node("LayerNormalization", "Z b b", stash_type=11)], "node 2 .*: found stash_type=11, expected 1"),
        ([LINEAR, node("LayerNormalization", "Z b W")], r"found a constant of shape \(4, 5\), expected one row"),
        ([LINEAR, node("PRelu", "Z b")], "found several slopes, expected one"),
        ([LINEAR, node("Relu", "Z", domain="mine")], "node 2 'my Relu', Relu: unknown operator"),
        ([LINEAR, node("LeakyRelu", "Z", alpha=float("nan"))], "node 2 .*: .* expected finite numbers"),
        ([node("Gemm", "X W b", transB=1, alpha=1.00005)], "node 1 .*: found alpha=1.00005, expected 1.0"),
        ([LINEAR, node("Relu", "Z", "Z"), node("Relu", "Z")], "found two values with the name 'Z'"),
        ([LINEAR, node("Relu", "Z", "W"), node("Relu", "W")], "found two values with the name 'W'"),
        ([LINEAR, node("Dropout", "Z r training")], "cannot be run on a batch"),
        ([LINEAR], "the last node has the output 'Z', expected 'Y'"),
        ([], "the last node has the output 'X'"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_node(tmp_path, nodes, message: str):
    path = saved(tmp_path / "m.onnx", *nodes)
    with pytest.raises(ValueError, match=message) as error:
        mg.from_onnx(path)
    assert str(error.value).startswith(path)


def test_indices_of_sparse_weights_outside_of_their_sizes_are_refused(tmp_path):
    M = mg.create_model("Linear", [5, 3], densities=0.5)
    mg.to_onnx(M, tmp_path / "m.onnx", sparse=True)
    proto = onnx.load(tmp_path / "m.onnx")
    (tensor,) = proto.graph.sparse_initializer
    flat = numpy_helper.to_array(tensor.indices).reshape(-1)
    rows, columns = np.divmod(flat, tensor.dims[1])
    columns[0], rows[0] = tensor.dims[1] + 1, 0
    tensor.indices.CopyFrom(numpy_helper.from_array(np.stack([rows, columns], axis=1).astype(np.int64)))
    onnx.save(proto, tmp_path / "m.onnx")
    with pytest.raises(ValueError, match="found indices outside of the sizes"):
        mg.from_onnx(tmp_path / "m.onnx")


def test_other_files_element_types_and_versions_are_refused(tmp_path):
    path = saved(tmp_path / "m.onnx", node("Gemm", "X W b", transB=1))
    onnx.save(onnx.load(path), path, save_as_external_data=True, size_threshold=0, location="secret.bin")
    with pytest.raises(ValueError, match=r"tensor 'W': is in another file"):
        mg.from_onnx(path)
    path = saved(tmp_path / "m.onnx", node("Gemm", "X W b", transB=1), opset=8)
    with pytest.raises(ValueError, match="expected an ONNX file of operators version 9 to"):
        mg.from_onnx(path)
    path = saved(tmp_path / "m.onnx", node("Gemm", "X V b", transB=1), constants={"V": W.astype(np.float64)})
    with pytest.raises(ValueError, match="tensor 'V': found element type float64, expected float32"):
        mg.from_onnx(path)


def test_a_number_that_onnx_has_in_float32_only_is_refused_in_float64(tmp_path):
    for layers in ("ELU(0.1)", "TReLU(0.1)"):
        M = trained(layers, f"{D};{K}", dtype="float64")
        with pytest.raises(ValueError, match=r"^layer 1, .*: ONNX has the number 0.1 in float32 only"):
            mg.to_onnx(M, tmp_path / "m.onnx")
        mg.to_onnx(M.to(dtype="float32"), tmp_path / "m.onnx")


def test_inputs_of_other_dimensions_are_refused(tmp_path):
    path = saved(tmp_path / "m.onnx", node("Gemm", "X W b", transB=1))
    proto = onnx.load(path)
    proto.graph.input[0].CopyFrom(helper.make_tensor_value_info("X", TensorProto.FLOAT, ["N", 1, D]))
    onnx.save(proto, path)
    with pytest.raises(ValueError, match=r"node 1 .*, Gemm: takes a matrix, but found N × 1 × 5"):
        mg.from_onnx(path)
