"""Shapes of named sizes: the slot (d, k) is atom k of dimension d, counted from the right."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product as combinations
from typing import Any

from matgrad.index_notation.expressions import ONE, Expression, delta, multiplied, total
from matgrad.index_notation.indices import Index, Last, shifted
from matgrad.writers.sizes import MOST_PARTS, Atom, Atoms, Dims, Less, ShapeError, Size, UnsupportedError, parted, shown

Slot = tuple[int, int]
Key = tuple[int, ...]  # numbers for the counted slots


def slots(dims: Sequence[Atoms]) -> list[Slot]:
    """All slots, from left to right."""
    return [(len(dims) - 1 - i, k) for i, dim in enumerate(dims) for k in range(len(dim))]


def atom(dims: Sequence[Atoms], s: Slot) -> Atom:
    """The atom in a slot."""
    return dims[len(dims) - 1 - s[0]][s[1]]


def counted(dims: Sequence[Atoms]) -> list[Slot]:
    """The slots of numbers."""
    return [s for s in slots(dims) if isinstance(atom(dims, s), int)]


def index(dims: Sequence[Atoms], s: Slot) -> Index:
    """The index of a slot with a name."""
    return Index(f"d{s[0]}.{s[1]}", parted(atom(dims, s))[0])


def named(dims: Sequence[Atoms]) -> list[Slot]:
    """The slots of names."""
    return [s for s in slots(dims) if isinstance(atom(dims, s), str)]


def indices(dims: Sequence[Atoms]) -> list[Index]:
    """The indices of a shape."""
    return [index(dims, s) for s in named(dims)]


def keys(dims: Sequence[Atoms]) -> list[Key]:
    """All numbers for the counted slots."""
    counts = [atom(dims, s) for s in counted(dims)]
    if any(isinstance(n, int) and n > MOST_PARTS for n in counts):
        raise UnsupportedError(f"{shown(dims)}: name sizes above {MOST_PARTS}")
    return list(combinations(*(range(int(n)) for n in counts)))


def inside(i: Index, start: int, count: int) -> Expression:
    """[start < i ≤ N - count + start], for an index i of size N: it is none of the others, which are `count`"""
    return ONE - total(delta(i, shifted(Last(i.size), start - r)) for r in range(count))


def within(dims: Dims, chosen: Iterable[Slot] | None = None) -> Expression:
    """1 where indices are below their sizes T - n, for all or some slots of a shape"""
    own = [s for s in (named(dims) if chosen is None else chosen) if isinstance(atom(dims, s), Less)]
    return multiplied(inside(index(dims, s), 0, parted(atom(dims, s))[1]) for s in own)


def broadcast(*shapes: Sequence[Atoms]) -> Dims:
    """The shape to which all of them are broadcast."""
    n, found = max(map(len, shapes)), []
    for d in range(n):
        dim: Atoms = ()
        for dims in shapes:
            own = dims[len(dims) - n + d] if len(dims) - n + d >= 0 else ()
            if own and dim and own != dim:
                both = " and ".join(map(shown, shapes))
                if sorted(map(str, own)) == sorted(map(str, dim)):
                    raise UnsupportedError(f"shapes {both}, which have the same sizes in another order")
                raise ShapeError(f"shapes {both} do not match unless {Size(dim)} = {Size(own)}")
            dim = own or dim
        found.append(dim)
    return tuple(found)


def axis(dims: Sequence[Atoms], d: Any, more: int = 0) -> int:
    """The dimension d of a shape, counted from the left; with `more` dimensions than it has."""
    n = len(dims) + more
    if not isinstance(d, int) or not -n <= d < max(n, 1):
        raise ShapeError(f"dimension {d} of {shown(dims)}")
    return d % n if n else 0


def flat(arguments: Sequence[Any]) -> list[Any]:
    """Arguments that may be given as one list."""
    one = len(arguments) == 1 and isinstance(arguments[0], tuple | list)
    return list(arguments[0] if one else arguments)
