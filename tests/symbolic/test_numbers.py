"""The checks with numbers: other sizes, large batches, far from 0, defaults, initial state and the second step."""

from __future__ import annotations

import inspect

import pytest

import matgrad as mg
from matgrad import activation_functions, layers
from matgrad.activation_functions import ACTIVATIONS
from matgrad.inspection.verdicts import Check
from matgrad.layers import dropout
from matgrad.loss_functions import LOSSES
from matgrad.matrix_operations import columns_sum, elements_sum, hadamard, ones, row_repeat, step
from matgrad.optimizers import OPTIMIZERS
from matgrad.symbolic.numbers import (
    LOSS_SIZES,
    SIZES,
    check_activation_in_numbers,
    check_layer_in_numbers,
    check_loss_in_numbers,
    check_softmax_in_numbers,
)
from matgrad.symbolic.state import DEFAULTS, check_defaults, check_renewals, check_second_batch
from support import spread

MAKERS = {
    "Linear": mg.LinearLayer,
    "Softmax": mg.SoftmaxLayer,
    "LogSoftmax": mg.LogSoftmaxLayer,
    "SReLU": mg.SReLULayer,
    "BatchNormalization": lambda D, K: mg.BatchNormalizationLayer(D),
    "LayerNormalization": lambda D, K: mg.LayerNormalizationLayer(D),
    "RMSNormalization": lambda D, K: mg.RMSNormalizationLayer(D),
    "Dropout": lambda D, K: mg.DropoutLayer(D),
    "LinearDropout": mg.LinearDropoutLayer,
    "SReLUDropout": mg.SReLUDropoutLayer,
    "GELU": lambda D, K: mg.ActivationLayer(D, K, "GELU"),
    "TReLU": lambda D, K: mg.ActivationLayer(D, K, "TReLU"),
}


def assert_right(checks: list[Check]) -> None:
    assert checks
    for check in checks:
        assert check.ok, check.message


def wrong(checks: list[Check]) -> set[str]:
    return {check.name.partition(".")[2] for check in checks if not check.ok}


@pytest.mark.parametrize(("name", "sizes"), spread(MAKERS, SIZES, each=2))
def test_layers(name: str, sizes: tuple[int, int, int, int]):
    N, D, K, scale = sizes
    if K == 1 and "Softmax" in name:
        pytest.skip("there is no softmax over one class")
    for training in (True, False):
        mg.manual_seed(3)
        layer = MAKERS[name](D, K)
        layer.training = training
        checks = check_layer_in_numbers(layer, N, scale)
        assert_right(checks)
        assert not [check.note for check in checks if check.note]
        assert ("DX" in {check.name.partition(".")[2] for check in checks}) == (scale == 1)


@pytest.mark.parametrize("name", LOSSES)
def test_losses(name: str):
    for N, K, scale in LOSS_SIZES[::2]:
        checks = check_loss_in_numbers(LOSSES[name](), N, K, scale)
        assert_right(checks)
        assert [check.name.partition(".")[2] for check in checks] == ["value", "gradient", *2 * ["mean_gradient"]]


def test_functions():
    for cls in ACTIVATIONS.values():
        assert_right(check_activation_in_numbers(cls()))
    for N, K, scale in LOSS_SIZES:
        assert_right(check_softmax_in_numbers("stable_log_softmax", N, K, scale))


# -- wrong at a size or in a range -----------------------------------------------------------------


class LargeBatchLayer(mg.Layer):
    """Y = (1_N s) ⊙ X, with a gradient that is wrong in a large batch."""

    keeps_size = True
    parameters = ("s",)

    def __init__(self, D: int) -> None:
        self.s = mg.one_hot([0], D)
        super().__init__(D, D)

    def feedforward(self, X):
        self.X = X
        return hadamard(row_repeat(self.s, X.shape[0]), X)

    def backpropagate(self, Y, DY):
        N, _ = DY.shape
        self.Ds = columns_sum(hadamard(DY, self.X)) / (N if N > 100 else 1)
        self.DX = hadamard(row_repeat(self.s, N), DY)


def test_a_layer_of_ones_own_is_checked_in_a_large_batch():
    assert_right(check_layer_in_numbers(LargeBatchLayer(3), 5))
    checks = check_layer_in_numbers(LargeBatchLayer(3), 128)
    assert wrong(checks) == {"Ds"}
    assert "self.Ds = columns_sum" in next(check.message for check in checks if not check.ok)


class ClippedLoss(mg.LossFunction):
    """Σ (y - t)², whose gradient is 0 for y > 100."""

    def __call__(self, Y, T):
        return elements_sum(hadamard(Y - T, Y - T))

    def gradient(self, Y, T):
        return 2 * hadamard(Y - T, step(100 * ones(*Y.shape, like=Y) - Y))


def test_a_loss_of_ones_own_is_checked_far_from_0():
    assert_right(check_loss_in_numbers(ClippedLoss(), 5, 3))
    assert wrong(check_loss_in_numbers(ClippedLoss(), 5, 3, 500)) == {"gradient", "mean_gradient"}


def test_softplus_that_is_x_above_20_is_found(monkeypatch: pytest.MonkeyPatch):
    softplus = activation_functions.SoftplusActivation.__call__

    def above(self, X):
        large = step(X - 20 * ones(*X.shape, like=X))
        return hadamard(large, X) + hadamard(ones(*X.shape, like=X) - large, softplus(self, X))

    monkeypatch.setattr(activation_functions.SoftplusActivation, "__call__", above)
    assert wrong(check_activation_in_numbers(mg.SoftplusActivation())) == {"value"}


# -- defaults, initial state, second step ------------------------------------------------------------


def test_every_class_has_its_defaults_and_they_are_right():
    own = {cls for name, cls in vars(layers).items() if name.endswith("Layer") and name != "Layer"}
    with_numbers = {cls for cls in ACTIVATIONS.values() if len(inspect.signature(cls).parameters)}
    assert DEFAULTS.keys() >= {*own, *LOSSES.values(), *OPTIMIZERS.values(), *with_numbers}
    x = mg.one_hot([0, 1], 3)
    for cls in DEFAULTS:
        arguments = (x, None) if cls in OPTIMIZERS.values() else (2, 2) if cls in own else ()
        arguments += ("ReLU",) if cls in (mg.ActivationLayer, mg.ActivationDropoutLayer) else ()
        assert_right(check_defaults(cls(*arguments)))


def test_another_default_is_found():
    assert wrong(check_defaults(mg.BatchNormalizationLayer(2, momentum=0.2))) == {"momentum"}
    assert wrong(check_defaults(mg.ELUActivation(0.9))) == {"alpha"}


def test_the_second_batch_and_the_renewal_of_dropout(monkeypatch: pytest.MonkeyPatch):
    assert_right(check_second_batch())
    assert_right(check_renewals())
    monkeypatch.setattr(mg.LinearDropoutLayer, "end_epoch", lambda self: None)
    assert wrong(check_renewals()) == {"renewals"}
    monkeypatch.undo()
    monkeypatch.setattr(mg.DropoutLayer, "optimize", lambda self, eta: None)
    assert wrong(check_renewals()) == {"renewals"}


def test_dropout_that_is_never_renewed_is_found(monkeypatch: pytest.MonkeyPatch):
    drawn = dropout.uniform
    monkeypatch.setattr(dropout, "uniform", lambda m, n, **options: drawn(m, n, **(options | {"count": 0})))
    mg.manual_seed(3)
    assert wrong(check_layer_in_numbers(mg.DropoutLayer(3), 5)) == {"R", "Y"}
