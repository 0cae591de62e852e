"""Sharding: the program of one rank, made from the program of all.

How the inputs are placed is given; in data-parallel training X and T are in ROWS and the state is WHOLE. For all other
values it follows from the shape rule of their operation, as in ``m k, k n -> m n``. To share out m is to have the first
operand and the result in ROWS; to share out k is to have the operands in COLUMNS and in ROWS, and the result is a SUM,
because a product sums over k. Where an operation cannot do with what it is given, a collective comes before it:
``all_reduce`` makes a SUM WHOLE, ``all_gather`` makes ROWS or COLUMNS WHOLE, ``reduce_scatter`` makes a SUM ROWS or
COLUMNS. So every program can be sharded.

The sizes in the numbers of a program, such as the N that a mean divides by, stay those of the whole batch; the sizes in
its shapes become those of the rank.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from enum import Enum

from matgrad.distributed.group import part
from matgrad.program.operations import OPERATIONS
from matgrad.program.program import EXAMPLES, Program, Value
from matgrad.program.shapes import TIMES, BoundSize, Pattern, Shape, Size, is_number_of_elements, size_name


class Placement(Enum):
    """How a value is on the ranks."""

    WHOLE = "whole"  # all of it, equal on all ranks
    ROWS = "rows"  # some of its rows: the ranks have consecutive parts of it
    COLUMNS = "columns"
    SUM = "sum"  # a matrix of its size; the value is the sum of those of all ranks


WHOLE, ROWS, COLUMNS, SUM = Placement
AXES = (ROWS, COLUMNS)  # by the axis that is shared out


Choice = tuple[list[Placement], Placement]  # a way to share out an operation: what its operands need, and its result
Watch = Callable[[Value, list[Placement], Placement], None]  # is told how an operation is shared out


def sharded(
    program: Program, placements: Mapping[str, Placement], rank: int, size: int, watch: Watch = lambda *choice: None
) -> Program:
    """The program of one of `size` ranks, for inputs that are placed so; other inputs are WHOLE.

    An output is placed like the input that it replaces.
    """
    _check(program, placements)
    return _Sharder(program, placements, rank, size, watch).result()


class _Sharder:
    def __init__(
        self, program: Program, placements: Mapping[str, Placement], rank: int, size: int, watch: Watch
    ) -> None:
        self.program, self.rank, self.size, self.watch = program, rank, size, watch
        self.placements = defaultdict(lambda: WHOLE, placements)
        self.uses = program.uses()
        self.wishes = self._wishes()
        self.own: dict[Value, tuple[Value, Placement]] = {}  # what a value has become on this rank
        self.known: dict[tuple[Value, Placement], Value] = {}  # the same in other placements

    def result(self) -> Program:
        """The program of the rank."""
        for i, value in enumerate(self.program.all_values):
            new, placement = self._placed(value)
            self.own[value] = replace(new, order=2 * i), placement  # those between are for collectives
        outputs = {name: self.at(value, self.placements[name]) for name, value in self.program.outputs.items()}
        return Program({name: self.own[value][0] for name, value in self.program.inputs.items()}, outputs)

    def _wishes(self) -> dict[Value, Placement]:
        """The parts that outputs need of values from which they are computed element by element."""
        outputs, places = self.program.outputs, self.placements
        wishes = {x: places[name] for name, x in outputs.items() if places[name] in AXES}
        for value in reversed(self.program.values):
            if value in wishes and value.kind == "elementwise":
                for x in value.operands:
                    if not x.is_scalar:
                        wishes.setdefault(x, wishes[value])
        return wishes

    # -- how operations place their results ---------------------------------------------------------
    def _placed(self, value: Value) -> tuple[Value, Placement]:
        """The value on this rank, and how it is placed."""
        if value.kind == "source":
            return self._source(value)
        if self._stays_sum(value):
            return self._made(value, ([SUM] * len(value.operands), SUM))
        places = [self.own[x][1] for x in value.operands]
        places = [self.wishes.get(x, WHOLE) if p == SUM else p for x, p in zip(value.operands, places, strict=True)]

        def cost(choice: Choice) -> tuple[int, bool]:  # how many operands have to be gathered, and whether to add up
            gathered = [place in AXES and place != need for place, need in zip(places, choice[0], strict=True)]
            return sum(gathered), choice[1] == SUM

        by_every_rank: Choice = [WHOLE] * len(places), WHOLE
        new, placement = self._made(value, min(self._choices(value, places), key=cost, default=by_every_rank))
        if placement == SUM and OPERATIONS[value.operation].over == "max":
            return self._collective("all_max", value, replace(new, order=2 * len(self.own)), WHOLE), WHOLE
        return new, placement

    def _source(self, value: Value) -> tuple[Value, Placement]:
        """An input or a support as it is placed, and a number, in which N is that of all ranks."""
        if value.operation == "number":
            return replace(value, number=int(value.number) if isinstance(value.number, Size) else value.number), WHOLE
        placement = self.placements[value.name]
        return replace(value, shape=self._shape(value, placement)), placement

    def _stays_sum(self, value: Value) -> bool:
        """Whether to add up what is added up further, or with another sum, before it is sent: that is less to send."""
        is_sum = value.kind == "reduction" and OPERATIONS[value.operation].over == "sum"  # not a product of two sums
        return (is_sum or value.operation in ("add", "subtract")) and all(
            self.own[x][1] == SUM and self.uses[x] == 1 for x in value.operands
        )

    def _choices(self, value: Value, places: list[Placement]) -> Iterator[Choice]:
        """The ways to share out an operation, one for each size by which an operand is."""
        operation = OPERATIONS[value.operation]
        *operands, result = operation.shapes.patterns(*(x.shape for x in value.operands), value.shape)
        names = [_first(x[AXES.index(place)]) for x, place in zip(operands, places, strict=True) if place in AXES]
        for name in dict.fromkeys(names):
            shared = {"K", "nnz"} if value.kind == "sparse" and name in ("K", "nnz") else {name}
            needed = [place for x in operands if (place := _shared_out(x, shared))]
            to = _shared_out(result, shared)
            if to == WHOLE:
                to = SUM if operation.over else None
            triples = zip(operands, places, needed, strict=False)
            is_moved = any(place != need for x, place, need in triples if len(x) == 3)  # which a support cannot be
            is_shared = to and len(needed) == len(operands) and operation.kind != "other" and name != "1"
            if to and is_shared and not is_moved and self._is_divided(value, shared):
                yield needed, to

    def _is_divided(self, value: Value, names: set[str]) -> bool:
        """Whether all matrices that have a size with one of these names are shared out in the same units of it."""
        shapes, rule = [*(x.shape for x in value.operands), value.shape], OPERATIONS[value.operation].shapes
        sizes = rule.sizes(value.shape, shapes[:-1]) or {}
        units = set()
        for pattern, shape in zip(rule.patterns(*shapes), shapes, strict=True):
            for name, n in zip(pattern, shape, strict=True) if len(pattern) == 2 else ():
                first, *others = name.split(TIMES)
                if first in names and not is_number_of_elements(n):
                    unit, rest = getattr(n, "unit", 1), math.prod(int(sizes[other]) for other in others)
                    units.add(unit // rest if unit % rest == 0 and n >= self.size * unit else None)
        return len(units) <= 1 and None not in units

    def _made(self, value: Value, choice: Choice) -> tuple[Value, Placement]:
        """The value from operands that are placed so."""
        needs, result = choice
        self.watch(value, needs, result)
        operands = tuple(map(self.at, value.operands, needs))
        return replace(value, operands=operands, shape=self._shape(value, result)), result

    # -- other placements of a value ------------------------------------------------------------------
    def at(self, value: Value, placement: Placement) -> Value:
        """The value in this placement."""
        new, own = self.own[value]
        if own != placement and (value, placement) not in self.known:
            self.known[value, placement] = self._moved(value, own, placement)
        return new if own == placement else self.known[value, placement]

    def _moved(self, value: Value, own: Placement, placement: Placement) -> Value:
        """The value in another placement than its own."""
        new, axis = self.own[value][0], placement.value
        if own == WHOLE:
            return self._part(value, placement) or self._collective(f"take_{axis}", value, new, placement)
        if placement == WHOLE:
            return self._collective("all_reduce" if own == SUM else f"all_gather_{own.value}", value, new, WHOLE)
        if own == SUM:
            return self._collective(f"reduce_scatter_{axis}", value, new, placement)
        return self._collective(f"take_{axis}", value, self.at(value, WHOLE), placement)

    def _part(self, value: Value, placement: Placement) -> Value | None:
        """This rank's part of a WHOLE value, computed as such: of a view, or element by element."""
        if value.kind not in ("view", "elementwise"):
            return None
        *operands, result = OPERATIONS[value.operation].shapes.patterns(*(x.shape for x in value.operands), value.shape)
        name = _first(result[AXES.index(placement)])
        places = [place for x in operands if (place := _shared_out(x, {name}))]
        if len(places) < len(operands) or not self._is_divided(value, {name}):
            return None
        self.watch(value, places, placement)
        parts = tuple(map(self.at, value.operands, places))
        return replace(self.own[value][0], operands=parts, shape=self._shape(value, placement), name="")

    def _collective(self, operation: str, value: Value, x: Value, placement: Placement) -> Value:
        """What a collective makes of x, which is the value in another placement."""
        shape = self._shape(value, placement)
        return Value(operation, (x,), shape, value.dtype, equation=value.equation, order=x.order + 1)

    def _shape(self, value: Value, placement: Placement) -> Shape:
        """The shape of what this rank has of a value."""
        if placement not in AXES:
            return value.shape
        axis = AXES.index(placement)
        n = value.shape[axis]
        if is_number_of_elements(n):  # those of the rank's rows of a support
            return value.shape
        unit = getattr(n, "unit", 1)
        if n < self.size * unit:
            what = value.name or value.operation
            raise ValueError(f"{what} has {n} {placement.value}, expected at least one for each of {self.size} ranks")
        rows = part(n, self.rank, self.size)
        own = BoundSize(rows.stop - rows.start, f"{size_name(n)}/{self.size}", unit)
        return (*value.shape[:axis], own, *value.shape[axis + 1 :])


def _check(program: Program, placements: Mapping[str, Placement]) -> None:
    """Raise ValueError if the program has no such input, or elements are placed without their support."""
    known = [*program.inputs, *program.supports]
    for name in placements:
        if name not in known:
            raise ValueError(f"{name}: the program has no such input; known: {', '.join(known)}")
        if placements[name] != WHOLE and name in program.inputs and program.inputs[name].is_scalar:
            raise ValueError(f"{name} is a scalar: expected a matrix to be in {placements[name].value}")
    supports = {size_name(S.shape[2]): S.name for S in program.supports.values()}
    for name, x in program.inputs.items():
        if not x.is_scalar and size_name(x.shape[-1]) in supports:
            found, support = placements.get(name, WHOLE), supports[size_name(x.shape[-1])]
            of_support = placements.get(support, WHOLE)
            if (found, of_support) not in ((WHOLE, WHOLE), (COLUMNS, ROWS)):
                raise ValueError(
                    f"{name}, one value per element of {support}: expected both whole, or {name} in columns and "
                    f"{support} in rows, found {found.value} and {of_support.value}"
                )


def _shared_out(pattern: Pattern, names: set[str]) -> Placement | None:
    """How an operand or a result of this pattern is placed if sizes with these names are shared out; None if it cannot.

    A support can be shared out by its rows, together with its elements, and a product of sizes by the first of them.
    """
    if len(pattern) == 3:
        return ROWS if "K" in names else None if "D" in names else WHOLE
    if not names.isdisjoint(other for name in pattern for other in name.split(TIMES)[1:]):
        return None
    axes = [axis for axis, name in enumerate(pattern) if _first(name) in names]
    return WHOLE if not axes else AXES[axes[0]] if len(axes) == 1 else None


def _first(name: str) -> str:
    """The first size of a product."""
    return name.partition(TIMES)[0]


Placements = dict[str, Placement]  # by the names of inputs; others are WHOLE


def data_parallel(program: Program, size: int) -> Placements:
    """X, T and the weights s of the examples in ROWS; of sparse examples, the support and, with it, its values.

    A batch with fewer rows than there are ranks is not shared out: all of them compute all of it.
    """
    if program.inputs["T"].shape[0] < size:
        return {}
    examples = {name: ROWS for name in ("X", "T", "s") if name in program.inputs}
    return examples | ({EXAMPLES: ROWS, "X": COLUMNS} if EXAMPLES in program.supports else {})


def shared_optimizer(program: Program, size: int) -> Placements:
    """Data-parallel, and every rank keeps only a part of what the optimizers remember, as in ZeRO-1.

    It is in ROWS, or in COLUMNS if it has fewer rows than there are ranks. What is too small for both stays WHOLE, and
    so does what has one value per element of a sparse matrix.
    """
    found = data_parallel(program, size)
    for name, x in program.inputs.items():
        if any(name.startswith(f"{other}.") for other in program.inputs):
            axes = () if x.is_scalar or is_number_of_elements(x.shape[1]) else zip(AXES, x.shape, strict=True)
            found[name] = next((axis for axis, n in axes if n >= size), WHOLE)
    return found


def with_optimizers(program: Program, placements: Mapping[str, Placement]) -> Placements:
    """The placements, where what an optimizer remembers of a matrix is placed like it, if nothing else is said."""
    found = dict(placements)
    for name, placement in placements.items():
        remembered = [x for x in program.inputs if x.startswith(f"{name}.") and not program.inputs[x].is_scalar]
        found = dict.fromkeys(remembered, placement) | found
    return found
