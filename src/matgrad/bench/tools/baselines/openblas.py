"""The products of a training step in the BLAS of SciPy, which is OpenBLAS where it comes from PyPI."""

from __future__ import annotations

import numpy as np
from scipy.linalg import blas

from matgrad.bench.tools.baselines.products import Products
from matgrad.bench.tools.training_tool import Setting


class OpenBLASProducts(Products):
    """gemm, which wants contiguous columns: the transposes of our matrices, hence Yᵀ = W Xᵀ."""

    def __init__(self, setting: Setting) -> None:
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
