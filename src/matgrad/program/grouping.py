"""Which values of a program one kernel computes: a product with what follows it, or a map with its sums and maxima.

A kernel has a domain, m×n, which it covers with tiles. A value in it is as large as the domain, or a row, a column or a
scalar of it. What only this kernel needs never leaves the registers. What a tile can hold is said by an executor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from matgrad.program.buffers import Instruction
from matgrad.program.operations import OPERATIONS, STACKS
from matgrad.program.program import Program, Value
from matgrad.program.shapes import Shape

Method = Literal["tile", "split", "library"]  # how a product is computed
Kind = Literal["call", "product", "parts", "map"]


class Limits(NamedTuple):
    """What one tile of an executor's kernels can sum up."""

    longest: int  # row or column
    largest: int  # elements of a tile that has both
    narrow: int  # columns of a product that is followed by sums of rows


@dataclass(eq=False)
class Group(Instruction):
    """The values of one kernel.

    A ``call`` is one instruction of `Kernels`. A ``product`` is the product of two matrices, and what follows it
    element by element. A ``map`` is made of elementwise operations, sums and maxima. ``parts`` are sums of parts of a
    product, which the ``map`` that has this product adds up.
    """

    kind: Kind
    values: list[Value]
    domain: Shape
    limits: Limits
    operands: set[Value] = field(default_factory=set, kw_only=True)  # apart from its own values
    product: Value | None = None  # that it computes, or adds up from its parts
    parts: Group | None = None  # which computes these
    whole_rows: bool = False  # whether a tile has whole rows, to sum them up
    whole_columns: bool = False

    @property
    def factors(self) -> tuple[Value, ...]:
        """Of its product."""
        return () if self.product is None else self.product.operands[-2:]

    def needs(self, home: Mapping[Value, Group]) -> set[Group]:
        """The groups that it reads from: the homes of its operands, and the parts of its product."""
        return ({home[x] for x in self.operands if x in home} | {self.parts or self}) - {self}

    def holds(self, value: Value) -> bool:
        """Whether it can compute the value, whose operands are in memory or among its own values."""
        if value.kind == "reduction":
            return self._reduces(value)
        if value.operation == "uniform" and value.shape != self.domain:
            return False  # its numbers depend on their positions in it
        return is_mapped(value) and self.has_layout(value.shape) and self.reads(value)

    def _reduces(self, value: Value) -> bool:
        """Whether it can compute a sum or a maximum, for which its tiles must be long enough."""
        (X,) = value.operands
        rows, columns = _lengths(value)
        m, n = self.domain
        if X.shape != self.domain or 0 in self.domain or not self.reads(value):
            return False
        if self.kind == "product":
            return rows and not columns and n <= self.limits.narrow
        rows, columns = rows or self.whole_rows, columns or self.whole_columns
        longest, largest, _ = self.limits
        return max(n * rows, m * columns) <= longest and m * n * (rows and columns) <= largest

    def has_layout(self, shape: Shape) -> bool:
        """Whether one tile computes every element of a value of that shape, and no other tile does."""
        m, n = self.domain
        each_column, each_row = self.whole_columns or m == 1, self.whole_rows or n == 1
        found = {(m, n): True, (1, n): each_column, (m, 1): each_row}
        return found.get(shape, False) or (shape in ((), (1, 1)) and each_column and each_row)

    def reads(self, value: Value) -> bool:
        """Whether all operands have layouts of the domain, its own values as they are and not transposed.

        The factors of a product are read from memory as a whole: they cannot be its own values.
        """
        m, n = self.domain
        if any(map(is_reshaped, value.operands)):
            return False
        others = len(value.operands) - 2 * (value.kind == "product")
        found, factors = [*map(located, value.operands[:others])], [*map(located, value.operands[others:])]
        shapes = {base.shape[:: -1 if is_flipped else 1] for base, is_flipped in found}
        is_own = any(is_flipped and base in self.values for base, is_flipped in found)
        is_own = is_own or any(base in self.values for base, _ in factors)
        return not is_own and shapes <= {(m, n), (1, n), (m, 1), (1, 1), ()}

    def may_overwrite(self, old: Value, new: Value) -> bool:
        """Whether `new` can be computed in the memory of `old`, whose elements are read before."""
        if old not in self.operands:
            return True
        if self.kind == "call":
            is_joined = len(self.values) > 1 and new is self.values[1]  # where w may be read: see `sparse_gradients`
            factors = [located(x)[0] for x in new.operands[-2:]]
            return old not in factors if is_joined else super().may_overwrite(old, new)
        if self.kind == "product" and old in [located(x)[0] for x in self.factors]:
            return False
        reads = [located(x) for value in self.values for x in value.operands]
        return (old, True) not in reads and self.has_layout(old.shape)

    def add(self, value: Value) -> None:
        """Compute the value too."""
        if value.kind == "reduction":
            rows, columns = _lengths(value)
            self.whole_rows |= rows
            self.whole_columns |= columns
        self.values.append(value)
        self.operands |= bases(value)
        self.operands -= set(self.values)


def _lengths(value: Value) -> tuple[bool, bool]:
    """Whether a sum or maximum needs whole rows, and whole columns."""
    axes = OPERATIONS[value.operation].axes
    return 1 in axes, 0 in axes


def located(value: Value) -> tuple[Value, bool]:
    """The value whose memory this one refers to, and whether it is transposed; repetitions are implied."""
    is_flipped = False
    while value.kind == "view":
        is_flipped ^= value.operation == "transpose"
        value = value.operands[0]
    return value, is_flipped


def is_reshaped(value: Value) -> bool:
    """Whether a value is a view of a stack, or of an unstack, which kernels of our own do not read."""
    return value.kind == "view" and (value.operation in STACKS or is_reshaped(value.operands[0]))


def is_mapped(value: Value) -> bool:
    """Whether a value is computed element by element, or sums elements up: what follows a product, or makes a map."""
    return value.kind in ("elementwise", "reduction") or value.operation == "uniform"


def bases(value: Value) -> set[Value]:
    """The values whose memory is read to compute a value from its operands; numbers have none."""
    found: set[Value] = set()
    for base, _ in map(located, value.operands):
        if base.is_free:
            found |= bases(base)
        elif base.operation != "number":
            found.add(base)
    return found


def grouped(program: Program, method: Callable[[Value], Method], limits: Limits) -> list[Group]:
    """The values of a program in groups, in an order in which they can be computed, where possible in place.

    Wᵀ DZᵀ and (DZᵀ X)_S of a sparse layer make one call, which reads DZ once.
    """
    builder = _Builder(program, method, limits)
    for value in program.values:
        if value.kind not in ("source", "view") and not value.is_free:
            builder.place(value)
    builder.place_scalars(program.outputs.values())
    groups, home = ordered(builder.groups, builder.home), builder.home
    assert groups is not None, "the groups need one another"
    for group in groups:
        if group.kind != "parts":
            read = {x for other in groups if other is not group for x in other.operands} | {*program.outputs.values()}
            group.written = [value for value in group.values if value in read]
    after: list[tuple[Group, Group]] = []  # (one that reads an input, the one whose output replaces it)
    for name, value in program.outputs.items():
        old, own = program.inputs.get(name), home.get(value)
        if old is not None and old is not value and own is not None and own.may_overwrite(old, value):
            readers = [(group, own) for group in groups if group is not own and old in group.operands]
            if found := ordered(groups, home, [*after, *readers]):
                groups, after = found, [*after, *readers]
    return groups


class _Builder:
    def __init__(self, program: Program, method: Callable[[Value], Method], limits: Limits) -> None:
        self.method, self.limits = method, limits
        self.number = {value: k for k, value in enumerate(program.values)}
        self.groups: list[Group] = []
        self.home: dict[Value, Group] = {}  # the group that has a value in memory or computes it

    def place(self, value: Value) -> None:
        """Put a value into a group: that of an operand, with which the groups of others are joined, or a new one."""
        if value.kind == "product":
            return self._place_product(value)
        if not is_mapped(value):
            return self._call(value)
        homes = {self.home[base] for base in bases(value) if base in self.home}
        fitting = [g for g in reversed(self.groups) if g in homes and g.kind in ("product", "map")]
        found = sorted(fitting, key=lambda g: (-math.prod(g.domain), g.product is None))  # the largest and last first
        for may_join in (False, True):
            for group in (g for g in found if g in self.groups):  # those that are left, as some are joined with others
                if may_join:
                    self._join(found, group)
                if group.holds(value) and self._stays_acyclic(group, value):
                    self._put(group, value)
                    return self._join(found, group)  # which sees what the value reads from the others
        domain = value.operands[0].shape if value.kind == "reduction" else value.shape
        group = Group("map", [], domain or (1, 1), self.limits)
        return self._put(group, value) if group.holds(value) else self._call(value)

    def _put(self, group: Group, *values: Value) -> None:
        """Compute values in a group, which may be new."""
        if group not in self.groups:
            self.groups.append(group)
        for value in values:
            group.add(value)
            self.home[value] = group

    def place_scalars(self, values: Iterable[Value]) -> None:
        """Compute scalars that every kernel can compute for itself, because they are needed in memory."""
        found = {value for value in values if value.is_free and value not in self.home}
        if found:
            self._put(Group("map", [], (1, 1), self.limits), *sorted(found, key=self.number.__getitem__))

    def _place_product(self, value: Value) -> None:
        method = self.method(value)
        pairs = [(x, located(x)[0]) for x in value.operands[-2:]]  # one may be repeated, or a scalar in memory
        is_other = any(not b.shape or math.prod(b.shape) != math.prod(x.shape) for x, b in pairs)
        if method == "library" or is_other or any(map(is_reshaped, value.operands)):
            return self._call(value)
        factors, others = {b for _, b in pairs}, bases(replace(value, operands=value.operands[:-2]))
        group = Group("product", [value], value.shape, self.limits, operands=factors | others, product=value)
        if method == "split":
            parts = Group("parts", [value], value.shape, self.limits, operands=factors, product=value)
            group = replace(group, kind="map", operands=others, parts=parts)
            self.groups.append(parts)
        self.groups.append(group)
        self.home[value] = group

    def _call(self, value: Value) -> None:
        """One instruction of `Kernels`, which reads scalars from memory too."""
        operands = [located(x)[0] for x in value.operands]
        self.place_scalars(operands)
        group = next((group for group in self.groups if self._is_other_gradient(group, value)), None)
        if group is None:
            self.groups.append(group := Group("call", [], value.shape, self.limits))
        group.values = sorted([*group.values, value], key=is_sampled)
        group.operands |= {x for x in operands if x.operation != "number"}
        self.home[value] = group

    def _is_other_gradient(self, group: Group, value: Value) -> bool:
        """Whether a group calls Wᵀ DZᵀ and the value is (DZᵀ X)_S on the support S of W, or the reverse, as one can."""
        first, key = group.values[0], _gradient_of(value)
        is_other = len(group.values) == 1 and is_sampled(first) != is_sampled(value)
        return is_other and key is not None and _gradient_of(first) == key and self._stays_acyclic(group, value)

    def _join(self, found: list[Group], group: Group) -> None:
        """Take other groups into this one where it can compute their values too."""
        for other in found:
            if other is group or other not in self.groups or other.kind != "map" or other.product is not None:
                continue
            joined, pairs = _joined(group, other), ((group, other), (other, group))
            if joined is not None and not any(self._reach(a.needs(self.home) - {b}, b) for a, b in pairs):  # by a third
                joined.values.sort(key=self.number.__getitem__)
                vars(group).update(vars(joined))
                self.groups.remove(other)
                self.home |= dict.fromkeys(other.values, group)

    def _stays_acyclic(self, group: Group, value: Value) -> bool:
        """Whether nothing that the value needs from other groups needs this one."""
        return not self._reach({self.home[x] for x in bases(value) if x in self.home} - {group}, group)

    def _reach(self, groups: set[Group], target: Group) -> bool:
        """Whether one of the groups needs the target, or is it."""
        pending, seen = groups, groups
        while pending and target not in pending:
            pending = set().union(*(group.needs(self.home) for group in pending)) - seen
            seen = seen | pending
        return target in pending


def _joined(group: Group, other: Group) -> Group | None:
    """A group with the values of both, if it can compute them, also those that read values of the other."""
    joined = replace(group, values=list(group.values), operands=set(group.operands))
    for value in other.values:
        if not joined.holds(value):
            return None
        joined.add(value)
    return joined if all(map(joined.reads, joined.values)) else None


def is_sampled(value: Value) -> bool:
    """Whether a value is a product at the positions of a support."""
    return value.operation in ("sampled_product", "sampled_sum")


def _gradient_of(value: Value) -> tuple[Value, Value] | None:
    """The support and DZᵀ, if a value is a gradient of a sparse layer: Wᵀ DZᵀ or (DZᵀ X)_S."""
    if value.operation == "sparse_transposed_product":
        return value.operands[0], value.operands[2]
    return (value.operands[0], value.operands[-2]) if is_sampled(value) else None


def ordered(
    groups: Iterable[Group], home: Mapping[Value, Group], after: Iterable[tuple[Group, Group]] = ()
) -> list[Group] | None:
    """The groups in an order in which each comes after those it needs, and after those that pairs (before, after) name.

    None if there is no such order.
    """
    groups = list(groups)
    needs = {group: group.needs(home) for group in groups}
    for before, later in after:
        needs[later].add(before)
    done: dict[Group, None] = {}
    while len(done) < len(groups):
        ready = next((g for g in groups if g not in done and needs[g] <= done.keys()), None)
        if ready is None:
            return None
        done[ready] = None
    return list(done)
