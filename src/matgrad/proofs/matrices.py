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

import abc
from collections.abc import Callable
from typing import Any, NoReturn

from matgrad.backends import backend_of, register_matrix_type
from matgrad.backends.base import Backend
from matgrad.foundation.numbers import as_number
from matgrad.index_notation.entries import FIRST, Entry, index, new_index
from matgrad.index_notation.entries import size as size_of
from matgrad.index_notation.expressions import Expression, Index, of
from matgrad.index_notation.numbers import exact
from matgrad.index_notation.text import text
from matgrad.program.operations import OPERATIONS
from matgrad.program.shapes import size_name
from matgrad.proofs.sizes import Size

Shape = tuple[Any, ...]  # (m, n), of which each is a `Size` or the number 1, or () of a scalar


class IndexMatrix:
    """The matrix with the entries e(i, j), for an expression e in the indices `indices` of its rows and columns."""

    __array_ufunc__ = None
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

    # -- operators ------------------------------------------------------------------------------
    @property
    def T(self) -> IndexMatrix:
        """Xᵀ"""
        return result("transpose", self)

    @property
    def ndim(self) -> int:
        """2, or 0 for a scalar."""
        return len(self.shape)

    def __add__(self, other: Any) -> IndexMatrix:
        return result("add", self, lifted(other, self.shape))

    def __radd__(self, other: Any) -> IndexMatrix:
        return result("add", lifted(other, self.shape), self)

    def __sub__(self, other: Any) -> IndexMatrix:
        return result("subtract", self, lifted(other, self.shape))

    def __rsub__(self, other: Any) -> IndexMatrix:
        return result("subtract", lifted(other, self.shape), self)

    def __neg__(self) -> IndexMatrix:
        return result("negative", self)

    def __mul__(self, other: Any) -> IndexMatrix:
        other = lifted(other)
        if self.shape and not other.shape:
            return result("scale", other, self)
        if other.shape and not self.shape:
            return result("scale", self, other)
        return result("hadamard", self, other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> IndexMatrix:
        return result("divide", self, lifted(other))

    def __rtruediv__(self, other: Any) -> IndexMatrix:
        return lifted(other) * result("reciprocal", self)

    def __pow__(self, exponent: Any) -> IndexMatrix:
        return result("power", self, lifted(exponent))

    def __matmul__(self, other: Any) -> IndexMatrix:
        backend_of(self, other)
        return result("matmul", self, other)

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

    def _no_numbers(self, *others: Any) -> NoReturn:
        raise TypeError("a proof cannot depend on the numbers in a matrix: write it with the operations of the table")

    __int__ = __float__ = __index__ = __len__ = __iter__ = __contains__ = __array__ = __abs__ = _no_numbers
    __lt__ = __le__ = __gt__ = __ge__ = _no_numbers

    def _not_in_place(self, other: Any) -> NoReturn:
        raise TypeError("a matrix is changed in place, which may change others: write X = X + Y instead")

    __iadd__ = __isub__ = __imul__ = __itruediv__ = __ipow__ = __imatmul__ = __setitem__ = _not_in_place


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


def lifted(x: Any, shape: Shape = ()) -> IndexMatrix:
    """x itself if it is such a matrix; a number or a size becomes a scalar or a full matrix."""
    if isinstance(x, IndexMatrix):
        return result("full", x, m=shape[0], n=shape[1]) if shape and not x.shape else x
    x = as_number(x)
    if isinstance(x, Size):
        return lifted(IndexMatrix((), size_of(x.name)), shape)
    if isinstance(x, bool) or not isinstance(x, int | float):
        raise TypeError(f"expected a matrix with entries in index notation, or a number, found {type(x).__name__}")
    return lifted(IndexMatrix((), exact(x)), shape)


def result(operation: str, *operands: IndexMatrix, **given: Size | int) -> IndexMatrix:
    """The result of an operation, by its index definition; `given` has the sizes that its operands do not have."""
    row = OPERATIONS[operation]
    if row.index is None:
        raise TypeError(f"{operation} has no index definition")
    shapes = [tuple(map(size_name, X.shape)) for X in operands]
    names = row.shapes.result(shapes, {name: size_name(n) for name, n in given.items()})
    if names is None:
        found = ", ".join(" × ".join(map(str, shape)) or "a scalar" for shape in shapes)
        raise ValueError(f"{operation}: expected shapes {row.rule}, found {found}: nothing broadcasts")
    sizes = {size_name(n): n for n in (1, *given.values(), *(n for X in operands for n in X.shape))}
    shape = tuple(sizes[name] for name in names)
    if row.kind == "elementwise":
        return IndexMatrix(shape, row.index(*(X.entry for X in operands)))
    return IndexMatrix(shape, row.index(*indices_of(shape), *(X if X.shape else X.entry for X in operands)))


# -- the table ---------------------------------------------------------------------------------


def _with_operations(cls: type[Backend]) -> type[Backend]:
    """The backend, with a method for every operation in the list that it does not define."""
    for name in cls.__abstractmethods__ & OPERATIONS.keys():
        setattr(cls, name, _method(name))
    return abc.update_abstractmethods(cls)


def _method(operation: str) -> Callable[..., IndexMatrix]:
    return lambda self, *operands: result(operation, *operands)


@_with_operations
class IndexBackend(Backend):
    """The table on matrices in index notation; the methods below take more than matrices, the others are generated."""

    name = "index notation"

    def full(self, value, m, n, like):
        return lifted(value, (m, n))

    def identity(self, n, like):
        return result("identity", n=n)

    def column_repeat(self, x, n):
        return result("column_repeat", x, n=n)

    def row_repeat(self, x, m):
        return result("row_repeat", x, m=m)

    def uniform(self, m, n, seed, count, like):
        return symbols(f"U.{seed}.{count}.{size_name(m)}.{size_name(n)}", m, n)

    def from_numpy(self, A, device=None):
        raise TypeError("the numbers of an array have no place in a proof: name it in `parameters` or `buffers`")

    def to_numpy(self, X):
        return X._no_numbers()

    def take_rows(self, X, indices):
        return X._no_numbers()

    def dtype(self, X):
        return "exact"

    def tiny(self, X):
        return 0

    def scalar(self, value, like):
        return lifted(value)


register_matrix_type(IndexMatrix, IndexBackend())  # type: ignore[abstract]
