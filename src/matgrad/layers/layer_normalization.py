"""The layer normalization layer."""

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


class LayerNormalizationLayer(Layer):
    """R = X - μ 1_Dᵀ;  Z = (Σ^(-1/2) 1_Dᵀ) ⊙ R;  Y = (1_N γ) ⊙ Z + 1_N β

    μ and Σ are N×1 column vectors, the mean and variance of the rows of X: every example is normalized by itself, in
    training as in evaluation mode. ε is added to Σ. Equal to `torch.nn.LayerNorm`.
    """

    keeps_size = True
    parameters = ("gamma", "beta")
    intermediates = ("Z", "DZ", "inv_sqrt_Sigma")

    def feedforward(self, X: Matrix) -> Matrix:
        gamma, beta = self.gamma, self.beta
        N, D = X.shape

        mu = rows_mean(X)
        R = X - column_repeat(mu, D)
        Sigma = rows_mean(hadamard(R, R))
        inv_sqrt_Sigma = inv_sqrt(Sigma, self.epsilon)
        Z = hadamard(column_repeat(inv_sqrt_Sigma, D), R)
        Y = hadamard(row_repeat(gamma, N), Z) + row_repeat(beta, N)

        self.X, self.Z, self.inv_sqrt_Sigma = X, Z, inv_sqrt_Sigma
        return Y

    def backpropagate(self, Y: Matrix, DY: Matrix) -> None:
        Z, gamma, inv_sqrt_Sigma = self.Z, self.gamma, self.inv_sqrt_Sigma
        N, D = DY.shape

        DZ = hadamard(row_repeat(gamma, N), DY)
        Dbeta = columns_sum(DY)
        Dgamma = columns_sum(hadamard(DY, Z))
        s = rows_mean(DZ)  # for DZ (D·I - 1_D 1_Dᵀ) / D, which costs a D×D product
        t = rows_mean(hadamard(Z, DZ))  # for diag(Z DZᵀ) / D, which costs an N×N product
        DX = hadamard(column_repeat(inv_sqrt_Sigma, D), DZ - column_repeat(s, D) - hadamard(Z, column_repeat(t, D)))

        self.DZ, self.Dbeta, self.Dgamma, self.DX = DZ, Dbeta, Dgamma, DX

    def __init__(self, input_size: int, output_size: int | None = None, *, epsilon: float = 1e-5) -> None:
        super().__init__(input_size, input_size if output_size is None else output_size)
        self.epsilon = check_number("LayerNormalizationLayer: epsilon", epsilon)
        self.gamma = np.ones((1, input_size), dtype=np.float32)
        self.beta = np.zeros((1, input_size), dtype=np.float32)
        self.set_optimizer("GradientDescent")

    def specification(self) -> str:
        return f"LayerNormalization(epsilon={self.epsilon})"
