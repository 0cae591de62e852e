"""Indices i that run over 1, …, N: those with names, pairs, labels t_i, opposites N + 1 - i, neighbours i + 1."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import lru_cache, wraps
from itertools import count
from typing import NamedTuple, TypeVar, TypeVarTuple

_NAME = re.compile(r"[^\W_][\w.']*")  # of entries and indices; none of it has a meaning in keys
X = TypeVarTuple("X")
R = TypeVar("R")
_count = count()
TIMES = "·"  # between the parts of a pair, and the factors of its size


class Index(NamedTuple):
    """An index i that runs over 1, …, size; its size is a name, such as N.

    The pair n·p runs over N·P, a product of sizes: row by row over all pairs of n and p. What is in expressions, and
    summed over, are the parts of pairs.
    """

    name: str
    size: str

    @property
    def parts(self) -> tuple[Index, ...]:
        """The indices that it consists of; none if its size is 1."""
        if TIMES not in self.name:
            return () if self == FIRST else (self,)
        pairs = zip(self.name.split(TIMES), self.size.split(TIMES), strict=True)
        return tuple(Index(*pair) for pair in pairs)

    @property
    def free(self) -> frozenset[Index]:
        """The indices that it depends on: itself."""
        return frozenset((self,))

    def at(self, indices: Indices) -> Index:
        """What is put for it."""
        return indices.get(self, self)


class Label(Index):
    """t_i, an index that depends on others, as labels do: x_it_i is the entry that the label t_i of row i selects."""

    label: str
    arguments: tuple[Index, ...]

    def __new__(cls, label: str, arguments: Sequence[Index], size: str) -> Label:
        """The label of this name."""
        self = super().__new__(cls, f"{checked_name(label)}({','.join(f'{i.name}:{i.size}' for i in arguments)})", size)
        self.label, self.arguments = label, tuple(arguments)
        return self

    @property
    def parts(self) -> tuple[Index, ...]:
        """Itself."""
        return (self,)

    @property
    def free(self) -> frozenset[Index]:
        """The indices that it depends on."""
        return frozenset[Index]().union(*(i.free for i in self.arguments))

    def at(self, indices: Indices) -> Index:
        """What is put for it, or t_k for t_i."""
        return indices.get(self) or Label(self.label, [i.at(indices) for i in self.arguments], self.size)


class Moved(Index):
    """A value that follows from that of another index of the same size."""

    inner: Index

    @property
    def parts(self) -> tuple[Index, ...]:
        """Itself."""
        return (self,)

    @property
    def free(self) -> frozenset[Index]:
        """The indices that it depends on."""
        return self.inner.free


class Reversed(Moved):
    """N + 1 - i, for an index i of size N."""

    def __new__(cls, i: Index) -> Reversed:
        """The opposite of an index."""
        self = super().__new__(cls, f"-{i.name}", i.size)
        self.inner = i
        return self

    def at(self, indices: Indices) -> Index:
        """The opposite of what is put for i."""
        return opposite(self.inner.at(indices))


class Last(Index):
    """N, the last value of indices of size N."""

    def __new__(cls, size: str) -> Last:
        """The last value of a size."""
        return super().__new__(cls, "last", size)

    @property
    def parts(self) -> tuple[Index, ...]:
        """Itself."""
        return (self,)

    @property
    def free(self) -> frozenset[Index]:
        """Nothing."""
        return frozenset()


class Shifted(Moved):
    """i + d in a circle, where 1 comes after N, for an integer d other than 0."""

    by: int

    def __new__(cls, i: Index, d: int) -> Shifted:
        """The index d places after i."""
        self = super().__new__(cls, f"{i.name}+{d}", i.size)
        self.inner, self.by = i, d
        return self

    def at(self, indices: Indices) -> Index:
        """The index d places after what is put for i."""
        return shifted(self.inner.at(indices), self.by)


def shifted(i: Index, d: int) -> Index:
    """i + d in a circle"""
    inner, by = unshifted(i)
    return Shifted(inner, by + d) if by + d else inner


def unshifted(i: Index) -> tuple[Index, int]:
    """k and d, for k + d"""
    return (i.inner, i.by) if isinstance(i, Shifted) else (i, 0)


def bare(i: Index) -> Index:
    """k, for k + d or its opposite"""
    inner = unshifted(i)[0]
    return inner.inner if isinstance(inner, Reversed) else inner


def opposite(i: Index) -> Index:
    """N + 1 - i, of which the opposite is i; that of i + d is the opposite of i, d places before it"""
    inner, d = unshifted(i)
    if isinstance(inner, Last):
        return shifted(inner, 1 - d)
    return shifted(inner.inner if isinstance(inner, Reversed) else Reversed(inner), -d)


# the greatest d, by size N, for which i + d was taken to be different from i, as it is if N > d
DISTANCES: ContextVar[dict[str, int] | None] = ContextVar("DISTANCES", default=None)


def apart(size: str, d: int) -> None:
    """Note that the size is more than d, or less than -d."""
    if (found := DISTANCES.get()) is not None:
        found[size] = max(found.get(size, 0), abs(d))


def remembered(most: int) -> Callable[[Callable[[*X], R]], Callable[[*X], R]]:
    """Decorate a function that computes what is known already only once, and notes the same distances each time."""

    def decorated(f: Callable[[*X], R]) -> Callable[[*X], R]:
        @lru_cache(most)
        def computed(*args: *X) -> tuple[R, dict[str, int]]:
            found: dict[str, int] = {}
            token = DISTANCES.set(found)
            try:
                return f(*args), found
            finally:
                DISTANCES.reset(token)

        @wraps(f)
        def g(*args: *X) -> R:
            result, found = computed(*args)
            for size, d in found.items():
                apart(size, d)
            return result

        return g

    return decorated


FIRST = Index("1", "1")  # the only index of a size of 1, which is not written
Indices = Mapping[Index, Index]  # what is put for indices
Colors = Mapping[Index, str]  # what stands for indices in shapes; other indices stand for themselves


def index(name: str, size: str) -> Index:
    """The index of this name that runs over 1, …, size; if that is a product, the parts of the index have numbers."""
    sizes = [] if size == FIRST.size else [checked_name(n) for n in size.split(TIMES)]
    names = [name] if len(sizes) == 1 else [f"{name}{k}" for k in range(1, len(sizes) + 1)]
    return joined(*map(Index, map(checked_name, names), sizes))


def new_index(size: str) -> Index:
    """An index that occurs nowhere else."""
    return joined(*(Index(f"_{next(_count)}", n) for n in size.split(TIMES) if n != FIRST.size))


def is_new(i: Index) -> bool:
    """Whether an index, or its opposite, is one of a sum, opened or not."""
    return i.name.removeprefix("-")[0] in "_~"


def joined(*indices: Index) -> Index:
    """The pair n·p of two indices, or of more; one index is itself, and none is the only index of a size of 1."""
    parts = [part for i in indices for part in i.parts]
    return Index(*map(TIMES.join, zip(*parts, strict=True))) if parts else FIRST


def divided(i: Index, count: int) -> tuple[Index, Index]:
    """A pair as two indices, of which the last one has so many parts."""
    place = len(i.parts) - count
    return joined(*i.parts[:place]), joined(*i.parts[place:])


def checked_name(name: str) -> str:
    """The name, which must have no characters that have a meaning in keys."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"expected a name that begins with a letter, found {name!r}")
    return name


def color(i: Index, colors: Colors) -> str:
    """What stands for an index in a shape."""
    if isinstance(i, Label):
        return f"{i.label}({','.join(color(k, colors) for k in i.arguments)}):{i.size}"
    if isinstance(i, Reversed):
        return f"-{color(i.inner, colors)}"
    if isinstance(i, Shifted):
        return f"{color(i.inner, colors)}+{i.by}"
    return colors.get(i) or f"{i.name}:{i.size}"
