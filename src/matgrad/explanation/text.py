"""Matrices and equations in characters: small matrices in full, large ones as a summary."""

from __future__ import annotations

from itertools import groupby
from textwrap import indent
from typing import TYPE_CHECKING

import numpy as np

from matgrad.sparse.matrix import SparseMatrix

if TYPE_CHECKING:
    from matgrad.explanation.explanation import Explained, Explanation

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


def equation_text(e: Explained) -> str:
    """One equation: its title, lines, LaTeX, source, size, verdict and value."""
    size = " × ".join(map(str, e.shape)) or "a number"
    verdict = "; ".join([e.verdict.summary, *e.verdict.details])
    verdicts = [] if e.verdict.ok is None and not e.verdict.details else [f"  verdict  {verdict}"]
    lines = [
        e.title,
        *([f"  defined  {e.written.definition}"] if e.written.definition else []),
        *(f"  {line}" for line in e.written.text.splitlines()),
        f"  LaTeX    {e.written.latex}",
        f"  source   {e.written.source}   ({'; '.join(filter(None, [e.written.location, e.written.note]))})",
        *verdicts,
        f"  {e.name} is {size}" + (":" if e.shape else ""),
        indent(matrix_text(e.value), "    "),
    ]
    return "\n".join(lines)


def explanation_text(explanation: Explanation) -> str:
    """What is given, and all equations, under the headings of the phases."""
    parts = {"Given": [f"{name}\n{indent(matrix_text(A), '    ')}" for name, A in explanation.given().items()]}
    parts |= {HEADINGS[phase]: [*map(str, found)] for phase, found in groupby(explanation, lambda e: e.phase)}
    return "\n\n".join(line for title, lines in parts.items() for line in (f"── {title} {'─' * 40}", *lines))
