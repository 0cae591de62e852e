"""The proof of a derived layer: the code that is printed runs on matrices in index notation."""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from typing import Any

from matgrad.derivation.normal_form import atom
from matgrad.derivation.sources import Source
from matgrad.derivation.values import names_of, number, substituted
from matgrad.derivation.writing import Line
from matgrad.index_notation.expressions import Entry, Expression, bounded
from matgrad.inspection.equations import Equation
from matgrad.inspection.observing import observed
from matgrad.inspection.verdicts import Check
from matgrad.judges.algebra import Subject
from matgrad.judges.index_judge import Symbols, chained, verdicts
from matgrad.layers.layer import Layer
from matgrad.program.entries import SYMBOLIC, IndexMatrix, entry_at, symbols
from matgrad.program.program import Value
from matgrad.program.shapes import Size

ERRORS = (ArithmeticError, AttributeError, ValueError, TypeError, RecursionError)  # that the prover raises
OUTPUT = ("exp", "tanh", "sqrt", "inv_sqrt", "reciprocal", "log_sigmoid", "divide")  # their adjoints have Y in them
MOST_TERMS = 300_000  # of all expressions in one way to prove something
MANY = 12  # limit of values of feedforward that are all put into one expression


def executed(source: str, class_name: str) -> type[Layer]:
    """The class that the code of a layer defines; its source can be read, as that of a file."""
    file = f"<derived {class_name} {abs(hash(source))}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    namespace: dict[str, Any] = {"__name__": "matgrad_derived"}
    exec(compile(source, file, "exec"), namespace)
    return namespace[class_name]


def prove(layer: type[Layer], source: Source, lines: list[Line]) -> list[Check]:
    """The output of the derived layer against that of the source, and its gradients against the derivatives of it.

    For each name there is one verdict: that for sizes of 1, if it is not proved for some of them.
    """
    found: dict[str, Check] = {}
    for check in verdicts(Subject(layer.__name__, partial(_claims, source=source, lines=lines), layer)):
        if found.setdefault(check.name, check).ok:
            found[check.name] = check
    names = [source.feedforward.Y.name, *(f"D{x.name}" for x in source.feedforward.wanted)]
    crash = next((check for name, check in found.items() if name not in names), None)
    if crash is not None:  # for some sizes at least: then nothing is proved
        found = {name: replace(crash, name=name) for name in names} | {x.name: x for x in found.values() if not x.ok}
    return [replace(found[name], message=_problem(found[name])) for name in names]


def _problem(check: Check) -> str:
    """Why something is not proved, without its name and its place, which is in code that was derived."""
    reason = check.message.partition("\n  in ")[0]
    return re.sub(r"^\w+(\.\w+)? (is not proved: |(?=raises ))", "", reason)


def _claims(a: Symbols, layer: type[Layer], *, source: Source, lines: list[Line]) -> Iterator[Check]:
    """The verdicts on the output and on the gradients.

    A gradient is proved with values of feedforward as they are computed from the inputs or, by the chain rule, with
    symbols for some of them: what holds for all numbers holds for these values.
    """
    f, every = source.feedforward, frozenset(line.name for line in lines[:-1])
    values, feedforward = source.values(a)
    run = _Run(layer, values, every)
    with bounded(MOST_TERMS):
        yield _verdict(a, f.Y.name, run.expanded(frozenset())(run.Y), feedforward(values["X"]))
    left, found = {f"D{x.name}": values[x.name] for x in f.wanted}, dict[str, Check]()
    inner = frozenset(line.name for line in lines[:-1] if line.term.operation not in OUTPUT)
    ways = [inner, *([frozenset[str]()] if len(every) <= MANY else [])]  # first many symbols, then none
    for chosen in ways if left else ():
        try:
            with bounded(MOST_TERMS):
                found |= {name: _verdict(a, name, *sides) for name, sides in run.sides(chosen, left)}
        except ERRORS as error:
            found |= {name: _check(a, name, f"{type(error).__name__}: {error}") for name in left.keys() - found.keys()}
        left = {name: V for name, V in left.items() if not found[name].ok}
    yield from found.values()


Sides = Iterator[tuple[str, tuple[Any, Any]]]  # the names of gradients, what the layer computes, and what it should


class _Run:
    """One run of the derived layer, in which the values of feedforward with these names are symbols."""

    def __init__(self, layer: type[Layer], values: dict[str, Any], names: frozenset[str]) -> None:
        self.layer, self.names = object.__new__(layer), names  # whatever its constructor does
        vars(self.layer).update({name: value for name, value in values.items() if name != "X"}, training=True)
        self.values: dict[str, tuple[IndexMatrix, IndexMatrix]] = {}  # symbols by name, and what they stand for
        with observed([self.layer], self._observe):
            self.Y = self.layer.feedforward(values["X"])
            self.G = symbols("G", *self.Y.shape)
            self.layer.backpropagate(self.Y, self.G)

    def _observe(self, layer: Layer, equation: Equation, value: Any) -> Any:
        name = equation.name
        if name not in self.names or name in self.values or not isinstance(value, IndexMatrix):
            return value
        V = symbols(f"{name}'", *value.shape, is_positive=value.entry.is_positive)
        self.values[name] = V, value
        return V

    def expanded(self, chosen: frozenset[str]) -> Callable[[Any], Any]:
        """A function that puts for symbols, except those of the chosen names, what they stand for."""
        known: dict[Value, Value] = {}
        for name, (V, value) in self.values.items():
            if name not in chosen:
                known[V.value] = substituted(value.value, known)
        return lambda A: SYMBOLIC.matrix(substituted(A.value, known)) if isinstance(A, IndexMatrix) else A

    def sides(self, chosen: frozenset[str], wanted: dict[str, IndexMatrix]) -> Sides:
        """By the chain rule, with symbols for the chosen values."""
        expanded = self.expanded(chosen)
        steps = [(self.G, expanded(self.Y), None)]  # gradients of values, and these, from the last to the first
        for name, (V, value) in reversed(self.values.items()):
            if name in chosen:
                steps.append((chained(steps, V), expanded(value), None))
        for name, V in wanted.items():
            yield name, (expanded(getattr(self.layer, name)), chained(steps, V))


def _verdict(a: Symbols, name: str, found: Any, expected: Any) -> Check:
    return _check(a, name, a.compared(found, expected).removeprefix("is not proved: "))


def _check(a: Symbols, name: str, problem: str) -> Check:
    return Check(name, "", "", a.about, "proof", 0.0, not problem, problem)


def facts(source: Source) -> Callable[[Value], Expression | None]:
    """A function that knows sums of values of a feedforward that are functions of sizes alone: rows_sum(Y) = 1."""
    f = source.feedforward
    computed = {V.name for V, _ in f.equations}
    sizes = {n.name: n for x in f.inputs for n in x.shape if isinstance(n, Size)}
    values: dict[Value, Value] = {}  # what stands for the inputs and for the values of feedforward
    with suppress(*ERRORS):
        inputs = source.values(Symbols()).inputs
        found = {x: inputs[x.name].value for x in f.inputs}
        for V, rhs in f.equations:
            found[V] = substituted(rhs, found)
        values = found

    @cache
    def fact(term: Value) -> Expression | None:
        names = names_of(term)
        if values and names and names <= computed and len(names) <= 2:
            with suppress(*ERRORS):
                return _of_sizes(entry_at(substituted(term, dict(values))), sizes)
        return None

    return fact


def _of_sizes(e: Expression, sizes: dict[str, Size]) -> Expression | None:
    """An expression in which there are only numbers and sizes, as a polynomial."""
    if not all(isinstance(f, Entry) and f.is_unit for f in e.factors()):
        return None
    return e.mapped(lambda f: atom(number(sizes[f.name])) if isinstance(f, Entry) else None)
