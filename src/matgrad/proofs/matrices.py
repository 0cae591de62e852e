"""Matrices of symbolic sizes whose entries are expressions in index notation, and the table of operations on them.

The code that trains runs on them: an operation gives the entry that its index definition says, which is in its row of
`matgrad.program.operations`. A scalar is such a matrix of shape ().

    N, D, K = Size("N"), Size("D"), Size("K")
    X, W = symbols("X", N, D), symbols("W", K, D)
    Y = softmax(X @ W.T)                                      # any function of the package, or a layer
    i, j = Y.indices
    print(Y[i, j])
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from matgrad.backends import register_matrix_type
from matgrad.index_notation.entries import FIRST, Entry, index, new_index
from matgrad.index_notation.entries import size as size_of
from matgrad.index_notation.expressions import Expression, Index, of
from matgrad.index_notation.numbers import exact
from matgrad.index_notation.text import text
from matgrad.program.operations import OPERATIONS
from matgrad.program.shapes import size_name
from matgrad.proofs.operators import Shape, SymbolicBackend, SymbolicMatrix, result_shape, with_operations
from matgrad.proofs.sizes import Size


class IndexMatrix(SymbolicMatrix):
    """The matrix with the entries e(i, j), for an expression e in the indices `indices` of its rows and columns."""

    __hash__ = object.__hash__

    def __init__(self, shape: Shape, entry: Expression) -> None:
        self.shape, self.entry = shape, entry

    @property
    def rows(self) -> str:
        """The name of the number of rows; '1' for a row vector."""
        return str(size_name(self.shape[0]))

    @property
    def columns(self) -> str:
        """The name of the number of columns; '1' for a column vector."""
        return str(size_name(self.shape[1]))

    @property
    def indices(self) -> tuple[Index, ...]:
        """The indices i of the rows and j of the columns in `entry`; none for a scalar."""
        return indices_of(self.shape)

    def __getitem__(self, position: tuple[Index, Index]) -> Expression:
        """The entry at two indices."""
        match position:
            case (Index() as i, Index() as j) if (i.size, j.size) == (self.rows, self.columns):
                return self.entry.substituted(dict(zip(self.indices, (i, j), strict=True)))
        raise TypeError(f"expected two indices of size {self.rows} and {self.columns}, found {position!r}")

    def __repr__(self) -> str:
        names = dict(zip(self.indices, "ij", strict=False))
        return text(self.entry, {i: name for i, name in names.items() if i != FIRST})

    # -- operations -----------------------------------------------------------------------------
    @classmethod
    def result(cls, operation: str, *operands: IndexMatrix, **given: Size | int) -> IndexMatrix:
        """The result of an operation, by its index definition."""
        row = OPERATIONS[operation]
        if row.index is None:
            raise TypeError(f"{operation} has no index definition")
        shape = result_shape(operation, row.shapes, operands, given)
        if row.kind == "elementwise":
            return IndexMatrix(shape, row.index(*(X.entry for X in operands)))
        return IndexMatrix(shape, row.index(*indices_of(shape), *(X if X.shape else X.entry for X in operands)))

    @classmethod
    def scalar(cls, x: Any) -> IndexMatrix:
        """A size or a number as a scalar."""
        if isinstance(x, Size):
            return IndexMatrix((), size_of(x.name))
        if isinstance(x, bool) or not isinstance(x, int | float):
            raise TypeError(f"expected a matrix with entries in index notation, or a number, found {type(x).__name__}")
        return IndexMatrix((), exact(x))

    # -- what needs numbers ---------------------------------------------------------------------
    def __bool__(self) -> bool:
        """Whether a scalar is not 0, if that is known."""
        if self.shape == () and (self.entry.constant is not None or self.entry.is_positive):
            return bool(self.entry)
        return self._no_numbers()

    def __eq__(self, other: object) -> bool:
        """Whether a scalar is equal to another, if that is known."""
        if self.shape != () or isinstance(other, IndexMatrix | str) or other is None:
            return self is other or (other is not None and self._no_numbers())
        return not self - other


def indices_of(shape: Shape) -> tuple[Index, ...]:
    """The indices of the rows and columns of a matrix of this shape."""
    return tuple(
        FIRST if n == 1 else index(name, n) for name, n in zip(("row", "column"), map(size_name, shape), strict=False)
    )


def symbols(name: str, *shape: Size | int, is_positive: bool = False) -> IndexMatrix:
    """The m×n matrix with the entries name_ij, which can be any real numbers; without sizes, a scalar."""
    return IndexMatrix(shape, of(Entry(name, indices_of(shape), is_positive=is_positive)))


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


lifted = IndexMatrix.lifted


# -- the table ---------------------------------------------------------------------------------


@with_operations
class IndexBackend(SymbolicBackend):
    """The table on matrices in index notation."""

    name, matrix_type = "index notation", IndexMatrix

    def uniform(self, m, n, seed, count, like):
        return symbols(f"U.{seed}.{count}.{size_name(m)}.{size_name(n)}", m, n)


register_matrix_type(IndexMatrix, IndexBackend())  # type: ignore[abstract]
