"""The SReLU layer: an activation layer whose activation function is trained too."""

from __future__ import annotations

from typing import Any

import numpy as np

from matgrad.activation_functions import SReLUActivation
from matgrad.foundation.numbers import check_size
from matgrad.layers.layer import Layer
from matgrad.layers.linear import ActivationLayer
from matgrad.matrix_operations import Matrix, column_repeat, columns_sum, hadamard, row_repeat, rows_sum


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
