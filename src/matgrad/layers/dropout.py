"""Dropout of neurons, and of the weights of a linear layer (DropConnect)."""

from __future__ import annotations

from typing import Any

import numpy as np

from matgrad.foundation.numbers import check_number
from matgrad.layers.layer import Layer
from matgrad.layers.linear import ActivationLayer, LinearLayer, LogSoftmaxLayer, SoftmaxLayer, SReLULayer
from matgrad.layers.weights import random_seed
from matgrad.matrix_operations import Matrix, Scalar, columns_sum, hadamard, ones, product_on, row_repeat, step, uniform

RENEWALS = ("step", "epoch")  # after which dropout is renewed


class LayerWithDropout(Layer):
    """A layer that multiplies a matrix A by R in training mode: R is 0 with probability p, and 1/(1-p) otherwise.

    R is a hash of the seed of the layer, the number of renewals and the position in A: it is the same on every
    backend, however it is sharded. It is renewed after every step or, with ``renew="epoch"``, after every epoch.
    """

    intermediates: tuple[str, ...] = ("R",)

    R: Matrix | None = None
    seed: Scalar
    renewals: Scalar

    def __init__(
        self, input_size: int, output_size: int, *, dropout: float = 0.5, renew: str = "step", **options: Any
    ) -> None:
        super().__init__(input_size, output_size, **options)
        self.start_dropout(dropout, renew)

    def start_dropout(self, dropout: float, renew: str) -> None:
        """Set the rate and the time of renewal, and count from 0."""
        self.renewals = np.array(0, dtype=np.int32)
        self.set_dropout(dropout, renew)

    @property
    def buffers(self) -> tuple[str, ...]:  # type: ignore[override]
        """The state of dropout, if anything is dropped."""
        return ("seed", "renewals") if self.dropout else ()

    def set_dropout(self, dropout: float, renew: str = "step") -> None:
        """Drop elements at this rate p, and renew R after every step or every epoch."""
        if renew not in RENEWALS:
            raise ValueError(f"renew: expected 'step' or 'epoch', found {renew!r}")
        self.dropout, self.renew = check_number("dropout", dropout, "a number in [0, 1)"), renew

    def drop(self, A: Matrix) -> Matrix:
        """A ⊙ R, which is A itself where R = 1: without dropout, and in evaluation mode."""
        return A if self.R is None else hadamard(A, self.R)

    def dropout_matrix(self, A: Matrix) -> Matrix | None:
        """R = [U ≥ p] / (1 - p), with U uniform on [0, 1), of the size of A; None stands for R = 1."""
        if not self.training or not self.dropout:
            return None
        m, n = A.shape
        p = self.dropout
        U = uniform(m, n, seed=self.seed, count=self.renewals, like=A)
        return step(U - p * ones(m, n, like=A)) / (1 - p)  # where A stores elements

    def optimize(self, eta: Scalar) -> None:
        super().optimize(eta)
        if self.dropout and self.renew == "step":
            self.renewals = self.renewals + 1

    def end_epoch(self) -> None:
        super().end_epoch()
        if self.dropout and self.renew == "epoch":
            self.renewals = self.renewals + 1


class DropoutLayer(LayerWithDropout):
    """Y = X ⊙ R, with R of size N×D: 0 with probability p, and 1/(1-p) otherwise; in evaluation mode Y = X.

    Every step has its own R. Equal to `torch.nn.Dropout`, but for the random numbers.
    """

    keeps_size = True

    def feedforward(self, X: Matrix) -> Matrix:
        self.R = self.dropout_matrix(X)

        Y = self.drop(X)

        self.X = X
        return Y

    def backpropagate(self, Y: Matrix, DY: Matrix) -> None:
        DX = self.drop(DY)

        self.DX = DX

    def __init__(self, input_size: int, output_size: int | None = None, dropout: float = 0.5) -> None:
        self.seed = random_seed()
        super().__init__(input_size, input_size if output_size is None else output_size, dropout=dropout)

    def specification(self) -> str:
        return f"Dropout({self.dropout})"

    def __repr__(self) -> str:
        return f"DropoutLayer({self.input_size}, {self.output_size}, {self.dropout})"


class LinearDropoutLayer(LayerWithDropout, LinearLayer):  # appendix:layers
    """Y = X (W ⊙ R)ᵀ + 1_N b, with R of size K×D: 0 with probability p, and 1/(1-p) otherwise

    In evaluation mode R = 1, and it is a linear layer.
    """

    def feedforward(self, X: Matrix) -> Matrix:
        W, b = self.W, self.b
        N, _ = X.shape
        self.R = self.dropout_matrix(W)

        Y = X @ self.drop(W).T + row_repeat(b, N)

        self.X = X
        return Y

    def backpropagate(self, Y: Matrix, DY: Matrix) -> None:
        X, W = self.X, self.W

        DW = self.drop(product_on(W, DY.T, X))
        Db = columns_sum(DY)
        DX = DY @ self.drop(W)

        self.DW, self.Db, self.DX = DW, Db, DX

    def specification(self) -> str:
        """That of the layer without dropout, whose rate is in a list of the model."""
        name = super().specification()
        return name.removesuffix("Dropout") if type(self) in DROPOUT_LAYERS.values() else name


class ActivationDropoutLayer(ActivationLayer, LinearDropoutLayer):  # appendix:layers
    """Z = X (W ⊙ R)ᵀ + 1_N b;  Y = act(Z)"""

    intermediates = ("R", "Z", "DZ")


class SoftmaxDropoutLayer(SoftmaxLayer, LinearDropoutLayer):
    """Z = X (W ⊙ R)ᵀ + 1_N b;  Y = softmax(Z)"""

    intermediates = ("R", "Z", "DZ")


class LogSoftmaxDropoutLayer(LogSoftmaxLayer, LinearDropoutLayer):
    """Z = X (W ⊙ R)ᵀ + 1_N b;  Y = log-softmax(Z)"""

    intermediates = ("R", "Z", "DZ")


class SReLUDropoutLayer(SReLULayer, LinearDropoutLayer):
    """Z = X (W ⊙ R)ᵀ + 1_N b;  Y = srelu(Z), with trained 1×K row vectors al, tl, ar and tr"""

    intermediates = ("R", "Z", "DZ")


# what a layer becomes if its weights are dropped
DROPOUT_LAYERS: dict[type[LinearLayer], type[LinearDropoutLayer]] = {
    LinearLayer: LinearDropoutLayer,
    ActivationLayer: ActivationDropoutLayer,
    SoftmaxLayer: SoftmaxDropoutLayer,
    LogSoftmaxLayer: LogSoftmaxDropoutLayer,
    SReLULayer: SReLUDropoutLayer,
}


def add_dropout(layer: LinearLayer, dropout: float, renew: str = "step") -> None:
    """Drop the weights of a layer that already exists: it becomes a layer of the kind that `DROPOUT_LAYERS` has."""
    kind = DROPOUT_LAYERS.get(type(layer))
    if kind is None:
        raise ValueError(f"{layer!r} drops no weights: derive it from LinearDropoutLayer")
    layer.__class__ = kind
    assert isinstance(layer, LinearDropoutLayer)
    layer.start_dropout(dropout, renew)
