"""Loss functions: value and gradient side by side, for an output Y and targets T, both N×K.

A loss is a sum over the batch, except the mean squared error, which is a mean; training uses
`mean_gradient`, which for both is the gradient of the mean over the batch. The paper's formulas for a
single row are the case N = 1. The losses on logits and log-probabilities are exact everywhere; those
on probabilities saturate at log(tiny), so that 0·log 0 = 0.

With weights s, an N×1 column, the loss of example i counts sᵢ times: 1_Nᵀ X 1_K becomes sᵀ X 1_K, and the mean over
the batch is Σᵢ sᵢℓᵢ / N, where N counts all examples, whatever their weights, and ℓᵢ is the loss of row i alone.
"""

from __future__ import annotations

from collections.abc import Collection
from inspect import signature
from typing import TYPE_CHECKING

import numpy as np

from matgrad.activation_functions import relu, sigmoid
from matgrad.datasets.loader import are_classes, class_indices
from matgrad.foundation.numbers import check_number
from matgrad.matrix_operations import (
    Kind,
    Matrix,
    Scalar,
    clip,
    column_repeat,
    elements_sum,
    hadamard,
    identity,
    log,
    log_sigmoid,
    one_hot,
    positive,
    reciprocal,
    rows_sum,
    stack,
    step,
    unstack,
)
from matgrad.softmax_functions import half_log_softmax, stable_softmax
from matgrad.specifications.parsing import describe, parse_call, resolve

if TYPE_CHECKING:
    from matgrad.multilayer_perceptron import MultilayerPerceptron


class LossFunction:
    """ℒ(Y, T) with its gradient with respect to Y."""

    is_mean = False  # whether the value is already a mean over the batch
    accepts: Collection[str] = ("real", "probability", "log-probability")  # kinds of output, see `Layer.output`
    least_outputs = 1  # two for a loss that compares classes: with one output, nothing would be learned
    has_probabilities = False  # whether the targets are probabilities, such as the 0 and 1 of classes
    has_tokens = False  # whether T has a label for each of L tokens, and Y the logits of V classes for each: N×(L·V)

    def __call__(self, Y: Matrix, T: Matrix, s: Matrix | None = None) -> Scalar:
        """ℒ(Y, T); with weights s, that in which example i counts sᵢ times"""
        raise NotImplementedError

    def gradient(self, Y: Kind, T: Kind) -> Kind:
        """∇_Y ℒ(Y, T)"""
        raise NotImplementedError

    def mean_gradient(self, Y: Kind, T: Kind, s: Kind | None = None) -> Kind:
        """∇_Y of the mean loss over the N examples of the batch; with weights s, (s 1_Kᵀ) ⊙ ∇_Y"""
        N, K = Y.shape
        DY = self.gradient(Y, T) if self.is_mean else self.gradient(Y, T) / N
        return DY if s is None else hadamard(column_repeat(s, K), DY)

    def specification(self) -> str:
        """The string from which `create_loss` makes this loss."""
        return describe(self, "Loss")

    def __repr__(self) -> str:
        return describe(self)


class SquaredErrorLoss(LossFunction):  # appendix:loss-functions
    """1_Nᵀ ((Y - T) ⊙ (Y - T)) 1_K"""

    def __call__(self, Y: Matrix, T: Matrix, s: Matrix | None = None) -> Scalar:
        return elements_sum(hadamard(Y - T, Y - T), s)

    def gradient(self, Y: Kind, T: Kind) -> Kind:
        """2(Y - T)"""
        return 2 * (Y - T)


class MeanSquaredErrorLoss(SquaredErrorLoss):  # appendix:loss-functions
    """ℒ_SE(Y, T) / (K·N), a mean over all elements"""

    is_mean = True

    def __call__(self, Y: Matrix, T: Matrix, s: Matrix | None = None) -> Scalar:
        N, K = Y.shape
        return super().__call__(Y, T, s) / (K * N)

    def gradient(self, Y: Kind, T: Kind) -> Kind:
        """∇_Y ℒ_SE(Y, T) / (K·N)"""
        N, K = Y.shape
        return 2 * ((Y - T) / (K * N))  # not 2(Y - T), which may overflow


class HuberLoss(LossFunction):
    """1_Nᵀ (C ⊙ (Y - T - C/2)) 1_K, with C = clip(Y - T, δ): d²/2 for a difference d up to δ, then δ·(|d| - δ/2)

    A sum over the outputs, as the squared error; torch.nn.HuberLoss and Keras take their mean.
    """

    def __init__(self, delta: float = 1.0) -> None:
        self.delta = check_number("delta", delta, "a finite number above 0")

    def __call__(self, Y: Matrix, T: Matrix, s: Matrix | None = None) -> Scalar:
        C = clip(Y - T, self.delta)
        return elements_sum(hadamard(C, Y - T - C / 2), s)

    def gradient(self, Y: Kind, T: Kind) -> Kind:
        """clip(Y - T, δ)"""
        return clip(Y - T, self.delta)


class _SmoothedLoss(LossFunction):
    """A loss on class probabilities whose targets can be smoothed: T' = (1 - s)·T + s/K."""

    least_outputs = 2
    has_probabilities = True

    def __init__(self, label_smoothing: float = 0.0) -> None:
        self.label_smoothing = check_number("label_smoothing", label_smoothing, "a number from 0 to 1")

    def targets(self, T: Kind) -> Kind:
        """(1 - s)·T + (s/K)·1_NK"""
        _, K = T.shape
        s = self.label_smoothing
        return (1 - s) * T + s / K if s else T


class CrossEntropyLoss(_SmoothedLoss):  # appendix:loss-functions
    """-1_Nᵀ (T ⊙ log Y) 1_K, for probabilities Y"""

    accepts = ("probability",)

    def __call__(self, Y: Matrix, T: Matrix, s: Matrix | None = None) -> Scalar:
        T = self.targets(T)
        return -elements_sum(hadamard(T, log(positive(Y))), s)

    def gradient(self, Y: Kind, T: Kind) -> Kind:
        """-T ⊙ 1/Y"""
        T = self.targets(T)
        return -hadamard(T, reciprocal(positive(Y)))


class SoftmaxCrossEntropyLoss(_SmoothedLoss):  # appendix:loss-functions
    """-1_Nᵀ (T ⊙ log-softmax(Y)) 1_K, for logits Y"""

    accepts: Collection[str] = ("log-probability", "real")  # log-softmax leaves the latter as they are

    def __call__(self, Y: Matrix, T: Matrix, s: Matrix | None = None) -> Scalar:
        T = self.targets(T)
        return -2 * elements_sum(hadamard(T, half_log_softmax(Y)), s)  # log-softmax(Y) may be -inf, and 0·inf is nan

    def gradient(self, Y: Kind, T: Kind) -> Kind:  # eq:softmax-cross-entropy-derivation
        """softmax(Y) ⊙ (T 1_K 1_Kᵀ) - T"""
        _, K = Y.shape
        T = self.targets(T)
        return hadamard(stable_softmax(Y), column_repeat(rows_sum(T), K)) - T


class TokenCrossEntropyLoss(SoftmaxCrossEntropyLoss):
    """ℒ_SCE(stack(Y, L), one_hot(stack(T, L), V) I_V) / L, the mean over the L tokens of a row

    Y has the logits of V classes for each token, an N×(L·V) matrix, and T their labels, N×L; a token with the label -1
    does not count.
    """

    accepts: Collection[str] = ("real",)
    has_probabilities, has_tokens = False, True

    def __call__(self, Y: Matrix, T: Matrix, s: Matrix | None = None) -> Scalar:
        _, L = T.shape
        E, s = self.classes(Y, T), None if s is None else stack(column_repeat(s, L), L)
        return super().__call__(stack(Y, L), E, s) / L

    def gradient(self, Y: Kind, T: Kind) -> Kind:
        """unstack(∇ℒ_SCE(stack(Y, L), one_hot(stack(T, L), V) I_V), L) / L"""
        _, L = T.shape
        E = self.classes(Y, T)
        return unstack(super().gradient(stack(Y, L), E) / L, L)

    def classes(self, Y: Kind, T: Kind) -> Kind:
        """one_hot(stack(T, L), V) I_V, with a row for each token"""
        _, L = T.shape
        _, V = stack(Y, L).shape
        return one_hot(stack(T, L), V) @ identity(V, like=Y)


class LogProbabilityLoss(_SmoothedLoss):
    """-1_Nᵀ (T ⊙ Y) 1_K, for log-probabilities Y: the loss that follows a log-softmax layer"""

    accepts = ("log-probability",)

    def __call__(self, Y: Matrix, T: Matrix, s: Matrix | None = None) -> Scalar:
        T = self.targets(T)
        return -elements_sum(hadamard(T, Y), s)

    def gradient(self, Y: Kind, T: Kind) -> Kind:
        """-T"""
        return -self.targets(T)


class NegativeLogLikelihoodLoss(LossFunction):  # appendix:loss-functions
    """-1_Nᵀ log((Y ⊙ T) 1_K), for probabilities Y; torch.nn.NLLLoss takes log-probabilities"""

    accepts = ("probability",)
    least_outputs = 2
    has_probabilities = True

    def __call__(self, Y: Matrix, T: Matrix, s: Matrix | None = None) -> Scalar:
        return -elements_sum(log(positive(rows_sum(hadamard(Y, T)))), s)

    def gradient(self, Y: Kind, T: Kind) -> Kind:
        """-((1 / ((Y ⊙ T) 1_K)) 1_Kᵀ) ⊙ T"""
        _, K = Y.shape
        likelihood = positive(rows_sum(hadamard(Y, T)))
        return -hadamard(column_repeat(reciprocal(likelihood), K), T)


class LogisticCrossEntropyLoss(LossFunction):  # appendix:loss-functions
    """-1_Nᵀ (T ⊙ log σ(Y)) 1_K, for logits Y; has no term for 1 - T, see BinaryCrossEntropyLoss"""

    accepts = ("real",)
    has_probabilities = True

    def __call__(self, Y: Matrix, T: Matrix, s: Matrix | None = None) -> Scalar:
        return -elements_sum(hadamard(T, log_sigmoid(Y)), s)

    def gradient(self, Y: Kind, T: Kind) -> Kind:  # eq:logistic-cross-entropy-loss
        """T ⊙ σ(Y) - T"""
        return hadamard(T, sigmoid(Y)) - T


class BinaryCrossEntropyLoss(LossFunction):
    """-1_Nᵀ (T ⊙ log σ(Y) + (1 - T) ⊙ log σ(-Y)) 1_K, for logits Y"""

    accepts = ("real",)
    has_probabilities = True

    def __call__(self, Y: Matrix, T: Matrix, s: Matrix | None = None) -> Scalar:
        positives = hadamard(T, log_sigmoid(Y))
        negatives = hadamard(1 - T, log_sigmoid(-Y))
        return -elements_sum(positives + negatives, s)

    def gradient(self, Y: Kind, T: Kind) -> Kind:
        """σ(Y) - T"""
        return sigmoid(Y) - T


class HingeLoss(LossFunction):
    """1_Nᵀ relu(1 - (2T - 1) ⊙ Y) 1_K, for scores Y: positive for the classes of an example, negative for the others

    The targets 0 and 1 stand for -1 and 1. A sum over the outputs, of which Keras' Hinge takes the mean.
    """

    accepts = ("real",)
    has_probabilities = True

    def __call__(self, Y: Matrix, T: Matrix, s: Matrix | None = None) -> Scalar:
        S = 2 * T - 1
        return elements_sum(relu(1 - hadamard(S, Y)), s)

    def gradient(self, Y: Kind, T: Kind) -> Kind:
        """-(2T - 1) ⊙ [1 - (2T - 1) ⊙ Y ≥ 0]"""
        S = 2 * T - 1
        return -hadamard(S, step(1 - hadamard(S, Y)))


class MultiMarginLoss(LossFunction):
    """1_Nᵀ ((1 - T) ⊙ relu(m + Y - (T ⊙ Y) 1_K 1_Kᵀ)) 1_K / K, for scores Y and a margin m: a hinge between classes

    The score of the class of an example should be above every other by the margin. As torch.nn.MultiMarginLoss.
    """

    accepts = ("real",)
    least_outputs = 2
    has_probabilities = True

    def __init__(self, margin: float = 1.0) -> None:
        self.margin = check_number("margin", margin, "a finite number above 0")

    def __call__(self, Y: Matrix, T: Matrix, s: Matrix | None = None) -> Scalar:
        _, K = Y.shape
        V = self.margin / 2 + Y / 2 - column_repeat(rows_sum(hadamard(T, Y / 2)), K)
        return 2 * elements_sum(hadamard(1 - T, relu(V)), s) / K  # 2V may be -inf, and 0·inf is nan

    def gradient(self, Y: Kind, T: Kind) -> Kind:
        """(H - T ⊙ (H 1_K 1_Kᵀ)) / K, with H = (1 - T) ⊙ [m + Y - (T ⊙ Y) 1_K 1_Kᵀ ≥ 0]"""
        _, K = Y.shape
        V = self.margin / 2 + Y / 2 - column_repeat(rows_sum(hadamard(T, Y / 2)), K)
        H = hadamard(1 - T, step(V))
        return (H - hadamard(T, column_repeat(rows_sum(H), K))) / K


LOSSES: dict[str, type[LossFunction]] = {
    "SquaredError": SquaredErrorLoss,
    "MeanSquaredError": MeanSquaredErrorLoss,
    "Huber": HuberLoss,
    "CrossEntropy": CrossEntropyLoss,
    "SoftmaxCrossEntropy": SoftmaxCrossEntropyLoss,
    "TokenCrossEntropy": TokenCrossEntropyLoss,
    "LogProbability": LogProbabilityLoss,
    "NegativeLogLikelihood": NegativeLogLikelihoodLoss,
    "LogisticCrossEntropy": LogisticCrossEntropyLoss,
    "BinaryCrossEntropy": BinaryCrossEntropyLoss,
    "Hinge": HingeLoss,
    "MultiMargin": MultiMarginLoss,
}


def create_loss(specification: LossFunction | str) -> LossFunction:
    """The loss that a string such as ``SoftmaxCrossEntropy`` names; a loss is returned as it is."""
    return resolve(specification, LossFunction, LOSSES, "loss function")


def loss_name(loss: LossFunction) -> str:
    """The specification of a loss, for files; with its module if that names another class, so that it names none."""
    specification = loss.specification()
    is_known = LOSSES.get(parse_call(specification).name, type(loss)) is type(loss)
    return specification if is_known else f"{type(loss).__module__}.{specification}"


# -- which loss fits a model and its targets ---------------------------------------------------------


def check_loss(M: MultilayerPerceptron, loss: LossFunction) -> None:
    """Raise ValueError if the loss cannot follow the last layer of M."""
    if not M.layers:
        raise ValueError("the model has no layers")
    layer = M.layers[-1]
    problem = f"{type(loss).__name__} cannot follow {layer!r}"
    if layer.output not in loss.accepts:
        fitting = ", ".join(cls.__name__ for cls in LOSSES.values() if layer.output in cls.accepts)
        needed = {"real": "LinearLayer", "probability": "SoftmaxLayer", "log-probability": "LogSoftmaxLayer"}
        before = " or ".join(needed[kind] for kind in sorted(loss.accepts) if kind in needed)
        raise ValueError(f"{problem}: put it after a {before}, or use one of {fitting} here")
    if layer.output_size < loss.least_outputs:
        advice = "use BinaryCrossEntropyLoss for the classes 0 and 1, MeanSquaredErrorLoss for numbers"
        raise ValueError(f"{problem}, which has one output: it compares classes, of one output each; {advice}")


def takes_weights(loss: LossFunction) -> bool:
    """Whether the value of a loss, which may be the user's, can be weighted."""
    return "s" in signature(type(loss).__call__).parameters


def check_weighable(loss: LossFunction) -> None:
    """Raise ValueError if the loss takes no weights."""
    if not takes_weights(loss):
        call = f"{type(loss).__name__}.__call__(self, Y, T, s=None)"
        raise ValueError(f"{type(loss).__name__} takes no weights: expected {call}, with elements_sum(…, s)")


def default_loss(M: MultilayerPerceptron, T: np.ndarray | None = None) -> LossFunction:
    """The loss in M's information or, without one, the cross-entropy that fits the output of its last layer.

    For targets T that do not stand for classes (see `are_classes`), and for a model that normalizes its targets, it
    is the mean squared error; for a matrix of labels, one for each token, it is the cross-entropy of tokens. One output
    has the classes 0 and 1: the loss is the binary cross-entropy, or the mean squared error if it is a probability.
    """
    if not M.layers:
        raise ValueError("the model has no layers")
    if (known := M.information.get("loss")) is not None:
        try:
            return create_loss(known)
        except ValueError as error:
            raise ValueError(f"the model was trained with the loss {known!r}, name one: {error}") from None
    if T is not None and are_tokens(M, T):
        return create_loss("TokenCrossEntropy")
    if M.target_normalization is not None or (T is not None and not are_classes(T)):
        return create_loss("MeanSquaredError")
    names = {"real": "SoftmaxCrossEntropy", "probability": "CrossEntropy", "log-probability": "LogProbability"}
    if M.layers[-1].output_size == 1:
        names |= {"real": "BinaryCrossEntropy", "probability": "MeanSquaredError"}
        try:
            class_indices(np.empty(0) if T is None else T.reshape(-1), 2)
        except ValueError as error:
            advice = "for numbers, use loss='MeanSquaredError'"
            raise ValueError(f"{error}, as the model has one output; {advice}") from None
    return create_loss(names[M.layers[-1].output])


def target_size(M: MultilayerPerceptron, loss: LossFunction) -> int:
    """The number of columns of T: one for each output or, of tokens, one for each input."""
    return M.layers[0].input_size if loss.has_tokens else M.layers[-1].output_size


def are_tokens(M: MultilayerPerceptron, T: np.ndarray) -> bool:
    """Whether integers T have a label for each of L tokens, for each of which M has several outputs."""
    L, K = (T.shape[1] if T.ndim == 2 else 1), M.layers[-1].output_size
    return T.dtype.kind in "iu" and 1 < L < K and K % L == 0


def number_of_classes(M: MultilayerPerceptron, loss: LossFunction, T: np.ndarray) -> int | None:
    """How many classes M learns from targets T with this loss; None if the targets are numbers.

    With one output, the targets 0 and 1 are classes for a loss on probabilities, or if the output is one.
    """
    layer = M.layers[-1]
    if loss.has_tokens:
        return layer.output_size // T.shape[1]
    if M.target_normalization is not None:
        return None
    if layer.output_size > 1:
        return layer.output_size if are_classes(T) else None
    is_binary = loss.has_probabilities or layer.output == "probability"
    return 2 if is_binary and bool(np.isin(T, (0, 1)).all()) else None


def check_target_values(M: MultilayerPerceptron, T: np.ndarray, loss: LossFunction, where: str = "T") -> None:
    """Raise ValueError if targets are not the probabilities, or the labels of tokens, that the loss needs."""
    if loss.has_tokens:
        V = M.layers[-1].output_size // T.shape[1]
        class_indices(np.where(T == -1, 0, T), V, f"{where}: ")
    is_wrong = np.abs(T - 0.5) > 0.5 + 1e-6
    if loss.has_probabilities and is_wrong.any():
        row, column = np.argwhere(is_wrong)[0]
        found = f"{where}, row {row}, column {column}: found {T[row, column]}"
        expected = f"expected a number from 0 to 1 for {type(loss).__name__}; for other numbers"
        raise ValueError(f"{found}, {expected}, use MeanSquaredErrorLoss")
