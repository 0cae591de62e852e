"""The definitions by elements: the package agrees with them, and what does not is named."""

from __future__ import annotations

import numpy as np
import pytest
import sympy as sp

import matgrad as mg
from matgrad import activation_functions, layers
from matgrad.activation_functions import ACTIVATIONS, SReLUActivation
from matgrad.inspection.verdicts import Check
from matgrad.layers.dropout import DROPOUT_LAYERS
from matgrad.loss_functions import LOSSES
from matgrad.matrix_operations import hadamard, row_repeat
from matgrad.proofs import definitions
from matgrad.symbolic.definitions import (
    CORNERS,
    check_definition_of_activation,
    check_definition_of_layer,
    check_definition_of_loss,
)

D, K = 2, 4
LAYERS = {
    "Linear": lambda: mg.LinearLayer(D, K),
    "Softmax": lambda: mg.SoftmaxLayer(D, K),
    "LogSoftmax": lambda: mg.LogSoftmaxLayer(D, K),
    "SReLU": lambda: mg.SReLULayer(D, K),
    "shared SReLU": lambda: mg.SReLULayer(D, K, shared=True),
    "BatchNormalization": lambda: mg.BatchNormalizationLayer(D),
    "LayerNormalization": lambda: mg.LayerNormalizationLayer(D),
    "RMSNormalization": lambda: mg.RMSNormalizationLayer(D),
    "Dropout": lambda: mg.DropoutLayer(D),
    **{name: lambda name=name: mg.ActivationLayer(D, K, name) for name in ACTIVATIONS},
}


def assert_ok(checks: list[Check]) -> None:
    assert checks
    for check in checks:
        assert check.ok, check.message


def test_every_class_of_the_package_has_a_definition():
    concrete = {cls for name, cls in vars(layers).items() if name.endswith("Layer") and name != "Layer"}
    assert concrete == set(definitions.LAYERS)
    assert set(definitions.LOSSES) == set(LOSSES.values())
    assert set(definitions.ACTIVATIONS) - {definitions.ArbitraryActivation} == {*ACTIVATIONS.values(), SReLUActivation}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("training", [True, False])
def test_layers(name: str, training: bool):
    layer = LAYERS[name]()
    layer.training = training
    checks = check_definition_of_layer(layer)
    assert_ok(checks)
    assert f"{type(layer).__name__}.Y" in [check.name for check in checks]
    assert all(("evaluation" in check.sizes) != training for check in checks)


@pytest.mark.parametrize("cls", [mg.DropoutLayer, *DROPOUT_LAYERS.values()])
def test_dropout(cls: type[mg.Layer]):
    mg.manual_seed(3)
    options = {"act": "ELU"} if cls is mg.ActivationDropoutLayer else {}
    checks = check_definition_of_layer(cls(D, D if cls.keeps_size else K, **options))
    assert_ok(checks)
    assert checks[0].name == f"{cls.__name__}.R"
    assert checks[0].source == "return step(U - p * ones(m, n, like=A)) / (1 - p)  # where A stores elements"


def test_batch_normalization_has_its_running_statistics_and_a_batch_of_one():
    checks = check_definition_of_layer(mg.BatchNormalizationLayer(D))
    names = ["mu", "R", "Sigma", "inv_sqrt_Sigma", "Z", "Y", "running_mean", "running_variance"]
    assert [check.name.partition(".")[2] for check in checks] == 2 * names
    assert [check.sizes for check in checks] == 8 * ["N=3 D=2 K=2"] + 8 * ["N=1 D=2 K=2"]
    assert checks[7].source.startswith("self.running_variance = ")
    assert checks[7].location.startswith("src/matgrad/layers/batch_normalization.py:")


@pytest.mark.parametrize("cls", LOSSES.values())
def test_losses(cls: type[mg.LossFunction]):
    checks = check_definition_of_loss(cls())
    assert_ok(checks)
    assert [check.name for check in checks] == [f"{cls.__name__}.value"]


@pytest.mark.parametrize("cls", [*ACTIVATIONS.values(), SReLUActivation])
def test_activations(cls: type[mg.ActivationFunction]):
    zero = np.zeros((1, 3))
    checks = check_definition_of_activation(cls(zero, zero, zero, zero) if cls is SReLUActivation else cls())
    assert_ok(checks)
    assert checks[0].name == f"{cls.__name__}.value"
    assert len(checks) == 2 + len(CORNERS.get(cls, ()))


# -- wrong values, whose derivatives are right ---------------------------------------------------


def wrong(checks: list[Check]) -> list[str]:
    return [check.name for check in checks if not check.ok]


def test_a_wrong_layer_is_named(monkeypatch: pytest.MonkeyPatch):
    def feedforward(self, X):
        W, b = self.W, self.b
        N, _ = X.shape

        Y = X @ W.T + 2 * row_repeat(b, N)

        self.X = X
        return Y

    monkeypatch.setattr(mg.LinearLayer, "feedforward", feedforward)
    (check,) = check_definition_of_layer(mg.LinearLayer(D, K))
    assert not check.ok
    assert "LinearLayer.Y is wrong at row 0, column 0" in check.message
    assert "Y = X @ W.T + 2 * row_repeat(b, N)" in check.message
    assert "test_definitions.py:" in check.location
    assert wrong(check_definition_of_layer(mg.SoftmaxLayer(D, K))) == ["SoftmaxLayer.Z", "SoftmaxLayer.Y"]


def test_a_biased_running_variance_is_named(monkeypatch: pytest.MonkeyPatch):
    def update_statistics(self, mu, Sigma, N):
        m = self.momentum
        self.running_mean = (1 - m) * self.running_mean + m * mu
        self.running_variance = (1 - m) * self.running_variance + m * Sigma

    monkeypatch.setattr(mg.BatchNormalizationLayer, "update_statistics", update_statistics)
    checks = [check for check in check_definition_of_layer(mg.BatchNormalizationLayer(D)) if not check.ok]
    assert [(check.name.partition(".")[2], check.sizes[:3]) for check in checks] == [
        ("running_variance", "N=3"),
        ("running_mean", "N=1"),
        ("running_variance", "N=1"),
    ]
    layer = mg.BatchNormalizationLayer(D)
    layer.training = False
    assert_ok(check_definition_of_layer(layer))


def test_a_wrong_activation_function_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(activation_functions.ReLUActivation, "__call__", lambda self, X: hadamard(X, X))
    assert wrong(check_definition_of_activation(mg.ReLUActivation())) == 2 * ["ReLUActivation.value"]


def test_a_derivative_that_is_wrong_at_the_corner_only_is_named(monkeypatch: pytest.MonkeyPatch):
    def gradient(self, X):
        """[x > 0], torch's relu'(0) = 0"""
        return X.applyfunc(lambda x: sp.Piecewise((1, x > 0), (0, True)))

    monkeypatch.setattr(activation_functions.ReLUActivation, "gradient", gradient)
    checks = check_definition_of_activation(mg.ReLUActivation())
    assert wrong(checks) == ["ReLUActivation.gradient"]
    assert checks[2].sizes == "x=0"
