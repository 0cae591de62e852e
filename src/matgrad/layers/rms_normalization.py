"""The RMS normalization layer: layer normalization without a mean and without β."""

from __future__ import annotations

import numpy as np

from matgrad.foundation.numbers import check_number
from matgrad.layers.layer import Layer
from matgrad.matrix_operations import (
    Matrix,
    column_repeat,
    columns_sum,
    hadamard,
    inv_sqrt,
    row_repeat,
    rows_mean,
)


class RMSNormalizationLayer(Layer):
    """Z = (Σ^(-1/2) 1_Dᵀ) ⊙ X;  Y = (1_N γ) ⊙ Z

    Σ is an N×1 column vector, the mean of the squares of each row of X: every example is divided by its root mean
    square, in training as in evaluation mode. ε is added to Σ. Equal to `torch.nn.RMSNorm`, whose ε is by default
    that of the dtype.
    """

    keeps_size = True
    parameters = ("gamma",)
    intermediates = ("Z", "DZ", "inv_sqrt_Sigma")

    def feedforward(self, X: Matrix) -> Matrix:
        gamma = self.gamma
        N, D = X.shape

        Sigma = rows_mean(hadamard(X, X))
        inv_sqrt_Sigma = inv_sqrt(Sigma, self.epsilon)
        Z = hadamard(column_repeat(inv_sqrt_Sigma, D), X)
        Y = hadamard(row_repeat(gamma, N), Z)

        self.X, self.Z, self.inv_sqrt_Sigma = X, Z, inv_sqrt_Sigma
        return Y

    def backpropagate(self, Y: Matrix, DY: Matrix) -> None:
        Z, gamma, inv_sqrt_Sigma = self.Z, self.gamma, self.inv_sqrt_Sigma
        N, D = DY.shape

        DZ = hadamard(row_repeat(gamma, N), DY)
        Dgamma = columns_sum(hadamard(DY, Z))
        t = rows_mean(hadamard(Z, DZ))  # for diag(Z DZᵀ) / D, which costs an N×N product
        DX = hadamard(column_repeat(inv_sqrt_Sigma, D), DZ - hadamard(Z, column_repeat(t, D)))

        self.DZ, self.Dgamma, self.DX = DZ, Dgamma, DX

    def __init__(self, input_size: int, output_size: int | None = None, *, epsilon: float = 1e-5) -> None:
        super().__init__(input_size, input_size if output_size is None else output_size)
        self.epsilon = check_number("RMSNormalizationLayer: epsilon", epsilon)
        self.gamma = np.ones((1, input_size), dtype=np.float32)
        self.set_optimizer("GradientDescent")

    def specification(self) -> str:
        return f"RMSNormalization(epsilon={self.epsilon})"
