"""Linear layers: plain, with an activation function, softmax or log-softmax; and functions alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from matgrad.activation_functions import ActivationFunction, SReLUActivation, create_activation
from matgrad.foundation.numbers import check_size
from matgrad.layers.layer import Layer
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


class FunctionLayer(Layer):
    """Y = act(X), for an activation function or its name, as after a sum or a normalization"""

    keeps_size = True

    def feedforward(self, X: Matrix) -> Matrix:
        act = self.act

        Y = act(X)

        self.X = X
        return Y

    def backpropagate(self, Y: Matrix, DY: Matrix) -> None:
        X, act = self.X, self.act

        DX = hadamard(DY, act.gradient(X))

        self.DX = DX

    def __init__(self, input_size: int, act: ActivationFunction | str) -> None:
        super().__init__(input_size, input_size)
        self.act = create_activation(act)
        self.output = self.act.output

    def specification(self) -> str:
        return f"Function({self.act!r})"

    def __repr__(self) -> str:
        return f"FunctionLayer({self.input_size}, {self.act!r})"


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


class SReLULayer(ActivationLayer):
    """Z = X Wᵀ + 1_N b;  Y = srelu(Z), with trained 1×K row vectors al, tl, ar and tr.

    With ``shared=True`` they are 1×1: one slope and one threshold per side for the whole layer.
    """

    parameters = ("W", "b", "al", "tl", "ar", "tr")

    act: SReLUActivation
    al: Matrix
    tl: Matrix
    ar: Matrix
    tr: Matrix

    def feedforward(self, X: Matrix) -> Matrix:
        self.act = self._activation(self.output_size)
        return super().feedforward(X)

    def backpropagate(self, Y: Matrix, DY: Matrix) -> None:
        Z, act = self.Z, self.act
        N, _ = Z.shape
        L, R = hadamard(DY, act.left(Z)), hadamard(DY, act.right(Z))

        super().backpropagate(Y, DY)
        Dal = columns_sum(hadamard(L, Z - row_repeat(act.tl, N)))
        Dtl = columns_sum(hadamard(L, 1 - row_repeat(act.al, N)))
        Dar = columns_sum(hadamard(R, Z - row_repeat(act.tr, N)))
        Dtr = columns_sum(hadamard(R, 1 - row_repeat(act.ar, N)))

        self.Dal, self.Dtl, self.Dar, self.Dtr = map(self._share, (Dal, Dtl, Dar, Dtr))

    def __init__(
        self,
        input_size: int,
        output_size: int,
        al: float = 0.0,
        tl: float = 0.0,
        ar: float = 0.0,
        tr: float = 1.0,
        *,
        shared: bool = False,
        **options: Any,
    ) -> None:
        self.shared = shared
        size = 1 if shared else check_size("SReLULayer: output_size", output_size)
        for name, value in (("al", al), ("tl", tl), ("ar", ar), ("tr", tr)):
            setattr(self, name, np.full((1, size), value, dtype=np.float32))
        super().__init__(input_size, output_size, self._activation(output_size), **options)

    def specification(self) -> str:
        return f"SReLU(shared={self.shared})"

    def _activation(self, K: int) -> SReLUActivation:
        """The activation function with the current parameters as 1×K row vectors."""
        rows = (self.al, self.tl, self.ar, self.tr)
        return SReLUActivation(*(column_repeat(p, K) if self.shared else p for p in rows))

    def _share(self, gradient: Matrix) -> Matrix:
        """The gradient of a shared parameter is the sum over the columns that share it."""
        return rows_sum(gradient) if self.shared else gradient

    __repr__ = Layer.__repr__
