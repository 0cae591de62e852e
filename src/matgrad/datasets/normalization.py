"""Normalization of examples or targets: X' = (X - offset) / scale, found on training data and applied to any data.

Sparse examples are only scaled: an offset would make them dense.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from matgrad.datasets.checking import is_scipy
from matgrad.specifications.parsing import lookup

KINDS = ("none", "unit", "standard")
ROWS = 4096  # converted to float64 at a time: all of CIFAR-10 would take more than 1 GB


@dataclass(frozen=True, eq=False)
class Normalization:
    """X' = (X - offset) / scale, with 1×D rows `offset` and `scale`, in float64 for a float64 model, else float32."""

    kind: str
    offset: np.ndarray
    scale: np.ndarray

    def __post_init__(self) -> None:
        lookup(self.kind, dict.fromkeys(KINDS), "normalization")
        are_finite = np.isfinite(self.offset).all() and np.isfinite(self.scale).all()
        if self.offset.shape != self.scale.shape or not are_finite or (self.scale <= 0).any():
            raise ValueError(f"the {self.kind} normalization: expected finite offsets and as many positive scales")

    @classmethod
    def of(
        cls, kind: str, X: Any, value_range: tuple[float, float] | None = None, dtype: str = "float32"
    ) -> Normalization:
        """The normalization of a kind for training data X of a model, whose values have a known range or None.

        unit: offset is the smallest value and scale is largest - smallest, of the known range or of each column.
        standard: offset_j = Σ_i x_ij / N and scale_j² = Σ_i (x_ij - offset_j)² / N.
        Of sparse X, unit: offset is 0 and scale is the largest absolute value, of the known range or of each column.
        """
        offset: Any = 0
        scale: Any = 1
        if kind == "standard" and is_scipy(X):
            raise ValueError(f"the normalization {kind!r} would make a sparse X dense; expected 'unit' or 'none'")
        if kind == "standard":
            offset = X.mean(axis=0, dtype=np.float64)
            squares = sum(np.square(X[i : i + ROWS] - offset).sum(axis=0) for i in range(0, len(X), ROWS))
            scale = np.sqrt(squares / len(X))  # exactly 0 for constant float32 columns
        elif kind == "unit" and is_scipy(X):
            scale = abs(X).max(axis=0).toarray() if value_range is None else max(map(abs, value_range))
        elif kind == "unit":
            offset, high = (X.min(axis=0), X.max(axis=0)) if value_range is None else value_range
            scale = np.subtract(high, offset, dtype=np.float64)
        with np.errstate(over="ignore", under="ignore"):
            a, b = (np.full((1, X.shape[1]), A, np.float64).astype(dtype) for A in (offset, scale))
        b[b == 0] = 1
        if len(wrong := np.flatnonzero(~np.isfinite(a + b))):
            raise ValueError(f"column {wrong[0]}: the range of its values is too wide for {dtype}")
        return cls(kind, a, b)

    def apply(self, X: Any) -> Any:
        """(X - offset) / scale for an N×D matrix X, as float64 if X or offset is that, else float32; X for 'none'."""
        D = self.offset.shape[1]
        if X.ndim != 2 or X.shape[1] != D:
            raise ValueError(f"found a matrix with shape {X.shape}, expected {D} columns as in the training data")
        if self.kind == "none":
            return X
        dtype = np.float64 if np.float64 in (X.dtype, self.offset.dtype) else np.float32
        if is_scipy(X) and self.offset.any():
            raise ValueError(f"the normalization {self.kind} shifts the inputs, which would make a sparse X dense")
        with np.errstate(over="ignore", invalid="ignore"):
            if not is_scipy(X):
                Y = np.subtract(X, self.offset, dtype=dtype)
                return np.divide(Y, self.scale, out=Y)
            Y = X.astype(dtype)
            Y.data /= self.scale[0, Y.indices]
            return Y

    def invert(self, Y: np.ndarray) -> np.ndarray:
        """Y·scale + offset for an N×D matrix of floats Y, the X for which `apply` gives Y; with the dtype of Y."""
        return Y if self.kind == "none" else (Y.astype(np.float64) * self.scale + self.offset).astype(Y.dtype)

    def __str__(self) -> str:
        return self.kind
