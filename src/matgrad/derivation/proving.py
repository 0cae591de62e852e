"""The proof of a derived layer: the code that is printed runs on matrices in index notation."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterator
from contextlib import suppress
from fractions import Fraction
from functools import cache
from typing import Any, NamedTuple

from matgrad.derivation.normal_form import Polynomial, monomial
from matgrad.derivation.sources import Source
from matgrad.derivation.values import names_of, number, substituted
from matgrad.derivation.writing import Line
from matgrad.index_notation.expressions import Entry, Expression
from matgrad.inspection.equations import Equation
from matgrad.inspection.observing import observed
from matgrad.judges.index_judge import chained, is_proved, problem_of, subsets
from matgrad.layers.layer import Layer
from matgrad.program.entries import SYMBOLIC, IndexMatrix, entry_at, symbols
from matgrad.program.program import Value
from matgrad.program.shapes import Size

ERRORS = (ArithmeticError, AttributeError, ValueError, TypeError, RecursionError)  # that the prover raises
OUTPUT = ("exp", "tanh", "sqrt", "inv_sqrt", "reciprocal", "log_sigmoid", "divide")  # their adjoints have Y in them
MANY = 12  # limit of values of feedforward that are all put into one expression


class Verdict(NamedTuple):
    """Whether something is proved for all sizes; the message says why not."""

    name: str
    ok: bool
    message: str = ""


def executed(source: str, class_name: str) -> type[Layer]:
    """The class that the code of a layer defines; its source can be read, as that of a file."""
    file = f"<derived {class_name} {abs(hash(source))}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    namespace: dict[str, Any] = {"__name__": "matgrad_derived"}
    exec(compile(source, file, "exec"), namespace)
    return namespace[class_name]


def prove(layer: type[Layer], source: Source, lines: list[Line]) -> list[Verdict]:
    """The output of the derived layer against that of the source, and its gradients against the derivatives of it.

    A gradient is proved with values of feedforward as they are computed from the inputs or, by the chain rule, with
    symbols for some of them: what holds for all numbers holds for these values.
    """
    found: dict[str, Verdict] = {}
    for keep_numbers in (False, True):
        verdicts, asked = _verdicts(layer, source, lines, frozenset(), keep_numbers)
        for ones in subsets(asked):
            more, _ = _verdicts(layer, source, lines, ones, keep_numbers)
            verdicts |= {name: verdict for name, verdict in more.items() if not verdict.ok}
        found = verdicts | {name: verdict for name, verdict in found.items() if verdict.ok}
        if all(verdict.ok for verdict in found.values()):
            break
    return list(found.values())


def _verdicts(
    layer: type[Layer], source: Source, lines: list[Line], ones: frozenset[str], keep_numbers: bool
) -> tuple[dict[str, Verdict], set[str]]:
    """The verdicts by name, each with the first set of symbols with which it is proved, and the sizes asked about."""
    Y, wanted = source.feedforward.Y.name, {f"D{x.name}": x.name for x in source.feedforward.wanted}
    every = frozenset(line.name for line in lines[:-1])
    try:
        values, feedforward, questions = source.values(ones, keep_numbers)
        run = _Run(layer, values, every)
        found = {Y: _verdict(Y, run.expanded(frozenset())(run.Y), feedforward(values["X"]))}
    except ERRORS as error:
        return {Y: Verdict(Y, False, f"{type(error).__name__}: {error}")}, set()
    if questions.others:
        reason = f"the feedforward asks {questions.others[0]}: it differs from size to size"
        return {Y: Verdict(Y, False, reason)}, questions.ones
    inner = frozenset(line.name for line in lines[:-1] if line.term.operation not in OUTPUT)
    for chosen in (inner, every, *([frozenset[str]()] if len(every) <= MANY else [])):  # first many symbols, then none
        left = {name: values[x] for name, x in wanted.items() if name not in found or not found[name].ok}
        try:
            for name, sides in run.sides(left, chosen):
                found[name] = _verdict(name, *sides)
        except ERRORS as error:
            failed = f"{type(error).__name__}: {error}"
            found |= {name: Verdict(name, False, failed) for name in left.keys() - found.keys()}
        if all(verdict.ok for verdict in found.values()):
            break
    return found, questions.ones


class _Run:
    """One run of the derived layer, in which the values of feedforward with these names are symbols."""

    def __init__(self, layer: type[Layer], values: dict[str, Any], names: frozenset[str]) -> None:
        self.layer, self.names = object.__new__(layer), names  # whatever its constructor does
        vars(self.layer).update({name: value for name, value in values.items() if name != "X"}, training=True)
        self.values: list[tuple[str, IndexMatrix, IndexMatrix]] = []  # names, symbols, and what they stand for
        with observed([self.layer], self._observe):
            self.Y = self.layer.feedforward(values["X"])
            self.G = symbols("G", *self.Y.shape)
            self.layer.backpropagate(self.Y, self.G)

    def _observe(self, layer: Layer, equation: Equation, value: Any) -> Any:
        is_wanted = equation.method == "feedforward" and equation.name in self.names and isinstance(value, IndexMatrix)
        if not is_wanted or any(value is V for _, V, _ in self.values):
            return value
        V = symbols(f"{equation.name}'", *value.shape, is_positive=value.entry.is_positive)
        self.values.append((equation.name, V, value))
        return V

    def expanded(self, chosen: frozenset[str]) -> Callable[[Any], Any]:
        """A function that puts for symbols, except those of the chosen names, what they stand for."""
        known: dict[Value, Value] = {}
        for name, V, value in self.values:
            if name not in chosen:
                known[V.value] = substituted(value.value, known)
        return lambda A: SYMBOLIC.matrix(substituted(A.value, known)) if isinstance(A, IndexMatrix) else A

    def sides(self, wanted: dict[str, IndexMatrix], chosen: frozenset[str]) -> Iterator[tuple[str, tuple[Any, Any]]]:
        """Gradients that the layer computes, and those by the chain rule, with symbols for the chosen values."""
        expanded = self.expanded(chosen)
        steps = [(self.G, expanded(self.Y), None)]  # gradients of values, and these, from the last to the first
        for name, V, value in reversed(self.values):
            if name in chosen:
                steps.append((chained(steps, V), expanded(value), None))
        for name, V in wanted.items():
            yield name, (expanded(getattr(self.layer, name)), chained(steps, V))


def _verdict(name: str, found: Any, expected: Any) -> Verdict:
    problem = problem_of(found, expected)
    if not problem and not is_proved(found, expected):
        problem = f"the canonical forms of the entries differ: found {found}, expected {expected}"
    return Verdict(name, not problem, problem)


def facts(source: Source) -> Callable[[Value], Polynomial | None]:
    """A function that knows sums of values of a feedforward that are functions of sizes alone: rows_sum(Y) = 1."""
    f = source.feedforward
    computed = {V.name for V, _ in f.equations}
    sizes = {n.name: n for x in f.inputs for n in x.shape if isinstance(n, Size)}
    values: dict[Value, Value] = {}  # what stands for the inputs and for the values of feedforward
    with suppress(*ERRORS):
        inputs = source.values(frozenset(), False).inputs
        found = {x: inputs[x.name].value for x in f.inputs}
        for V, rhs in f.equations:
            found[V] = substituted(rhs, found)
        values = found

    @cache
    def fact(term: Value) -> Polynomial | None:
        names = names_of(term)
        if values and names and names <= computed and len(names) <= 2:
            with suppress(*ERRORS):
                return _of_sizes(entry_at(substituted(term, dict(values))), sizes)
        return None

    return fact


def _of_sizes(e: Expression, sizes: dict[str, Size]) -> Polynomial | None:
    """An expression in which there are only numbers and sizes."""
    found: Polynomial = {}
    for m, c in e.terms.items():
        if not all(isinstance(f, Entry) and f.is_unit for f, _ in m):
            return None
        powers = {number(sizes[f.name]): p for f, p in m if isinstance(f, Entry)}
        found[monomial(powers)] = Fraction(c)
    return found
