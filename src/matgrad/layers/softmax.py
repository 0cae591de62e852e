"""The softmax and the log-softmax layer."""

from __future__ import annotations

from matgrad.layers.linear import LinearLayer
from matgrad.matrix_operations import Matrix, column_repeat, hadamard, rows_sum
from matgrad.softmax_functions import stable_log_softmax, stable_softmax


class SoftmaxLayer(LinearLayer):  # appendix:layers
    """Z = X Wᵀ + 1_N b;  Y = softmax(Z)"""

    intermediates: tuple[str, ...] = ("Z", "DZ")
    output = "probability"
    least_outputs = 2  # the softmax of one number is 1

    def feedforward(self, X: Matrix) -> Matrix:
        Z = super().feedforward(X)
        Y = stable_softmax(Z)

        self.Z = Z
        return Y

    def backpropagate(self, Y: Matrix, DY: Matrix) -> None:
        Z = self.Z
        _, K = Y.shape

        # the paper's diag(DY Yᵀ), without its N×N product
        DZ = hadamard(Y, DY - column_repeat(rows_sum(hadamard(DY, Y)), K))  # eq:softmax-layer-backprop1
        super().backpropagate(Z, DZ)  # eq:softmax-layer-backprop2

        self.DZ = DZ


class LogSoftmaxLayer(LinearLayer):  # appendix:layers
    """Z = X Wᵀ + 1_N b;  Y = log-softmax(Z)"""

    intermediates: tuple[str, ...] = ("Z", "DZ")
    output = "log-probability"
    least_outputs = 2  # the log-softmax of one number is 0

    def feedforward(self, X: Matrix) -> Matrix:
        Z = super().feedforward(X)
        Y = stable_log_softmax(Z)

        self.Z = Z
        return Y

    def backpropagate(self, Y: Matrix, DY: Matrix) -> None:
        Z = self.Z
        _, K = Y.shape

        DZ = DY - hadamard(stable_softmax(Z), column_repeat(rows_sum(DY), K))
        super().backpropagate(Z, DZ)

        self.DZ = DZ
