"""Sizes of foreign code by name: N, 2·F or H·K; what the code asks about them is answered, and recorded."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from typing import Any, NamedTuple

from matgrad.foundation.callers import is_asked_by_user
from matgrad.index_notation.expressions import Expression, as_expression, multiplied
from matgrad.index_notation.expressions import size as size_of
from matgrad.index_notation.indices import DISTANCES

Atom = str | int  # a named size, or a number of parts, which are taken one by one
Atoms = tuple[Atom, ...]  # a dimension: the product of its atoms; () is a size of 1
Dims = tuple[Atoms, ...]
MOST_PARTS = 16  # of a dimension that is given as a number
TYPICAL = 5  # what a size is taken for if it is compared with a number


class Less(str):
    """The size T - n, as an atom, for a named size T; its indices are those of T, but for the last n."""

    base: str
    missing: int

    def __new__(cls, base: str, missing: int) -> Less:
        """T - n, or T + n for -n."""
        self = super().__new__(cls, f"{base}{-missing:+}")
        self.base, self.missing = base, missing
        return self


def less(a: Atom, n: int) -> str:
    """The size a - n"""
    base, count = parted(a)
    return Less(base, count + n) if count + n else base


def parted(a: Atom) -> tuple[str, int]:
    """T and n, for the size T - n"""
    return (a.base, a.missing) if isinstance(a, Less) else (str(a), 0)


def number(a: Atom, sizes: Mapping[str, Any]) -> Any:
    """The number that an atom is for given sizes."""
    base, count = parted(a)
    return sizes[base] - count if isinstance(a, str) else a


class UnsupportedError(Exception):
    """An operation that has no counterpart in index notation; with its place, if no line of Python is being run."""

    place: tuple[str, int] | None = None


class OrderError(UnsupportedError):
    """Sizes that are not in the order in which code splits them."""


class DivisionError(UnsupportedError):
    """What needs a size that is a number of parts of another one; `is_last` if they are the last ones, or None."""

    def __init__(self, what: str, size: Atom, count: int, is_last: bool | None = None) -> None:
        example = f"K*{count}" if is_last else f"{count}*K"
        super().__init__(f"{what}: give the size as a product, such as '{example}'")
        self.size, self.count, self.is_last = size, count, is_last


class LongerError(UnsupportedError):
    """What needs a size T + n, which T has to be less than."""

    def __init__(self, size: str, count: int) -> None:
        super().__init__(f"a size {size} + {count}")
        self.size, self.count = size, count


class ShapeError(Exception):
    """What fails, or means something else, unless two named sizes happen to be equal."""


class Question(NamedTuple):
    """A question about sizes, with the answer that was given, and whether given sizes have this answer."""

    text: str
    answer: bool
    agrees: Callable[[Mapping[str, int]], bool]
    above: tuple[str, int] | None = None  # N and n, if it is not the code which asks whether N > n, but a form needs it

    def __str__(self) -> str:
        return f"{self.text}: {'yes' if self.answer else 'no'}"


SCALAR: ContextVar[Callable[[Expression], Any]] = ContextVar("scalar")  # what code gets for a number
QUESTIONS: ContextVar[list[Question]] = ContextVar("questions")


def asked(question: Question) -> bool:
    """The answer to a question, which is recorded."""
    recorded = QUESTIONS.get([])
    if question.text not in [q.text for q in recorded]:
        recorded.append(question)
    return question.answer


def longer(size: Atom, n: int) -> None:
    """Assume that a size is more than n, as its slices are not empty then."""
    base, count = parted(size)
    if n + count > 0:
        asked(above(base, n + count))


def above(size: str, n: int) -> Question:
    """That a size is more than n."""
    return Question(f"{size} > {n}", True, lambda sizes: sizes[size] > n, (size, n))


def distances() -> list[Question]:
    """What forms rest on: sizes are above the distances of neighbours that were taken to be different."""
    return [above(size, n) for size, n in (DISTANCES.get() or {}).items()]


COMPARISONS = {"<": operator.lt, "≤": operator.le, ">": operator.gt, "≥": operator.ge}


class Size:
    """A product of atoms, as x.shape[0] is one."""

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """For users that of an int, as x.shape[0] has it."""
        return int if is_asked_by_user() else Size

    def __init__(self, atoms: Iterable[Atom]) -> None:
        self.atoms: Atoms = tuple(a for a in atoms if a != 1)

    @property
    def expression(self) -> Expression:
        """The size as a number."""
        pairs = ((a, *parted(a)) for a in self.atoms)
        return multiplied(size_of(base) - n if isinstance(a, str) else as_expression(a) for a, base, n in pairs)

    @property
    def constant(self) -> int | None:
        """The number that it is, if it has no name."""
        return math.prod(a for a in self.atoms if isinstance(a, int)) if not self.names else None

    @property
    def names(self) -> list[str]:
        """The named sizes in it."""
        return [parted(a)[0] for a in self.atoms if isinstance(a, str)]

    def value(self, sizes: Mapping[str, int]) -> int:
        """The number that it is for given sizes."""
        return math.prod(number(a, sizes) for a in self.atoms)

    def __add__(self, other: Any) -> Any:
        match self.atoms, other:
            case (str() as a,), int() if not isinstance(other, bool):
                return Size((less(a, -other),))
        return self._other("__add__", other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        match self.atoms, other:
            case (str() as a,), int() if not isinstance(other, bool):
                return Size((less(a, other),))
            case (str() as a,), Size(atoms=(str() as b,)) if parted(a)[0] == parted(b)[0]:
                return parted(b)[1] - parted(a)[1]
        return self._other("__sub__", other)

    def _scalar(self) -> Any:
        return SCALAR.get()(self.expression)

    def sqrt(self) -> Any:
        """Its root, for numpy.sqrt."""
        return self._other("__pow__", 0.5)

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, Size):
            return Size(self.atoms + other.atoms)
        return Size((*self.atoms, other)) if _is_count(other) else self._other("__mul__", other)

    def __rmul__(self, other: Any) -> Any:
        return Size((other, *self.atoms)) if _is_count(other) else self._other("__rmul__", other)

    def __floordiv__(self, other: Any) -> Size:
        atoms, wanted = list(self.atoms), atoms_of(other)
        count = math.prod(a for a in wanted if isinstance(a, int))
        for name in (a for a in wanted if isinstance(a, str)):
            if name not in atoms:
                raise UnsupportedError(f"{self} // {other}: give the size as a product, such as '{other}*K'")
            atoms.remove(name)
        for i, a in enumerate(atoms):
            if isinstance(a, int):
                atoms[i], count = a // math.gcd(a, count), count // math.gcd(a, count)
        if count > 1:
            raise DivisionError(f"{self} // {other}", self.names[0] if self.names else 1, count)
        return Size(atoms)

    def __mod__(self, other: Any) -> int:
        if set(atoms_of(other)) <= set(self.atoms) or not isinstance(other, int):
            return (self // other) and 0
        asked(Question(f"{self} % {other} = 0", True, lambda sizes: self.value(sizes) % other == 0))
        return 0

    def _other(self, name: str, other: Any) -> Any:
        return getattr(self._scalar(), name)(other._scalar() if isinstance(other, Size) else other)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Size) and sorted(map(str, self.atoms)) == sorted(map(str, other.atoms)):
            return True
        if not isinstance(other, int | Size):
            return False
        if isinstance(other, int) and (self.constant is not None or other < 1):
            return self.constant == other

        def differs(sizes: Mapping[str, int]) -> bool:
            return self.value(sizes) != (other.value(sizes) if isinstance(other, Size) else other)

        return asked(Question(f"{self} = {other}", False, differs))

    __hash__ = None  # type: ignore[assignment]

    def _compared(self, relation: str, other: Any) -> bool:
        compare = COMPARISONS[relation]
        if isinstance(other, Size) and other.constant is not None:
            other = other.constant
        if not isinstance(other, int | float):
            if isinstance(other, Size) and sorted(map(str, self.atoms)) == sorted(map(str, other.atoms)):
                return relation in "≤≥"
            raise UnsupportedError(f"the code asks whether {self} {relation} {other}")
        if self.constant is not None or other < 1:
            return compare(1 if self.constant is None else self.constant, other)
        answer = compare(TYPICAL, other)
        return asked(
            Question(f"{self} {relation} {other}", answer, lambda sizes: compare(self.value(sizes), other) == answer)
        )

    def __lt__(self, other: Any) -> bool:
        return self._compared("<", other)

    def __le__(self, other: Any) -> bool:
        return self._compared("≤", other)

    def __gt__(self, other: Any) -> bool:
        return self._compared(">", other)

    def __ge__(self, other: Any) -> bool:
        return self._compared("≥", other)

    def __neg__(self) -> Any:
        return -self._scalar()

    def __bool__(self) -> bool:
        return True

    def __index__(self) -> int:
        if self.constant is None:
            raise UnsupportedError(f"the code needs the number that {self} is")
        return self.constant

    __int__ = __index__

    def __float__(self) -> float:
        return float(self.__index__())

    def __repr__(self) -> str:
        if is_asked_by_user():
            raise UnsupportedError("the text of a size")
        return "·".join(map(str, self.atoms)) or "1"


def _is_count(x: Any) -> bool:
    return isinstance(x, int) and not isinstance(x, bool) and x >= 1


def _operator(name: str) -> Callable[[Size, Any], Any]:
    return lambda self, other: self._other(name, other)


for _name in ("rsub", "truediv", "rtruediv", "pow", "rpow"):
    setattr(Size, f"__{_name}__", _operator(f"__{_name}__"))


def atoms_of(n: Any) -> Atoms:
    """The atoms of a size, or of a number."""
    if isinstance(n, Size):
        for size, count in map(parted, n.atoms):
            if count < 0:
                raise LongerError(size, -count)
        return n.atoms
    if not _is_count(n):
        raise UnsupportedError(f"a size {n!r}")
    return () if n == 1 else (int(n),)


def merged(atoms: Iterable[Atom]) -> Atoms:
    """Atoms with one number for numbers beside each other."""
    found: list[Atom] = []
    for a in atoms:
        if found and isinstance(a, int) and isinstance(found[-1], int):
            found[-1] *= a
        else:
            found.append(a)
    return tuple(found)


def shown(dims: Iterable[Atoms]) -> str:
    """(N, 2·F)"""
    return "(" + ", ".join(repr(Size(d)) for d in dims) + ")"
