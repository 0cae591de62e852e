"""Proofs for all sizes: the whole package is proved, and nothing that is wrong, vacuous or true for some sizes only."""

from __future__ import annotations

import json
import time
from collections import Counter

import numpy as np
import pytest

import matgrad as mg
from composites import ShortcutLayer, custom
from matgrad.activation_functions import ACTIVATIONS
from matgrad.inspection.verdicts import Check
from matgrad.judges import prove_activation, prove_layer, prove_loss, prove_softmax
from matgrad.judges.suite import ALL_SIZES, cases
from matgrad.loss_functions import LOSSES
from matgrad.matrix_operations import (
    columns_sum,
    elements_sum,
    hadamard,
    ones,
    reciprocal,
    row_repeat,
    rows_max,
    rows_sum,
    step,
)
from matgrad.specifications.models import LAYERS
from page_support import ROOT


def names_of(checks: list[Check], ok: bool) -> list[str]:
    return [check.name for check in checks if check.ok is ok and not check.note]


def test_everything_in_the_package_is_proved():
    start, checks = time.process_time(), [check for case in cases(judges=[ALL_SIZES]) for check in case.run()]
    assert not [check.message for check in checks if not check.ok]
    assert not [check for check in checks if check.note]
    record = json.loads((ROOT / "docs" / "proved.json").read_text())
    counts = Counter(check.name for check in checks)
    assert record["equations"] == counts, "matgrad verify --json | python docs/site/verified.py"
    assert record["checks"] == len(checks) > 450
    assert not record["not_proved"]
    assert time.process_time() - start < 180
    modes = {(check.name, check.sizes) for check in checks}
    for sizes in ("all sizes", "all sizes, evaluation", "all sizes, N = 1"):
        assert ("BatchNormalizationLayer.DX", sizes) in modes
    for sizes in ("all sizes, SReLU", "all sizes, SReLU, evaluation"):
        assert {("SReLULayer.Dal", sizes), ("SReLULayer.DW", sizes), ("SReLULayer.Y", sizes)} <= modes
    assert ("ActivationLayer.DZ", "all sizes, Arbitrary") in modes


def test_the_suite_covers_the_package():
    names = {case.name for case in cases(judges=[ALL_SIZES])}
    assert {*LAYERS, *ACTIVATIONS, *LOSSES, "stable_log_softmax", "chain rule", "matrix property 5"} <= names
    assert 0 < len(cases(quick=True)) < len(cases()) / 3
    with pytest.raises(ValueError, match="Momentum has no sizes"):
        cases(("Momentum",), judges=[ALL_SIZES])


def test_layers_from_outside_the_package():
    for make in (custom.ScaleLayer, ShortcutLayer):
        for training in (True, False):
            checks = prove_layer(make, training=training)
            assert not names_of(checks, False)
            assert "no definition" in checks[0].note
    names = names_of(prove_layer(ShortcutLayer), True)
    assert {"ShortcutLayer.DX", "ShortcutLayer.1 ActivationLayer.DW", "ShortcutLayer.2 LinearLayer.Db"} <= set(names)
    assert not names_of(prove_activation(custom.SquaredReLUActivation()), False)
    assert not names_of(prove_loss(custom.PseudoHuberLoss()), False)


# -- what is not proved --------------------------------------------------------------------------


class ScaleLayer(custom.ScaleLayer):
    """Y = (1_N s) ⊙ X, whose gradients subclasses compute in other ways."""

    def backpropagate(self, Y, DY):
        self.Ds, self.DX = self.gradients(self.X, DY)

    def gradients(self, X, DY):
        N, _ = X.shape
        return columns_sum(hadamard(DY, X)), hadamard(row_repeat(self.s, N), DY)


def test_the_layer_that_is_varied_is_proved():
    assert names_of(prove_layer(ScaleLayer), True) == ["ScaleLayer.Ds", "ScaleLayer.DX"]


class Wrong(ScaleLayer):
    def gradients(self, X, DY):
        Ds, DX = super().gradients(X, DY)
        return Ds, -DX


class WrongForOneExample(ScaleLayer):
    def gradients(self, X, DY):
        Ds, DX = super().gradients(X, DY)
        return Ds, 2 * DX if X.shape[0] == 1 else DX


class WrongForOneFeature(ScaleLayer):
    def gradients(self, X, DY):
        Ds, DX = super().gradients(X, DY)
        return Ds, DX if X.shape[1] > 1 else 2 * DX


class DifferentForTwoExamples(ScaleLayer):
    def gradients(self, X, DY):
        Ds, DX = super().gradients(X, DY)
        return Ds, DX if X.shape[0] == 2 else 1 * DX


class DifferentForManyExamples(ScaleLayer):
    def gradients(self, X, DY):
        Ds, DX = super().gradients(X, DY)
        return Ds, DX if X.shape[0] >= 100 else 1 * DX


class DifferentForSquares(ScaleLayer):
    def gradients(self, X, DY):
        N, D = X.shape
        Ds, DX = super().gradients(X, DY)
        return Ds, DX if N == D else 1 * DX


class Missing(ScaleLayer):
    def gradients(self, X, DY):
        return None, super().gradients(X, DY)[1]


class OfNumPy(ScaleLayer):
    def gradients(self, X, DY):
        return super().gradients(X, DY)[0], np.zeros((3, 2))


class OfAnotherSize(ScaleLayer):
    def gradients(self, X, DY):
        return columns_sum(hadamard(DY, X)).T, super().gradients(X, DY)[1]


class InPlace(ScaleLayer):
    def gradients(self, X, DY):
        DY *= 2
        return super().gradients(X, DY / 2)


class WithNumbersOfTheConstructor(ScaleLayer):
    """It divides by a number that is the size of its input in the constructor."""

    def __init__(self, input_size, output_size):
        super().__init__(input_size, output_size)
        self.twice = 2 * input_size

    def gradients(self, X, DY):
        return super().gradients(X, self.twice * DY / self.twice)


class WithTheNameOfTheGradient(mg.Layer):
    """Y = X ⊙ (1_N G), with a parameter that is called like the upstream gradient, of which DX has it instead."""

    keeps_size = True
    parameters = ("G",)

    def __init__(self, input_size, output_size):
        super().__init__(input_size, output_size)
        self.G = np.ones((1, input_size))
        self.set_optimizer("GradientDescent")

    def feedforward(self, X):
        self.X = X
        return hadamard(X, row_repeat(self.G, X.shape[0]))

    def backpropagate(self, Y, DY):
        self.DG = columns_sum(hadamard(DY, self.X))
        self.DX = hadamard(row_repeat(self.G, Y.shape[0]), row_repeat(self.G, Y.shape[0]))


REASONS = {
    Wrong: ("Wrong.DX", "canonical forms"),
    WrongForOneExample: ("WrongForOneExample.DX", "canonical forms"),
    WrongForOneFeature: ("WrongForOneFeature.DX", "canonical forms"),
    DifferentForTwoExamples: ("DifferentForTwoExamples.DX", "asks whether N = 2"),
    DifferentForManyExamples: ("DifferentForManyExamples.gradients", "asks whether N ≤ 99"),
    DifferentForSquares: ("DifferentForSquares.DX", "asks whether N = D"),
    Missing: ("Missing.Ds", "found nothing"),
    OfNumPy: ("OfNumPy.DX", "NumPy array"),
    OfAnotherSize: ("OfAnotherSize.Ds", "D × 1, expected 1 × D"),
    InPlace: ("InPlace.gradients", "in place"),
    WithNumbersOfTheConstructor: ("WithNumbersOfTheConstructor", "twice: expected a size of 1, D or K, found 10"),
    WithTheNameOfTheGradient: ("WithTheNameOfTheGradient.DX", "canonical forms"),
}


@pytest.mark.parametrize("cls", REASONS, ids=lambda cls: cls.__name__)
def test_what_is_not_proved_has_a_reason(cls: type[mg.Layer]):
    name, reason = REASONS[cls]
    wrong = [check for check in prove_layer(cls) if not check.ok]
    assert name in {check.name for check in wrong}
    assert any(reason in check.message for check in wrong), [check.message for check in wrong]


def test_code_that_asks_for_sizes_of_1_is_proved_for_them_too():
    class Careful(ScaleLayer):
        def gradients(self, X, DY):
            Ds, DX = super().gradients(X, DY)
            return Ds, hadamard(DY, self.s) if X.shape[0] == 1 else DX

    checks = prove_layer(Careful)
    assert not names_of(checks, False)
    assert {check.sizes for check in checks} == {"all sizes", "all sizes, N = 1"}


def test_sparse_layers_are_not_proved():
    (check,) = prove_layer(lambda D, K: mg.LinearLayer(D, K, support=np.eye(K, D) > 0))
    assert not check.ok
    assert "sparse" in check.message


def test_a_layer_with_nothing_to_prove_is_not_proved():
    class Empty(ScaleLayer):
        def walk(self, name=""):
            return iter(())

    assert names_of(prove_layer(Empty), False)
    assert not names_of(prove_layer(Empty), True)


def test_layers_of_maxima():
    class MaxLayer(mg.Layer):
        """Y = X - max(X)_row 1_Dᵀ"""

        keeps_size = True

        def feedforward(self, X):
            self.X = X
            return X - rows_max(X) @ ones(1, X.shape[1], like=X)

        def backpropagate(self, Y, DY):
            _, D = DY.shape
            M = step(Y)
            self.DX = DY - hadamard(M, hadamard(rows_sum(DY), reciprocal(rows_sum(M))) @ ones(1, D, like=Y))

    assert not names_of(prove_layer(MaxLayer), False)


def test_functions_that_are_not_elementwise_are_not_proved():
    class Mean(mg.ActivationFunction):
        def __call__(self, X):
            return row_repeat(columns_sum(X), X.shape[0])

        def gradient(self, X):
            return ones(*X.shape, like=X)

    assert names_of(prove_activation(Mean()), False) == ["Mean.gradient"]


def test_losses_that_are_not_what_they_say_are_not_proved():
    class NotMean(mg.SquaredErrorLoss):
        is_mean = True

    class Halved(mg.LossFunction):
        def __call__(self, Y, T, s=None):
            return elements_sum(hadamard(Y - T, Y - T), s) / 2

        def gradient(self, Y, T):
            return 2 * (Y - T)

    class Coupled(Halved):
        """Its value has products of different rows."""

        def __call__(self, Y, T, s=None):
            return elements_sum((Y - T).T @ ones(Y.shape[0], Y.shape[0], like=Y) @ (Y - T), s)

    assert "NotMean.is_mean" in names_of(prove_loss(NotMean()), False)
    assert "Halved.gradient" in names_of(prove_loss(Halved()), False)
    assert not prove_loss(Coupled())[0].ok or "Coupled.is_mean" in names_of(prove_loss(Coupled()), False)


def test_softmax_functions(monkeypatch):
    assert not names_of(prove_softmax("stable_log_softmax"), False)

    def wrong_jacobian(x):
        return x.T @ x

    monkeypatch.setattr("matgrad.softmax_functions.softmax_jacobian", wrong_jacobian)
    assert names_of(prove_softmax("softmax"), False) == ["wrong_jacobian"]


def test_numbers_of_a_layer_are_symbols_or_stay():
    class Decides(mg.LeakyReLUActivation):
        def gradient(self, X):
            right = step(X)
            left = ones(*X.shape, like=X) - right
            return right + (self.alpha if self.alpha < 1 else 2) * left

    assert not names_of(prove_activation(Decides(0.3)), False)

    class Forgets(mg.ELUActivation):
        """For α = 1 alone."""

        def gradient(self, X):
            return step(X) + hadamard(mg.matrix_operations.exp(X), ones(*X.shape, like=X) - step(X))

    assert "Forgets.gradient" in names_of(prove_activation(Forgets()), False)
