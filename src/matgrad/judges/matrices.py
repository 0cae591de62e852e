"""Matrices of symbolic sizes with entries in index notation: derivatives and equality.

The code that trains runs on them, and `matgrad.program.entries` reads the entries of what it computes from the index
definitions of the operations. A scalar is such a matrix of shape ().

    N, D, K = Size("N"), Size("D"), Size("K")
    X, W = symbols("X", N, D), symbols("W", K, D)
    Y = softmax(X @ W.T)                                      # any function of the package, or a layer
    i, j = Y.indices
    print(Y[i, j])
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from matgrad.index_notation.entries import Entry, new_index
from matgrad.index_notation.expressions import Expression, Factor, Index, is_equal
from matgrad.inspection.faults import USE_THE_TABLE
from matgrad.program.entries import IndexMatrix, indices_of, lifted, symbols
from matgrad.program.shapes import Questions, Shape, Size, size_name

__all__ = ["IndexMatrix", "Questions", "Size", "indices_of", "lifted", "symbols"]  # and the functions below


def sizes(names: str) -> Any:
    """Sizes with these names, such as ``N, D, K = sizes("N D K")``."""
    return [Size(name) for name in names.split()]


def matrix(shape: Shape, entry: Callable[..., Expression]) -> IndexMatrix:
    """The matrix of this shape with the entries entry(i, j), for which other matrices may be computed."""
    own = indices_of(shape)
    new = [new_index(i.size) for i in own]  # those of other matrices have the same names as its own
    return IndexMatrix(shape, entry(*new).substituted(dict(zip(new, own, strict=True))))


def row(X: IndexMatrix, i: Index) -> IndexMatrix:
    """x_i, the i-th row of X"""
    return matrix((1, X.shape[1]), lambda _, j: X[i, j])


def column(X: IndexMatrix, j: Index) -> IndexMatrix:
    """x^j, the j-th column of X"""
    return matrix((X.shape[0], 1), lambda i, _: X[i, j])


# -- derivatives and equality ------------------------------------------------------------------


def entry_of(V: IndexMatrix) -> Entry:
    """v_ij, for a matrix V of symbols"""
    match [*V.entry.terms.items()]:
        case [(((Entry() as entry, 1),), 1)]:
            return entry
    raise ValueError(f"expected a matrix of symbols, found {V}")


def derivative(e: Expression, V: IndexMatrix) -> IndexMatrix:
    """∇_V e, the matrix of the derivatives of a scalar expression with respect to the entries of V."""
    entry, new = entry_of(V), {i: new_index(i.size) for i in V.indices}
    slope = e.derivative(entry.at(*(new[i] for i in entry.indices)))  # under new names: e may have the same indices
    return IndexMatrix(V.shape, slope.substituted({k: i for i, k in new.items()}))


def gradient(value: IndexMatrix, V: IndexMatrix) -> IndexMatrix:
    """∇_V of a scalar, for a matrix V of symbols."""
    return derivative(value.entry, V)


def jacobian(y: IndexMatrix, x: IndexMatrix) -> IndexMatrix:
    """∂y/∂x, the matrix with the entries ∂y_i/∂x_j, for row or column vectors y and x; x consists of symbols."""
    (m, i), (n, j) = (_axis(v) for v in (y, x))
    entry, k = entry_of(x), new_index(j.size)
    slope = y.entry.derivative(entry.at(*(k for _ in entry.indices)))
    return matrix((m, n), lambda row, column: slope.substituted({i: row, k: column}))


def _axis(v: IndexMatrix) -> tuple[Any, Any]:
    """The size of a vector, and the index of its elements."""
    if size_name(v.shape[0]) != 1 and size_name(v.shape[1]) != 1:
        raise ValueError(f"expected a row or a column vector, found a matrix of shape {v.shape}")
    axis = 0 if size_name(v.shape[1]) == 1 else 1
    return v.shape[axis], v.indices[axis]


def at(A: IndexMatrix, V: IndexMatrix, value: IndexMatrix) -> IndexMatrix:
    """A with a matrix for the symbols V in it, of the same size."""
    own = entry_of(V)

    def rule(f: Factor) -> Expression | None:
        if not isinstance(f, Entry) or f != own.at(*f.indices):
            return None
        found = dict(zip(own.indices, f.indices, strict=True))
        return value.entry.substituted(found)

    return IndexMatrix(A.shape, A.entry.mapped(rule))


def problem_of(found: Any, expected: IndexMatrix) -> str:
    """Why they cannot be equal; '' if they can."""
    if found is None:
        return "found nothing, expected a matrix"
    if isinstance(found, np.ndarray):
        return f"found a NumPy array, expected a matrix in index notation: {USE_THE_TABLE}"
    if not isinstance(found, IndexMatrix):
        return f"found {found!r}, expected a matrix"
    sizes = [" × ".join(str(size_name(n)) for n in A.shape) or "1" for A in (found, expected)]
    return "" if sizes[0] == sizes[1] else "found a matrix of size {}, expected {}".format(*sizes)


def is_proved(A: IndexMatrix, B: IndexMatrix) -> bool:
    """Whether A = B for all sizes: the canonical forms of their entries are equal. If not, nothing is known."""
    return not problem_of(A, B) and is_equal(A.entry, B.entry)
