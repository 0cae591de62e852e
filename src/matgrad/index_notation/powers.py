"""Powers of expressions with rational exponents: of sums, and of numbers.

(c·f·b)^p is c^p·f^p·b^p for every whole p, and for other p if c and f are positive. What is left, the base b, is a
factor of its own. Products of its powers are reduced by its leading term, as in a division of polynomials.
"""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from functools import cached_property

from matgrad.index_notation.expressions import (
    KNOWN,
    NOT,
    ZERO,
    Change,
    Expression,
    Factor,
    Monomial,
    Powers,
    UndefinedError,
    as_expression,
    is_natural,
    monomial_key,
    multiplied,
    of,
    product,
)
from matgrad.index_notation.indices import Colors, remembered

MOST = 100  # the greatest natural exponent of a sum that is expanded


def power(e: Expression, p: Fraction) -> Expression:
    """e^p: natural powers are expanded, and others are the products of those of the parts of e."""
    if is_natural(p) and len(e.terms) == 1:
        ((m, c),) = e.terms.items()
        return product((f, x * p) for f, x in m).scaled(c ** int(p))
    if is_natural(p) and p <= MOST:
        return multiplied([e] * int(p))
    return _power(e, p)


@remembered(KNOWN)
def _power(e: Expression, p: Fraction) -> Expression:
    if (cases := e.by_cases(lambda case: power(case, p))) is not None:
        return cases
    if not e:
        if p < 0:
            raise UndefinedError("division by 0")
        return ZERO
    c, content, base = parts(e, whole=p.denominator == 1)
    powers = {f: p * x for f, x in content.items()}
    return root(c, p) * product((powers | ({base: p} if base else {})).items())


def parts(e: Expression, whole: bool) -> tuple[Fraction, Powers, Base | None]:
    """The parts c·f·b of an expression that is not 0, whose powers are (c·f·b)^p = c^p·f^p·b^p.

    For exponents p that are not whole, c and f are positive.
    """
    if len(e.terms) == 1:
        return _parts_of_monomial(e, whole)
    content = e.content(lambda f: whole or f.is_positive)
    rest = e * product((f, -x) for f, x in content.items())
    if not rest:
        raise UndefinedError("division by 0")
    if len(rest.terms) == 1:
        c, more, base = _parts_of_monomial(rest, whole)
        return c, _times(content, more), base
    lead, units = leading(rest)
    c = rest.terms[lead] if whole else abs(rest.terms[lead])
    rest = (rest * product((f, -x) for f, x in units.items())).scaled(1 / c)
    return c, _times(content, units), Base(rest)


def _parts_of_monomial(e: Expression, whole: bool) -> tuple[Fraction, Powers, Base | None]:
    ((m, c),) = e.terms.items()
    content = {f: x for f, x in m if whole or f.is_positive or x.denominator > 1}  # no root is below 0
    rest = {f: x for f, x in m if f not in content}
    if c > 0 and list(rest.values()) == [1]:  # it is positive where the power is defined
        content, rest = content | rest, {}
    if whole or (c > 0 and not rest):
        return c, content, None
    if not rest:
        raise UndefinedError("a root of a negative number")
    return abs(c), content, Base(Expression({tuple(rest.items()): Fraction(1 if c > 0 else -1)}))


def _times(a: Powers, b: Powers) -> Powers:
    """The product of two products of powers, without rules."""
    exponents = {f: a.get(f, Fraction(0)) + b.get(f, Fraction(0)) for f in {**a, **b}}
    return {f: x for f, x in exponents.items() if x}


def leading(e: Expression) -> tuple[Monomial, Powers]:
    """The greatest monomial, by the exponents of its factors, the most complicated first, and the units in it.

    Units count only if there are two monomials that are equal without them, and then none are returned.
    """
    factors = sorted(dict.fromkeys(e.factors()), key=lambda f: (f.height, len(f.free), f.key), reverse=True)
    powers = {m: dict(m) for m in e.terms}
    for chosen in ([f for f in factors if not f.is_unit], factors):
        exponents = {m: [own.get(f, NOT) for f in chosen] for m, own in powers.items()}
        greatest = max(exponents.values())
        found = [m for m in e.terms if exponents[m] == greatest]
        if len(found) == 1 and any(greatest):
            return found[0], {f: x for f, x in found[0] if f not in chosen}
    return min(e.terms, key=monomial_key), {}


class Base(Factor):
    """A sum s of several terms, or a term that may be negative, under an exponent that is not natural.

    With its leading term ±l, a product that l divides is reduced by l·s^p = ±(s^(p+1) - (s - ±l)·s^p).
    """

    def __init__(self, expression: Expression) -> None:
        self.expression = expression
        self.key, self.free, self.height = f"({expression.key})", expression.free, expression.height
        self.is_positive, self.is_analytic = expression.is_positive, expression.is_analytic
        lead, units = leading(expression)
        self.lead, self.sign = dict(lead), expression.terms[lead]
        self.rest = expression - Expression({lead: self.sign})
        exponents = [x for m in expression.terms for f, x in m if not f.is_unit or f in self.lead]
        self.is_reducible = bool(lead) and not units and abs(self.sign) == 1 and min(exponents) > 0
        # of a lead of units, which always have inverses, only one counts
        self.divisor = dict(lead[:1]) if all(f.is_unit for f in self.lead) else self.lead

    def shape(self, colors: Colors) -> str:
        """The shape of the sum."""
        return f"({self.expression.shape(colors)})"

    def inside(self) -> tuple[Expression]:
        """The sum."""
        return (self.expression,)

    def mapped(self, change: Change) -> Expression:
        """Another sum."""
        return change(self.expression)

    def derivative(self, variable: Factor) -> Expression:
        """The derivative of the sum."""
        return self.expression.derivative(variable)

    @cached_property
    def is_whole(self) -> bool:
        """Whether it has no parts of which whole powers can be taken."""
        c, content, base = parts(self.expression, whole=True)
        return c == 1 and not content and base == self

    def rewritten(self, powers: Powers) -> Expression | None:
        """Natural powers are expanded, and others reduced."""
        p = powers[self]
        if is_natural(p) or (p.denominator == 1 and not self.is_whole):
            return product((f, x) for f, x in powers.items() if f is not self) * self.expression**p
        if not self.is_reducible:
            return None
        if all(powers.get(f, 0) >= x for f, x in self.divisor.items()):
            quotient = _times(powers, {f: -x for f, x in self.lead.items()})
            higher = product(_times(quotient, {self: Fraction(1)}).items())
            return (higher - product(quotient.items()) * self.rest).scaled(self.sign)
        return self._raised(powers) if p.denominator == 1 and self._has_units(powers) else None

    def _has_units(self, powers: Powers) -> bool:
        """Whether s = ±l + r for units l and r, and l has a negative exponent in a product."""
        is_unit = len(self.rest.terms) == 1 and all(f.is_unit for f in (*self.lead, *self.rest.factors()))
        return is_unit and any(powers.get(f, 0) < 0 for f in self.divisor)

    def _raised(self, powers: Powers) -> Expression:
        """l^(-1)·s^p = (l^(-1)·s^(p+1) - ±s^p) / r, which leaves no negative exponents of l"""
        higher = product(_times(powers, {self: Fraction(1)}).items())
        return (higher - product(_times(powers, self.lead).items()).scaled(self.sign)) * self.rest ** Fraction(-1)


class Constant(Factor):
    """A positive number by its name: a prime such as 2, under an exponent between 0 and 1, or π."""

    is_positive = True

    def __init__(self, name: str) -> None:
        self.name, self.key = name, name

    def shape(self, colors: Colors) -> str:
        """Its name."""
        return self.name

    def derivative(self, variable: Factor) -> Expression:
        """0"""
        return ZERO

    def rewritten(self, powers: Powers) -> Expression | None:
        """2^(3/2) = 2·2^(1/2)"""
        whole = powers[self] // 1
        if not self.name.isdigit() or not whole:
            return None
        return product({**powers, self: powers[self] - whole}.items()).scaled(Fraction(int(self.name)) ** int(whole))


PI = of(Constant("π"))


def root(c: Fraction, p: Fraction) -> Expression:
    """c^p, for a c above 0 if p is not whole, as a product of powers of primes."""
    if p.denominator == 1:
        return as_expression(c ** int(p))
    if c <= 0:
        raise UndefinedError(f"{c} to the power {p}")
    return product((Constant(str(prime)), p * x) for prime, x in prime_factors(c).items())


def prime_factors(c: Fraction) -> dict[int, int]:
    """The exponents of the primes of which c > 0 is the product; those of its denominator are negative."""
    found: dict[int, int] = defaultdict(int)
    for n, sign in ((c.numerator, 1), (c.denominator, -1)):
        prime = 2
        while n > 1:
            if prime * prime > n:
                prime = n
            while n % prime == 0:
                n, found[prime] = n // prime, found[prime] + sign
            prime += 1
    return dict(found)
