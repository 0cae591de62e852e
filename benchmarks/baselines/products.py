"""Only the matrix products of a training step: no training can be faster than they are."""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.problems import Parameters
from harness.tools import TrainingTool


class OpenBLASProducts(TrainingTool):
    """Y = X Wᵀ, DW = DYᵀ X and DX = DY W of every layer, without the DX of the first, into existing matrices.

    The batches are those of training; nothing is added to the weights. The products are gemm of SciPy's BLAS, which is
    OpenBLAS where it comes from PyPI.
    """

    def array(self, A: np.ndarray) -> Any:
        """A copy of A in the library's own type, with contiguous rows."""
        return np.array(A, order="C")

    def product(self, A: Any, B: Any, C: Any) -> None:
        """C = A B, as Cᵀ = Bᵀ Aᵀ: BLAS wants contiguous columns."""
        from scipy.linalg import blas

        gemm = {"float32": blas.sgemm, "float64": blas.dgemm}[self.setting.dtype]
        first, second = ((M.T, False) if M.flags.c_contiguous else (M, True) for M in (B, A))
        gemm(1.0, first[0], second[0], c=C.T, trans_a=first[1], trans_b=second[1], overwrite_c=True)

    def load(self, X: np.ndarray, t: np.ndarray) -> None:
        self.X = self.array(X)

    def start(self, parameters: Parameters) -> None:
        N, dtype = self.setting.batch_size, self.setting.dtype
        self.W = [self.array(W) for W, _ in parameters]
        self.DW = [self.array(np.zeros_like(W)) for W, _ in parameters]
        self.Y, self.DY = ([self.array(np.full((N, len(W)), 0.01, dtype)) for W, _ in parameters] for _ in range(2))

    def train(self, batches: int) -> None:
        N = self.setting.batch_size
        for i in range(0, batches * N, N):
            inputs = [self.X[i : i + N], *self.Y[:-1]]
            for X, Y, W in zip(inputs, self.Y, self.W, strict=True):
                self.product(X, W.T, Y)
            for k in reversed(range(len(self.W))):
                self.product(self.DY[k].T, inputs[k], self.DW[k])
                if k:
                    self.product(self.DY[k], self.W[k], self.DY[k - 1])


class TorchProducts(OpenBLASProducts):
    """torch.mm with out=."""

    def array(self, A: np.ndarray) -> Any:
        """A tensor with its own memory."""
        import torch

        return torch.tensor(A)

    def product(self, A: Any, B: Any, C: Any) -> None:
        """C = A B"""
        import torch

        torch.mm(A, B, out=C)
