"""Terms of real numbers as Coq has them: sums and products, Σ over an index, and functions of terms.

Unlike expressions in index notation they have no canonical form: a term is what is written. The terms of a program are
read by `matgrad.certificates.reading`, and those of an expression by `term_of`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from typing import TYPE_CHECKING

from matgrad.index_notation.conditions import Flag, Positive, Step, step
from matgrad.index_notation.expressions import (
    ONE,
    Delta,
    Entry,
    Expression,
    Factor,
    Index,
    Label,
    Reversed,
    delta,
    monomial_key,
    of,
    size,
)
from matgrad.index_notation.functions import Applied, Maximum, arbitrary, cos, erf, exp, log, maximum, sin, sqrt
from matgrad.index_notation.powers import PI, Base, Constant, power
from matgrad.index_notation.sums import Sum, summed_over

if TYPE_CHECKING:
    from matgrad.certificates.leaves import Definition

Indices = tuple[Index, ...]
FUNCTIONS: dict[str, Callable[[Expression], Expression]] = {
    "exp": exp,
    "ln": log,
    "sqrt": sqrt,
    "inverse": lambda e: power(e, Fraction(-1)),
    "step": step,
    "erf": erf,
    "sin": sin,
    "cos": cos,
}
NAMES = {"exp": "exp", "log": "ln", "erf": "erf", "sin": "sin", "cos": "cos"}  # of functions in index notation


class NotPrintableError(ValueError):
    """Something that cannot be printed for Coq."""


class Term:
    """A term in indices."""

    def __add__(self, other: Term) -> Term:
        return Plus(self, other)

    def __mul__(self, other: Term) -> Term:
        return Times(self, other)


@dataclass(frozen=True)
class Number(Term):
    """A rational number."""

    value: Fraction


@dataclass(frozen=True)
class SizeOf(Term):
    """N, as a real number."""

    name: str


@dataclass(frozen=True)
class Symbol(Term):
    """x_ij, of which nothing is known; `variable` is π, a constant."""

    name: str
    indices: Indices = ()


@dataclass(frozen=True)
class Leaf(Term):
    """What has a definition in a proof, at some indices."""

    definition: Definition
    indices: Indices


@dataclass(frozen=True)
class Equal(Term):
    """[i=j]"""

    i: Index
    j: Index


@dataclass(frozen=True)
class Plus(Term):
    """x + y"""

    x: Term
    y: Term


@dataclass(frozen=True)
class Times(Term):
    """x·y"""

    x: Term
    y: Term


@dataclass(frozen=True)
class Over(Term):
    """Σ_k x"""

    index: Index
    x: Term


@dataclass(frozen=True)
class Apply(Term):
    """f(x), or max_k x"""

    function: str
    x: Term
    index: Index | None = None


MINUS_ONE = Number(Fraction(-1))


def inverse(x: Term) -> Term:
    """1/x"""
    return Apply("inverse", x)


def multiplied(terms: list[Term]) -> Term:
    """The product of terms, from left to right; 1 if there are none."""
    return reduce(Times, terms) if terms else Number(Fraction(1))


def added(terms: list[Term]) -> Term:
    """The sum of terms, from left to right; 0 if there are none."""
    return reduce(Plus, terms) if terms else Number(Fraction(0))


def mapped(x: Term, change: Callable[[Term], Term | None], indices: Mapping[Index, Index] | None = None) -> Term:
    """The term with change(y) in place of the first terms y, from the outside, for which there is one.

    Free indices are replaced too.
    """
    at = indices or {}
    if (found := change(x)) is not None:
        return found

    def inside(y: Term) -> Term:
        return mapped(y, change, at)

    match x:
        case Symbol(name, own):
            return Symbol(name, tuple(at.get(i, i) for i in own)) if at else x
        case Leaf(definition, own):
            return Leaf(definition, tuple(at.get(i, i) for i in own)) if at else x
        case Equal(i, j):
            return Equal(at.get(i, i), at.get(j, j))
        case Plus(y, z):
            return Plus(inside(y), inside(z))
        case Times(y, z):
            return Times(inside(y), inside(z))
        case Over(i, y):
            return Over(i, inside(y))
        case Apply(f, y, i):
            return Apply(f, inside(y), i)
    return x


def substituted(x: Term, indices: Mapping[Index, Index]) -> Term:
    """The term with other free indices; bound ones have names of their own."""
    changed = {i: j for i, j in indices.items() if i != j}
    return mapped(x, lambda y: None, changed) if changed else x


def parts(x: Term) -> Iterator[Term]:
    """The term and all terms in it."""
    yield x
    match x:
        case Plus(y, z) | Times(y, z):
            yield from parts(y)
            yield from parts(z)
        case Over(_, y) | Apply(_, y, _):
            yield from parts(y)


def free(x: Term) -> Indices:
    """Its free indices, in the order in which they occur."""
    match x:
        case Symbol(_, own) | Leaf(_, own):
            found: Indices = own
        case Equal(i, j):
            found = (i, j)
        case Plus(y, z) | Times(y, z):
            found = (*free(y), *free(z))
        case Over(k, y) | Apply(_, y, k):
            found = tuple(i for i in free(y) if i != k)
        case _:
            found = ()
    return tuple(dict.fromkeys(found))


def shape(x: Term, names: Mapping[Index, str] | None = None) -> str:
    """The term as a string that does not depend on the names of bound indices."""
    at = names or {}

    def name(i: Index) -> str:
        return at.get(i, f"{i.name}:{i.size}")

    match x:
        case Number(c):
            return str(c)
        case SizeOf(n):
            return f"#{n}"
        case Symbol(n, own):
            return f"{n}[{','.join(map(name, own))}]"
        case Leaf(definition, own):
            return f"{definition.name}![{','.join(map(name, own))}]"
        case Equal(i, j):
            return f"[{name(i)}={name(j)}]"
        case Plus(y, z):
            return f"({shape(y, at)} + {shape(z, at)})"
        case Times(y, z):
            return f"({shape(y, at)} * {shape(z, at)})"
        case Over(k, y):
            return f"Σ({shape(y, {**at, k: f'~{len(at)}:{k.size}'})})"
        case Apply(f, y, k):
            return f"{f}({shape(y, at if k is None else {**at, k: f'~{len(at)}:{k.size}'})})"
    raise TypeError(x)


# -- index notation ----------------------------------------------------------------------------


def term_of(e: Expression) -> Term:
    """An expression as a term: the sum of its products, as they are written."""
    items = sorted(e.terms.items(), key=lambda item: (item[1] < 0, monomial_key(item[0])))
    return added([_product(c, [_power(f, p) for f, p in m]) for m, c in items])


def _product(c: Fraction, factors: list[Term]) -> Term:
    return multiplied(([Number(c)] if c != 1 or not factors else []) + factors)


def _power(f: Factor, p: Fraction) -> Term:
    """f^p"""
    if isinstance(f, Applied) and f.function is exp:
        return Apply("exp", term_of(f.argument.scaled(p)))
    base, n = _factor(f), p
    if p.denominator == 2:
        base, n = Apply("sqrt", base), p * 2
    elif p.denominator != 1:
        raise NotPrintableError(f"a power with the exponent {p}")
    return multiplied([base if n > 0 else inverse(base)] * abs(int(n)))


def _factor(f: Factor) -> Term:
    for i in f.free:
        _checked(i)
    match f:
        case Entry() if f.is_unit:
            return SizeOf(f.name)
        case Entry(variable=""):
            return Symbol(f.name, tuple(map(_checked, f.indices)))
        case Delta():
            return Equal(_checked(f.i), _checked(f.j))
        case Base():
            return term_of(f.expression)
        case Sum():
            bound, body = f.opened()
            return reduce(lambda x, i: Over(i, x), sorted(bound), term_of(body))
        case Constant() if f.name.isdigit() or f.name == "π":
            return Number(Fraction(f.name)) if f.name.isdigit() else Symbol("PI")
        case Step() if not isinstance(f, Positive):
            return Apply("step", term_of(f.argument))
        case Maximum():
            k = Index(f.index.name.replace("~", "m"), f.index.size)
            return Apply("maximum", term_of(f.argument.substituted({f.index: k})), k)
        case Applied():
            return Apply(NAMES.get(f.function.name, f.function.name), term_of(f.argument))
        case Flag():
            raise NotPrintableError("a mask")
        case Entry():
            raise NotPrintableError("a function of a matrix of which nothing is known")
    raise NotPrintableError(f"{f}")


def _checked(i: Index) -> Index:
    if isinstance(i, Label | Reversed):
        raise NotPrintableError(f"the index {i.name}, which depends on others")
    return i


def expression(x: Term, is_opaque: bool = False) -> Expression:
    """A term in index notation; if it is opaque, what has a definition is a symbol."""

    def inside(y: Term) -> Expression:
        return expression(y, is_opaque)

    match x:
        case Number(c):
            return ONE * c
        case SizeOf(n):
            return size(n)
        case Symbol("PI", ()):
            return PI
        case Symbol(n, own):
            return of(Entry(n, own))
        case Leaf(definition, own) if is_opaque:
            return of(Entry(definition.name, own))
        case Leaf(definition, own):
            return inside(definition.at(own))
        case Equal(i, j):
            return delta(i, j)
        case Plus(y, z):
            return inside(y) + inside(z)
        case Times(y, z):
            return inside(y) * inside(z)
        case Over(k, y):
            return summed_over([k], inside(y))
        case Apply("maximum", y, k) if k is not None:
            e = inside(y)
            return maximum(lambda i: e.substituted({k: i}), k.size)
        case Apply(f, y, _):
            return (FUNCTIONS.get(f) or arbitrary(f))(inside(y))
    raise TypeError(x)
