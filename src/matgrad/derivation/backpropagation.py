"""Backpropagation from feedforward: the gradients of the inputs, line by line.

The adjoints of the operations give the gradient of every value of feedforward from those of later ones. Which of these
gradients have a line of their own, from some value on, and which are put into those of earlier values, is what makes
all lines together shortest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from matgrad.derivation.folding import OPERATION, Fact, Folder, cost
from matgrad.derivation.values import apply, free_name, named, names_of, number, with_operands
from matgrad.program.adjoint import gradients
from matgrad.program.entries import SYMBOLIC
from matgrad.program.program import Value, in_order

Equation = tuple[Value, Value]  # a name, and what it stands for
PIECEWISE = ("step", "sign")  # operations whose derivative is 0, except where a condition changes
REPEATS = ("full", "row_repeat", "column_repeat")


@dataclass
class Feedforward:
    """Equations V = … over inputs, of which the last is that of Y; `wanted` are the inputs whose gradients are derived.

    `declared` are names such as DZ of gradients that always have a line.
    """

    inputs: list[Value]
    wanted: list[Value]
    equations: list[Equation]
    declared: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Leave out the equations that Y does not depend on."""
        kept = _needed(self.equations, {self.Y.name})
        self.equations = [line for V, rhs in kept for line in _with_conditions(V, rhs, self.equations)]

    @property
    def Y(self) -> Value:
        """The output."""
        return self.equations[-1][0]

    @property
    def DY(self) -> Value:
        """The gradient of the output, which is given."""
        return gradient_of(self.Y)


def _needed(equations: list[Equation], names: set[str]) -> list[Equation]:
    """The equations of these names, and those that they depend on."""
    kept: list[Equation] = []
    for V, rhs in reversed(equations):
        if V.name in names:
            names = names | names_of(rhs)
            kept.insert(0, (V, rhs))
    return kept


def _with_conditions(V: Value, rhs: Value, others: list[Equation]) -> list[Equation]:
    """V = rhs, after equations H = … for the parts of rhs that are constant except where a condition changes."""
    smooth: dict[Value, bool] = {}
    for x in in_order([rhs]):
        smooth[x] = x.operation not in PIECEWISE and (
            x.operation == "input" or any(smooth[operand] for operand in x.operands)
        )
    parts = {o for x in smooth if smooth[x] for o in x.operands if not smooth[o] and names_of(o)}
    wanted = {o for o in parts if sum(1 for x in in_order([o]) if x.operands and x.operation not in REPEATS) > 1}
    if not wanted:
        return [(V, rhs)]
    taken = {W.name for W, _ in others}
    found: list[Equation] = []
    put: dict[Value, Value] = {}
    for x in in_order([rhs]):
        put[x] = with_operands(x, tuple(put[o] for o in x.operands))
        if x in wanted:
            found.append((named(free_name("H", taken), *x.shape), put[x]))
            put[x] = found[-1][0]
            taken.add(put[x].name)
    return [*found, (V, put[rhs])]


def gradient_of(V: Value) -> Value:
    """DV"""
    return named(f"D{V.name}", *V.shape)


def backpropagation(f: Feedforward, fact: Fact, *, folded: bool = True) -> list[Equation]:
    """The equations of the gradients, in an order in which they can be computed."""
    inner = {V for V, _ in f.equations[:-1]}
    if not folded:
        return _lines(f, inner, lambda D: D)
    fixed, fold = {V for V in inner if f"D{V.name}" in f.declared}, Folder(f.equations, fact)
    free = [V for V, _ in f.equations[:-1] if V not in fixed]
    return min((_lines(f, fixed.union(free[n:]), fold) for n in range(len(free) + 1)), key=_cost)


def _cost(lines: Iterable[Equation]) -> int:
    """That of all lines together, and of a line for each term that is written more than once."""
    terms = dict.fromkeys(rhs for _, rhs in lines)
    uses = Counter(x for term in in_order(terms) for x in term.operands)
    repeated = [x for x, n in uses.items() if n > 1 and x.operands and x not in terms and cost([x]) > 2 * OPERATION]
    return cost(terms) + OPERATION * (len(terms) + len(repeated))


def _lines(f: Feedforward, with_lines: set[Value], fold: Callable[[Value], Value]) -> list[Equation]:
    found: dict[Value, Value] = {f.Y: f.DY}
    lines: list[Equation] = []
    for V, rhs in reversed(f.equations):
        if V not in found:
            continue
        D = found.pop(V)
        if V in with_lines:
            lines.append((gradient_of(V), fold(D)))
            D = gradient_of(V)
        for x, part in gradients(rhs, D, SYMBOLIC).items():
            found[x] = apply("add", found[x], part) if x in found else part
    lines += [(gradient_of(x), fold(found.get(x, number(0, x.shape)))) for x in f.wanted]
    return _needed(lines, {f"D{x.name}" for x in f.wanted})
