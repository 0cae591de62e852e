"""Conditions [e ≥ 0], [e > 0] and [j - i ≥ d], and flags, as factors: 1 where they hold and 0 where they do not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from fractions import Fraction

from matgrad.index_notation.expressions import (
    ONE,
    ZERO,
    Change,
    Condition,
    Expression,
    Factor,
    Powers,
    UndefinedError,
    delta,
    monomial_key,
    monomial_shape,
    of,
    product,
    total,
)
from matgrad.index_notation.indices import (
    Colors,
    Index,
    Indices,
    Last,
    Reversed,
    Shifted,
    apart,
    checked_name,
    color,
    is_new,
    opposite,
    shifted,
    unshifted,
)
from matgrad.index_notation.positions import Position, least


class Step(Condition):
    """[e ≥ 0]"""

    relation = "≥"

    def __init__(self, argument: Expression) -> None:
        self.argument = argument
        self.key, self.free, self.height = f"[{argument.key}{self.relation}0]", argument.free, argument.height

    def shape(self, colors: Colors) -> str:
        """The condition with the shape of e."""
        return f"[{self.argument.shape(colors)}{self.relation}0]"

    def inside(self) -> tuple[Expression]:
        """e"""
        return (self.argument,)

    def mapped(self, change: Change) -> Expression:
        """[e ≥ 0] for another e."""
        return step(change(self.argument))

    def rewritten(self, powers: Powers) -> Expression | None:
        """[a ≥ 0]·[b ≥ 0] is 0 if a + b < 0, [b ≥ 0] if a > b, and [a ≥ 0] + [b ≥ 0] - 1 if a + b > 0.

        So it is for positive multiples of b.
        """
        for f in (f for f in powers if isinstance(f, Step) and f is not self):
            a = self.argument
            b = f.argument.scaled(_multiple(a, f.argument))
            if (-a - b).is_positive:
                return ZERO
            if (a - b).is_positive:
                return product((g, p) for g, p in powers.items() if g is not self)
            if (a + b).is_positive:
                return product((g, p) for g, p in powers.items() if g not in (self, f)) * (of(self) + of(f) - 1)
        return None


def _multiple(a: Expression, b: Expression) -> Fraction:
    """The positive number c for which a and c·b, or -c·b, have a term in common, other than a number; otherwise 1."""
    return next((abs(c / b.terms[m]) for m, c in a.terms.items() if m and m in b.terms), Fraction(1))


def step(e: Expression) -> Expression:
    """[e ≥ 0], which does not change with positive factors of e."""
    return _condition(e, step, _step, at_zero=ONE)


def _step(e: Expression) -> Expression:
    """[e ≥ 0]; of positions it is [i - j ≥ d], or known."""
    e = e.scaled(1 / abs(first_coefficient(e)))
    if (low := least(e)) is not None and low >= 0:
        return ONE
    if (low := least(-e)) is not None and low > 0:
        return ZERO
    d = e.terms.get((), Fraction(0))
    places = {c: f.index for m, c in e.terms.items() for f, p in m if isinstance(f, Position) and m == ((f, p),)}
    if len(e.terms) == 2 + bool(d) and places.keys() == {1, -1} and d.denominator == 1:
        return order(places[Fraction(-1)], places[Fraction(1)], int(-d))
    return of(Step(e))


class Positive(Step):
    """[e > 0], for an analytic e: 1 - [-e > 0], except where e = 0."""

    relation = ">"

    def mapped(self, change: Change) -> Expression:
        """[e > 0] for another e."""
        return positive(change(self.argument))


def positive(e: Expression) -> Expression:
    """[e > 0]: if e is analytic, it is [e ≥ 0] and 1 - [-e > 0] except where e = 0, and has one of these forms."""
    return _condition(e, positive, _positive, at_zero=ZERO)


def _positive(e: Expression) -> Expression:
    if not e.is_analytic:
        return ONE - step(-e)
    sign = _sign(e)
    e = e.scaled(sign / abs(first_coefficient(e)))
    return of(Positive(e)) if sign > 0 else ONE - of(Positive(e))


def _sign(e: Expression) -> int:
    """The sign of the first terms of a shape, whatever indices are called."""
    coefficients: dict[str, Fraction] = defaultdict(Fraction)
    for m, c in e.terms.items():
        coefficients[monomial_shape(m, {i: i.size for i in e.free})] += c
    found = [c for _, c in sorted(coefficients.items()) if c]
    return -1 if found and found[0] < 0 else 1


def _condition(
    e: Expression, whole: Callable[[Expression], Expression], f: Callable[[Expression], Expression], at_zero: Expression
) -> Expression:
    """f(e) by cases, without positive factors of e; what is known to be above or below 0 needs no condition."""
    if (cases := e.by_cases(whole)) is not None:
        return cases
    e = e * product((g, -p) for g, p in e.content(lambda g: g.is_positive).items())
    if not e:
        return at_zero
    return ONE if e.is_positive else ZERO if (-e).is_positive else f(e)


def first_coefficient(e: Expression) -> Fraction:
    """The coefficient of the first monomial by its key."""
    return e.terms[min(e.terms, key=monomial_key)]


class Flag(Condition):
    """m_ij, the entry of a mask, which is 0 or 1 and of which nothing else is known."""

    def __init__(self, name: str, indices: Sequence[Index]) -> None:
        self.name, self.indices = checked_name(name), tuple(indices)
        self.free = frozenset[Index]().union(*(i.free for i in indices))
        self.key = f"{name}?[{','.join(f'{i.name}:{i.size}' for i in indices)}]"

    def shape(self, colors: Colors) -> str:
        """m_ij with colors"""
        return f"{self.name}?[{','.join(color(i, colors) for i in self.indices)}]"

    def substituted(self, indices: Indices) -> Expression:
        """m_kl, for m_ij"""
        return of(Flag(self.name, [i.at(indices) for i in self.indices]))


class Order(Condition):
    """[j - i ≥ d], for a whole number d of 1 or more."""

    def __init__(self, i: Index, j: Index, d: int) -> None:
        self.i, self.j, self.d = i, j, d
        self.free = i.free | j.free
        self.key = f"[{j.name}:{j.size}-{i.name}:{i.size}≥{d}]"

    def shape(self, colors: Colors) -> str:
        """The condition with colors."""
        return f"[{color(self.j, colors)}-{color(self.i, colors)}≥{self.d}]"

    def substituted(self, indices: Indices) -> Expression:
        """The condition on other indices."""
        return order(self.i.at(indices), self.j.at(indices), self.d)

    def rewritten(self, powers: Powers) -> Expression | None:
        """[j - i ≥ d] is left of [j - i ≥ d]·[j - i ≥ c] if d > c, and [j - i ≥ d]·[i - j ≥ c] = 0."""
        for f in (f for f in powers if isinstance(f, Order) and f is not self):
            if (f.i, f.j) == (self.j, self.i):
                return ZERO
            if (f.i, f.j) == (self.i, self.j):
                return product((g, p) for g, p in powers.items() if g is not (self if self.d < f.d else f))
        return None


def trichotomy(f: Factor) -> Expression | None:
    """[j < i] = 1 - [i < j] - [i=j], where i is an index of a sum and j is not, or comes first by its name."""
    if not isinstance(f, Order) or f.d != 1 or f.i.size != f.j.size:
        return None
    i, j = ((not is_new(k), k.name) for k in (f.i, f.j))
    is_other_way = j < i and (i[0] or j[0])
    return ONE - order(f.j, f.i, 1) - delta(f.i, f.j) if is_other_way else None


def order(i: Index, j: Index, d: int) -> Expression:
    """[j - i ≥ d], which is 1 - [i - j ≥ 1 - d], and the same of their opposites, exchanged, if sizes are equal"""
    if i == j:
        return ONE if d <= 0 else ZERO
    if d < 1:
        return ONE - order(j, i, 1 - d)
    if any(isinstance(k, Shifted | Last) for k in (i, j)):
        if i.size != j.size:
            raise UndefinedError("an order of neighbours of other sizes")
        return _order_after(i, j, d) if isinstance(i, Shifted | Last) else _order_after(opposite(j), opposite(i), d)
    is_reversed = isinstance(i, Reversed), isinstance(j, Reversed)
    if i.size == j.size and (is_reversed == (True, True) or (any(is_reversed) and opposite(j) < i)):
        i, j = opposite(j), opposite(i)
    return of(Order(i, j, d))


def _order_after(i: Index, j: Index, d: int) -> Expression:
    """[j - i ≥ d], for i = k + p in a circle: it is [j - k ≥ d + p] but where i is among the first or last ones."""
    k, p = unshifted(i)
    apart(i.size, abs(p) + d)

    def from_first(c: int) -> Expression:
        """[j ≥ c]"""
        return ONE - total(delta(j, shifted(Last(j.size), s)) for s in range(1, c))

    def from_last(c: int) -> Expression:
        """[j ≥ N - c]"""
        return total(delta(j, shifted(Last(j.size), -s)) for s in range(c + 1))

    if isinstance(k, Last):
        return from_first(p + d) if p > 0 else from_last(-p - d)
    if p > 0:
        ends = (delta(k, shifted(Last(k.size), r - p)) * from_first(d + r) for r in range(1, p + 1))
        return order(k, j, d + p) + total(ends)
    firsts = [delta(k, shifted(Last(k.size), r)) for r in range(1, 1 - p)]
    ends = (first * from_last(-p - r - d) for r, first in enumerate(firsts, 1))
    return order(k, j, d + p) * (1 - total(firsts)) + total(ends)
