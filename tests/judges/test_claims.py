"""What SymPy says of the claims: right ones, wrong ones with what is said of them, a user's own classes."""

from __future__ import annotations

import re

import pytest
import sympy as sp

import matgrad as mg
from matgrad import activation_functions, layers
from matgrad.activation_functions import ACTIVATIONS, SReLUActivation
from matgrad.inspection.verdicts import Check
from matgrad.judges import blocks, definitions
from matgrad.judges.algebra import Subject
from matgrad.judges.claims import of_softmax
from matgrad.judges.equality import symbols
from matgrad.judges.state import of_first_updates, of_update
from matgrad.judges.sympy_judge import CORNERS, check_activation, check_layer, check_loss, verdicts
from matgrad.layers import linear
from matgrad.layers.dropout import DROPOUT_LAYERS
from matgrad.loss_functions import LOSSES
from matgrad.matrix_operations import hadamard, row_repeat
from matgrad.optimizers import OPTIMIZERS
from support import spread

D, K = 2, 4
LAYERS = {
    "Linear": mg.LinearLayer,
    "Softmax": lambda D, K: mg.SoftmaxLayer(D, 3),
    "LogSoftmax": mg.LogSoftmaxLayer,
    "SReLU": mg.SReLULayer,
    "shared SReLU": lambda D, K: mg.SReLULayer(D, K, shared=True),
    "BatchNormalization": lambda D, K: mg.BatchNormalizationLayer(D),
    "LayerNormalization": lambda D, K: mg.LayerNormalizationLayer(D),
    "RMSNormalization": lambda D, K: mg.RMSNormalizationLayer(D),
    "Dropout": lambda D, K: mg.DropoutLayer(D),
    "ActivationDropout": lambda D, K: mg.ActivationDropoutLayer(D, K, "Sigmoid"),
    "LinearDropout": mg.LinearDropoutLayer,
    **{name: lambda D, K, name=name: mg.ActivationLayer(D, K, name) for name in ("ReLU", "LeakyReLU", "GELU")},
}


def assert_right(checks: list[Check]) -> None:
    assert checks
    for check in checks:
        assert check.ok, check.message


def values_of(checks: list[Check]) -> list[Check]:
    """The checks that are not about gradients."""
    return [check for check in checks if not check.name.partition(".")[2].startswith("D")]


def test_every_class_of_the_package_has_a_definition():
    concrete = {cls for name, cls in vars(layers).items() if name.endswith("Layer") and name != "Layer"}
    made = [make(2, 2) for kinds in blocks.MADE.values() for make in kinds]
    of_shapes = {type(part) for layer in made for _, part in layer.walk()}
    of_shapes |= {layers.EmbeddingLayer, layers.WindowsLayer}  # for labels, and what derives from it
    assert concrete == set(definitions.LAYERS) | of_shapes
    assert set(definitions.LOSSES) == {cls for cls in LOSSES.values() if not cls.has_tokens}
    assert set(definitions.ACTIVATIONS) - {definitions.ArbitraryActivation} == {*ACTIVATIONS.values(), SReLUActivation}


@pytest.mark.parametrize(("name", "training"), spread(LAYERS, [True, False]))
def test_layers(name: str, training: bool):
    mg.manual_seed(3)
    layer = LAYERS[name](D, K)
    layer.training = training
    checks = check_layer(layer)
    assert_right(checks)
    assert all(("evaluation" in check.sizes) != training for check in checks)
    gradients = {check.name.partition(".")[2] for check in checks} - {
        c.name.partition(".")[2] for c in values_of(checks)
    }
    assert gradients == {f"D{name}" for name in (*layer.parameters, "X", *({"Z"} & set(layer.intermediates)))}
    assert f"{type(layer).__name__}.Y" in [check.name for check in checks]


@pytest.mark.parametrize("cls", [mg.DropoutLayer, *DROPOUT_LAYERS.values()])
def test_dropout(cls: type[mg.Layer], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("matgrad.judges.sympy_judge.SymPyAlgebra.gradients", lambda self, layer, X: [])
    mg.manual_seed(3)
    options = {"act": "ELU"} if cls is mg.ActivationDropoutLayer else {}
    checks = check_layer(cls(D, D if cls.keeps_size else K, **options))
    assert_right(checks)
    assert checks[0].name == f"{cls.__name__}.R"
    assert checks[0].source == "return step(U - p * ones(m, n, like=A)) / (1 - p)  # where A stores elements"


@pytest.mark.parametrize("N", [3, 1])
def test_batch_normalization_has_its_running_statistics(N: int):
    checks = values_of(check_layer(mg.BatchNormalizationLayer(D), N=N))
    names = ["mu", "R", "Sigma", "inv_sqrt_Sigma", "Z", "Y", "running_mean", "running_variance"]
    assert [check.name.partition(".")[2] for check in checks] == names
    assert [check.sizes for check in checks] == 8 * [f"N={N} D=2 K=2"]
    assert checks[7].source.startswith("self.running_variance = ")
    assert checks[7].location.startswith("src/matgrad/layers/normalization.py:")


@pytest.mark.parametrize("name", [name for name, cls in LOSSES.items() if not cls.has_tokens])
def test_losses(name: str):
    checks = check_loss(LOSSES[name]())
    assert_right(checks)
    assert {check.sizes.removesuffix(", weighted") for check in checks} == {"N=3 K=4", "N=1 K=4", "N=3 K=4, one-hot"}
    assert {check.name.partition(".")[2] for check in checks} == {"value", "gradient", "mean_gradient", "is_mean"}


@pytest.mark.parametrize("cls", [*ACTIVATIONS.values(), SReLUActivation])
def test_activations(cls: type[mg.ActivationFunction]):
    parameters = [symbols(p, 1, 3) for p in ("al", "tl", "ar", "tr")] if cls is SReLUActivation else []
    checks = check_activation(cls(*parameters))
    assert_right(checks)
    assert checks[0].name == f"{cls.__name__}.value"
    assert len(checks) == 4 + len(CORNERS.get(cls, ()))


def test_constants_are_right_in_an_activation_function_inside_another_and_stay_as_they_are():
    seen = set()

    class DoubleGELUActivation(mg.ActivationFunction):
        gelu = mg.GELUActivation()

        def __call__(self, X):
            seen.add(mg.GELUActivation.sqrt_2)
            return 2 * self.gelu(X)

        def gradient(self, X):
            return 2 * self.gelu.gradient(X)

    assert_right(check_activation(DoubleGELUActivation()))
    assert seen == {DoubleGELUActivation.gelu.sqrt_2} == {2**0.5}


@pytest.mark.parametrize("name", ["softmax", "stable_softmax", "log_softmax", "stable_log_softmax"])
def test_softmax_functions(name: str):
    assert_right(verdicts(Subject(name, of_softmax, name)))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name: str):
    for claims in (of_update, of_first_updates):
        assert_right(verdicts(Subject(name, claims, OPTIMIZERS[name])))


def wrong(checks: list[Check]) -> list[str]:
    return [check.name for check in checks if not check.ok]


# -- wrong equations ---------------------------------------------------------------------------


class WrongLayer(mg.ActivationLayer):
    """DZ without act'."""

    def backpropagate(self, Y, DY):
        Z = self.Z

        DZ = 2 * DY
        mg.LinearLayer.backpropagate(self, Z, DZ)

        self.DZ = DZ


def test_a_wrong_equation_is_named_with_its_line_row_column_and_both_entries():
    checks = check_layer(WrongLayer(2, 4, "Sigmoid"))
    first = next(check for check in checks if not check.ok)

    assert first.name == "WrongLayer.DZ"
    assert re.search(r"test_claims\.py:\d+: DZ = 2 \* DY", first.message)
    assert "is wrong at row 1, column 1" in first.message
    assert "found     2*G_11" in first.message
    assert "expected  G_11*exp(-Z_11)/(1 + exp(-Z_11))**2" in first.message


def test_the_classical_vacuous_mutant_is_caught():
    """DX := 0 passes under a loss that is the sum of a normalized output; not under an arbitrary G."""

    class Vacuous(mg.BatchNormalizationLayer):
        def backpropagate(self, Y, DY):
            super().backpropagate(Y, DY)
            DX = 0 * self.DX

            self.DX = DX

    checks = check_layer(Vacuous(4))
    assert [check.name for check in checks if not check.ok] == ["Vacuous.DX"]


def test_the_line_is_that_of_the_mode():
    """Batch normalization has one DX for training and another for evaluation."""
    layer = mg.BatchNormalizationLayer(4)
    training = {check.name: check for check in check_layer(layer)}["BatchNormalizationLayer.DX"]
    layer.training = False
    evaluation = {check.name: check for check in check_layer(layer)}["BatchNormalizationLayer.DX"]
    assert "row_repeat(s, N)" in training.source
    assert evaluation.source == "DX = hadamard(row_repeat(inv_sqrt_Sigma, N), DZ)"
    assert training.location != evaluation.location


def test_a_wrong_loss_and_activation_are_caught():
    class HalfLoss(mg.SquaredErrorLoss):
        def gradient(self, Y, T):
            return Y - T

    class WrongActivation(mg.SigmoidActivation):
        def gradient(self, X):
            return self(X)

    assert {"HalfLoss.gradient", "HalfLoss.mean_gradient"} == set(wrong(check_loss(HalfLoss())))
    assert {"WrongActivation.gradient"} == set(wrong(check_activation(WrongActivation())))


def test_checking_leaves_layer_and_constants_as_they_were():
    layer = mg.ActivationLayer(2, 4, "GELU")
    W = layer.W.copy()
    check_layer(layer)
    assert (layer.W == W).all()
    assert layer.X is None
    assert isinstance(layer.act.sqrt_2, float)
    assert isinstance(mg.GELUActivation.sqrt_2, float)
    assert linear.LinearLayer.feedforward.__module__ == "matgrad.layers.linear"


def test_a_wrong_layer_is_named(monkeypatch: pytest.MonkeyPatch):
    def feedforward(self, X):
        W, b = self.W, self.b
        N, _ = X.shape

        Y = X @ W.T + 2 * row_repeat(b, N)

        self.X = X
        return Y

    monkeypatch.setattr(mg.LinearLayer, "feedforward", feedforward)
    check, of_gradient = (check for check in check_layer(mg.LinearLayer(D, K)) if not check.ok)
    assert of_gradient.name == "LinearLayer.Db"
    assert "LinearLayer.Y is wrong at row 1, column 1" in check.message
    assert "Y = X @ W.T + 2 * row_repeat(b, N)" in check.message
    assert "test_claims.py:" in check.location
    names = wrong(check_layer(mg.ActivationLayer(D, K, "Sigmoid")))
    assert names == ["ActivationLayer.Z", "ActivationLayer.Y", "ActivationLayer.Db"]


def test_a_biased_running_variance_is_named(monkeypatch: pytest.MonkeyPatch):
    def update_statistics(self, mu, Sigma, N):
        m = self.momentum
        self.running_mean = (1 - m) * self.running_mean + m * mu
        self.running_variance = (1 - m) * self.running_variance + m * Sigma

    monkeypatch.setattr(mg.BatchNormalizationLayer, "update_statistics", update_statistics)
    running = ["BatchNormalizationLayer.running_mean", "BatchNormalizationLayer.running_variance"]
    assert wrong(check_layer(mg.BatchNormalizationLayer(D))) == running[1:]
    assert wrong(check_layer(mg.BatchNormalizationLayer(D), N=1)) == running
    layer = mg.BatchNormalizationLayer(D)
    layer.training = False
    assert_right(check_layer(layer))


def test_a_wrong_activation_function_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(activation_functions.ReLUActivation, "__call__", lambda self, X: hadamard(X, X))
    assert wrong(check_activation(mg.ReLUActivation()))[::2] == 2 * ["ReLUActivation.value"]


def test_a_derivative_that_is_wrong_at_the_corner_only_is_named(monkeypatch: pytest.MonkeyPatch):
    def gradient(self, X):
        """[x > 0], torch's relu'(0) = 0"""
        return X.applyfunc(lambda x: sp.Piecewise((1, x > 0), (0, True)))

    monkeypatch.setattr(activation_functions.ReLUActivation, "gradient", gradient)
    checks = check_activation(mg.ReLUActivation())
    assert wrong(checks) == ["ReLUActivation.gradient"]
    assert checks[4].sizes == "x=0"
