"""The index reader: matrices of symbolic sizes, and the entry of each of their values as an expression.

The code that trains runs on these matrices, which record what is done with them. The entry of a value at i, j follows
from the index definitions in the rows of operations. Values that are computed in the same way are one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NoReturn, Self
from weakref import WeakKeyDictionary, WeakValueDictionary

from matgrad.backends import register_matrix_type
from matgrad.backends.base import Backend, RecordingError
from matgrad.foundation.callers import is_asked_by_user
from matgrad.index_notation.expressions import Entry, Expression, multiplied, of
from matgrad.index_notation.expressions import size as size_of
from matgrad.index_notation.functions import arbitrary, exact
from matgrad.index_notation.indices import Index, index
from matgrad.index_notation.text import text
from matgrad.program.operations import COMPOSED, ROWS
from matgrad.program.program import Value, in_order
from matgrad.program.recorder import EXACT, RecordedMatrix, RecorderBackend, Recording, recording_method
from matgrad.program.shapes import Questions, Shape, Size, size_name

INVOLUTIONS = ("transpose", "negative")
FOR_USERS = ("shape", "ndim", "T")  # attributes of matrices of every type


class _Symbolic(Recording):
    """Matrices without numbers, now or later, whose sizes are 1 or have names."""

    def __init__(self) -> None:
        super().__init__()
        self.values: WeakValueDictionary[tuple[Any, ...], Value] = WeakValueDictionary()
        self._asked: ContextVar[Questions] = ContextVar("asked")  # of the present proof, in this thread

    @contextmanager
    def asking(self, questions: Questions) -> Iterator[None]:
        """What is asked of matrices and scalars is remembered there while the context lasts."""
        token = self._asked.set(questions)
        try:
            yield
        finally:
            self._asked.reset(token)

    def ask(self, question: str) -> None:
        """Remember a question."""
        self._asked.get(Questions()).numbers.append(f"asks {question}")

    def append(
        self, operation: str, operands: tuple[Value, ...], shape: Shape, dtype: str = EXACT, **details: Any
    ) -> Any:
        """The result of an operation, which is recorded if it is new."""
        for n in shape:
            if not isinstance(n, Size) and not (isinstance(n, int) and n == 1):
                raise ValueError(f"{operation}: expected a size, 1 or a name such as N, found {n}")
        if operation in INVOLUTIONS and operands[0].operation == operation:
            return self.matrix(operands[0].operands[0])
        if operation == "add" and operands[1].operation == "full" and operands[1].operands[0].number == 0:
            return self.matrix(operands[0])
        self.count += 1
        value = Value(operation, operands, shape, dtype, order=self.count, **details)
        asked = (id(n.questions) for n in (*shape, value.number) if isinstance(n, Size))
        return self.matrix(self.values.setdefault((*value.key(), *asked), value))

    def matrix(self, value: Value) -> IndexMatrix:
        """A value as a matrix."""
        found = object.__new__(IndexMatrix)
        RecordedMatrix.__init__(found, self, value)
        return found

    def fail(self, problem: str) -> NoReturn:
        """Raise RecordingError, which is remembered as a question."""
        self._asked.get(Questions()).numbers.append(f"does what needs numbers: {problem}")
        raise RecordingError(problem)


SYMBOLIC = _Symbolic()
_entries: WeakKeyDictionary[Value, Expression] = WeakKeyDictionary()
_one_hots: WeakKeyDictionary[Value, dict[str, IndexMatrix]] = WeakKeyDictionary()  # by their numbers of columns


def entry_at(value: Value) -> Expression:
    """The entry of a value, an expression in the indices `indices_of` its shape."""
    if value not in _entries:
        for x in in_order([value]):  # those of operands first, so that it is not deeply recursive
            if x not in _entries:
                _entries[x] = _entry(x)
    return _entries[value]


def _entry(value: Value) -> Expression:
    """The entry by the index definition of the operation; that of an input is a symbol."""
    row = ROWS[value.operation]
    if value.operation == "input":
        return of(Entry(value.name, indices_of(value.shape)))
    if value.operation == "number":
        n: Any = value.number
        return multiplied(map(size_of, n.factors)) if isinstance(n, Size) else exact(n)
    if value.operation == "call":  # f(X), or f.gradient(X)
        f, _, method = value.function.partition(".")
        function = arbitrary(f)
        return (function.derivative if method else function)(entry_at(value.operands[0]))
    if row.name in COMPOSED:
        return getattr(Backend, row.name)(BACKEND, *map(SYMBOLIC.matrix, value.operands)).entry
    if row.index is None:
        raise TypeError(f"{value.operation} has no index definition")
    if row.kind == "elementwise":
        return row.index(*map(entry_at, value.operands))
    operands = (SYMBOLIC.matrix(x) if x.shape else entry_at(x) for x in value.operands)
    return row.index(*indices_of(value.shape), *operands)


def indices_of(shape: Shape) -> tuple[Index, ...]:
    """The indices of the rows and columns of a matrix of this shape; a product of sizes has a pair of indices."""
    return tuple(index(name, str(size_name(n))) for name, n in zip(("row", "column"), shape, strict=False))


class IndexMatrix(RecordedMatrix):
    """The matrix with the entries e(i, j), for an expression e in the indices `indices` of its rows and columns."""

    def __init__(self, shape: Shape, entry: Expression, name: str = "") -> None:
        super().__init__(SYMBOLIC, Value("input", (), shape, EXACT, name=name))
        _entries[self.value] = entry

    @property
    def entry(self) -> Expression:
        """The entry in the row and column `indices`."""
        return entry_at(self.value)

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
        if not isinstance(position, tuple) or [*map(type, position)] != [Index, Index]:
            return self._no_numbers()
        if tuple(i.size for i in position) != (self.rows, self.columns):
            raise TypeError(f"expected two indices of size {self.rows} and {self.columns}, found {position!r}")
        return self.entry.substituted(dict(zip(self.indices, position, strict=True)))

    # -- for the package ------------------------------------------------------------------------
    def __getattribute__(self, name: str) -> Any:
        """An attribute, of which users need few; others tell matrices of different types apart."""
        if is_asked_by_user() and (name not in FOR_USERS or not object.__getattribute__(self, "value").shape):
            SYMBOLIC.ask(f"for the attribute {name} of a matrix")
        return object.__getattribute__(self, name)

    def __hash__(self) -> int:
        if is_asked_by_user():
            SYMBOLIC.ask("for the hash of a matrix")
        return object.__hash__(self)

    def __repr__(self) -> str:
        if is_asked_by_user():
            SYMBOLIC.ask("for the text of a matrix")
        pairs = zip(self.indices, "ij", strict=False)
        return text(self.entry, {k: name + "'" * n for i, name in pairs for n, k in enumerate(i.parts)})

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{self._description} has no {name}: expected an operation of the table")

    def __deepcopy__(self, memo: Any) -> Self:
        return self  # it never changes

    def _in_place(self, result: RecordedMatrix) -> NoReturn:
        self.recording.fail("a matrix is changed in place, which may change others: write X = X + Y instead")

    # -- what needs numbers ---------------------------------------------------------------------
    def __bool__(self) -> bool:
        """Whether a scalar is not 0, if that is known."""
        if self.shape == () and (self.entry.constant is not None or self.entry.is_positive):
            return bool(self.entry)
        return self._no_numbers()

    def __eq__(self, other: object) -> bool:
        """Whether a scalar is equal to another, if that is known."""
        if other is None or (self is other and not is_asked_by_user()):
            return self is other
        if self.shape != () or isinstance(other, IndexMatrix | str):
            return self._no_numbers()
        return not self - other

    __ne__ = object.__ne__


def symbols(name: str, *shape: Size | int, is_positive: bool = False) -> IndexMatrix:
    """The m×n matrix with the entries name_ij, which can be any real numbers; without sizes, a scalar."""
    if is_positive:
        return IndexMatrix(shape, of(Entry(name, indices_of(shape), is_positive=True)), name)
    return SYMBOLIC.append("input", (), shape, name=name)


def lifted(x: Any, shape: Shape = ()) -> IndexMatrix:
    """x itself if it is such a matrix; a number or a size becomes a scalar or, if a shape is given, a full matrix."""
    return _ZERO._lift(x, shape)


def result(operation: str, *operands: IndexMatrix, **sizes: Any) -> IndexMatrix:
    """The result of an operation; `sizes` has those that its operands do not have."""
    return _ZERO._record(operation, *operands, **sizes)


_ZERO: Any = SYMBOLIC.append("number", (), (), number=0)


def _one_hot(x: IndexMatrix, n: Any) -> IndexMatrix:
    """A matrix of symbols: what is proved holds for every matrix, and so for one_hot(x, n)."""
    known = _one_hots.setdefault(x.value, {})
    return known.setdefault(str(size_name(n)), symbols(f"E.{x.value.order}", x.shape[0], n))


class IndexBackend(RecorderBackend):
    """The table on matrices of symbolic sizes, where composed operations are recorded as one."""

    name, has_sparse = "index notation", False
    locals().update({name: recording_method(name) for name in COMPOSED.keys() - {"call"}})

    def one_hot_product(self, x: Any, W: Any) -> Any:
        return _one_hot(x, W.shape[0]) @ W

    def one_hot_transposed_product(self, x: Any, G: Any, n: Any) -> Any:
        return _one_hot(x, n).T @ G

    def uniform(self, m: Any, n: Any, seed: Any, count: Any, like: RecordedMatrix) -> Any:
        return symbols(f"U.{seed}.{count}.{size_name(m)}.{size_name(n)}", m, n)

    def tiny(self, X: RecordedMatrix) -> float:
        return 0


BACKEND = IndexBackend()  # type: ignore[abstract]
register_matrix_type(IndexMatrix, BACKEND)
