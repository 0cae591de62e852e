"""Matrices in characters: small ones in full, large ones as a summary."""

from __future__ import annotations

import numpy as np

from matgrad.sparse.matrix import SparseMatrix

ROWS, COLUMNS = 12, 10  # of a matrix that is shown in full
HEADINGS = {
    "feedforward": "Feedforward",
    "loss": "Loss",
    "backpropagate": "Backpropagation",
    "optimize": "Optimization",
}


def matrix_text(A: np.ndarray | SparseMatrix | float) -> str:
    """The elements row by row, with a dot where a sparse matrix has none; of a large matrix, statistics."""
    if isinstance(A, float):
        return f"{A:.6g}"
    m, n = A.shape
    if m > ROWS or n > COLUMNS:
        return summary(A)
    cells = np.full(A.shape, "·", dtype=object)
    if isinstance(A, SparseMatrix):
        cells[A.support.row_indices(), A.support.columns] = [*map(number, A.values[0])]
    else:
        cells[:] = [[*map(number, row)] for row in A]
    widths = [max(map(len, column)) for column in cells.T]
    return "\n".join("  ".join(f"{x:>{w}}" for x, w in zip(row, widths, strict=True)) for row in cells)


def summary(A: np.ndarray | SparseMatrix) -> str:
    """Least, mean and largest element, the norm, and how many elements are 0 or are stored."""
    values = np.asarray(A.values if isinstance(A, SparseMatrix) else A, dtype=np.float64)
    if not values.size:
        return "no elements"
    with np.errstate(all="ignore"):
        statistics = {"min": values.min(), "mean": values.mean(), "max": values.max(), "norm": np.linalg.norm(values)}
    parts = [f"{name} {x:.4g}" for name, x in statistics.items()]
    if isinstance(A, SparseMatrix):
        parts.append(f"{A.support.nnz} of {A.shape[0] * A.shape[1]} elements are stored")
    elif zeros := np.count_nonzero(values == 0):
        parts.append(f"{zeros} of {values.size} elements are 0")
    return ", ".join(parts)


def number(x: float) -> str:
    """A number with four digits."""
    return "0" if x == 0 else f"{x:.4f}" if 1e-3 <= abs(x) < 1e4 else f"{x:.2e}"
