"""Polynomials: sums of products of powers of terms, element by element.

A polynomial is a map from monomials to rational numbers. A monomial is a product of powers of factors, which are
terms of shape m×n, 1×n, m×1, 1×1 or (): those with fewer rows or columns count as repeated.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction

from matgrad.derivation.terms import Term, is_one

Monomial = tuple[tuple[Term, Fraction], ...]
Polynomial = dict[Monomial, Fraction]
ONE: Monomial = ()
LONGEST = 400  # the most terms of a polynomial


class TooLongError(ArithmeticError):
    """A polynomial that has too many terms to be read."""


def monomial(powers: Mapping[Term, Fraction]) -> Monomial:
    """The product of powers, sorted."""
    return tuple(sorted(((f, p) for f, p in powers.items() if p), key=lambda item: item[0].text))


def atom(f: Term, p: Fraction = Fraction(1)) -> Polynomial:
    """f^p"""
    return {((f, p),): Fraction(1)}


def plus(polynomials: Iterable[Polynomial]) -> Polynomial:
    """The sum."""
    found: Polynomial = defaultdict(Fraction)
    for p in polynomials:
        for m, c in p.items():
            found[m] += c
    return {m: c for m, c in found.items() if c}


def scaled(p: Polynomial, c: Fraction) -> Polynomial:
    """c times a polynomial."""
    return {m: c * d for m, d in p.items()} if c else {}


def times(p: Polynomial, q: Polynomial) -> Polynomial:
    """The product, element by element."""
    if len(p) * len(q) > LONGEST:
        raise TooLongError(f"a product of {len(p)} and {len(q)} terms")
    return plus({joined(m, n): c * d} for m, c in p.items() for n, d in q.items())


def joined(m: Monomial, n: Monomial) -> Monomial:
    """The product of two monomials."""
    powers: dict[Term, Fraction] = defaultdict(Fraction)
    for f, p in (*m, *n):
        powers[f] += p
    return monomial(powers)


def product(polynomials: Iterable[Polynomial]) -> Polynomial:
    """The product of several polynomials."""
    found: Polynomial = {ONE: Fraction(1)}
    for p in polynomials:
        found = times(found, p)
    return found


def depends(f: Term, axis: int) -> bool:
    """Whether a factor has more than one row, for axis 0, or column, for axis 1."""
    return f.shape != () and not is_one(f.shape[axis])


def split(m: Monomial, chosen: Callable[[Term], bool]) -> tuple[Monomial, Monomial]:
    """The powers of the chosen factors, and the others."""
    return tuple(item for item in m if chosen(item[0])), tuple(item for item in m if not chosen(item[0]))


def is_single(m: Monomial, operation: str) -> bool:
    """Whether a monomial is one factor, the result of this operation."""
    return len(m) == 1 and m[0][0].operation == operation and m[0][1] == 1
