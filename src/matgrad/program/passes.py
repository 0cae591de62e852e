"""Proofs of compilations: what a rule puts for a value has the same entries, for all sizes.

Values that are computed in the same way from equal values have one number. An application of a rule is proved in index
notation, where what both sides are computed from are arbitrary matrices; then both sides have one number, too.
"""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from matgrad.index_notation.expressions import Entry, Expression, UndefinedError, is_equal, of
from matgrad.index_notation.expressions import size as size_of
from matgrad.index_notation.functions import exact, maximum
from matgrad.index_notation.indices import Index, new_index
from matgrad.index_notation.indices import divided as divided_index
from matgrad.index_notation.sums import summed_over
from matgrad.program import rules
from matgrad.program.entries import IndexMatrix, indices_of
from matgrad.program.operations import OPERATIONS, STACKS
from matgrad.program.program import Program, Value, in_order
from matgrad.program.shapes import TIMES, Pattern, Shape, Size, size_name
from matgrad.program.sharding import AXES, Placement

# sums with products of sparse matrices, which have no entries: β·C + α·P, at these places among the operands
FUSED = {total: product for product, total in rules.PRODUCT_SUMS.items() if OPERATIONS[total].index is None}
SUMMANDS = (1, 2, 3)


class Sizes:
    """Names for the sizes of values: equal ones have the same, and those of stacks are products of names."""

    def __init__(self, values: Iterable[Value]) -> None:
        self.products: dict[int, tuple[Any, Any]] = {}
        for x in values:
            if x.operation in STACKS:
                X, U = (x.operands[0].shape, x.shape)[:: 1 if x.operation == "stack" else -1]
                p = int(U[0]) // int(X[0])
                self.products |= {int(X[1]): (p, U[1])} if type(X[1]) is int else {}
                self.products |= {int(U[0]): (X[0], p)} if type(U[0]) is int else {}

    def shape(self, shape: Shape) -> Shape:
        """A shape of named sizes."""
        return tuple(Size(name) if (name := self.name(n)) else 1 for n in shape)

    def name(self, n: Any) -> str:
        """The name of a size; none of 1."""
        if type(n) is int and n in self.products and n not in self.products[n]:
            return TIMES.join(name for x in self.products[n] if (name := self.name(x)))
        names = [f"n{x}" if x[0].isdigit() else x for x in str(size_name(n)).split(TIMES)]
        return TIMES.join(re.sub(r"\W", "_", x) for x in names) if size_name(n) != 1 else ""


@dataclass
class Unproved:
    """An application of a rule that is not proved."""

    rule: str
    before: Value
    after: Value
    reason: str

    def __str__(self) -> str:
        return f"NOT PROVED: {self.rule} puts {self.after.operation} for {self.before.operation}: {self.reason}"


class Equality:
    """Which values of programs are equal, and by which rules."""

    def __init__(self) -> None:
        self.known: dict[Value, int] = {}
        self.numbers: dict[tuple[Any, ...], int] = {}
        self.same: list[int] = []  # as a number, one that is equal to it
        self.proved: Counter[str] = Counter()
        self.unproved: list[Unproved] = []
        self.sizes = Sizes([])

    def __str__(self) -> str:
        """One line for each rule, with its equation, and for what is not proved."""
        lines = []
        for rule, count in self.proved.items():
            equation = (inspect.getdoc(getattr(rules, rule)) or "").partition("\n")[0]
            lines.append(f"proved for all sizes, {count} time{'s' * (count > 1)}: {equation}")
        return "\n".join([*lines, *map(str, self.unproved)]) or "no rule applies"

    def number(self, value: Value) -> int:
        """A number that equal values have."""
        if value not in self.known:
            for x in in_order([value]):
                if x not in self.known:
                    self.known[x] = self._new(x)
        return self._root(self.known[value])

    def _new(self, value: Value) -> int:
        if value.operation == "copy":
            return self.number(value.operands[0])
        key = value.key(self.number)
        if key not in self.numbers:
            self.numbers[key] = len(self.same)
            self.same.append(len(self.same))
        return self._root(self.numbers[key])

    def _root(self, number: int) -> int:
        while self.same[number] != number:
            number = self.same[number]
        return number

    def prove(self, rule: Callable[..., Any], before: Value, after: Value) -> None:
        """Note that a rule has put one value for another, and whether that is proved."""
        if self.number(before) != self.number(after):
            if reason := self._problem(before, after):
                self.unproved.append(Unproved(rule.__name__, before, after, reason))
                return
            self.same[self.number(after)] = self.number(before)
        self.proved[rule.__name__] += 1

    def _problem(self, before: Value, after: Value) -> str:
        """Why two values are not proved to be equal; '' if they are."""
        if list(map(size_name, before.shape)) != list(map(size_name, after.shape)):
            return f"its sizes are {before.shape} before and {after.shape} after"
        self.sizes = Sizes(in_order([before, after]))
        shared = {self.number(x) for x in in_order([before])} & {self.number(x) for x in in_order([after])}
        problem = ""
        for symbols in (shared, {self.number(x) for x in after.operands}):  # what is arbitrary
            try:
                left, right = (self._entry(x, symbols) for x in (before, after))
            except (TypeError, ValueError, UndefinedError) as error:
                problem = problem or f"it has no entry in index notation: {error}"
                continue
            if is_equal(left, right):
                return ""
            problem = f"its entry is {left} before and {right} after"
        return problem

    def _entry(self, value: Value, shared: set[int]) -> Expression:
        """The entry of a value, in which shared ones are symbols."""
        found: dict[Value, Expression] = {}
        for x in self._order(value, shared):
            shape, operation = self.sizes.shape(x.shape), OPERATIONS[x.operation]
            if x.operation == "number":
                n: Any = x.number
                found[x] = size_of(self.sizes.name(n)) if isinstance(n, Size) else exact(n)
            elif x.operation in FUSED:
                product = x.derived(FUSED[x.operation], *(y for k, y in enumerate(x.operands) if k not in SUMMANDS))
                beta, C, alpha = (found[x.operands[k]] for k in SUMMANDS)
                found[x] = beta * C + alpha * self._symbol(product)
            elif self.number(x) in shared or operation.index is None:
                found[x] = self._symbol(x)
            elif operation.kind == "elementwise":
                found[x] = operation.index(*(found[y] for y in x.operands))
            else:
                operands = (
                    IndexMatrix(self.sizes.shape(y.shape), found[y]) if y.shape else found[y] for y in x.operands
                )
                found[x] = operation.index(*indices_of(shape), *operands)
        return found[value]

    def _symbol(self, value: Value) -> Expression:
        """The entry of an arbitrary matrix, which is the same for equal values."""
        return of(Entry(f"v{self.number(value)}", indices_of(self.sizes.shape(value.shape))))

    def _order(self, value: Value, shared: set[int]) -> list[Value]:
        """What a value is computed from, down to shared ones, in order."""
        found: dict[Value, None] = {}

        def visit(x: Value) -> None:
            if x not in found:
                if self.number(x) not in shared:
                    for y in x.operands:
                        visit(y)
                found[x] = None

        visit(value)
        return list(found)


def proved(program: Program, equality: Equality) -> Program:
    """The program after all rules, with what is proved of it: its outputs must be equal to those before."""
    for value in program.values:
        equality.number(value)
    result = rules.optimized(program, equality.prove)
    for name, before in program.outputs.items():
        after = result.outputs[name]
        if equality.number(before) != equality.number(after) and not equality.unproved:
            equality.unproved.append(Unproved(f"the output {name}", before, after, "it is another value"))
    return result


# -- sharding: all ranks together have what one would have ------------------------------------------

RANK = "z"  # the number of ranks, each of which has as much; its name is the last, as maxima are over sizes in order
MEANINGS = {
    Placement.WHOLE: "each rank has all of the result",
    Placement.ROWS: "the ranks have consecutive rows of the result",
    Placement.COLUMNS: "the ranks have consecutive columns of the result",
    Placement.SUM: "the result is the sum, or the maximum, over the ranks",
}


class Shares:
    """Which operations are shared out so that the ranks together have their result, for arbitrary operands."""

    def __init__(self) -> None:
        self.proved: Counter[Placement] = Counter()
        self.unproved: list[str] = []

    def __str__(self) -> str:
        """One line for each placement of a result, and for what is not proved."""
        lines = [f"proved for all sizes, {n} time{'s' * (n > 1)}: {MEANINGS[x]}" for x, n in self.proved.items()]
        return "\n".join([*lines, *dict.fromkeys(self.unproved)])

    def prove(self, value: Value, needs: list[Placement], placement: Placement) -> None:
        """Note how an operation is shared out, and whether that is proved."""
        same = placement == Placement.WHOLE and {*needs} <= {placement}  # it is done by every rank
        if same or shares(value, needs, placement):
            self.proved[placement] += 1
        else:
            text = ", ".join(x.value for x in needs)
            self.unproved.append(
                f"NOT PROVED: {value.operation} of operands in {text}, with a result in {placement.value}"
            )


def shares(value: Value, needs: list[Placement], placement: Placement) -> bool:
    """Whether the results of all ranks are that of the whole operation, for operands that are placed so."""
    operation, shapes = OPERATIONS[value.operation], [*(x.shape for x in value.operands), value.shape]
    index = operation.index
    if index is None:
        return False
    patterns, places = operation.shapes.patterns(*shapes), [*needs, placement]
    axes = [(x, AXES.index(place)) for x, place in zip(patterns, places, strict=True) if place in AXES]
    divided = {x[axis].partition(TIMES)[0] for x, axis in axes}
    rank = new_index(RANK)

    def shape(pattern: Pattern, is_whole: bool) -> Shape:
        def names(text: str) -> str:
            found = [name.replace("*", "x") for name in text.split(TIMES)]
            return TIMES.join([RANK, *found] if is_whole and text.partition(TIMES)[0] in divided else found)

        return tuple(1 if n == "1" else Size(names(n)) for n in pattern)

    def operand(k: int, is_whole: bool) -> Any:
        own, place = shape(patterns[k], is_whole), places[k]
        if value.operands[k].operation == "number" and not isinstance(value.operands[k].number, Size):
            return IndexMatrix((), exact(value.operands[k].number or 0))
        at = [i for i in indices_of(own) if i.name != "1"]
        if is_whole and place in AXES:  # the first part of the divided index is that of the rank
            axis = AXES.index(place)
            first, rest = divided_at(indices_of(own)[axis])
            return IndexMatrix(own, of(Entry(f"x{k}", (first, *(rest if n == axis else i for n, i in enumerate(at))))))
        e = of(Entry(f"x{k}", at if place == Placement.WHOLE else (rank, *at)))
        return IndexMatrix(own, summed_over([rank], e) if is_whole and place == Placement.SUM else e)

    def entry(is_whole: bool) -> Expression:
        given = [operand(k, is_whole) for k in range(len(needs))]
        if operation.kind == "elementwise":
            return index(*(x.entry for x in given))
        at = indices_of(shape(patterns[-1], is_whole))
        return index(*at, *(x if x.value.shape else x.entry for x in given))

    try:
        whole, own = entry(is_whole=True), entry(is_whole=False)
    except (TypeError, ValueError, UndefinedError):
        return False
    if placement in AXES:
        axis = AXES.index(placement)
        first, rest = divided_at(indices_of(shape(patterns[-1], is_whole=True))[axis])
        whole = whole.substituted({first: rank, rest: indices_of(shape(patterns[-1], is_whole=False))[axis]})
    elif placement == Placement.SUM:
        if operation.over == "max":
            local = own
            own = maximum(lambda i: local.substituted({rank: i}), RANK)
        else:
            own = summed_over([rank], own)
    return is_equal(whole, own)


def divided_at(i: Index) -> tuple[Index, Index]:
    """The index of the rank, and that of what a rank has."""
    return divided_index(i, len(i.parts) - 1)
