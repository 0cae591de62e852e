"""The SReLU layer: an activation layer whose activation function is trained too."""

from __future__ import annotations

import numpy as np

from matgrad.activation_functions import SReLUActivation
from matgrad.layers.layer import check_size
from matgrad.layers.linear import LinearLayer
from matgrad.matrix_operations import (
    Matrix,
    column_repeat,
    columns_sum,
    hadamard,
    ones,
    row_repeat,
    rows_sum,
)


class SReLULayer(LinearLayer):
    """Z = X Wᵀ + 1_N b;  Y = srelu(Z), with trained 1×K row vectors al, tl, ar and tr.

    With ``shared=True`` they are 1×1: one slope and one threshold a side for the whole layer.
    """

    parameters = ("W", "b", "al", "tl", "ar", "tr")
    intermediates = ("R", "Z", "DZ")

    al: Matrix
    tl: Matrix
    ar: Matrix
    tr: Matrix

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
        dropout: float = 0.0,
        renew: str = "step",
    ) -> None:
        self.shared = shared
        size = 1 if shared else check_size("SReLULayer: output_size", output_size)
        for name, value in (("al", al), ("tl", tl), ("ar", ar), ("tr", tr)):
            setattr(self, name, np.full((1, size), value, dtype=np.float32))
        super().__init__(input_size, output_size, dropout=dropout, renew=renew)

    def feedforward(self, X: Matrix) -> Matrix:
        act = self.act

        Z = super().feedforward(X)
        Y = act(Z)

        self.Z = Z
        return Y

    def backpropagate(self, Y: Matrix, DY: Matrix) -> None:
        Z, act = self.Z, self.act
        N, K = Z.shape
        L, R = hadamard(DY, act.left(Z)), hadamard(DY, act.right(Z))

        DZ = hadamard(DY, act.gradient(Z))
        Dal = columns_sum(hadamard(L, Z - row_repeat(act.tl, N)))
        Dtl = columns_sum(hadamard(L, ones(N, K, like=Z) - row_repeat(act.al, N)))
        Dar = columns_sum(hadamard(R, Z - row_repeat(act.tr, N)))
        Dtr = columns_sum(hadamard(R, ones(N, K, like=Z) - row_repeat(act.ar, N)))
        super().backpropagate(Z, DZ)

        self.DZ = DZ
        self.Dal, self.Dtl, self.Dar, self.Dtr = map(self._share, (Dal, Dtl, Dar, Dtr))

    def specification(self) -> str:
        return f"SReLU(shared={self.shared})"

    @property
    def act(self) -> SReLUActivation:
        """The activation function with the present parameters as 1×K row vectors."""
        rows = (self.al, self.tl, self.ar, self.tr)
        if self.shared:
            rows = tuple(column_repeat(p, self.output_size) for p in rows)
        return SReLUActivation(*rows)

    def _share(self, gradient: Matrix) -> Matrix:
        """The gradient of a shared parameter is the sum over the columns that share it."""
        return rows_sum(gradient) if self.shared else gradient
