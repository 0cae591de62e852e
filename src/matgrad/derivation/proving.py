"""The proof of a derived layer: the code that is printed runs on matrices in index notation."""

from __future__ import annotations

import linecache
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import Any

from matgrad import matrix_operations
from matgrad.derivation.backpropagation import Feedforward
from matgrad.derivation.polynomials import Polynomial, monomial
from matgrad.derivation.sources import Source
from matgrad.derivation.terms import NamedSize, Term, size_term
from matgrad.index_notation.entries import Entry
from matgrad.index_notation.expressions import Expression
from matgrad.layers.layer import Layer
from matgrad.matrix_operations import elements_sum, hadamard
from matgrad.proofs.calculus import gradient, is_proved, problem_of
from matgrad.proofs.matrices import symbols
from matgrad.proofs.sizes import Questions, Size


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


def prove(layer: type[Layer], source: Source) -> list[Verdict]:
    """The output of the derived layer against that of the source, and its gradients against the derivatives of it."""
    first = _prove(layer, source, keep_numbers=False)
    if all(verdict.ok for verdict in first):
        return first
    second = _prove(layer, source, keep_numbers=True)
    return second if all(verdict.ok for verdict in second) else first


def _prove(layer: type[Layer], source: Source, keep_numbers: bool) -> list[Verdict]:
    """The verdicts for all sizes, and for sizes of 1 if the source asks whether a size is 1."""
    questions = Questions()
    try:
        found = list(_verdicts(layer, source, frozenset(), keep_numbers, questions))
        for ones in subsets(questions.ones):
            found += [x for x in _verdicts(layer, source, ones, keep_numbers, Questions()) if not x.ok]
        return found
    except (ArithmeticError, ValueError, TypeError, RecursionError) as error:
        return [Verdict(source.feedforward.Y.label, False, f"{type(error).__name__}: {error}")]


def _verdicts(layer: type[Layer], source: Source, ones: frozenset[str], keep_numbers: bool, asked: Questions) -> Iterator[Verdict]:
    f = source.feedforward
    values, feedforward, questions = source.values(ones, keep_numbers)
    derived = object.__new__(layer)
    vars(derived).update({name: value for name, value in values.items() if name != "X"}, training=True)
    expected, Y = feedforward(values["X"]), derived.feedforward(values["X"])
    asked.ones |= questions.ones
    if questions.others:
        reason = f"the feedforward asks whether {questions.others[0]}: it differs from size to size"
        yield Verdict(f.Y.label, False, reason)
        return
    yield _verdict(f.Y.label, Y, expected)
    DY = symbols("G", *Y.shape)
    derived.backpropagate(Y, DY)
    value = elements_sum(hadamard(DY, Y))
    for x in f.wanted:
        yield _verdict(f"D{x.label}", getattr(derived, f"D{x.label}"), gradient(value, values[x.label]))


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
        self.known: dict[Term, Polynomial | None] = {}
        self.computed = {V.label for V, _ in self.f.equations}
        self.environment = self._environment(source)

    def __call__(self, term: Term) -> Polynomial | None:
        """The value of a sum, if it is known."""
        if term not in self.known:
            names = term.names
            is_simple = bool(names) and names <= self.computed and len(names) <= 2
            self.known[term] = self._value(term) if is_simple and self.environment is not None else None
        return self.known[term]

    def _environment(self, source: Source) -> dict[str, Any] | None:
        try:
            values = source.values(frozenset(), keep_numbers=False).inputs
            sizes = {str(n) for x in self.f.inputs for n in x.sizes} - {"1"}
            found = {**vars(matrix_operations), **values, **{n: Size(n) for n in sizes}}
            for V, rhs in self.f.equations:
                found[V.label] = eval(rhs.text, found)
        except (ArithmeticError, ValueError, TypeError, RecursionError):
            return None
        return found

    def _value(self, term: Term) -> Polynomial | None:
        try:
            return _of_sizes(eval(term.text, self.environment).entry)
        except (ArithmeticError, ValueError, TypeError, RecursionError):
            return None


def _of_sizes(e: Expression) -> Polynomial | None:
    """An expression in which there are only numbers and sizes."""
    found: Polynomial = {}
    for m, c in e.terms.items():
        if not all(isinstance(f, Entry) and f.is_unit for f, _ in m):
            return None
        powers = {size_term(NamedSize(f.name)): p for f, p in m if isinstance(f, Entry)}
        found[monomial(powers)] = Fraction(c)
    return found


def subsets(names: set[str]) -> Iterator[frozenset[str]]:
    """The subsets that are not empty."""
    for number in range(1, len(names) + 1):
        yield from map(frozenset, combinations(sorted(names), number))
