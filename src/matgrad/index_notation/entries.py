"""Entries of matrices, x_ij, and Kronecker deltas, [i=j]."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import count

from matgrad.index_notation.expressions import (
    ONE,
    ZERO,
    Condition,
    Expression,
    Factor,
    Index,
    Indices,
    Powers,
    multiplied,
    of,
    substituted,
)

_NAME = re.compile(r"[^\W_][\w.']*")  # of entries and indices; none of it has a meaning in keys
_count = count()
FIRST = Index("1", "1")  # the only index of a size of 1, which is not written


def index(name: str, size: str) -> Index:
    """The index of this name that runs over 1, …, size."""
    return FIRST if size == FIRST.size else Index(checked_name(name), checked_name(size))


def new_index(size: str) -> Index:
    """An index that occurs nowhere else."""
    return FIRST if size == FIRST.size else Index(f"_{next(_count)}", size)


def checked_name(name: str) -> str:
    """The name, which must have no characters that have a meaning in keys."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"expected a name that begins with a letter, found {name!r}")
    return name


class Entry(Factor):
    """x_ij, or x_i or x if a matrix has sizes of 1; entries of a size are those of a scalar, such as N.

    An entry of a function of a matrix, of which nothing else is known, has the name of that matrix as its `variable`.
    """

    def __init__(
        self,
        name: str,
        indices: Sequence[Index] = (),
        *,
        is_positive: bool = False,
        is_size: bool = False,
        variable: str = "",
    ) -> None:
        self.name, self.indices = checked_name(name), tuple(i for i in indices if i != FIRST)
        self.free, self.variable = frozenset(self.indices), variable
        self.is_positive, self.is_unit = is_positive or is_size, is_size
        mark = "#" if is_size else "+" if is_positive else ""
        self.key = f"{name}{mark}[{','.join(f'{i.name}:{i.size}' for i in self.indices)}]"
        if variable:
            self.key += f"<{checked_name(variable)}>"

    def substituted(self, indices: Indices) -> Expression:
        """x_kl, for x_ij"""
        return of(self.at(*(indices.get(i, i) for i in self.indices)))

    def at(self, *indices: Index) -> Entry:
        """The entry of the same matrix with other indices."""
        return Entry(self.name, indices, is_positive=self.is_positive, is_size=self.is_unit, variable=self.variable)

    def derivative(self, variable: Factor) -> Expression:
        """∂x_ij/∂x_kl = [i=k]·[j=l]; of a function, f'x_ijkl for the matrix x that it depends on."""
        assert isinstance(variable, Entry)
        if self.variable:
            of_function = Entry(f"{self.name}'{self.variable}", (*self.indices, *variable.indices))
            return of(of_function) if variable.name == self.variable else ZERO
        sizes, others = ([i.size for i in x.indices] for x in (self, variable))
        if sizes != others or self.at(*variable.indices) != variable:
            return ZERO
        return multiplied(map(delta, self.indices, variable.indices))


def size(name: str) -> Expression:
    """The number N of values of an index, which is 1 or more."""
    return ONE if name == FIRST.size else of(Entry(name, is_size=True))


class Delta(Condition):
    """[i=j], which is 1 if i = j and 0 otherwise."""

    def __init__(self, i: Index, j: Index) -> None:
        assert i != j
        assert i.size == j.size
        self.i, self.j = sorted((i, j))
        self.free = frozenset((i, j))
        self.key = f"[{self.i.name}:{self.i.size}={self.j.name}:{self.j.size}]"

    def substituted(self, indices: Indices) -> Expression:
        """[k=l], for [i=j]"""
        return delta(indices.get(self.i, self.i), indices.get(self.j, self.j))

    def rewritten(self, powers: Powers) -> Expression | None:
        """[i=j]·f(j) = [i=j]·f(i)"""
        others = tuple((f, p) for f, p in powers.items() if f is not self)
        if not any(self.j in f.free for f, _ in others):
            return None
        return substituted(others, {self.j: self.i}) * of(self)


def delta(i: Index, j: Index) -> Expression:
    """[i=j]"""
    return ONE if i == j else of(Delta(i, j))
