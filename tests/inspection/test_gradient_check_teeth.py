"""The teeth of the gradient check: what it cannot tell is not called right, and mistakes are named with their line."""

from __future__ import annotations

import numpy as np
import pytest

import matgrad as mg
from architectures import random_architecture
from matgrad.inspection.gradient_check import check_gradients, first_wrong
from matgrad.inspection.variables import NumericModel
from matgrad.matrix_operations import elements_sum, hadamard


def batch(N: int, D: int, K: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(N, D)), rng.dirichlet(np.ones(K), N)


class Thrice(mg.Layer):
    """Y = X, with three times the gradient."""

    def feedforward(self, X):
        self.X = X
        return 1 * X

    def backpropagate(self, Y, DY):
        self.DX = 3 * DY


@pytest.mark.parametrize("h", [1e-9, 0.1, float("nan")])
def test_steps_that_cannot_tell_are_refused(h: float):
    with pytest.raises(ValueError, match=r"gradient step: expected a number from 1e-08 to 0.01, found"):
        check_gradients(Thrice(4, 4), "SquaredError", *batch(5, 4, 4), h=h)


@pytest.mark.parametrize("h", [1e-8, 1e-2])
def test_a_wrong_layer_is_never_called_right(h: float):
    results = check_gradients(Thrice(4, 4), "SquaredError", *batch(5, 4, 4), h=h)
    assert not [result for result in results if result.name.endswith("DX") and result.ok and result.tells]


def test_every_right_gradient_would_be_called_wrong_if_it_were_a_little_off(monkeypatch: pytest.MonkeyPatch):
    """A gradient that is off by a thousandth is called wrong wherever the right one is said to be right."""
    a = random_architecture(3)
    right = check_gradients(a.M, a.loss, a.X, a.T)
    assert first_wrong(right) is None
    assert all(result.tells for result in right)
    gradient = NumericModel.gradient
    monkeypatch.setattr(NumericModel, "gradient", lambda *arguments: 1.001 * gradient(*arguments))
    wrong = check_gradients(a.M, a.loss, a.X, a.T)
    assert [result.name for result in wrong if result.ok and result.found != 0] == []


def test_a_gradient_that_is_hidden_by_rounding_cannot_be_judged():
    """1 + 1e-11·x² changes less than by rounding when x does."""

    class TinyLoss(mg.LossFunction):
        is_mean = True

        def __call__(self, Y, T):
            return 1 + 1e-11 * elements_sum(hadamard(Y, Y))

        def gradient(self, Y, T):
            return 7e-11 * Y

    result, *_ = check_gradients(mg.LinearLayer(3, 4), TinyLoss(), *batch(5, 3, 4))
    assert result.ok
    assert not result.tells
    assert str(result).startswith("TinyLoss.gradient cannot be judged: of 20 elements a wrong one would not be noticed")


def test_a_gradient_that_is_zero_is_right():
    """The bias before a batch normalization has no effect."""
    M = mg.MultilayerPerceptron([mg.LinearLayer(3, 4), mg.BatchNormalizationLayer(4)])
    results = check_gradients(M, "SquaredError", *batch(5, 3, 4))
    assert first_wrong(results) is None
    assert all(result.tells for result in results)


def test_another_input_than_the_layers_is_found():
    class Shifted(mg.LinearLayer):
        def feedforward(self, X):
            Y = super().feedforward(X)
            self.X = 2 * X
            return Y

        def backpropagate(self, Y, DY):
            self.X = self.X / 2
            super().backpropagate(Y, DY)
            self.X = 2 * self.X

    M = mg.MultilayerPerceptron([mg.SoftmaxLayer(3, 4), Shifted(4, 4)])
    wrong = first_wrong(check_gradients(M, "SquaredError", *batch(5, 3, 4)))
    assert "layer 2 Shifted.X is wrong: self.X is not the input of feedforward" in str(wrong)
    assert "self.X = 2 * X)" in str(wrong)


# -- mistakes ----------------------------------------------------------------------------------


class NoDX(Thrice):
    def backpropagate(self, Y, DY):
        DX = DY
        del DX


class NoGradient(mg.ActivationFunction):
    def __call__(self, X):
        return hadamard(X, X)


class Crashing(Thrice):
    def feedforward(self, X):
        self.X = X
        return helper(X)


def helper(X):
    return X @ X[:, :1].T[:, :1] @ "matrix"


def test_a_missing_DX_is_named_and_the_layers_below_it_are_left_out():
    M = mg.MultilayerPerceptron([mg.LinearLayer(4, 4), NoDX(4, 4), mg.LinearLayer(4, 4)])
    results = check_gradients(M, "SquaredError", *batch(5, 4, 4))
    assert [result.name for result in results if not result.ok] == ["layer 2 NoDX.DX"]
    assert "is wrong: found nothing, expected size 5 × 4 (" in str(results[-1])
    assert "test_gradient_check_teeth.py" in str(results[-1])
    assert len(results) == 5


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (mg.ActivationLayer(4, 4, NoGradient()), r"NoGradient\.gradient is not defined \(.*: class NoGradient\("),
        (
            Crashing(4, 4),
            r"Crashing\.feedforward raises \w*Error: .* \(.*test_gradient_check_teeth\.py:\d+: return X @ X\[",
        ),
        (mg.Layer(4, 4), r"Layer\.feedforward is not defined"),
    ],
)
def test_mistakes_are_named_with_class_method_and_line(layer: mg.Layer, message: str):
    with pytest.raises(ValueError, match=message):
        check_gradients(layer, "SquaredError", *batch(5, 4, 4))
