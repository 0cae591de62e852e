"""The checks with numbers: other sizes, large batches, far from 0, defaults, initial state and the second step."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial

import pytest

import matgrad as mg
from matgrad import activation_functions
from matgrad.activation_functions import ACTIVATIONS
from matgrad.inspection.verdicts import Check
from matgrad.judges import definitions, sympy_judge
from matgrad.judges.algebra import Claims, Subject
from matgrad.judges.claims import of_activation, of_layer, of_loss, of_softmax
from matgrad.judges.numbers_judge import LOSS_SIZES, SIZES, verdicts
from matgrad.judges.state import DEFAULTS, of_defaults, of_renewals, of_second_batch
from matgrad.layers import dropout
from matgrad.loss_functions import LOSSES
from matgrad.matrix_operations import columns_sum, elements_sum, hadamard, ones, row_repeat, step
from matgrad.optimizers import OPTIMIZERS
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


def in_numbers(claims: Claims, thing: object) -> list[Check]:
    return verdicts(Subject("test", claims, thing))


def in_mode(make: Callable[[int, int], mg.Layer], training: bool, D: int, K: int) -> mg.Layer:
    mg.manual_seed(3)
    layer = make(D, K)
    layer.training = training
    return layer


def assert_right(checks: list[Check]) -> None:
    assert checks
    for check in checks:
        assert check.ok, check.message


def wrong(checks: list[Check]) -> set[str]:
    return {check.name.partition(".")[2] for check in checks if not check.ok}


@pytest.mark.parametrize(("name", "training"), spread(MAKERS, [True, False]))
def test_layers(name: str, training: bool):
    checks = in_numbers(of_layer, partial(in_mode, MAKERS[name], training))
    assert_right(checks)
    assert not [check.note for check in checks if check.note]
    assert len({check.sizes.partition(",")[0] for check in checks}) == len(SIZES) - (name in ("Softmax", "LogSoftmax"))
    assert {"±" in check.sizes for check in checks if check.name.endswith(".DX")} == {False}


@pytest.mark.parametrize("name", [name for name, cls in LOSSES.items() if not cls.has_tokens])
def test_losses(name: str):
    checks = in_numbers(of_loss, LOSSES[name])
    assert_right(checks)
    assert len(checks) == 6 * len(LOSS_SIZES)


def test_functions():
    for cls in ACTIVATIONS.values():
        checks = in_numbers(of_activation, cls)
        assert_right(checks)
        assert len(checks) == 10
    assert_right(in_numbers(of_softmax, "stable_log_softmax"))


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
    checks = in_numbers(of_layer, lambda D, K: LargeBatchLayer(D))
    assert wrong(checks) == {"Ds"}
    assert [check.sizes for check in checks if not check.ok] == ["N=128 D=2 K=3"]
    assert "self.Ds = columns_sum" in next(check.message for check in checks if not check.ok)


class ClippedLoss(mg.LossFunction):
    """Σ (y - t)², whose gradient is 0 for y > 100."""

    def __call__(self, Y, T):
        return elements_sum(hadamard(Y - T, Y - T))

    def gradient(self, Y, T):
        return 2 * hadamard(Y - T, step(100 * ones(*Y.shape, like=Y) - Y))


def test_a_loss_of_ones_own_is_checked_far_from_0():
    checks = in_numbers(of_loss, ClippedLoss)
    assert wrong(checks) == {"gradient", "mean_gradient"}
    assert {check.sizes.partition(",")[0] for check in checks if not check.ok} == {"N=5 K=3 ±500"}


def test_softplus_that_is_x_above_20_is_found(monkeypatch: pytest.MonkeyPatch):
    softplus = activation_functions.SoftplusActivation.__call__

    def above(self, X):
        large = step(X - 20 * ones(*X.shape, like=X))
        return hadamard(large, X) + hadamard(ones(*X.shape, like=X) - large, softplus(self, X))

    monkeypatch.setattr(activation_functions.SoftplusActivation, "__call__", above)
    assert wrong(in_numbers(of_activation, mg.SoftplusActivation)) == {"value"}


# -- defaults, initial state, second step ------------------------------------------------------------


def test_every_class_has_its_defaults_and_they_are_right():
    own = definitions.LAYERS.keys()  # layers of shapes have the settings of their specifications
    with_numbers = {cls for cls in ACTIVATIONS.values() if len(inspect.signature(cls).parameters)}
    assert DEFAULTS.keys() >= {*own, *LOSSES.values(), *OPTIMIZERS.values(), *with_numbers}
    x = mg.one_hot([0, 1], 3)
    for cls in DEFAULTS:
        arguments = (x, None) if cls in OPTIMIZERS.values() else (2, 2) if cls in own else ()
        arguments += ("ReLU",) if cls in (mg.ActivationLayer, mg.ActivationDropoutLayer) else ()
        assert_right(in_numbers(of_defaults, partial(cls, *arguments)))


def test_another_default_is_found():
    assert wrong(in_numbers(of_defaults, partial(mg.BatchNormalizationLayer, 2, momentum=0.2))) == {"momentum"}
    assert wrong(in_numbers(of_defaults, partial(mg.ELUActivation, 0.9))) == {"alpha"}


def test_the_second_batch_and_the_renewal_of_dropout(monkeypatch: pytest.MonkeyPatch):
    second = Subject("second batch", of_second_batch, partial(mg.BatchNormalizationLayer, 2))
    assert_right(sympy_judge.verdicts(second))
    by_epoch = partial(mg.LinearDropoutLayer, 2, 3, renew="epoch")
    for make in (partial(mg.DropoutLayer, 2), by_epoch):
        assert_right(in_numbers(of_renewals, make))
    monkeypatch.setattr(mg.LinearDropoutLayer, "end_epoch", lambda self: None)
    assert wrong(in_numbers(of_renewals, by_epoch)) == {"renewals"}
    monkeypatch.undo()
    monkeypatch.setattr(mg.DropoutLayer, "optimize", lambda self, eta: None)
    assert wrong(in_numbers(of_renewals, partial(mg.DropoutLayer, 2))) == {"renewals"}


def test_dropout_that_is_never_renewed_is_found(monkeypatch: pytest.MonkeyPatch):
    drawn = dropout.uniform
    monkeypatch.setattr(dropout, "uniform", lambda m, n, **options: drawn(m, n, **(options | {"count": 0})))
    assert wrong(in_numbers(of_layer, partial(in_mode, MAKERS["Dropout"], True))) >= {"R", "Y"}
