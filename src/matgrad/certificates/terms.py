"""Terms of real numbers as Coq has them: sums and products, Σ over an index, and functions of terms.

Unlike expressions in index notation they have no canonical form: a term is what is written. The terms of a program are
read by `matgrad.certificates.reading`, and those of an expression by `term_of`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

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
    of,
    size,
    written_terms,
)
from matgrad.index_notation.functions import Applied, Maximum, arbitrary, cos, erf, exp, log, maximum, sin, sqrt
from matgrad.index_notation.indices import Last, Shifted
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
class Named(Term):
    """A value of a program at some indices, by the name of its definition; whether that is one of the variable."""

    name: str
    depends: bool
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


def mapped(x: Term, change: Callable[[Term], Term | None], at: Mapping[Index, Index] = MappingProxyType({})) -> Term:
    """The term with change(y) in place of the first terms y, from the outside, for which there is one.

    Free indices are replaced too; bound ones have names of their own.
    """

    def new(y: Any) -> Any:
        if isinstance(y, Term):
            return mapped(y, change, at)
        return at.get(y, y) if isinstance(y, Index) else tuple(map(new, y)) if isinstance(y, tuple) else y

    found = change(x)
    return type(x)(*map(new, vars(x).values())) if found is None else found


def substituted(x: Term, indices: Mapping[Index, Index]) -> Term:
    """The term with other free indices."""
    changed = {i: j for i, j in indices.items() if i != j}
    return mapped(x, lambda y: None, changed) if changed else x


def inner(x: Term) -> list[Term]:
    """The terms that it consists of."""
    return [y for y in vars(x).values() if isinstance(y, Term)]


def own(x: Term) -> Indices:
    """The indices that it has besides those of the terms in it."""
    found = (y for y in vars(x).values() if isinstance(y, tuple))
    return tuple(i for y in found for i in ((y,) if isinstance(y, Index) else y))


def bound(x: Term) -> Index | None:
    """The index of a sum or a maximum."""
    return x.index if isinstance(x, Over | Apply) else None


def parts(x: Term) -> Iterator[Term]:
    """The term and all terms in it."""
    yield x
    for y in inner(x):
        yield from parts(y)


def free(x: Term) -> Indices:
    """Its free indices, in the order in which they occur."""
    found = dict.fromkeys([*own(x), *(i for y in inner(x) for i in free(y))])
    return tuple(i for i in found if i != bound(x))


def sizes(*terms: Term) -> Iterator[str]:
    """The names of all sizes in terms."""
    for x in (y for term in terms for y in parts(term)):
        yield from (i.size for i in own(x))
        if isinstance(x, SizeOf):
            yield x.name


def shape(x: Term, names: Mapping[Index, str] = MappingProxyType({})) -> str:
    """The term as a string that does not depend on the names of bound indices."""
    at = names if (k := bound(x)) is None else {**names, k: f"~{len(names)}:{k.size}"}

    def text(y: Any) -> str:
        if isinstance(y, Term):
            return shape(y, at)
        if isinstance(y, Index):
            return at.get(y, f"{y.name}:{y.size}")
        return f"[{','.join(map(text, y))}]" if isinstance(y, tuple) else str(getattr(y, "name", y))

    return f"{type(x).__name__}({' '.join(map(text, vars(x).values()))})"


# -- index notation ----------------------------------------------------------------------------


def term_of(e: Expression) -> Term:
    """An expression as a term: the sum of its products, as they are written."""
    return added(
        [multiplied([Number(c)] * (c != 1 or not m) + [_power(f, p) for f, p in m]) for m, c in written_terms(e)]
    )


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
            return Apply("ln" if f.function is log else f.function.name, term_of(f.argument))
        case Flag():
            raise NotPrintableError("a mask")
        case Entry():
            raise NotPrintableError("a function of a matrix of which nothing is known")
    raise NotPrintableError(f"{f}")


def _checked(i: Index) -> Index:
    if isinstance(i, Label | Last | Reversed | Shifted):
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
