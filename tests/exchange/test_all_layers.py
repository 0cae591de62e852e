"""Every layer and activation function is exchanged exactly with every tool, or refused by its name."""

from __future__ import annotations

import numpy as np
import pytest
from exchange_support import TOOLS, D, K, Tool, assert_near, assert_same, examples, normalized, trained

import matgrad as mg
from matgrad.activation_functions import ACTIVATIONS
from matgrad.specifications.models import LAYERS

# what is refused, by tool and dtype; all else must work
REFUSED = {
    *(("SReLU", tool, dtype) for tool in TOOLS for dtype in ("float32", "float64")),
    ("TReLU", "onnx", "float64"),  # ONNX has its threshold in float32
    ("LayerNormalization", "onnx", "float64"),  # and computes it in float32
    ("RMSNormalization", "onnx", "float64"),
}
SETTINGS = {  # other than the defaults
    "LeakyReLU": "LeakyReLU(0.3)",
    "AllReLU": "AllReLU(3)",
    "TReLU": "TReLU(0.2)",
    "ELU": "ELU(1.5)",
    "Dropout": "Dropout(0.25)",
    "BatchNormalization": "BatchNormalization(epsilon=0.001, momentum=0.25)",
    "LayerNormalization": "LayerNormalization(epsilon=0.002)",
    "RMSNormalization": "RMSNormalization(epsilon=0.003)",
}


@pytest.fixture
def tool(request, tmp_path) -> Tool:
    return Tool(request.param, tmp_path)


def model(name: str, dtype: str) -> mg.MultilayerPerceptron:
    """A model with such a layer in it."""
    item = SETTINGS.get(name, name)
    kind = LAYERS.get(name)
    if kind is not None and kind.keeps_size:
        return trained(f"Linear;{item};Linear", f"{D};4;{K}", dtype)
    if name in ("Softmax", "LogSoftmax"):
        return trained(f"ReLU;{item}", f"{D};4;{K}", dtype)
    return trained(f"{item};Linear", f"{D};4;{K}", dtype)


@pytest.mark.parametrize(
    ("tool", "dtype"),
    [*((tool, "float32") for tool in TOOLS[:5]), *((tool, "float64") for tool in ("torch", "keras", "onnx"))],
    indirect=["tool"],
)
@pytest.mark.parametrize("name", [*LAYERS, *ACTIVATIONS])
def test_a_layer_is_exchanged_or_refused(name: str, dtype: str, tool: Tool):
    M = model(name, dtype)
    if (name, tool.name, dtype) in REFUSED:
        with pytest.raises(ValueError, match=rf"^layer \d, {name}"):
            tool.round_trip(M)
        return
    X, _ = examples(dtype)
    expected = M.predict(X)
    if name == "GELU" and dtype == "float64" and "onnx" in tool.name:  # ONNX's reference has erf in float32 only
        np.testing.assert_allclose(tool.outputs(M, X), expected, atol=1e-6)
    else:
        assert_near(tool.outputs(M, X), expected, tool.precision(dtype), name)
    back = tool.round_trip(M)
    assert_near(back.predict(X), expected, dtype, name)
    if "onnx" in tool.name and (name == "Dropout" or (name, dtype) == ("BatchNormalization", "float64")):
        return  # ONNX has the outputs in evaluation mode, and ε in float32
    assert_same(back, M)
    same = {"AllReLU(alpha=3)": "AllReLU(alpha=3.0)"}
    found, wanted = ([same.get(x.specification(), x.specification()) for x in m.layers] for m in (back, M))
    assert found == wanted


@pytest.mark.parametrize("tool", TOOLS, indirect=True)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_raw_examples_go_in_and_units_of_the_data_come_out(dtype: str, tool: Tool):
    M = normalized(trained("HyperbolicTangent;Linear", f"{D};4;{K}", dtype))
    X, _ = examples(dtype)
    expected = M.predict(X)

    assert np.abs(expected).max() > 50
    assert_near(tool.outputs(M, X), expected, tool.precision(dtype), tool.name)
    back = tool.round_trip(M)
    assert_near(back.predict(X), expected, dtype, tool.name)
    for name in ("normalization", "target_normalization"):
        for part in ("offset", "scale"):
            a, b = (getattr(getattr(m, name), part) for m in (back, M))
            np.testing.assert_array_equal(a, b, err_msg=f"{name} {part}")


@pytest.mark.parametrize("tool", TOOLS, indirect=True)
def test_sparse_layers(tool: Tool):
    M = trained("ReLU;Linear", f"{D};20;{K}", densities="0.3;0.5")
    M.layers[0].W.values[0, :3] = 0  # stored zeros
    X, _ = examples()
    assert_near(tool.outputs(M, X), M.predict(X), "float32")
    back = tool.round_trip(M)
    assert_near(back.predict(X), M.predict(X), "float32")
    if tool.name in ("torch", "torch file", "sparse onnx"):
        assert_same(back, M)
    else:
        assert not any(layer.is_sparse for layer in back.layers)
        np.testing.assert_array_equal(back.layers[0].W, M.layers[0].W.to_dense())


@pytest.mark.parametrize("tool", ["torch", "keras"], indirect=True)
def test_dropped_weights_are_refused_where_training_goes_on(tool: Tool):
    M = trained("ReLU;Linear", f"{D};4;{K}", dropouts="0;0.5")
    with pytest.raises(ValueError, match=r"^layer 2, Linear: drops weights at rate 0.5"):
        tool.round_trip(M)


class OwnLayer(mg.ActivationLayer):
    """A user's own layer, which computes something else."""


class OwnActivation(mg.ReLUActivation):
    """A user's own function."""


@pytest.mark.parametrize("tool", ["torch", "keras", "onnx"], indirect=True)
@pytest.mark.parametrize("layer", [OwnLayer(D, K, "ReLU"), mg.ActivationLayer(D, K, OwnActivation())])
def test_layers_and_functions_of_users_are_refused(layer: mg.Layer, tool: Tool):
    M = mg.MultilayerPerceptron([layer])
    with pytest.raises(ValueError, match=rf"^layer 1, {layer.specification()}: .* no such"):
        tool.round_trip(M)
