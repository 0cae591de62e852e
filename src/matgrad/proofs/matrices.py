"""Matrices of symbolic sizes with entries in index notation: the table of operations, derivatives, equality.

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
from typing import Any, NoReturn

import numpy as np

from matgrad.backends import register_matrix_type
from matgrad.foundation.numbers import as_number
from matgrad.index_notation.entries import FIRST, Entry, index, new_index
from matgrad.index_notation.entries import size as size_of
from matgrad.index_notation.equality import is_equal
from matgrad.index_notation.expressions import Expression, Factor, Index, of
from matgrad.index_notation.numbers import exact
from matgrad.index_notation.text import text
from matgrad.inspection.faults import USE_THE_TABLE
from matgrad.inspection.verdicts import Check, judged
from matgrad.program.operations import OPERATIONS
from matgrad.program.shapes import size_name
from matgrad.proofs.operators import Shape, SymbolicBackend, SymbolicMatrix, result_shape, with_operations

METHOD = "proof"  # of a verdict


class Questions:
    """What code has asked about sizes: an answer holds for some sizes only, so others need a run of their own.

    `ones` are the sizes that were taken not to be 1; `others` says what else was asked.
    """

    def __init__(self) -> None:
        self.ones: set[str] = set()
        self.others: list[str] = []


def _of_scalar(operator: str) -> Callable[..., Any]:
    """The operator of a size: that of its scalar."""
    return lambda size, *others: getattr(size._scalar(), operator)(*others)


class Size:
    """A size of 1 or more, with a name instead of a number; a size of 1 is the number 1."""

    __array_ufunc__ = None

    def __init__(self, name: str, questions: Questions | None = None) -> None:
        self.name = name
        self.questions = questions or Questions()

    def __repr__(self) -> str:
        return self.name

    def __hash__(self) -> int:
        return hash(self.name)

    # -- as a number ----------------------------------------------------------------------------
    def _scalar(self) -> Any:
        """The size as a scalar, which can be computed with."""
        return lifted(self)

    __add__, __radd__, __sub__, __rsub__ = map(_of_scalar, ("__add__", "__radd__", "__sub__", "__rsub__"))
    __mul__, __rmul__, __truediv__ = map(_of_scalar, ("__mul__", "__rmul__", "__truediv__"))
    __rtruediv__, __pow__, __neg__ = map(_of_scalar, ("__rtruediv__", "__pow__", "__neg__"))

    # -- comparisons ----------------------------------------------------------------------------
    def __eq__(self, other: object) -> bool:
        """Whether the sizes have the same name; otherwise they are taken to be different, and that is remembered."""
        if isinstance(other, Size) and self.name == other.name:
            return True
        other = as_number(other)
        if other == 1 and not isinstance(other, Size):
            self.questions.ones.add(self.name)
        elif isinstance(other, Size) or (isinstance(other, int | float) and other > 1 and other == int(other)):
            self.questions.others.append(f"{self} = {other}")
        return False

    def __le__(self, other: Any) -> bool:
        """Whether it is at most a number, which is known for numbers below 2: it is taken not to be 1."""
        other = as_number(other)
        if not isinstance(other, int | float) or other >= 2:
            raise TypeError(f"{self} ≤ {other}: the size {self} has no number; a proof is for all sizes")
        if other >= 1:
            self.questions.ones.add(self.name)
        return False

    def __lt__(self, other: Any) -> bool:
        other = as_number(other)
        return self <= (other - 1 if isinstance(other, int) else other)

    def __gt__(self, other: Any) -> bool:
        return not self <= other

    def __ge__(self, other: Any) -> bool:
        return not self < other

    def _no_number(self, *others: Any) -> NoReturn:
        raise TypeError(f"the size {self} has no number: a proof is for all sizes")

    __int__ = __float__ = __index__ = __iter__ = __mod__ = __rmod__ = __floordiv__ = __rfloordiv__ = _no_number


def sizes(names: str) -> Any:
    """Sizes with these names, such as ``N, D, K = sizes("N D K")``."""
    return [Size(name) for name in names.split()]


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


def verdict(
    thing: type | Callable[..., Any],
    quantity: str,
    origin: tuple[str, str],
    sizes: str,
    found: Any,
    expected: IndexMatrix,
    prefix: str = "",
) -> Check:
    """The verdict on what a class or function computes, compared with what it should compute; see `judged`."""
    problem = problem_of(found, expected)
    if not problem and not is_equal(found.entry, expected.entry):
        problem = f"the canonical forms of the entries differ\n  found     {found}\n  expected  {expected}"
    problem = f"is not proved: {problem}" if problem else ""
    return judged(thing, quantity, origin, sizes, problem, method=METHOD, prefix=prefix)


# -- the table ---------------------------------------------------------------------------------


@with_operations
class IndexBackend(SymbolicBackend):
    """The table on matrices in index notation."""

    name, matrix_type = "index notation", IndexMatrix

    def uniform(self, m, n, seed, count, like):
        return symbols(f"U.{seed}.{count}.{size_name(m)}.{size_name(n)}", m, n)


register_matrix_type(IndexMatrix, IndexBackend())  # type: ignore[abstract]
