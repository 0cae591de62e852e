"""Loss functions and their gradients against PyTorch, its autograd and mpmath."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import mpmath
import numpy as np
import pytest
import torch
import torch.nn.functional as F

from matgrad.backends.base import DTYPES
from matgrad.loss_functions import (
    LOSSES,
    BinaryCrossEntropyLoss,
    CrossEntropyLoss,
    HingeLoss,
    HuberLoss,
    LogisticCrossEntropyLoss,
    LogProbabilityLoss,
    LossFunction,
    MeanSquaredErrorLoss,
    MultiMarginLoss,
    NegativeLogLikelihoodLoss,
    SoftmaxCrossEntropyLoss,
    SquaredErrorLoss,
    TokenCrossEntropyLoss,
    create_loss,
)
from support import TOLERANCE, Framework, assert_close, to_numpy

BACKENDS = ("numpy", "torch", "jax", "tensorflow")

SHAPES = [(3, 4), (1, 6), (6, 1), (1, 1)]


@dataclass
class Case:
    """A loss, the same in PyTorch, and the kind of output that it takes."""

    loss: LossFunction
    oracle: Callable
    kind: str = "real"


def smooth(T: torch.Tensor, s: float) -> torch.Tensor:
    return (1 - s) * T + s / T.shape[1]


def relu(V: torch.Tensor) -> torch.Tensor:
    """max(0, V) with the slope 1 at 0, as in the paper."""
    return torch.where(V >= 0, V, 0)


def multi_margin(Y: torch.Tensor, T: torch.Tensor, m: float) -> torch.Tensor:
    """Σ_i Σ_k (1 - t_ik)·max(0, m + y_ik - Σ_j t_ij·y_ij) / K"""
    return ((1 - T) * relu(m + Y - (T * Y).sum(dim=1, keepdim=True))).sum() / Y.shape[1]


CASES = [
    Case(SquaredErrorLoss(), lambda Y, T: F.mse_loss(Y, T, reduction="sum")),
    Case(MeanSquaredErrorLoss(), lambda Y, T: F.mse_loss(Y, T)),
    Case(HuberLoss(), lambda Y, T: F.huber_loss(Y, T, reduction="sum")),
    Case(HuberLoss(0.3), lambda Y, T: F.huber_loss(Y, T, reduction="sum", delta=0.3)),
    Case(CrossEntropyLoss(), lambda Y, T: -(T * Y.log()).sum(), "probability"),
    Case(CrossEntropyLoss(0.1), lambda Y, T: -(smooth(T, 0.1) * Y.log()).sum(), "probability"),
    Case(SoftmaxCrossEntropyLoss(), lambda Y, T: F.cross_entropy(Y, T, reduction="sum")),
    Case(SoftmaxCrossEntropyLoss(0.1), lambda Y, T: F.cross_entropy(Y, T, reduction="sum", label_smoothing=0.1)),
    Case(SoftmaxCrossEntropyLoss(1), lambda Y, T: F.cross_entropy(Y, T, reduction="sum", label_smoothing=1.0)),
    Case(LogProbabilityLoss(), lambda Y, T: -(T * Y).sum(), "log-probability"),
    Case(LogProbabilityLoss(0.1), lambda Y, T: -(smooth(T, 0.1) * Y).sum(), "log-probability"),
    Case(NegativeLogLikelihoodLoss(), lambda Y, T: -(Y * T).sum(dim=1).log().sum(), "probability"),
    Case(LogisticCrossEntropyLoss(), lambda Y, T: -(T * F.logsigmoid(Y)).sum()),
    Case(BinaryCrossEntropyLoss(), lambda Y, T: F.binary_cross_entropy_with_logits(Y, T, reduction="sum")),
    Case(HingeLoss(), lambda Y, T: relu(1 - (2 * T - 1) * Y).sum()),
    Case(MultiMarginLoss(), lambda Y, T: multi_margin(Y, T, 1.0)),
    Case(MultiMarginLoss(0.3), lambda Y, T: multi_margin(Y, T, 0.3)),
]
EACH_CASE = pytest.mark.parametrize("case", CASES, ids=[repr(case.loss) for case in CASES])


def batch(kind: str, N: int, K: int, seed: int, one_hot: bool) -> tuple[np.ndarray, np.ndarray]:
    """Outputs and targets, exact in both dtypes; targets that are not one-hot have no constant row sum."""
    generator = np.random.default_rng(seed)
    Y = (2 * generator.integers(-24, 24, (N, K)) + 1) / 16
    if kind != "real":
        Y = generator.integers(1, 16, (N, K)) / 16
    if kind == "log-probability":
        Y = -4 * Y
    T = np.eye(K)[generator.integers(0, K, N)] if one_hot else generator.integers(1, 16, (N, K)) / 16
    return Y, T


@cache
def compiled(loss: LossFunction, backend: Framework) -> Callable:
    return backend.compiled(lambda Y, T: (loss(Y, T), loss.gradient(Y, T), loss.mean_gradient(Y, T)))


def run(loss: LossFunction, backend: Framework, dtype: str, Y: np.ndarray, T: np.ndarray) -> tuple:
    """The loss, its gradient and the gradient of the batch mean."""
    return compiled(loss, backend)(backend.matrix(Y, dtype), backend.matrix(T, dtype))


def value_and_gradient(f: Callable, A: np.ndarray, T: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """f(A, T) in PyTorch, and its gradient by autograd."""
    Y = torch.tensor(A, requires_grad=True)
    value = f(Y, torch.tensor(T))
    value.backward()
    return value.detach().numpy(), Y.grad.numpy()


def check(case: Case, backend: Framework, dtype: str, N: int, K: int, seed: int, one_hot: bool) -> None:
    Y, T = batch(case.kind, N, K, seed, one_hot)
    value, gradient, mean_gradient = run(case.loss, backend, dtype, Y, T)
    expected, expected_gradient = value_and_gradient(case.oracle, Y, T)
    examples = 1 if isinstance(case.loss, MeanSquaredErrorLoss) else N
    context = f"{case.loss!r} on {backend}, {N} × {K}, seed {seed}, one-hot {one_hot}"
    noise = 2 * TOLERANCE[dtype]  # a gradient is a difference of numbers about 1, and may be small
    assert_close(value, expected, dtype=dtype, context=context)
    assert_close(gradient, expected_gradient, noise=noise, dtype=dtype, context=f"gradient of {context}")
    assert_close(mean_gradient, expected_gradient / examples, noise=noise, dtype=dtype, context=f"mean of {context}")


@pytest.mark.few(16)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("one_hot", [True, False])
@EACH_CASE
def test_value_and_gradient_equal_pytorchs(backend, case, dtype, one_hot):
    for seed, (N, K) in enumerate(SHAPES):
        check(case, backend, dtype, N, K, seed, one_hot)


@pytest.mark.few(1)
@pytest.mark.parametrize("dtype", DTYPES)
def test_losses_on_classes_equal_pytorchs_on_class_indices(backend, dtype):
    N, K = 5, 4
    Y, T = batch("real", N, K, seed=0, one_hot=True)
    P, logits, classes = torch.tensor(Y).softmax(1), torch.tensor(Y), torch.tensor(T.argmax(1))
    expected = F.nll_loss(P.log(), classes, reduction="sum").numpy()
    smoothed = F.cross_entropy(logits, classes, reduction="sum", label_smoothing=0.2).numpy()
    for loss, output, value in [
        (NegativeLogLikelihoodLoss(), P.numpy(), expected),
        (CrossEntropyLoss(), P.numpy(), expected),
        (LogProbabilityLoss(), P.log().numpy(), expected),
        (SoftmaxCrossEntropyLoss(), Y, expected),
        (CrossEntropyLoss(0.2), P.numpy(), smoothed),
        (LogProbabilityLoss(0.2), P.log().numpy(), smoothed),
        (SoftmaxCrossEntropyLoss(0.2), Y, smoothed),
    ]:
        result, _, _ = run(loss, backend, dtype, output, T)
        assert_close(result, value, dtype=dtype, context=f"{loss!r} on {backend}, {N} × {K}, seed 0")


@pytest.mark.parametrize("margin", [1.0, 0.3])
def test_the_hinge_between_classes_equals_pytorchs_on_class_indices(backend, margin):
    """Without ties, where PyTorch has the slope 0."""
    rng = np.random.default_rng(3)
    Y, classes = rng.normal(size=(6, 4)), rng.integers(0, 4, 6)
    value, gradient, _ = run(MultiMarginLoss(margin), backend, "float64", Y, np.eye(4)[classes])
    oracle = F.multi_margin_loss
    expected, expected_gradient = value_and_gradient(
        lambda Y, T: oracle(Y, T, margin=margin, reduction="sum"), Y, classes
    )
    assert_close(value, expected, context=f"MultiMargin({margin}) on {backend}, seed 3")
    assert_close(gradient, expected_gradient, context=f"gradient of MultiMargin({margin}) on {backend}, seed 3")


@pytest.mark.parametrize("d", [1e8, -1e8])
def test_the_slope_of_huber_far_away_is_delta(backend, d):
    """In float32 too, where 1e8 - δ is 1e8."""
    value, gradient, _ = run(HuberLoss(0.5), backend, "float32", np.array([[d]]), np.array([[0.0]]))
    assert_close(value, np.array(0.5 * (1e8 - 0.25)), dtype="float32", context=f"Huber on {backend}")
    assert_close(gradient, np.array([[math.copysign(0.5, d)]]), dtype="float32", context=f"Huber on {backend}")


def test_every_loss_is_tested():
    assert {cls for cls in LOSSES.values() if not cls.has_tokens} == {type(case.loss) for case in CASES}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("smoothing", [0.0, 0.125])
def test_the_loss_of_tokens_equals_pytorchs(backend, dtype, smoothing):
    N, L, V, rng = 3, 4, 5, np.random.default_rng(1)
    Y, labels, s = rng.normal(size=(N, L * V)), rng.integers(V, size=(N, L)), rng.random((N, 1)) + 0.5
    loss, y = TokenCrossEntropyLoss(smoothing), torch.tensor(Y, requires_grad=True)
    args = y.reshape(N * L, V), torch.tensor(labels.reshape(-1))
    losses = F.cross_entropy(*args, reduction="none", label_smoothing=smoothing).reshape(N, L).mean(dim=1)
    for weights in (None, s):
        mean = (losses * (1 if weights is None else torch.tensor(weights[:, 0]))).sum() / N
        (DY,) = torch.autograd.grad(mean, y, retain_graph=True)
        A, T = backend.matrix(Y, dtype), backend.matrix(labels.astype(dtype), dtype)
        given = () if weights is None else (backend.matrix(weights, dtype),)
        context = f"{loss} on {backend}"
        value = np.asarray(to_numpy(loss(A, T, *given)))
        assert_close(value / N, mean.detach().numpy(), dtype=dtype, context=context)
        assert_close(to_numpy(loss.mean_gradient(A, T, *given)), DY.numpy(), dtype=dtype, context=context)


def test_a_token_with_the_label_minus_1_does_not_count():
    Y, T = np.random.default_rng(2).normal(size=(2, 6)), np.array([[0.0, -1.0], [-1.0, 2.0]])
    expected = F.cross_entropy(
        torch.tensor(Y.reshape(4, 3)), torch.tensor([0, -1, -1, 2]), ignore_index=-1, reduction="sum"
    )
    loss = TokenCrossEntropyLoss()
    np.testing.assert_allclose(float(loss(Y, T)), float(expected) / 2, rtol=1e-12)
    assert not loss.gradient(Y, T)[[0, 1], 3 - 3 * np.array([0, 1])].any()


# -- extreme values ----------------------------------------------------------------------------

CERTAIN = np.array([[0.0, 1.0], [1.0, 0.0]])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("loss", [CrossEntropyLoss(), NegativeLogLikelihoodLoss()], ids=repr)
def test_probabilities_0_and_1(backend, loss, dtype):
    """Nothing is lost where they are right; the loss saturates where they are wrong, or, of a sum, without a target."""
    tiny = float(np.finfo(dtype).tiny)
    most = float(-2 * mpmath.log(tiny))
    none = 0.0 if isinstance(loss, CrossEntropyLoss) else most
    for Y, T, lost, slope in (
        (CERTAIN, CERTAIN, 0.0, -CERTAIN),
        (1 - CERTAIN, CERTAIN, most, -CERTAIN / tiny),
        (CERTAIN, 0 * CERTAIN, none, 0 * CERTAIN),
    ):
        value, gradient, _ = run(loss, backend, dtype, Y, T)
        assert_close(value, lost, dtype=dtype, context=f"{loss!r} on {backend}")
        assert_close(gradient, slope, dtype=dtype, context=f"gradient of {loss!r} on {backend}")


def log_sigmoid(y):
    return -mpmath.log(1 + mpmath.exp(-y))


def log_softmax(row):
    total = mpmath.log(mpmath.fsum(mpmath.exp(y) for y in row))
    return [y - total for y in row]


def softmax_cross_entropy(Y, T):
    return -mpmath.fsum(t * y for row, ts in zip(Y, T, strict=True) for y, t in zip(log_softmax(row), ts, strict=True))


def logistic_cross_entropy(Y, T):
    return -mpmath.fsum(t * log_sigmoid(y) for ys, ts in zip(Y, T, strict=True) for y, t in zip(ys, ts, strict=True))


def binary_cross_entropy(Y, T):
    opposite = logistic_cross_entropy([[-y for y in ys] for ys in Y], [[1 - t for t in ts] for ts in T])
    return logistic_cross_entropy(Y, T) + opposite


PRECISE = {
    SoftmaxCrossEntropyLoss: softmax_cross_entropy,
    LogisticCrossEntropyLoss: logistic_cross_entropy,
    BinaryCrossEntropyLoss: binary_cross_entropy,
}
ON_LOGITS = [case for case in CASES if type(case.loss) in PRECISE and not getattr(case.loss, "label_smoothing", 0)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("T", [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0], [0.5, 0.25, 0.25]], ids=str)
@pytest.mark.parametrize("case", ON_LOGITS, ids=[repr(case.loss) for case in ON_LOGITS])
def test_losses_on_extreme_logits_are_exact(backend, case, T, dtype):
    precision = TOLERANCE[dtype]
    for y in ([1e4, -1e4, 0], [-1e4, 1e4, 1e4], [100, 88, -100], [30, -30, 20], [-745, 745, 0]):
        Y, Ts = np.array([y], float), np.array([T], float)
        value, gradient, _ = run(case.loss, backend, dtype, Y, Ts)
        with mpmath.workdps(50):
            expected = float(PRECISE[type(case.loss)]([[mpmath.mpf(x) for x in y]], [T]))
        _, expected_gradient = value_and_gradient(case.oracle, Y, Ts)
        context = f"{case.loss!r} on {backend}, Y {y}, T {T}"
        # log(1 + δ) is as precise as 1 + δ
        assert_close(value, expected, noise=precision, dtype=dtype, context=context)
        assert_close(gradient, expected_gradient, noise=precision, dtype=dtype, context=f"gradient of {context}")


HUGE = {"float32": 3e38, "float64": 1.7e308}


def huge_log_softmax(row):
    """Without the terms that vanish beside the largest one, of which mpmath would keep all digits."""
    largest = max(row)
    total = mpmath.log(mpmath.fsum(mpmath.exp(y - largest) for y in row if y - largest > -1000))
    return [y - largest - total for y in row]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("smoothing", [0, 0.125, 1])
def test_softmax_cross_entropy_of_huge_logits(backend, dtype, smoothing):
    """Of both signs in one row, and equal ones: exact, inf only where the loss cannot be represented, never nan."""
    loss = SoftmaxCrossEntropyLoss(smoothing)
    for signs in ([1, -1, 0], [1, 1, 1], [-1, -1, -1], [1, 1, -1], [0.5, -0.25, 0.5], [-1, 0, -1], [1e-8, 0, -1e-8]):
        y = [float(np.array(HUGE[dtype] * sign, dtype)) for sign in signs]
        for T in np.eye(3):
            with np.errstate(over="ignore"):
                value, gradient, _ = run(loss, backend, dtype, np.array([y]), T[None])
            with mpmath.workdps(50):
                exact = huge_log_softmax([mpmath.mpf(x) for x in y])
                S = (1 - smoothing) * T + smoothing / 3
                expected = float(-mpmath.fsum(t * x for t, x in zip(S.tolist(), exact, strict=True)))
                slopes = np.array([[float(mpmath.exp(x)) for x in exact]]) - S
            context = f"{loss!r} on {backend}, Y {y}, T {T}"
            with np.errstate(over="ignore"):
                assert_close(value, np.array(expected, dtype), noise=TOLERANCE[dtype], context=context)
            assert_close(gradient, slopes, noise=TOLERANCE[dtype], dtype=dtype, context=f"gradient of {context}")


@pytest.mark.few(6)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", [case for case in CASES if case.kind == "real"], ids=lambda case: repr(case.loss))
def test_huge_outputs_give_no_nan(backend, case, dtype):
    """Neither in the loss nor in its gradients, which are finite for logits."""
    for y in (HUGE[dtype], 1e30 if dtype == "float32" else 1e300):
        Y = np.array([[y, -y, 0], [-y, -y, y], [y, y, y], [-y, 1, y]])
        for T in (np.eye(3)[[0, 1, 2, 0]], np.eye(3)[[1, 2, 0, 2]]):
            with np.errstate(over="ignore"):
                value, *gradients = run(case.loss, backend, dtype, Y, T)
            assert not np.isnan(to_numpy(value)), f"{case.loss!r} on {backend}"
            for G in map(to_numpy, gradients):
                assert not np.isnan(G).any(), f"gradient of {case.loss!r} on {backend}"
                assert np.isfinite(G).all() or isinstance(case.loss, SquaredErrorLoss)
        if isinstance(case.loss, MeanSquaredErrorLoss):
            assert_close(gradients[0], 2 * (Y / 12) - 2 * (T / 12), dtype=dtype, context=f"{case.loss!r} on {backend}")


# -- specifications ----------------------------------------------------------------------------


@pytest.mark.parametrize("specification", [*LOSSES, "Huber(delta=0.5)", "CrossEntropy(label_smoothing=0.1)"])
def test_a_specification_gives_the_same_loss_again(specification):
    assert create_loss(specification).specification() == specification


@pytest.mark.parametrize(
    ("specification", "message"),
    [
        ("Perceptron", "unknown loss function 'Perceptron'.*known: SquaredError"),
        ("softmaxcrossentropy", "did you mean 'SoftmaxCrossEntropy'"),
        ("CrossEntropy(smooth=1)", r"usage: CrossEntropy\(label_smoothing=0.0\)"),
        ("CrossEntropy(1.1)", "label_smoothing: expected a number from 0 to 1, found 1.1"),
        ("CrossEntropy(much)", "expected a finite float32 number for 'label_smoothing', found 'much'"),
        ("Huber(0)", "delta: expected a finite number above 0, found 0"),
        ("MultiMargin(nan)", "margin.*found nan"),
    ],
)
def test_bad_specifications_are_refused(specification, message):
    with pytest.raises(ValueError, match=message):
        create_loss(specification)
