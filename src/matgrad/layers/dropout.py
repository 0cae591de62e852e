"""Dropout: R and its state, which all layers with dropout share, and the layer that drops neurons."""

from __future__ import annotations

import numpy as np

from matgrad.foundation.numbers import as_number
from matgrad.foundation.random_numbers import generator
from matgrad.layers.layer import Layer
from matgrad.matrix_operations import Matrix, Scalar, hadamard, ones, step, uniform


class LayerWithDropout(Layer):
    """A layer that multiplies a matrix A by R in training mode: R is 0 with probability p, and 1/(1-p) otherwise.

    R is a hash of the seed of the layer, the number of renewals and the position in A. So it is the same on every
    backend and whoever computes which part of it, and it is renewed after every step, without a generator.
    """

    intermediates: tuple[str, ...] = ("R",)
    renew = "step"  # after every step; or "epoch"

    R: Matrix | None

    def __init__(self, input_size: int, output_size: int) -> None:
        super().__init__(input_size, output_size)
        self.seed: Scalar = np.array(generator().integers(2**31), dtype=np.int32)
        self.renewals: Scalar = np.array(0, dtype=np.int32)

    @property
    def buffers(self) -> tuple[str, ...]:  # type: ignore[override]
        """The state of dropout, if the layer has dropout."""
        return ("seed", "renewals") if self.dropout else ()

    def set_dropout(self, dropout: float) -> None:
        """Drop elements at this rate p."""
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout: expected a rate in [0, 1), found {dropout}")
        self.dropout = as_number(dropout)

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
        return step(U - p * ones(m, n, like=A)) / (1 - p)

    def optimize(self, eta: Scalar) -> None:
        super().optimize(eta)
        if self.dropout and self.renew == "step":
            self.renewals = self.renewals + 1

    def end_epoch(self) -> None:
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
        super().__init__(input_size, input_size if output_size is None else output_size)
        self.set_dropout(dropout)

    def specification(self) -> str:
        return f"Dropout({self.dropout})"

    def __repr__(self) -> str:
        return f"DropoutLayer({self.input_size}, {self.output_size}, {self.dropout})"
