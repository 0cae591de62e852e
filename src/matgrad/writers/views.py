"""Views of tensors: `get` shows the entries of a tensor, and `put` is the tensor with other entries in the view."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

from matgrad.index_notation.expressions import delta, total
from matgrad.index_notation.indices import Index, Last, shifted
from matgrad.writers.sizes import (
    MOST_PARTS,
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
    less,
    longer,
    merged,
    parted,
    shown,
)
from matgrad.writers.slots import Key, Slot, atom, axis, counted, index, inside, named, slots

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
            data[tuple(moved[n] for n in range(len(new)))] = substituted(e, names)
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


class Window(NamedTuple):
    """T - n entries along a size of T, after the first `start`: the index i of the view is i + start."""

    slot: Slot
    start: int
    missing: int  # how many there are less

    def dims(self, old: Dims) -> Dims:
        """The shape of the view."""
        return with_dim(old, self.slot, (less(atom(old, self.slot), self.missing),))

    def get(self, t: Tensor) -> Tensor:
        """The entries in the view."""
        i = index(t.dims, self.slot)
        data = {k: substituted(e, {i: shifted(i, self.start)}) for k, e in t.data.items()}
        return type(t)(self.dims(t.dims), data, t.is_bool)

    def put(self, t: Tensor, value: Tensor) -> Tensor:
        """The tensor with these entries in the view."""
        i = index(t.dims, self.slot)
        here = inside(i, self.start, parted(atom(value.dims, self.slot))[1])
        new = {k: substituted(e, {i: shifted(i, -self.start)}) for k, e in value.data.items()}
        return type(t)(t.dims, {k: here * new[k] + (1 - here) * e for k, e in t.data.items()}, t.is_bool)


class Picked(NamedTuple):
    """Entries along a size, by their distances from the last one: 0, or 1 for the first one, and so on."""

    slot: Slot
    places: Sequence[int]

    def dims(self, old: Dims) -> Dims:
        """The shape of the view."""
        return with_dim(old, self.slot, atoms_of(len(self.places)))

    def _keys(self, key: Key, dims: Dims) -> list[Key]:
        """The keys in the view for one of the tensor."""
        if len(self.places) == 1:
            return [key]
        at = counted(dims).index(self.slot)
        return [(*key[:at], n, *key[at:]) for n in range(len(self.places))]

    def get(self, t: Tensor) -> Tensor:
        """The entries in the view."""
        i, dims, data = index(t.dims, self.slot), self.dims(t.dims), {}
        for key, e in t.data.items():
            for new, place in zip(self._keys(key, dims), self.places, strict=True):
                data[new] = substituted(e, {i: shifted(Last(i.size), place)})
        return type(t)(dims, data, t.is_bool)

    def put(self, t: Tensor, value: Tensor) -> Tensor:
        """The tensor with these entries in the view."""
        i, data = index(t.dims, self.slot), {}
        here = [delta(i, shifted(Last(i.size), place)) for place in self.places]
        for key, e in t.data.items():
            new = [value.data[k] for k in self._keys(key, value.dims)]
            data[key] = (1 - total(here)) * e + total(h * x for h, x in zip(here, new, strict=True))
        return type(t)(t.dims, data, t.is_bool)


def with_dim(dims: Dims, slot: Slot, atoms: Atoms) -> Dims:
    """A shape with another dimension in the place of a slot."""
    d = len(dims) - 1 - slot[0]
    return (*dims[:d], atoms, *dims[d + 1 :])


def substituted(e: Any, indices: Mapping[Index, Index]) -> Any:
    """An entry, which may be a position or label, with other indices."""
    return e.at(indices) if isinstance(e, Index) else e.substituted(indices)


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
            data[new] = substituted(e, names)
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


View = Moved | Reshaped | Part | Window | Picked | Expanded


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


def sliced(dims: Dims, d: int, s: slice) -> Part | Window | Picked | None:
    """A slice of a dimension with a number of parts; None if it is all of it."""
    dim = dims[d]
    if s.step not in (None, 1):
        if dim and dim[-1] == s.step and s.stop is None and (s.start or 0) < s.step:
            return Part((len(dims) - 1 - d, len(dim) - 1), s.start or 0, (s.start or 0) + 1)
        raise DivisionError(
            f"every {s.step}th entry of a size {Size(dim)}", dim[-1] if dim else 1, s.step, is_last=True
        )
    if s.start in (None, 0) and (s.stop is None or (isinstance(s.stop, Size) and s.stop.atoms == dim)):
        return None
    if not dim or not isinstance(dim[0], int):
        return neighbours(dims, d, s)
    start, stop = part_count(dim, s.start, 0), part_count(dim, s.stop, dim[0])
    return Part((len(dims) - 1 - d, 0), start, stop)


def neighbours(dims: Dims, d: int, s: slice) -> Window | Picked:
    """A slice of a dimension with a named size T: all but some of the first and last ones, or some of these."""
    dim, slot = dims[d], (len(dims) - 1 - d, 0)
    if len(dim) != 1 or not isinstance(dim[0], str):
        raise UnsupportedError(f"a slice of a size {Size(dim)}: give the size as a product, such as '2*K'")
    missing = parted(dim[0])[1]
    from_end, start = (False, 0) if s.start is None else _end(s.start, dim[0])
    to_end, stop = (True, 0) if s.stop is None else _end(s.stop, dim[0])
    if to_end and not from_end:
        longer(dim[0], start - stop)
        return Window(slot, start, start - stop)
    if from_end != to_end or not stop > start:
        raise UnsupportedError(f"a slice of a size {Size(dim)} from {s.start} to {s.stop}")
    longer(dim[0], max(stop, -start) - 1)
    if stop - start > MOST_PARTS:
        raise UnsupportedError(f"a slice of {stop - start} entries")
    return Picked(slot, range(start - missing + 1, stop - missing + 1) if from_end else range(start + 1, stop + 1))


def _end(n: Any, size: str) -> tuple[bool, int]:
    """Whether a place is counted from the end of a size, and its number, which is 0 or less then."""
    if isinstance(n, Size):
        match n.atoms:
            case (str() as a,) if parted(a)[0] == parted(size)[0]:
                return True, parted(size)[1] - parted(a)[1]
        raise UnsupportedError(f"a slice at {n} of a size {Size((size,))}")
    return n < 0, int(n)


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
    if Size(dims[d]).constant is None:
        picked = neighbours(dims, d, slice(number, number + 1 or None))
        yield picked
        dims = picked.dims(dims)
        yield reshaping(dims, [Size(dim) for i, dim in enumerate(dims) if i != d])
        return
    if len(dims[d]) > 1:
        raise UnsupportedError(f"one entry of a size {Size(dims[d])}")
    count = int(Size(dims[d]))
    if not -count <= number < count:
        raise ShapeError(f"entry {number} of a size {count}")
    if dims[d]:
        part = Part((len(dims) - 1 - d, 0), number % count, number % count + 1)
        yield part
        dims = part.dims(dims)
    yield reshaping(dims, [Size(dim) for i, dim in enumerate(dims) if i != d])
