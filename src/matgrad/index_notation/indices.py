"""Indices i that run over 1, …, N: those with names, pairs of them, labels t_i, and opposites N + 1 - i."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import count
from typing import NamedTuple

_NAME = re.compile(r"[^\W_][\w.']*")  # of entries and indices; none of it has a meaning in keys
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


class Reversed(Index):
    """N + 1 - i, for an index i of size N."""

    inner: Index

    def __new__(cls, i: Index) -> Reversed:
        """The opposite of an index."""
        self = super().__new__(cls, f"-{i.name}", i.size)
        self.inner = i
        return self

    @property
    def parts(self) -> tuple[Index, ...]:
        """Itself."""
        return (self,)

    @property
    def free(self) -> frozenset[Index]:
        """The indices that it depends on."""
        return self.inner.free

    def at(self, indices: Indices) -> Index:
        """The opposite of what is put for i."""
        return opposite(self.inner.at(indices))


def opposite(i: Index) -> Index:
    """N + 1 - i, of which the opposite is i"""
    return i.inner if isinstance(i, Reversed) else Reversed(i)


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
    return colors.get(i) or f"{i.name}:{i.size}"
