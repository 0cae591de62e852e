"""Equations and names of recorded values: those of the variables of methods, without source."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import matgrad as mg
from matgrad.matrix_operations import columns_sum, hadamard, row_repeat
from matgrad.program import Program, record_computation


def recorded(*layers: mg.Layer) -> Program:
    M = mg.MultilayerPerceptron([*layers, mg.LinearLayer(layers[-1].output_size, 2)])
    X, T = np.zeros((5, layers[0].input_size), np.float32), np.zeros((5, 2), np.float32)
    return record_computation(mg.make_step(M, mg.SquaredErrorLoss()), M.state(), X, T)


def names(program: Program, equation: str) -> list[str]:
    """The names of the values of an equation, in order."""
    return [value.name for value in program.instructions if value.equation == equation and value.name]


class Scaled(mg.ActivationLayer):
    """A layer with a base class, a helper, a variable that is set twice, and several targets."""

    parameters = ("W", "b", "scale")

    def __init__(self, D: int, K: int) -> None:
        self.scale = np.ones((1, K), np.float32)
        super().__init__(D, K, "Sigmoid")

    def feedforward(self, X):
        Q = super().feedforward(X)
        N = Q.shape[0]

        S = row_repeat(self.scale, N)
        Y = hadamard(S, Q)
        Y = self._shifted(Y)

        self.Q = Q
        return Y

    def _shifted(self, Y):
        inner = 2 * Y
        return inner + Y

    def backpropagate(self, Y, DY):
        N = Y.shape[0]

        DQ, Dscale = hadamard(3 * DY, row_repeat(self.scale, N)), columns_sum(hadamard(3 * DY, self.Q))
        super().backpropagate(self.Q, DQ)

        self.Dscale = Dscale


def test_a_value_is_called_what_the_variable_is_called():
    program = recorded(Scaled(4, 3))
    assert names(program, "layer 1 Scaled.Z") == ["Z1"]  # Y in the linear layer
    assert names(program, "layer 1 Scaled.Q") == ["Q1"]  # Y in the activation layer
    # the last of its values; the variables of helpers are not names
    assert names(program, "layer 1 Scaled.Y") == ["Y1"]
    for name in ("DQ", "Dscale", "DZ", "DW", "Db"):
        assert names(program, f"layer 1 Scaled.{name}") == [f"{name}1"]
    assert names(program, "SquaredErrorLoss.gradient") == ["DY"]
    assert {value.equation.partition(".")[0] for value in program.instructions} == {
        *("layer 1 Scaled", "layer 2 LinearLayer", "SquaredErrorLoss"),
        *(f"layer {i} GradientDescentOptimizer" for i in (1, 2)),
    }


def test_a_value_of_a_part_is_named_by_the_part():
    from composites import ShortcutLayer

    program = recorded(ShortcutLayer(4, 4, mg.ActivationLayer(4, 3, "ReLU"), mg.LinearLayer(3, 4)))
    assert names(program, "layer 1.1 ActivationLayer.Z") == ["Z1.1"]
    assert names(program, "layer 1.2 LinearLayer.DW") == ["DW1.2"]


def test_training_reads_no_source(monkeypatch: pytest.MonkeyPatch):
    def unavailable(*arguments):
        raise AssertionError("source is read")

    M = mg.create_model("ReLU;BatchNormalization;SReLU;Linear", [4, 5, 4, 3])
    for name in ("getsource", "getsourcelines", "findsource"):
        monkeypatch.setattr(inspect, name, unavailable)
    M.fit(np.ones((6, 4)), np.array([0, 1, 2, 0, 1, 2]), epochs=1)
    equations = {value.equation for value in M.program(loss=mg.SoftmaxCrossEntropyLoss()).instructions}
    assert {"layer 2 BatchNormalizationLayer.s", "layer 3 SReLULayer.Dal"} <= equations
