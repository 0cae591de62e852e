"""Layers with parts, seen from inside: gradient check, verifier, profiles and programs."""

from __future__ import annotations

import re

import numpy as np

import matgrad as mg
from composites import LOSS, D, H, K, Keeper, N, ShortcutLayer, batch, model, plain_model
from matgrad.inspection.gradient_check import check_gradients, first_wrong
from matgrad.judges.sympy_judge import check_layer
from matgrad.program.recorder import record_computation


class WrongLayer(mg.LinearLayer):
    """A linear layer whose Db is half of what it should be"""

    def backpropagate(self, Y, DY):
        super().backpropagate(Y, DY)
        Db = 0.5 * self.Db
        self.Db = Db


def with_wrong_part() -> mg.MultilayerPerceptron:
    mg.manual_seed(1)
    wrong = ShortcutLayer(H, H, mg.ActivationLayer(H, 2, "Sigmoid"), WrongLayer(2, H))
    return mg.MultilayerPerceptron([mg.LinearLayer(D, H), wrong, mg.LinearLayer(H, K)])


def test_gradients_of_parts_are_checked():
    M = model()
    results = check_gradients(M, LOSS, *batch())
    assert all(result.ok for result in results), first_wrong(results)
    names = [result.name for result in results]
    for name, layer in M.walk():
        missing = {f"layer {name} {type(layer).__name__}.D{p}" for p in (*layer.parameters, "X")} - set(names)
        assert not missing
    assert "layer 2.2.1 BatchNormalizationLayer.DZ" in names
    order = ["3 LinearLayer.DX", "2.3 LinearDropoutLayer.DX", "2.2.2 SReLULayer.DX", "2.2 ShortcutLayer.DX"]
    order += ["2.1 ActivationDropoutLayer.DX", "2 ShortcutLayer.DX", "1 ActivationLayer.DX"]
    places = [names.index(f"layer {name}") for name in order]
    assert places == sorted(places)
    assert M.layers[1].layers[0].DW is None, "the model itself is not run"


def test_the_gradient_check_finds_a_wrong_part():
    results = check_gradients(with_wrong_part(), LOSS, *batch())
    assert [result.name for result in results if not result.ok] == ["layer 2.2 WrongLayer.Db"]
    assert "Db = 0.5 * self.Db" in str(first_wrong(results))


class TwiceLayer(Keeper):
    """Y = f(f(X))"""

    def feedforward(self, X):
        Z = self.kept.feedforward(X)
        Y = self.kept.feedforward(Z)

        self.X, self.Z = X, Z
        return Y

    def backpropagate(self, Y, DY):
        X, Z, f = self.X, self.Z, self.kept

        f.backpropagate(Y, DY)
        DZ, DW, Db = f.DX, f.DW, f.Db
        f.X = X
        f.backpropagate(Z, DZ)
        DX = f.DX

        self.DX, self.DZ, f.DW, f.Db = DX, DZ, f.DW + DW, f.Db + Db


def test_a_part_that_runs_twice_is_checked_by_its_parameters():
    mg.manual_seed(0)
    M = mg.MultilayerPerceptron([TwiceLayer(mg.LinearLayer(H, H))])
    X, G = np.random.default_rng(0).normal(size=(2, N, H))
    results = check_gradients(M, mg.SquaredErrorLoss(), X, G)
    names = ["layer 1.1 LinearLayer.DW", "layer 1.1 LinearLayer.Db", "layer 1 TwiceLayer.DX"]
    assert [(r.name, r.ok) for r in results[1:]] == [(name, True) for name in names]
    found = {check.name: check.ok for check in check_layer(TwiceLayer(mg.LinearLayer(H, H)))}
    assert found == {"TwiceLayer.DX": True, "TwiceLayer.1 LinearLayer.DW": True, "TwiceLayer.1 LinearLayer.Db": True}


def test_the_verifier_checks_parts():
    layer = ShortcutLayer(2, 2, mg.ActivationLayer(2, 3, "Sigmoid"), mg.LinearLayer(3, 2))
    checks = check_layer(layer)
    assert [check.name for check in checks if not check.ok] == []
    assert {check.name for check in checks} == {
        "ShortcutLayer.DX",
        *(f"ShortcutLayer.1 ActivationLayer.{name}" for name in ("DZ", "DW", "Db", "DX")),
        *(f"ShortcutLayer.2 LinearLayer.{name}" for name in ("DW", "Db", "DX")),
    }
    assert layer.layers[0].W.dtype == np.float32, "the layer itself is not changed"


def test_the_verifier_finds_a_wrong_part():
    layer = ShortcutLayer(2, 2, mg.ActivationLayer(2, 3, "Sigmoid"), WrongLayer(3, 2))
    wrong = [check for check in check_layer(layer) if not check.ok]
    assert [check.name for check in wrong] == ["ShortcutLayer.2 WrongLayer.Db"]
    assert "Db = 0.5 * self.Db" in wrong[0].message


def test_programs_name_what_parts_compute():
    M, (X, T) = plain_model(), batch()
    program = record_computation(mg.make_step(M, LOSS), M.state(), X, T)
    text = str(program)
    assert re.search(r"^W2\.1' += W2\.1 - η·DW2\.1", text, re.M)
    assert re.search(r"^Z2\.1 += ", text, re.M)
    assert "layer 2.1 ActivationLayer.DW" in {value.equation for value in program.values}
