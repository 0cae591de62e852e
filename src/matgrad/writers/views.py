"""Views of tensors: `get` shows the entries of a tensor, and `put` is the tensor with other entries in the view."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

from matgrad.index_notation.indices import Index
from matgrad.writers.sizes import (
    Atom,
    Atoms,
    Dims,
    DivisionError,
    OrderError,
    Question,
    ShapeError,
    Size,
    UnsupportedError,
    asked,
    atoms_of,
    merged,
    shown,
)
from matgrad.writers.slots import Slot, axis, counted, index, named, slots

if TYPE_CHECKING:
    from matgrad.writers.tensors import Tensor


class Moved(NamedTuple):
    """Other dimensions, where the slot s of the old ones is where[s]."""

    old: Dims
    dims: Dims
    where: dict[Slot, Slot]

    def get(self, t: Tensor) -> Tensor:
        """The entries in the view."""
        names = {index(self.old, s): index(self.dims, self.where[s]) for s in named(self.old)}
        new = counted(self.dims)
        order = [new.index(self.where[s]) for s in counted(self.old)]
        data = {}
        for key, e in t.data.items():
            moved = dict(zip(order, key, strict=True))
            data[tuple(moved[n] for n in range(len(new)))] = (
                e.at(names) if isinstance(e, Index) else e.substituted(names)
            )
        return type(t)(self.dims, data, t.is_bool)

    def put(self, t: Tensor, value: Tensor) -> Tensor:
        """The tensor with these entries in the view."""
        return Moved(self.dims, self.old, {new: old for old, new in self.where.items()}).get(value)


class Part(NamedTuple):
    """Parts start, …, stop - 1 in a counted slot."""

    slot: Slot
    start: int
    stop: int

    def dims(self, old: Dims) -> Dims:
        """The shape of the view."""
        d = len(old) - 1 - self.slot[0]
        k, n = self.slot[1], self.stop - self.start
        return (*old[:d], (*old[d][:k], *((n,) if n > 1 else ()), *old[d][k + 1 :]), *old[d + 1 :])

    def _where(self, old: Dims) -> dict[Slot, Slot]:
        """The slots of what is left if the slot is no longer there."""
        d, k = self.slot
        return {s: (d, s[1] - 1) if s[0] == d and s[1] > k else s for s in slots(old) if s != self.slot}

    def get(self, t: Tensor) -> Tensor:
        """The entries in the view."""
        at, dims = counted(t.dims).index(self.slot), self.dims(t.dims)
        data = {k: e for k, e in t.data.items() if self.start <= k[at] < self.stop}
        if self.stop - self.start > 1:
            return type(t)(dims, {(*k[:at], k[at] - self.start, *k[at + 1 :]): e for k, e in data.items()}, t.is_bool)
        names = {index(t.dims, s): index(dims, new) for s, new in self._where(t.dims).items() if s in named(t.dims)}
        return type(t)(dims, {(*k[:at], *k[at + 1 :]): e.substituted(names) for k, e in data.items()}, t.is_bool)

    def put(self, t: Tensor, value: Tensor) -> Tensor:
        """The tensor with these entries in the view."""
        at = counted(t.dims).index(self.slot)
        if self.stop - self.start > 1:
            data = {(*k[:at], k[at] + self.start, *k[at + 1 :]): e for k, e in value.data.items()}
        else:
            where = self._where(t.dims)
            names = {index(value.dims, new): index(t.dims, s) for s, new in where.items() if s in named(t.dims)}
            data = {(*k[:at], self.start, *k[at:]): e.substituted(names) for k, e in value.data.items()}
        return type(t)(t.dims, {**t.data, **data}, t.is_bool)


class Expanded(NamedTuple):
    """Repeated to a shape."""

    dims: Dims

    def get(self, t: Tensor) -> Tensor:
        """The entries in the view."""
        return t.broadcast_to(self.dims)

    def put(self, t: Tensor, value: Tensor) -> Tensor:
        """Not done, as entries would be written several times."""
        raise UnsupportedError("an assignment to an expanded tensor")


class Reshaped(NamedTuple):
    """The same atoms in their order, in other dimensions; numbers beside each other may be split and merged."""

    old: Dims
    dims: Dims

    def get(self, t: Tensor) -> Tensor:
        """The entries in the view."""
        pairs = zip(named(self.old), named(self.dims), strict=True)
        names = {index(self.old, a): index(self.dims, b) for a, b in pairs}
        data = {}
        for key, e in t.data.items():
            numbers = iter(key)
            flat = [_flat([next(numbers) for _ in ns], ns) for ns in _runs(self.old)]
            new = tuple(n for number, ns in zip(flat, _runs(self.dims), strict=True) for n in _unflat(number, ns))
            data[new] = e.at(names) if isinstance(e, Index) else e.substituted(names)
        return type(t)(self.dims, data, t.is_bool)

    def put(self, t: Tensor, value: Tensor) -> Tensor:
        """The tensor with these entries in the view."""
        return Reshaped(self.dims, self.old).get(value)


def _runs(dims: Dims) -> list[list[int]]:
    """The numbers before, between and after the names of a shape."""
    runs: list[list[int]] = [[]]
    for a in (a for dim in dims for a in dim):
        if isinstance(a, str):
            runs.append([])
        else:
            runs[-1].append(a)
    return runs


def _flat(key: list[int], counts: list[int]) -> int:
    """The number of a place in a block, row by row."""
    return reduce(lambda found, pair: found * pair[1] + pair[0], zip(key, counts, strict=True), 0)


def _unflat(number: int, counts: list[int]) -> list[int]:
    """The place that has a number in a block."""
    found: list[int] = []
    for n in reversed(counts):
        found.insert(0, number % n)
        number //= n
    return found


View = Moved | Reshaped | Part | Expanded


def reshaping(dims: Dims, target: Sequence[Any]) -> Reshaped:
    """Splits and merges of sizes in their order; sizes of 1 come and go, and -1 is what is left."""
    what = f"view of {shown(dims)} as ({', '.join(map(str, target))})"
    wanted = [None if isinstance(n, int) and n == -1 else atoms_of(n) for n in target]
    rest = list(merged(a for dim in dims for a in dim))
    at = wanted.index(None) if None in wanted else len(wanted)
    before = [_taken(rest, w or (), what) for w in wanted[:at]]
    rest.reverse()
    after = [_taken(rest, w or (), what, is_last=True) for w in wanted[:at:-1]][::-1]
    if rest and None not in wanted:
        raise ShapeError(what)
    return Reshaped(dims, (*before, *([tuple(rest[::-1])] if None in wanted else []), *after))


def _taken(rest: list[Atom], wanted: Atoms, what: str, is_last: bool = False) -> Atoms:
    """A dimension, in the order of the first atoms of a list, which loses them."""
    names = [a for a in wanted if isinstance(a, str)]
    number, found = math.prod(a for a in wanted if isinstance(a, int)), list[Atom]()
    while names or number > 1:
        first = rest[0] if rest else 1
        if isinstance(first, str) and first in names:
            names.remove(first)
            found.append(rest.pop(0))
        elif isinstance(first, int) and (count := math.gcd(first, number)) > 1:
            number //= count
            found.append(count)
            rest[:1] = [first // count] if first > count else []
        elif not set(names) <= set(rest) or not rest:
            raise ShapeError(what)
        elif not names and isinstance(first, str) and not any(isinstance(a, int) for a in rest):
            raise DivisionError(what, first, number, is_last)
        else:
            raise OrderError(f"{what}: sizes in another order")
    return merged(found[::-1] if is_last else found)


def permutation(dims: Dims, order: Iterable[int]) -> Moved:
    """The dimensions in another order."""
    places, n = [axis(dims, d) for d in order], len(dims)
    if sorted(places) != list(range(n)):
        raise ShapeError(f"the order {places} of {shown(dims)}")
    where = {(n - 1 - old, k): (n - 1 - new, k) for new, old in enumerate(places) for k in range(len(dims[old]))}
    return Moved(dims, tuple(dims[d] for d in places), where)


def transposition(dims: Dims, a: int, b: int) -> Moved:
    """Two dimensions in the other order."""
    order = list(range(len(dims)))
    a, b = axis(dims, a), axis(dims, b)
    order[a], order[b] = order[b], order[a]
    return permutation(dims, order)


def unsqueezing(dims: Dims, d: int) -> Reshaped:
    """A new dimension of size 1."""
    sizes, d = [Size(dim) for dim in dims], axis(dims, d, 1)
    return reshaping(dims, [*sizes[:d], 1, *sizes[d:]])


def squeezing(dims: Dims, d: Any) -> Reshaped:
    """Without a dimension if its size is 1, or without all those."""
    chosen = [axis(dims, x) for x in (d if isinstance(d, tuple | list) else [d])] if d is not None else range(len(dims))
    for i in chosen:
        if dims[i]:
            asked(Question(f"{Size(dims[i])} = 1", False, lambda sizes, i=i: Size(dims[i]).value(sizes) != 1))  # type: ignore[misc]
    return reshaping(dims, [Size(dim) for i, dim in enumerate(dims) if i not in chosen or dim])


def sliced(dims: Dims, d: int, s: slice) -> Part | None:
    """A slice of a dimension with a number of parts; None if it is all of it."""
    dim = dims[d]
    if s.step not in (None, 1):
        if dim and dim[-1] == s.step and s.stop is None and (s.start or 0) < s.step:
            return Part((len(dims) - 1 - d, len(dim) - 1), s.start or 0, (s.start or 0) + 1)
        raise DivisionError(
            f"every {s.step}th entry of a size {Size(dim)}", dim[-1] if dim else 1, s.step, is_last=True
        )
    if s.start in (None, 0) and (s.stop is None or atoms_of(s.stop) == dim):
        return None
    if not dim or not isinstance(dim[0], int):
        raise UnsupportedError(f"a slice of a size {Size(dim)}: give the size as a product, such as '2*K'")
    start, stop = part_count(dim, s.start, 0), part_count(dim, s.stop, dim[0])
    return Part((len(dims) - 1 - d, 0), start, stop)


def part_count(dim: Atoms, n: Any, default: int) -> int:
    """The number of parts that a size n has, of those that a dimension has."""
    if n is None:
        return default
    if n == 0:
        return 0
    count, rest = int(dim[0]), dim[1:]
    if isinstance(n, int) and not rest:
        return max(n + count if n < 0 else min(n, count), 0)
    atoms = atoms_of(n)
    if atoms == dim:
        return count
    head = atoms[: len(atoms) - len(rest)]
    if atoms[len(head) :] != rest or any(isinstance(a, str) for a in head):
        raise UnsupportedError(f"a slice at {n} of a size {Size(dim)}")
    return math.prod(int(a) for a in head)


def selected(dims: Dims, d: int, number: int) -> Iterator[View]:
    """Entry `number` of a dimension that is a number, which is no dimension afterwards."""
    if Size(dims[d]).constant is None or len(dims[d]) > 1:
        raise UnsupportedError(f"one entry of a size {Size(dims[d])}")
    count = int(Size(dims[d]))
    if not -count <= number < count:
        raise ShapeError(f"entry {number} of a size {count}")
    if dims[d]:
        part = Part((len(dims) - 1 - d, 0), number % count, number % count + 1)
        yield part
        dims = part.dims(dims)
    yield reshaping(dims, [Size(dim) for i, dim in enumerate(dims) if i != d])
