"""Linear layers: plain, with an activation function, softmax or log-softmax; `weights.py` has W and b."""

from __future__ import annotations

from typing import Any

from matgrad.activation_functions import ActivationFunction, create_activation
from matgrad.layers.weights import WeightedLayer
from matgrad.matrix_operations import Matrix, column_repeat, columns_sum, hadamard, product_on, row_repeat, rows_sum
from matgrad.softmax_functions import stable_log_softmax, stable_softmax


class LinearLayer(WeightedLayer):  # appendix:layers
    """Y = X Wᵀ + 1_N b, with W of size K×D and b of size 1×K.

    All linear-type layers derive from this one and share its equations.
    """

    def feedforward(self, X: Matrix) -> Matrix:
        W, b = self.W, self.b
        N, _ = X.shape

        Y = X @ W.T + row_repeat(b, N)

        self.X = X
        return Y

    def backpropagate(self, Y: Matrix, DY: Matrix) -> None:
        X, W = self.X, self.W

        DW = product_on(W, DY.T, X)  # eq:dLdw
        Db = columns_sum(DY)  # eq:dLdb
        DX = DY @ W  # eq:dLdx

        self.DW, self.Db, self.DX = DW, Db, DX


class ActivationLayer(LinearLayer):  # appendix:layers
    """Z = X Wᵀ + 1_N b;  Y = act(Z), for an activation function or its name, such as ``AllReLU(0.3)``"""

    intermediates: tuple[str, ...] = ("Z", "DZ")

    def feedforward(self, X: Matrix) -> Matrix:
        act = self.act

        Z = super().feedforward(X)
        Y = act(Z)

        self.Z = Z
        return Y

    def backpropagate(self, Y: Matrix, DY: Matrix) -> None:
        Z, act = self.Z, self.act

        DZ = hadamard(DY, act.gradient(Z))
        super().backpropagate(Z, DZ)

        self.DZ = DZ

    def __init__(self, input_size: int, output_size: int, act: ActivationFunction | str, **options: Any) -> None:
        super().__init__(input_size, output_size, **options)
        self.act = create_activation(act)
        self.output = self.act.output

    def specification(self) -> str:
        return repr(self.act)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.input_size}, {self.output_size}, {self.act!r})"


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
