"""Sums over indices.

A sum is a factor of its own, over one connected set of indices: Σ_kl f_ik·g_il is (Σ_k f_ik)·(Σ_k g_ik). So a sum
and its reciprocal cancel. Its indices have canonical names, which never leave it: whoever looks into a sum opens it
with new indices.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from itertools import groupby, permutations
from itertools import product as combinations
from math import factorial, prod

from matgrad.index_notation.expressions import (
    Change,
    Delta,
    Expression,
    Factor,
    Monomial,
    UndefinedError,
    is_natural,
    monomial_key,
    monomial_shape,
    multiplied,
    of,
    product,
    size,
    substituted,
    total,
)
from matgrad.index_notation.indices import Colors, Index, Indices, Reversed, new_index, shifted
from matgrad.index_notation.powers import Base

Bound = frozenset[Index]  # the indices of a sum
MANY = 5040  # orders of the indices of a sum that are too many


class Sum(Factor):
    """Σ_kl m, for a monomial m that connects the indices k, l, …; their names have the height in them."""

    def __init__(self, bound: tuple[Index, ...], body: Monomial, height: int) -> None:
        self.bound, self.body, self.height = bound, body, height
        self.free = frozenset[Index]().union(*(f.free for f, _ in body)) - frozenset(bound)
        self.is_positive = all(f.is_positive for f, _ in body)
        self.is_analytic = all(f.is_analytic for f, _ in body)
        self.key = f"Σ{{{','.join(f'{i.name}:{i.size}' for i in bound)}}}({monomial_key(body)})"

    def shape(self, colors: Colors) -> str:
        """The shape of what is summed, with sizes for the indices of the sum."""
        return f"Σ({monomial_shape(self.body, {**colors, **{i: i.size for i in self.bound}})})"

    def opened(self) -> tuple[Bound, Expression]:
        """New indices, and what is summed over them."""
        new = {i: new_index(i.size) for i in self.bound}
        return frozenset(new.values()), substituted(self.body, new)

    def substituted(self, indices: Indices) -> Expression:
        """The sum with other indices: if different ones stay different, only names change."""
        names = {i: j for i, j in indices.items() if i in self.free}
        are_plain = all(type(i) is Index for i in (*indices, *names.values()))
        others = self.free - names.keys() | {*self.bound}
        stay_different = others.isdisjoint(names.values()) and len({*names.values()}) == len(names)
        renamed = _least(frozenset(self.bound), self.body, self.height, names) if are_plain and stay_different else None
        return super().substituted(indices) if renamed is None else renamed

    def inside(self) -> tuple[Expression]:
        """m"""
        return (product(self.body),)

    def mapped(self, change: Change) -> Expression:
        """The sum of another expression."""
        bound, body = self.opened()
        return summed_over(bound, change(body))

    def derivative(self, variable: Factor) -> Expression:
        """∂(Σ_k e)/∂x = Σ_k ∂e/∂x"""
        return self.mapped(lambda e: e.derivative(variable))


def summed(e: Callable[[Index], Expression], over: str) -> Expression:
    """Σ_k e(k), for k = 1, …, over; over a product of sizes, it is the sum over both"""
    k = new_index(over)
    return summed_over(k.parts, e(k)) if k.parts else e(k)


def summed_over(bound: Iterable[Index], e: Expression) -> Expression:
    """Σ_kl e, over these indices, term by term."""
    return total(_closed_term(frozenset(bound), m).scaled(c) for m, c in e.terms.items())


def _closed_term(bound: Bound, m: Monomial) -> Expression:
    """The first rule that applies to Σ_kl m; the last is that it is a product of sums over connected indices."""
    for f, p in m:
        others = tuple((g, q) for g, q in m if g is not f)
        if isinstance(f, Delta) and (solved := f.solved(bound)):  # Σ_k [k=i]·e(k) = e(i)
            return summed_over(bound - solved.keys(), substituted(others, solved))
        if isinstance(f, Sum) and is_natural(p) and f.free & bound:  # Σ_k e(k)·Σ_l f(k, l) = Σ_kl e(k)·f(k, l)
            opened = [f.opened() for _ in range(int(p))]
            body = multiplied([product(others), *(e for _, e in opened)])
            return summed_over(bound.union(*(indices for indices, _ in opened)), body)
    for k in bound:  # Σ_k e(k) = Σ_k e(N + 1 - k)
        if Reversed(k).name in monomial_key(m):
            turned = substituted(m, {k: Reversed(k)})
            if _opposites(turned) < _opposites(Expression({m: Fraction(1)})):
                return summed_over(bound, turned)
    for k in bound:  # Σ_k e(k) = Σ_k e(k + d) in a circle
        if d := _least_shift(k, monomial_key(m)):
            return summed_over(bound, substituted(m, {k: shifted(k, -d)}))
    # the indices of denominators last: sums over the others may cancel against them
    last = bound & frozenset[Index]().union(*(f.free for f, _ in _denominators(m)))
    if last and last != bound:
        inner = _connected_sums(bound - last, m)
        if [_denominators(n) for n in inner.terms] != [_denominators(m)]:
            return summed_over(last, inner)
    return _connected_sums(bound, m)


def _least_shift(k: Index, key: str) -> int:
    """The least d for which k + d is in a key."""
    found = re.findall(rf"(?<![-\w.~]){re.escape(k.name)}(?:\+(-?\d+))?:", key)
    return min((int(d or 0) for d in found), default=0)


def _opposites(e: Expression) -> tuple[int, str]:
    """The number of opposites of indices in an expression, and what tells those with the same number apart."""
    shape = e.shape({i: i.size for i in e.free})
    return shape.count("-"), shape


def _denominators(m: Monomial) -> set[tuple[Factor, Fraction]]:
    return {(f, p) for f, p in m if isinstance(f, Sum | Base) and not is_natural(p)}


def _connected_sums(bound: Bound, m: Monomial) -> Expression:
    """Σ_kl m as a product of sums over connected sets of indices; one that does not occur gives its size."""
    groups: list[tuple[Bound, Monomial]] = []
    for f, p in m:
        touched = [group for group in groups if group[0] & f.free]
        indices = (f.free & bound).union(*(indices for indices, _ in touched))
        if f.free & bound:
            groups = [group for group in groups if group not in touched]
            groups.append((indices, (*(item for _, items in touched for item in items), (f, p))))
    used = frozenset[Index]().union(*(indices for indices, _ in groups))
    outside = product((f, p) for f, p in m if not f.free & bound)
    return multiplied([outside, *(size(i.size) for i in bound - used), *(_sum(*group) for group in groups)])


def _sum(bound: Bound, m: Monomial) -> Expression:
    """Σ_kl m for connected indices, under the names that give the least key."""
    found = _least(bound, m, 1 + max(f.height for f, _ in m), {})
    if found is None:
        raise UndefinedError("a sum has no canonical form")
    return found


def _least(bound: Bound, m: Monomial, h: int, others: Indices) -> Expression | None:
    """Σ_kl m, with other names for other indices too, under the names that give the least key."""
    found = []
    for order in _orders(bound, m, others):
        names = {i: Index(f"~{h}.{number}", i.size) for number, i in enumerate(order)}
        body = substituted(m, {**others, **names})
        if len(body.terms) == 1:  # more terms if a denominator has another leading term under these names
            ((n, c),) = body.terms.items()
            found.append((monomial_key(n), c, Sum(tuple(names.values()), n, h)))
    if not found:
        return None
    _, c, factor = min(found, key=lambda item: item[:2])
    return of(factor).scaled(c)


def _orders(bound: Bound, m: Monomial, others: Indices) -> Iterator[list[Index]]:
    """The indices, by size and color, in every order where these are the same."""
    groups = _by(_colors(bound, m, others))
    if prod(factorial(len(group)) for group in groups) > MANY:
        raise UndefinedError(f"a sum over {len(bound)} indices has too many forms")
    for orders in combinations(*map(permutations, groups)):
        yield [i for order in orders for i in order]


def _colors(bound: Bound, m: Monomial, others: Indices) -> Colors:
    """The roles of indices in a monomial, whatever they are called: refined until no more of them differ."""
    colors: Colors = {i: i.size for i in bound}
    names = {i: f"{j.name}:{j.size}" for i, j in others.items()}
    number = len(set(colors.values()))
    while number < len(bound):
        roles = {i: f"{i.size}·{monomial_shape(_with(i, m), {**names, **colors, i: '*'})}" for i in bound}
        ranks = {role: rank for rank, role in enumerate(sorted(set(roles.values())))}
        colors = {i: f"{i.size}·{ranks[role]:02}" for i, role in roles.items()}
        if len(ranks) == number:
            break
        number = len(ranks)
    return colors


def _with(i: Index, m: Monomial) -> Monomial:
    return tuple((f, p) for f, p in m if i in f.free)


def _by(key: Colors) -> list[list[Index]]:
    return [list(group) for _, group in groupby(sorted(key, key=key.__getitem__), key.__getitem__)]
