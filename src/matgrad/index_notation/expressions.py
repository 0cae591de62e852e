"""Expressions in index notation, in a canonical form: sums of rational multiples of products of powers of factors.

    3·x_ij·(Σ_k y_ik)^2 - N^(-1)·[i=j]

is a map from two monomials to 3 and -1. A monomial is a sorted product of factors with rational exponents, and a
factor is an entry x_ij, a delta [i=j], a function of an expression, a sum over indices, or a `Base`: a sum of several
terms under an exponent that is not natural. Every operation returns a canonical form, and expressions are equal only
if their canonical forms are. A rule that rewrites an expression is an identity wherever the expression is
defined, for real numbers and for all sizes of 1 or more.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from fractions import Fraction
from functools import cached_property, reduce

from matgrad.index_notation.indices import (
    FIRST,
    TIMES,
    Colors,
    Index,
    Indices,
    Label,
    Reversed,
    apart,
    bare,
    checked_name,
    color,
    opposite,
    remembered,
    shifted,
    unshifted,
)

NOT = Fraction(0)  # the exponent of what is not a factor
KNOWN = 20000  # factors of which what they become with other indices, and derivatives, are known


class UndefinedError(ArithmeticError):
    """An expression that has no value, such as 1/0, or no canonical form."""


class TooLongError(ArithmeticError):
    """What would need more terms than are allowed."""


_budget: ContextVar[list[int] | None] = ContextVar("_budget", default=None)  # how many terms may still be made


@contextmanager
def bounded(terms: int) -> Iterator[None]:
    """Raise a TooLongError if expressions with more terms than that, all together, are made inside."""
    token = _budget.set([terms])
    try:
        yield
    finally:
        _budget.reset(token)


class Factor(ABC):
    """What monomials are products of; factors are equal if their keys are.

    `free` are the indices that it depends on. `height` is the number of sums that are inside each other in it.
    """

    key: str
    free: frozenset[Index] = frozenset()
    height: int = 0
    is_positive = False  # whether it is known to be above 0
    is_unit = False  # whether it is a positive factor that leading monomials do not have: a size or an exponential
    is_analytic = True  # whether it is an analytic function of entries: one without conditions and maxima

    @abstractmethod
    def derivative(self, variable: Factor) -> Expression:
        """The derivative with respect to an entry, such as x_ij."""

    @abstractmethod
    def shape(self, colors: Colors) -> str:
        """The key with colors in place of indices: the same whatever the indices of a color, and inside, are called."""

    def mapped(self, change: Change) -> Expression:
        """The factor with change(e) in place of the expressions e inside it."""
        return of(self)

    def substituted(self, indices: Indices) -> Expression:
        """The factor with other indices."""
        return self.mapped(lambda e: e.substituted(indices))

    def rewritten(self, powers: Powers) -> Expression | None:
        """The product of these powers, of which this factor is one, if there is a rule for it."""
        return None

    def inside(self) -> Iterable[Expression]:
        """The expressions in it."""
        return ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Factor) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return self.key


class Condition(Factor):
    """A factor that is 1 where a condition holds and 0 where it does not; it is its own square."""

    is_analytic = False

    def derivative(self, variable: Factor) -> Expression:
        """0, except where the condition changes."""
        return ZERO


Powers = dict[Factor, Fraction]
Change = Callable[["Expression"], "Expression"]
Rule = Callable[[Factor], "Expression | None"]  # what is put for a factor; None leaves it
Monomial = tuple[tuple[Factor, Fraction], ...]  # sorted by the keys of the factors


def is_natural(p: Fraction) -> bool:
    """Whether p is 0, 1, 2, …"""
    return p.denominator == 1 and p >= 0


class Expression:
    """Σ_m c_m·m, over monomials m with rational coefficients c_m ≠ 0."""

    def __init__(self, terms: Mapping[Monomial, Fraction]) -> None:
        self.terms = {m: c for m, c in terms.items() if c}
        if budget := _budget.get():
            budget[0] -= 1 + len(self.terms)
            if budget[0] < 0:
                raise TooLongError("it needs expressions with too many terms")

    # -- what it consists of --------------------------------------------------------------------
    def factors(self) -> Iterator[Factor]:
        """The factors of all monomials."""
        return (f for m in self.terms for f, _ in m)

    def inner(self) -> Iterator[Factor]:
        """The factors of all monomials, also those inside others, each once."""
        seen, left = set[Factor](), [self]
        while left:
            for f in left.pop().factors():
                if f not in seen:
                    seen.add(f)
                    left += f.inside()
                    yield f

    def content(self, which: Callable[[Factor], bool] = lambda f: True) -> Powers:
        """The least exponents of some of its factors, which every term can be divided by."""
        powers = [dict(m) for m in self.terms]
        factors = [f for f in dict.fromkeys(self.factors()) if which(f)]
        return {f: min(x.get(f, NOT) for x in powers) for f in factors}

    @cached_property
    def free(self) -> frozenset[Index]:
        """The indices that it depends on."""
        return frozenset[Index]().union(*(f.free for f in self.factors()))

    @cached_property
    def height(self) -> int:
        """The number of sums that are inside each other in it."""
        return max((f.height for f in self.factors()), default=0)

    @cached_property
    def key(self) -> str:
        """The canonical form as a string."""
        return " + ".join(sorted(f"{c}*{monomial_key(m)}" for m, c in self.terms.items())) or "0"

    def shape(self, colors: Colors) -> str:
        """The shapes of its terms."""
        return " + ".join(sorted(f"{c}*{monomial_shape(m, colors)}" for m, c in self.terms.items()))

    @cached_property
    def is_analytic(self) -> bool:
        """Whether it has neither conditions nor maxima, so that it is 0 almost nowhere, or everywhere."""
        return all(f.is_analytic for f in self.factors())

    @property
    def constant(self) -> Fraction | None:
        """Its value if it is a rational number, otherwise None."""
        return self.terms.get((), Fraction(0)) if self.terms.keys() <= {()} else None

    @property
    def is_positive(self) -> bool:
        """Whether every term is known to be above 0."""
        terms = self.terms.items()
        return bool(terms) and all(c > 0 and all(f.is_positive for f, _ in m) for m, c in terms)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expression) and self.terms == other.terms

    def __hash__(self) -> int:
        return hash(self.key)

    def __bool__(self) -> bool:
        return bool(self.terms)

    def __repr__(self) -> str:
        return self.key

    # -- arithmetic -----------------------------------------------------------------------------
    def __add__(self, other: Expression | Fraction | int) -> Expression:
        return total([self, as_expression(other)])

    def __neg__(self) -> Expression:
        return self.scaled(Fraction(-1))

    def __sub__(self, other: Expression | Fraction | int) -> Expression:
        return self + -as_expression(other)

    def __mul__(self, other: Expression | Fraction | int) -> Expression:
        other = as_expression(other)
        for e, c in ((self, other.constant), (other, self.constant)):
            if c is not None:
                return e.scaled(c)
        pairs = ((m, c, n, d) for m, c in self.terms.items() for n, d in other.terms.items())
        return total(product((*m, *n)).scaled(c * d) for m, c, n, d in pairs)

    __radd__, __rmul__ = __add__, __mul__

    def __rsub__(self, other: Fraction | int) -> Expression:
        return as_expression(other) - self

    def __truediv__(self, other: Expression | Fraction | int) -> Expression:
        return self * as_expression(other) ** Fraction(-1)

    def __rtruediv__(self, other: Fraction | int) -> Expression:
        return as_expression(other) / self

    def __pow__(self, p: Fraction | int) -> Expression:
        from matgrad.index_notation.powers import power  # which is written in terms of products

        return power(self, Fraction(p))

    def scaled(self, c: Fraction) -> Expression:
        """c times the expression."""
        return self if c == 1 else Expression({m: c * d for m, d in self.terms.items()} if c else {})

    # -- substitution and differentiation -------------------------------------------------------
    def substituted(self, indices: Indices) -> Expression:
        """The expression with other indices, or pairs of them, all put at the same time."""
        pairs = [pair for i, j in indices.items() for pair in zip(i.parts, j.parts, strict=True)]
        changes = {i: j for i, j in pairs if i.free <= self.free and i != j}
        return total(substituted(m, changes).scaled(c) for m, c in self.terms.items()) if changes else self

    def mapped(self, rule: Rule) -> Expression:
        """The expression with rule(f) in place of its factors f, also inside others, for which there is one."""

        def changed(f: Factor) -> Expression:
            found = rule(f)
            return f.mapped(lambda e: e.mapped(rule)) if found is None else found

        return total(multiplied(changed(f) ** p for f, p in m).scaled(c) for m, c in self.terms.items())

    def derivative(self, variable: Factor) -> Expression:
        """∂e/∂x, for an entry x, by the product rule and the power rule: Σ_f p·f^(p-1)·∂f/∂x·(the other factors)."""
        slopes = ((m, c, f, p, _slope(f, variable)) for m, c in self.terms.items() for f, p in m)
        return total(product((*m, (f, Fraction(-1)))).scaled(c * p) * slope for m, c, f, p, slope in slopes if slope)

    def by_cases(self, f: Callable[[Expression], Expression], bound: Iterable[Index] = ()) -> Expression | None:
        """f(e) = [c]·f(e where c holds) + (1 - [c])·f(e where it does not), for the first condition [c] in e.

        None if there is none; conditions that depend on `bound` indices do not count.
        """
        conditions = (x for x in self.factors() if isinstance(x, Condition) and x.free.isdisjoint(bound))
        condition = min(conditions, key=lambda x: x.key, default=None)
        if condition is None:
            return None
        with_it = {m: c for m, c in self.terms.items() if condition in dict(m)}
        without = Expression({m: c for m, c in self.terms.items() if m not in with_it})
        rest = (product((f, p) for f, p in m if f != condition).scaled(c) for m, c in with_it.items())
        holds = total([without, *rest])
        case = of(condition)
        return case * f(holds) + (ONE - case) * f(without)


def as_expression(x: Expression | Fraction | int) -> Expression:
    """A rational number as an expression; an expression is returned as it is."""
    if not isinstance(x, Expression | Fraction | int):
        raise TypeError(f"expected an expression or an exact number, found {x!r}")
    return x if isinstance(x, Expression) else Expression({(): Fraction(x)})


def of(factor: Factor, exponent: Fraction | int = 1) -> Expression:
    """A power of one factor as an expression, for which no rule is needed."""
    return Expression({((factor, Fraction(exponent)),): Fraction(1)})


def total(expressions: Iterable[Expression]) -> Expression:
    """The sum of expressions."""
    terms: dict[Monomial, Fraction] = {}
    for e in expressions:
        for m, c in e.terms.items():
            terms[m] = terms[m] + c if m in terms else c
    return Expression(terms)


def multiplied(expressions: Iterable[Expression]) -> Expression:
    """The product of expressions."""
    return reduce(operator.mul, expressions, ONE)


ZERO, ONE = as_expression(0), as_expression(1)


def is_equal(a: Expression, b: Expression) -> bool:
    """Whether a - b is 0 in canonical form, as it is or multiplied by its denominators.

    If so, then a = b for all sizes and wherever both are defined, except where a condition or a maximum changes.
    Otherwise nothing is known.
    """
    difference = a - b
    if not difference:
        return True
    denominators = {f: -p for f, p in difference.content().items() if p < 0}
    return bool(denominators) and not difference * product(denominators.items())


# -- monomials ---------------------------------------------------------------------------------


def written_terms(e: Expression) -> list[tuple[Monomial, Fraction]]:
    """The terms in the order in which they are written: those with a minus sign last."""
    return sorted(e.terms.items(), key=lambda item: (item[1] < 0, monomial_key(item[0])))


def monomial_key(m: Monomial) -> str:
    """The canonical form of a monomial as a string."""
    return "*".join(f.key if p == 1 else f"{f.key}^{p}" for f, p in m) or "1"


def monomial_shape(m: Monomial, colors: Colors) -> str:
    """The sorted shapes of its factors."""
    return "*".join(sorted(f.shape(colors) if p == 1 else f"{f.shape(colors)}^{p}" for f, p in m))


def product(powers: Iterable[tuple[Factor, Fraction]]) -> Expression:
    """The product of powers of factors: exponents of equal factors are added, and then rules are applied."""
    exponents: Powers = {}
    for f, p in powers:
        exponents[f] = exponents[f] + p if f in exponents else p
    exponents = {f: p for f, p in exponents.items() if p}
    conditions = [f for f in exponents if isinstance(f, Condition)]
    for f in conditions:
        if exponents[f] < 0:
            raise UndefinedError(f"division by {f}")
        exponents[f] = Fraction(1)
    for f in (*conditions, *(f for f in exponents if not isinstance(f, Condition))):
        if (result := f.rewritten(exponents)) is not None:
            return result
    return Expression({tuple(sorted(exponents.items(), key=lambda item: item[0].key)): Fraction(1)})


@remembered(KNOWN)
def _renamed(f: Factor, indices: tuple[tuple[Index, Index], ...]) -> Expression:
    return f.substituted(dict(indices))


@remembered(KNOWN)
def _slope(f: Factor, variable: Factor) -> Expression:
    return f.derivative(variable)


def substituted(m: Monomial, indices: Indices) -> Expression:
    """A monomial with other indices."""
    free = indices.keys() if not any(isinstance(i, Label) for i in indices) else {k for i in indices for k in i.free}
    powers, c, others = list[tuple[Factor, Fraction]](), Fraction(1), list[Expression]()
    for f, p in m:
        if f.free.isdisjoint(free):
            powers.append((f, p))
            continue
        e = _renamed(f, tuple((i, j) for i, j in indices.items() if not i.free.isdisjoint(f.free)))
        match [*e.terms.items()]:
            case [(((g, 1),), 1)]:
                powers.append((g, p))
            case [(n, d)] if p.denominator == 1:  # (d·g^x·…)^p = d^p·g^(x·p)·…
                powers += [(g, x * p) for g, x in n]
                c *= d ** int(p)
            case _:
                others.append(e**p)
    return multiplied([product(powers).scaled(c), *others])


# -- entries x_ij and Kronecker deltas [i=j] ----------------------------------------------------


class Entry(Factor):
    """x_ij, or x_i or x if a matrix has sizes of 1; entries of a size are those of a scalar, such as N.

    An entry of a function of a matrix, of which nothing else is known, has the name of that matrix as its `variable`.
    """

    def __init__(
        self,
        name: str,
        indices: Sequence[Index] = (),
        *,
        is_positive: bool = False,
        is_size: bool = False,
        variable: str = "",
    ) -> None:
        self.name, self.indices = checked_name(name), tuple(part for i in indices for part in i.parts)
        self.free, self.variable = frozenset[Index]().union(*(i.free for i in self.indices)), variable
        self.is_positive, self.is_unit = is_positive or is_size, is_size
        mark = "#" if is_size else "+" if is_positive else ""
        self.head = f"{name}{mark}" + (f"<{checked_name(variable)}>" if variable else "")
        self.key = f"{self.head}[{','.join(f'{i.name}:{i.size}' for i in self.indices)}]"

    def shape(self, colors: Colors) -> str:
        """x_ij with colors"""
        return f"{self.head}[{','.join(color(i, colors) for i in self.indices)}]"

    def substituted(self, indices: Indices) -> Expression:
        """x_kl, for x_ij"""
        return of(self.at(*(i.at(indices) for i in self.indices)))

    def at(self, *indices: Index) -> Entry:
        """The entry of the same matrix with other indices."""
        return Entry(self.name, indices, is_positive=self.is_positive, is_size=self.is_unit, variable=self.variable)

    def derivative(self, variable: Factor) -> Expression:
        """∂x_ij/∂x_kl = [i=k]·[j=l]; of a function, f'x_ijkl for the matrix x that it depends on."""
        assert isinstance(variable, Entry)
        if self.variable:
            of_function = Entry(f"{self.name}'{self.variable}", (*self.indices, *variable.indices))
            return of(of_function) if variable.name == self.variable else ZERO
        sizes, others = ([i.size for i in x.indices] for x in (self, variable))
        if sizes != others or self.at(*variable.indices) != variable:
            return ZERO
        return multiplied(map(delta, self.indices, variable.indices))


def size(name: str) -> Expression:
    """The number N of values of an index, which is 1 or more."""
    return multiplied(of(Entry(n, is_size=True)) for n in name.split(TIMES) if n != FIRST.size)


class Delta(Condition):
    """[i=j], which is 1 if i = j and 0 otherwise."""

    def __init__(self, i: Index, j: Index) -> None:
        assert i != j
        assert i.size == j.size
        self.i, self.j = sorted((i, j))
        self.free = i.free | j.free
        self.key = f"[{self.i.name}:{self.i.size}={self.j.name}:{self.j.size}]"

    def shape(self, colors: Colors) -> str:
        """[i=j] with colors"""
        return f"[{'='.join(sorted((color(self.i, colors), color(self.j, colors))))}]"

    def substituted(self, indices: Indices) -> Expression:
        """[k=l], for [i=j]"""
        return delta(self.i.at(indices), self.j.at(indices))

    def solved(self, among: Container[Index]) -> Indices | None:
        """What one of these indices, which may be i or j, is where the condition holds: the other one."""
        pairs = [(self.j, self.i), (self.i, self.j)]
        for k, other in pairs if bare(self.i) < bare(self.j) else pairs[::-1]:  # the greater one, for one order of all
            k, d = unshifted(k)
            other = shifted(other, -d)
            if isinstance(k, Reversed):  # i = N + 1 - j
                k, other = opposite(k), opposite(other)
            if k in among and k not in other.free:
                return {k: other}
        return None

    def rewritten(self, powers: Powers) -> Expression | None:
        """[i=j]·f(j) = [i=j]·f(i), and [t_i=j]·f(t_i) = [t_i=j]·f(j) for a label t_i"""
        others = tuple((f, p) for f, p in powers.items() if f is not self)
        indices = self._replaced()
        if not any(k in f.free or (isinstance(k, Label) and f"{k.name}:" in f.key) for f, _ in others for k in indices):
            return None
        return substituted(others, indices) * of(self)

    def _replaced(self) -> Indices:
        """The index that other factors can do without, with the other one."""
        labels: list[Index] = [k for k in (self.i, self.j) if isinstance(k, Label)]
        if len(labels) == 1:
            return {labels[0]: self.j if labels[0] is self.i else self.i}
        return self.solved(self.free) or {}


def delta(i: Index, j: Index) -> Expression:
    """[i=j]; of pairs, the product of those of their parts"""
    return multiplied(_delta(k, l) for k, l in zip(i.parts, j.parts, strict=True) if k != l)


def _delta(i: Index, j: Index) -> Expression:
    """[i=j]; if one of them is reversed, it is the greater one, and if one is shifted, it is the smaller one."""
    j, d = unshifted(j)
    i, d = unshifted(shifted(i, -d))
    if isinstance(j, Reversed):
        (i, e), j = unshifted(opposite(i)), opposite(j)
        d = e - d
    if isinstance(i, Reversed) and opposite(i) < j:
        (i, e), j = unshifted(opposite(j)), opposite(i)
        d += e
    if i == j:
        apart(i.size, d)
        return as_expression(int(not d))
    return of(Delta(shifted(i, d), j) if i < j else Delta(shifted(j, -d), i))
