"""The proof of a derived layer: the code that is printed runs on matrices in index notation."""

from __future__ import annotations

import linecache
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

from matgrad.derivation.backpropagation import Feedforward
from matgrad.derivation.polynomials import Polynomial, monomial
from matgrad.derivation.sources import Source
from matgrad.derivation.values import names_of, number, substituted
from matgrad.derivation.writing import Line
from matgrad.index_notation.entries import Entry
from matgrad.index_notation.expressions import Expression
from matgrad.inspection.equations import Equation, observed
from matgrad.layers.layer import Layer
from matgrad.matrix_operations import elements_sum, hadamard
from matgrad.program.entries import IndexMatrix, entry_at, symbols
from matgrad.program.program import Value
from matgrad.program.shapes import Questions, Size
from matgrad.proofs.matrices import at, gradient, is_proved, problem_of
from matgrad.proofs.symbolic_layers import subsets

ERRORS = (ArithmeticError, ValueError, TypeError, RecursionError)  # that the prover raises
LINEAR = ("matmul", "add", "subtract", "transpose", "rows_sum", "columns_sum", "rows_mean", "columns_mean", "scale")
OUTPUT = ("exp", "tanh", "sqrt", "inv_sqrt", "reciprocal", "log_sigmoid", "divide")  # their adjoints have Y in them
MANY, MOST = 8, 12  # limits of values of feedforward that are tried one by one, and all at once


@dataclass(frozen=True)
class Verdict:
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
        questions = Questions()
        for verdict in _attempts(layer, source, lines, Setting(frozenset(), keep_numbers), questions):
            if not found.get(verdict.name, verdict).ok or verdict.name not in found:
                found[verdict.name] = verdict
        for ones in subsets(questions.ones):
            for verdict in _attempts(layer, source, lines, Setting(ones, keep_numbers), Questions()):
                if not verdict.ok:
                    found[verdict.name] = verdict
        if all(verdict.ok for verdict in found.values()):
            break
    return list(found.values())


class Setting(NamedTuple):
    """Sizes that are 1, and whether numbers stay numbers."""

    ones: frozenset[str]
    keep_numbers: bool


def _attempts(
    layer: type[Layer], source: Source, lines: list[Line], setting: Setting, questions: Questions
) -> list[Verdict]:
    """The verdicts, each with the first set of symbols with which it is proved."""
    found: dict[str, Verdict] = {}
    for symbolic in _choices(lines):
        try:
            verdicts = list(_verdicts(layer, source, setting, symbolic, questions, {n for n in found if found[n].ok}))
        except ERRORS as error:
            problem = f"{type(error).__name__}: {error}"
            verdicts = [Verdict(f"D{x.name}", False, problem) for x in source.feedforward.wanted]
        for verdict in verdicts:
            if verdict.ok or not found.get(verdict.name, Verdict("", False)).ok:
                found[verdict.name] = verdict
        if all(verdict.ok for verdict in found.values()):
            break
    return list(found.values())


def _choices(lines: list[Line]) -> Iterator[frozenset[str]]:
    """Sets of values of feedforward for which symbols are put: first many, at last none, if there are few."""
    every = [line.name for line in lines[:-1]]
    linear = [line.name for line in lines[:-1] if line.term.operation in LINEAR]
    others = [line.name for line in lines[:-1] if line.term.operation not in OUTPUT]
    single = [[x] for x in every] if len(every) <= MANY else []
    found = [others, linear, every, *([x for x in every if x != y] for [y] in single), *single]
    found += [[]] if len(every) <= MOST else []
    yield from dict.fromkeys(map(frozenset, found))


def _verdicts(
    layer: type[Layer],
    source: Source,
    setting: Setting,
    symbolic: frozenset[str],
    asked: Questions,
    proved: set[str],
) -> Iterator[Verdict]:
    f = source.feedforward
    values, feedforward, questions = source.values(*setting)
    attributes = {name: value for name, value in values.items() if name != "X"}
    if f.Y.name not in proved:
        derived = _made(layer, attributes)
        expected = feedforward(values["X"])
        asked.ones |= questions.ones
        if questions.others:
            reason = f"the feedforward asks whether {questions.others[0]}: it differs from size to size"
            yield Verdict(f.Y.name, False, reason)
            return
        yield _verdict(f.Y.name, derived.feedforward(values["X"]), expected)
    run = _Run(_made(layer, attributes), values["X"], symbolic)
    for x in f.wanted:
        if f"D{x.name}" not in proved:
            yield _verdict(f"D{x.name}", getattr(run.layer, f"D{x.name}"), run.gradient(values[x.name]))


def _made(layer: type[Layer], attributes: dict[str, Any]) -> Layer:
    """An object of the class with these attributes, whatever its constructor does."""
    found = object.__new__(layer)
    vars(found).update(attributes, training=True)
    return found


class _Run:
    """One run of the derived layer, in which some values of feedforward are replaced by symbols."""

    def __init__(self, layer: Layer, X: IndexMatrix, symbolic: frozenset[str]) -> None:
        self.layer, self.symbolic = layer, symbolic
        self.replaced: list[tuple[IndexMatrix, IndexMatrix]] = []  # symbols, and the values that they stand for
        with observed([layer], self._observe):
            Y = layer.feedforward(X)
            G = symbols("G", *Y.shape)
            layer.backpropagate(Y, G)
        self.steps = [(G, Y)]  # gradients of values, and the values, from the last to the first
        for V, value in reversed(self.replaced):
            self.steps.append((self.gradient(V), value))

    def _observe(self, layer: Layer, equation: Equation, value: Any) -> Any:
        if equation.method != "feedforward" or equation.name not in self.symbolic:
            return value
        if not isinstance(value, IndexMatrix) or any(V is value for V, _ in self.replaced):
            return value
        V = symbols(f"{equation.name}'", *value.shape, is_positive=value.entry.is_positive)
        self.replaced.append((V, value))
        return V

    def gradient(self, V: IndexMatrix) -> IndexMatrix:
        """The chain rule: the sum of the gradients of ⟨DW, W⟩ with respect to V, for the values W that follow."""
        parts = []
        for DW, W in self.steps:
            P = symbols("P'", *W.shape)
            paired: Any = P * W if W.shape == () else elements_sum(hadamard(P, W))
            slope = gradient(paired, V)
            if slope.entry:
                parts.append(at(slope, P, DW))
        return sum(parts[1:], parts[0]) if parts else 0 * V


def _verdict(name: str, found: Any, expected: Any) -> Verdict:
    if problem := problem_of(found, expected):
        return Verdict(name, False, problem)
    if is_proved(found, expected):
        return Verdict(name, True)
    return Verdict(name, False, f"the canonical forms of the entries differ: found {found}, expected {expected}")


class Facts:
    """Sums of values of a feedforward that do not depend on anything but sizes, such as rows_sum(Y) = 1."""

    def __init__(self, source: Source) -> None:
        self.f: Feedforward = source.feedforward
        self.known: dict[Value, Polynomial | None] = {}
        self.computed = {V.name for V, _ in self.f.equations}
        self.sizes = {n.name: n for x in self.f.inputs for n in x.shape if isinstance(n, Size)}
        self.functions: dict[str, Any] = {}
        self.values = self._values(source)

    def __call__(self, term: Value) -> Polynomial | None:
        """The value of a sum, if it is known."""
        if term not in self.known:
            names = names_of(term)
            is_simple = bool(self.values and names) and names <= self.computed and len(names) <= 2
            self.known[term] = self._value(term) if is_simple else None
        return self.known[term]

    def _values(self, source: Source) -> dict[Value, Value]:
        """What stands for the inputs and for the values of feedforward."""
        try:
            self.functions = source.values(frozenset(), keep_numbers=False).inputs
            found = {x: self.functions[x.name].value for x in self.f.inputs}
            for V, rhs in self.f.equations:
                found[V] = substituted(rhs, found, self.functions)
        except ERRORS:
            return {}
        return found

    def _value(self, term: Value) -> Polynomial | None:
        try:
            return self._of_sizes(entry_at(substituted(term, dict(self.values), self.functions)))
        except ERRORS:
            return None

    def _of_sizes(self, e: Expression) -> Polynomial | None:
        """An expression in which there are only numbers and sizes."""
        found: Polynomial = {}
        for m, c in e.terms.items():
            if not all(isinstance(f, Entry) and f.is_unit for f, _ in m):
                return None
            powers = {number(self.sizes[f.name]): p for f, p in m if isinstance(f, Entry)}
            found[monomial(powers)] = Fraction(c)
        return found
