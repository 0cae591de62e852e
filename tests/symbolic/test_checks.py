"""The symbolic checks: a quick set of right equations, wrong ones with what is said of them, a user's own classes."""

from __future__ import annotations

import math
import re

import pytest
import sympy as sp

import matgrad as mg
from matgrad.layers import linear
from matgrad.loss_functions import LOSSES
from matgrad.matrix_operations import hadamard, ones
from matgrad.symbolic import (
    check_activation,
    check_layer,
    check_loss,
    check_optimizer,
    check_softmax,
    compare,
    symbols,
)
from matgrad.symbolic.equality import exact_number
from matgrad.symbolic.state import OPTIMIZER_RULES, check_first_updates
from support import spread


def assert_right(checks) -> None:
    assert checks
    for check in checks:
        assert check.ok, check.message


LAYERS = [
    mg.LinearLayer(2, 4),
    mg.ActivationLayer(2, 4, "ReLU"),
    mg.BatchNormalizationLayer(4),
    mg.ActivationLayer(2, 4, "LeakyReLU"),
    mg.DropoutLayer(4),
    mg.ActivationDropoutLayer(2, 4, "Sigmoid"),
    mg.LinearDropoutLayer(2, 4),
    mg.LogSoftmaxLayer(2, 4),
    mg.SReLULayer(2, 4, shared=True),
]


@pytest.mark.parametrize(("layer", "training"), spread(LAYERS, [True, False], name=repr))
def test_layers(layer: mg.Layer, training: bool):
    layer.training = training
    checks = check_layer(layer)
    assert_right(checks)
    names = {f"D{name}" for name in layer.parameters} | {"DX"}
    names |= {"DZ"} if "Z" in layer.intermediates else set()
    assert {check.name.partition(".")[2] for check in checks} == names


@pytest.mark.parametrize(("name", "N"), spread(LOSSES, [1, 3]))
def test_losses(name: str, N: int):
    assert_right(check_loss(LOSSES[name](), N=N))
    assert_right(check_loss(LOSSES[name](), N=N, one_hot=True))


@pytest.mark.parametrize("act", [mg.GELUActivation(), mg.TReLUActivation(), mg.ELUActivation(), mg.HyperbolicTangentActivation()], ids=repr)  # fmt: skip  # noqa: E501
def test_activations(act: mg.ActivationFunction):
    assert_right(check_activation(act))


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
    assert_right(check_softmax(name))


@pytest.mark.parametrize("name", OPTIMIZER_RULES)
def test_optimizers(name: str):
    assert_right(check_optimizer(name))
    assert_right(check_first_updates(name))


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
    assert re.search(r"test_checks\.py:\d+: DZ = 2 \* DY", first.message)
    assert "is wrong at row 0, column 0" in first.message
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

    assert not check_loss(HalfLoss())[0].ok
    assert not check_activation(WrongActivation())[0].ok


def test_checking_leaves_layer_and_constants_as_they_were():
    layer = mg.ActivationLayer(2, 4, "GELU")
    W = layer.W.copy()
    check_layer(layer)
    assert (layer.W == W).all()
    assert layer.X is None
    assert isinstance(layer.act.sqrt_2, float)
    assert isinstance(mg.GELUActivation.sqrt_2, float)
    assert linear.LinearLayer.feedforward.__module__ == "matgrad.layers.linear"


# -- exact numbers -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (1 / 3, sp.Rational(1, 3)),
        (1 / 3 - 1, -sp.Rational(2, 3)),
        (0.1 + 0.2, sp.Rational(3, 10)),
        (3 * 0.044715, sp.Rational("0.134145")),
        (1e-5, sp.Rational(1, 10**5)),
        (1.41421, sp.Rational("1.41421")),
        (1 / math.sqrt(2), sp.sqrt(2) / 2),
        (math.sqrt(2 / math.pi), sp.sqrt(2 / sp.pi)),
        (0.0, sp.S.Zero),
        (-1e300, -(sp.Integer(10) ** 300)),
    ],
)
def test_what_a_number_stands_for(x: float, expected: sp.Expr):
    assert sp.simplify(exact_number(x) - expected) == 0
    assert not exact_number(x).has(sp.Float)


def test_other_numbers_are_compared_as_precisely_as_they_are():
    root = math.sqrt(5)
    assert exact_number(root) == sp.Float(root)
    assert compare(sp.Matrix([[root * x]]), sp.Matrix([[sp.sqrt(5) * x]])).ok
    assert not compare(sp.Matrix([[(root + 1e-9) * x]]), sp.Matrix([[sp.sqrt(5) * x]])).ok


class ThirdsActivation(mg.ActivationFunction):
    """x³/3 + x·√5"""

    def __init__(self, wrong: float = 0) -> None:
        self.wrong = int(wrong)

    def __call__(self, X):
        return 1 / 3 * hadamard(X, hadamard(X, X)) + math.sqrt(5) * X

    def gradient(self, X):
        m, n = X.shape
        return (1 + self.wrong) * hadamard(X, X) + 5 / math.sqrt(5) * ones(m, n, like=X)


def test_a_right_equation_with_fractions_and_roots_is_right():
    assert_right(check_activation(ThirdsActivation()))
    assert not check_activation(ThirdsActivation(1))[0].ok


# -- equality ----------------------------------------------------------------------------------

x, y = sp.symbols("x y", real=True)


@pytest.mark.parametrize(
    ("a", "b", "equal"),
    [
        ((x + y) ** 2, x**2 + 2 * x * y + y**2, True),
        (sp.exp(x + y), sp.exp(x) * sp.exp(y), True),
        (sp.tanh(x), (sp.exp(x) - sp.exp(-x)) / (sp.exp(x) + sp.exp(-x)), True),
        (sp.Piecewise((x, x >= 0), (0, True)), sp.Max(x, 0), True),
        (sp.sqrt(x**2), sp.Abs(x), True),
        (sp.sqrt(x**2), x, False),
        (x, x + sp.Rational(1, 10**20), False),
        (sp.erf(x), sp.tanh(x), False),
        (1 / (x - x), x, False),
    ],
)
def test_equality(a, b, equal: bool):
    assert compare(sp.Matrix([[x, a]]), sp.Matrix([[x, b]])).ok == equal


def test_the_first_difference_is_told():
    A, B = symbols("a", 2, 3), symbols("a", 2, 3)
    B[1, 2] = 0
    result = compare(A, B)
    assert result.problem == "is wrong at row 1, column 2:\n  found     a_23\n  expected  0"


def test_no_module_hides_a_function_of_the_package():
    """A submodule with the name of an exported function takes its place once it is imported."""
    import importlib
    import pkgutil

    from matgrad import symbolic

    for module in pkgutil.iter_modules(symbolic.__path__):
        importlib.import_module(f"matgrad.symbolic.{module.name}")
    assert all(callable(getattr(symbolic, name)) for name in symbolic.__all__)
