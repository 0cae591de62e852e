"""Which rules a derivative needs, by name, and definitions put back into an expression."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product as combinations

from matgrad.index_notation.expressions import Entry, Expression, Factor, Monomial, of, product, total
from matgrad.index_notation.functions import Applied, Maximum
from matgrad.index_notation.powers import Base
from matgrad.index_notation.sums import Sum, summed_over

DELTA = "the derivative of an entry is 1 for the same indices, and 0 for others"
FUNCTIONS = {  # what their derivatives are
    "exp": "the derivative of exp is exp",
    "log": "the derivative of log is x^(-1)",
    "erf": "the derivative of erf is 2/π^(1/2)·exp(-x^2)",
    "sin": "the derivative of sin is cos",
    "cos": "the derivative of cos is -sin",
}


def rules_of(e: Expression, variable: Entry) -> list[str]:
    """The rules that e.derivative(variable) is by, each once, from the outside to the inside."""
    return list(dict.fromkeys(_rules(e, variable)))


def _rules(e: Expression, variable: Entry) -> Iterator[str]:
    terms = [[(f, p, x) for f, p in m if (x := f.derivative(variable))] for m in e.terms]
    dependent = [factors for factors in terms if factors]
    if len(dependent) > 1:
        yield "sum rule"
    for factors in dependent:
        if len(factors) > 1:
            yield "product rule"
        for f, p, _ in factors:
            if p != 1 and not (isinstance(f, Applied) and f.function.name == "exp"):
                yield "power rule"
            yield from _rules_of_factor(f, variable)


def _rules_of_factor(f: Factor, variable: Entry) -> Iterator[str]:
    match f:
        case Entry():
            yield DELTA
        case Applied():
            name = f.function.name
            if not (len(f.argument.terms) == 1 and isinstance(next(f.argument.factors(), None), Entry)):
                yield "chain rule"
            yield FUNCTIONS.get(name, f"the derivative of {name} is {name}'")
            yield from _rules(f.argument, variable)
        case Sum():
            yield "a sum is differentiated term by term"
            _, body = f.opened()
            yield from _rules(body, variable)
        case Base():
            yield from _rules(f.expression, variable)
        case Maximum():
            yield "a maximum has the derivative of what is the greatest"
            yield from _rules(f.argument, variable)


def folded(e: Expression, entry: Entry, definition: Expression) -> Expression:
    """e with y_ij in place of its definition, wherever that is a part of a product, such as exp(z_ij) / Σ_k exp(z_ik).

    A product with a sum in it, a·Σ_k e_k, is looked at as Σ_k a·e_k too. Only a product with other factors than entries
    is looked for. The result is equal to e if y_ij is its definition.
    """
    if len(definition.terms) != 1 or all(isinstance(f, Entry) for f in definition.factors()):
        return e
    found = _folded_products(e, entry, definition)
    return total(_folded_sums(m, entry, definition).scaled(c) for m, c in found.terms.items())


def _folded_sums(m: Monomial, entry: Entry, definition: Expression) -> Expression:
    """A product with y_ij inside one of its sums."""
    e = product(m)
    for f, p in m:
        if isinstance(f, Sum) and p == 1:
            bound, body = f.opened()
            inner = body * product((g, q) for g, q in m if g is not f)
            if (found := folded(inner, entry, definition)) != inner:
                return summed_over(bound, found)
    return e


def _folded_products(e: Expression, entry: Entry, definition: Expression) -> Expression:
    """e with y_ij in its products."""
    # the indices of e that can stand for those of the entry
    places = combinations(*(sorted(k for k in e.free if k.size == i.size) for i in entry.indices))
    definitions = [(at, definition.substituted(dict(zip(entry.indices, at, strict=True)))) for at in places]
    changed = True
    while changed:
        changed = False
        for m, (at, pattern) in combinations(list(e.terms), definitions):
            if len(pattern.terms) != 1 or m not in e.terms:
                continue
            ((q, c),), found = pattern.terms.items(), dict(m)
            # whether q is a part of m; by sizes it can be divided in any case
            sizes = {f for f, _ in q if isinstance(f, Entry) and f.is_unit}
            if all(f in sizes or (found.get(f, 0) * p > 0 and abs(found[f]) >= abs(p)) for f, p in q):
                rest = product((*m, *((f, -p) for f, p in q)))
                e = e - Expression({m: e.terms[m]}) + (rest * of(entry.at(*at))).scaled(e.terms[m] / c)
                changed = True
    return e
