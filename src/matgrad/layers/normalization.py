"""Normalization of the columns of a batch, or of every example: batch, layer and RMS normalization."""

from __future__ import annotations

import numpy as np

from matgrad.foundation.numbers import check_number
from matgrad.layers.layer import Layer
from matgrad.matrix_operations import (
    Matrix,
    column_repeat,
    columns_mean,
    columns_sum,
    hadamard,
    inv_sqrt,
    row_repeat,
    rows_mean,
)
from matgrad.specifications.parsing import stem


class NormalizationLayer(Layer):
    """What layers that normalize share: ε, γ, and β, which RMS normalization does not have."""

    keeps_size = True
    parameters: tuple[str, ...] = ("gamma", "beta")
    intermediates = ("Z", "DZ", "inv_sqrt_Sigma")

    def __init__(self, input_size: int, output_size: int | None = None, *, epsilon: float = 1e-5) -> None:
        super().__init__(input_size, input_size if output_size is None else output_size)
        self.epsilon = check_number(f"{type(self).__name__}: epsilon", epsilon)
        self.gamma = np.ones((1, input_size), dtype=np.float32)
        if "beta" in self.parameters:
            self.beta = np.zeros((1, input_size), dtype=np.float32)
        self.set_optimizer("GradientDescent")

    def specification(self) -> str:
        return f"{stem(type(self), 'Layer')}(epsilon={self.epsilon})"


class BatchNormalizationLayer(NormalizationLayer):  # appendix:layers
    """R = X - 1_N μ;  Z = (1_N Σ^(-1/2)) ⊙ R;  Y = (1_N γ) ⊙ Z + 1_N β

    μ and Σ are the mean and variance of the columns of X in training mode, and the running ones in
    evaluation mode; ε is added to Σ. Equal to `torch.nn.BatchNorm1d`, except that a batch of one
    example gives β and leaves the running statistics as they are.
    """

    buffers = ("running_mean", "running_variance")

    def feedforward(self, X: Matrix) -> Matrix:
        gamma, beta, training = self.gamma, self.beta, self.training
        N, _ = X.shape

        mu = columns_mean(X) if training else self.running_mean
        R = X - row_repeat(mu, N)
        Sigma = columns_sum(hadamard(R, R)) / N if training else self.running_variance
        inv_sqrt_Sigma = inv_sqrt(Sigma, self.epsilon)
        Z = hadamard(row_repeat(inv_sqrt_Sigma, N), R)
        Y = hadamard(row_repeat(gamma, N), Z) + row_repeat(beta, N)

        self.X, self.Z, self.inv_sqrt_Sigma = X, Z, inv_sqrt_Sigma
        if training:
            self.update_statistics(mu, Sigma, N)
        return Y

    def backpropagate(self, Y: Matrix, DY: Matrix) -> None:
        Z, gamma, inv_sqrt_Sigma = self.Z, self.gamma, self.inv_sqrt_Sigma
        N, _ = DY.shape

        DZ = hadamard(row_repeat(gamma, N), DY)
        Dbeta = columns_sum(DY)
        Dgamma = columns_sum(hadamard(DY, Z))
        if self.training:
            s = columns_sum(DZ)  # for the paper's (N·I - 1_N 1_Nᵀ) DZ, which costs an N×N product
            t = columns_sum(hadamard(Z, DZ))  # the paper's diag(Zᵀ DZ)ᵀ, without a D×D product
            # eq:batch-normalization-backpropagation
            DX = hadamard(row_repeat(inv_sqrt_Sigma / N, N), N * DZ - row_repeat(s, N) - hadamard(Z, row_repeat(t, N)))
        else:
            DX = hadamard(row_repeat(inv_sqrt_Sigma, N), DZ)

        self.DZ, self.Dbeta, self.Dgamma, self.DX = DZ, Dbeta, Dgamma, DX

    def __init__(
        self, input_size: int, output_size: int | None = None, *, epsilon: float = 1e-5, momentum: float = 0.1
    ) -> None:
        super().__init__(input_size, output_size, epsilon=epsilon)
        self.momentum = check_number("BatchNormalizationLayer: momentum", momentum, "a number from 0 to 1")
        self.running_mean = np.zeros((1, input_size), dtype=np.float32)
        self.running_variance = np.ones((1, input_size), dtype=np.float32)

    def specification(self) -> str:
        return f"BatchNormalization(epsilon={self.epsilon}, momentum={self.momentum})"

    def update_statistics(self, mu: Matrix, Sigma: Matrix, N: int) -> None:
        """Move the running statistics towards the mean and the unbiased variance of the batch."""
        if N == 1:
            return
        m = self.momentum
        self.running_mean = (1 - m) * self.running_mean + m * mu
        self.running_variance = (1 - m) * self.running_variance + m * Sigma * (N / (N - 1))


class LayerNormalizationLayer(NormalizationLayer):
    """R = X - μ 1_Dᵀ;  Z = (Σ^(-1/2) 1_Dᵀ) ⊙ R;  Y = (1_N γ) ⊙ Z + 1_N β

    μ and Σ are N×1 column vectors, the mean and variance of the rows of X: every example is normalized by itself, in
    training as in evaluation mode. ε is added to Σ. Equal to `torch.nn.LayerNorm`.
    """

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


class RMSNormalizationLayer(NormalizationLayer):
    """Z = (Σ^(-1/2) 1_Dᵀ) ⊙ X;  Y = (1_N γ) ⊙ Z

    Σ is an N×1 column vector, the mean of the squares of each row of X: every example is divided by its root mean
    square, in training as in evaluation mode. ε is added to Σ. Equal to `torch.nn.RMSNorm`, whose ε is by default
    that of the dtype.
    """

    parameters = ("gamma",)

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
