"""Only the matrix products of a training step: no training can be faster than they are."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from harness.problems import Parameters, Setting
from harness.tools import TrainingTool


class Products(TrainingTool):
    """Y = X Wᵀ, DW = DYᵀ X and DX = DY W of every layer, without the DX of the first, into existing matrices.

    The batches are those of training; nothing is added to the weights.
    """

    @abstractmethod
    def array(self, A: np.ndarray) -> Any:
        """A copy of A in the library's own type."""

    @abstractmethod
    def forward(self, Y: Any, X: Any, W: Any) -> None:
        """Y = X Wᵀ"""

    @abstractmethod
    def gradient(self, DW: Any, DY: Any, X: Any) -> None:
        """DW = DYᵀ X"""

    @abstractmethod
    def backward(self, DX: Any, DY: Any, W: Any) -> None:
        """DX = DY W"""

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
                self.forward(Y, X, W)
            for k in reversed(range(len(self.W))):
                self.gradient(self.DW[k], self.DY[k], inputs[k])
                if k:
                    self.backward(self.DY[k - 1], self.DY[k], self.W[k])


class OpenBLASProducts(Products):
    """gemm of SciPy's BLAS, which is OpenBLAS where it comes from PyPI.

    It wants contiguous columns: the transposes of our matrices, hence Yᵀ = W Xᵀ.
    """

    def __init__(self, setting: Setting) -> None:
        from scipy.linalg import blas

        super().__init__(setting)
        self.gemm = {"float32": blas.sgemm, "float64": blas.dgemm}[setting.dtype]

    def array(self, A: np.ndarray) -> np.ndarray:
        """A copy with contiguous rows."""
        return np.array(A, order="C")

    def forward(self, Y: np.ndarray, X: np.ndarray, W: np.ndarray) -> None:
        """Yᵀ = W Xᵀ"""
        self.gemm(1.0, W.T, X.T, c=Y.T, trans_a=True, overwrite_c=True)

    def gradient(self, DW: np.ndarray, DY: np.ndarray, X: np.ndarray) -> None:
        """DWᵀ = Xᵀ DY"""
        self.gemm(1.0, X.T, DY.T, c=DW.T, trans_b=True, overwrite_c=True)

    def backward(self, DX: np.ndarray, DY: np.ndarray, W: np.ndarray) -> None:
        """DXᵀ = Wᵀ DYᵀ"""
        self.gemm(1.0, W.T, DY.T, c=DX.T, overwrite_c=True)
