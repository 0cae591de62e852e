"""Folding: gradients in terms of the values that feedforward has computed.

A definition such as Y = E ⊙ (x 1_Kᵀ) is solved for E, and E is replaced by Y ⊙ ((1/x) 1_Kᵀ) if that makes a gradient
shorter. Nothing here has to be trusted: what comes out is proved afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from itertools import product as combinations
from typing import NamedTuple

from matgrad.derivation.normal_form import Normalizer, atom, build, power_product, single, terms, times
from matgrad.derivation.values import apply, sizes_of, text, with_operands
from matgrad.index_notation.expressions import Expression, TooLongError, total
from matgrad.program.program import Value, in_order

OPERATION = 100  # the cost of an operation on matrices
MOST = 96  # the most combinations of rules that are tried
STEEPEST = 8  # the largest exponent with which a value of feedforward is put into a gradient
Fact = Callable[[Value], "Expression | None"]


class Rule(NamedTuple):
    """What is put for a factor, and the factors in it that stay as they are."""

    factor: Value
    value: Expression
    keep: tuple[Value, ...] = ()


def cost(terms: Iterable[Value]) -> int:
    """About how long it takes to read terms together: their operations, of which those on scalars count less."""

    def weight(x: Value) -> int:
        if x.operands:
            return OPERATION // 2 if x.shape == () else OPERATION
        return 1 if x.operation == "input" else 0

    return sum(map(weight, in_order(terms)))


def expanded(term: Value, values: Mapping[Value, Value]) -> Value:
    """The term with what stands for the names in it, in normal form if that is short."""
    if term in values:
        return expanded(values[term], values)
    operands = tuple(expanded(x, values) for x in term.operands)
    found = with_operands(term, operands)
    try:
        return Normalizer().normal(found)
    except TooLongError:
        return found


def rules_of(V: Value, rhs: Value) -> list[Rule]:
    """What the equation V = rhs says about the factors of rhs."""
    plain = Normalizer()
    try:
        p = plain(rhs)
    except TooLongError:
        return []
    return [*_of_product(V, p, plain), *_of_logarithms(V, p)]


def _of_product(V: Value, p: Expression, plain: Normalizer) -> Iterator[Rule]:
    """V = c·f^x·g solved for each factor f of the same shape, and for the terms of f if it is a sum."""
    if len(p.terms) != 1:
        return
    ((m, c),) = terms(p)
    for f, x in m.items():
        if sizes_of(f) != sizes_of(V) or abs(1 / x) > STEEPEST or (c != 1 and x not in (1, -1)):
            continue
        others = {g: -y / x for g, y in m.items() if g is not f}
        solved = times(atom(V, 1 / x), power_product(others)).scaled((1 / c) ** int(1 / x) if c != 1 else c)
        yield Rule(f, solved, tuple(others))
        yield from _of_sum(f, solved, tuple(others), plain)


def _of_sum(f: Value, solved: Expression, keep: tuple[Value, ...], plain: Normalizer) -> Iterator[Rule]:
    """f = c·t + rest, solved for each factor t: t = (f - rest) / c"""
    inner = plain(f)
    for m, c in inner.terms.items() if len(inner.terms) > 1 else ():
        t = single(Expression({m: c}))
        if t and sizes_of(t) == sizes_of(f):
            yield Rule(t, (solved - inner).scaled(1 / c) + atom(t), keep)


def _of_logarithms(V: Value, p: Expression) -> Iterator[Rule]:
    """V = T - log(s) says that exp(T) = exp(V)·s."""
    factors = {m: single(Expression({m: c})) for m, c in p.terms.items()}
    insides = {f.operands[0]: -p.terms[m] for m, f in factors.items() if f and f.operation == "log"}
    rest = p + total(atom(apply("log", s)).scaled(c) for s, c in insides.items())
    if insides and rest:
        E = apply("exp", build(rest, V.shape))
        value = times(atom(apply("exp", V)), *(atom(s, c) for s, c in insides.items()))
        yield Rule(E, value, (*insides, apply("exp", V)))


class Folder:
    """Short forms of gradients, by the definitions of a feedforward and by facts about sums."""

    def __init__(self, equations: Iterable[tuple[Value, Value]], fact: Fact) -> None:
        self.values, self.fact = dict(equations), fact
        # a rule that only gives a name to a factor is always applied; of the others of a definition, one at a time
        rules = {V: rules_of(V, rhs) for V, rhs in self.values.items()}
        self.always = [rule for V, own in rules.items() for rule in own if not rule.keep and rule.value == atom(V)]
        self.options = [[rule for rule in own if rule not in self.always] for own in reversed(rules.values())]
        self.positive = {V for V, rhs in self.values.items() if rhs.operation in ("exp", "sqrt", "inv_sqrt")}
        self.poles = frozenset[Value]().union(*map(self._poles, self.values.values()))
        self.known: dict[Value, Value] = {}

    def __call__(self, term: Value) -> Value:
        """The shortest form that is found, among those that divide by nothing new."""
        if term not in self.known:
            allowed = self.poles | self._poles(term)
            found = [form for form in self._forms(term) if self._poles(form) <= allowed]
            self.known[term] = min([*found, term], key=lambda x: (cost([x]), len(text(x))))
        return self.known[term]

    def _poles(self, term: Value) -> frozenset[Value]:
        """The factors that are divided by: where one is 0, the term has no value."""
        found = [x.operands[-1] for x in in_order([term]) if x.operation in ("reciprocal", "divide")]
        found += [x.operands[0] for x in in_order([term]) if x.operation == "inv_sqrt"]
        return frozenset[Value]().union(*map(self._zeros, found))

    def _zeros(self, x: Value) -> frozenset[Value]:
        """The factors that make a term 0 if they are; values of feedforward count as what they are computed from."""
        if x in self.values:
            return self._zeros(self.values[x])
        if x.operation in ("reciprocal", "inv_sqrt", "exp", "number"):
            return frozenset()
        if x.operation in ("hadamard", "scale"):
            return self._zeros(x.operands[0]) | self._zeros(x.operands[1])
        if x.operation in ("row_repeat", "column_repeat", "full", "negative", "divide", "sqrt"):
            return self._zeros(x.operands[0])
        full = expanded(x, self.values)
        return frozenset([x]) if full is x else self._zeros(full)

    def _forms(self, term: Value) -> Iterator[Value]:
        try:
            plain = Normalizer(fact=self.fact).normal(term)
        except TooLongError:
            return
        yield plain
        used = set(in_order([plain, term]))
        options = [[None, *(rule for rule in own if rule.factor in used)] for own in self.options]
        for chosen in islice(combinations(*options), MOST):
            rules = [*self.always, *(rule for rule in chosen if rule)]
            values = {rule.factor: rule.value for rule in rules}
            keep = {g for rule in rules for g in rule.keep} - values.keys()
            with suppress(TooLongError, ZeroDivisionError):
                yield Normalizer(values, keep, self.fact, self.positive).normal(plain)
