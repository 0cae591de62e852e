"""Functions of one real number, applied to expressions, maxima over an index, and exact numbers.

A function of an expression with a condition in it is taken by cases: f([c]·a + b) = [c]·f(a + b) + (1 - [c])·f(b).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import reduce
from typing import Any

from matgrad.foundation.numbers import recognized
from matgrad.index_notation.conditions import Step, first_coefficient, step
from matgrad.index_notation.expressions import (
    ONE,
    ZERO,
    Change,
    Entry,
    Expression,
    Factor,
    Monomial,
    Powers,
    UndefinedError,
    as_expression,
    multiplied,
    of,
    product,
    total,
)
from matgrad.index_notation.indices import Colors, Index, checked_name, new_index
from matgrad.index_notation.powers import PI, Base, Constant, parts, power, prime_factors
from matgrad.index_notation.sums import Sum, summed

MOST_ANGLES = 8  # of which the sine is expanded
KNOWN = ("exp", "log", "erf", "sin", "cos", "step", "max")


class Function:
    """A function f with its derivative f'; without a rule, f(e) is a factor of its own."""

    def __init__(
        self,
        name: str,
        derivative: Callable[[Expression], Expression],
        rule: Callable[[Expression], Expression | None] = lambda e: None,
        is_positive: bool = False,
    ) -> None:
        self.name, self.derivative, self.rule, self.is_positive = name, derivative, rule, is_positive

    def __call__(self, e: Expression) -> Expression:
        """f(e)"""
        if (cases := e.by_cases(self)) is not None:
            return cases
        result = self.rule(e)
        return of(Applied(self, e)) if result is None else result


class Applied(Factor):
    """f(e), for an expression e."""

    def __init__(self, function: Function, argument: Expression) -> None:
        self.function, self.argument = function, argument
        self.key, self.free, self.height = f"{function.name}({argument.key})", argument.free, argument.height
        self.is_positive = self.is_unit = function.is_positive
        self.is_analytic = argument.is_analytic

    def shape(self, colors: Colors) -> str:
        """f with the shape of e."""
        return f"{self.function.name}({self.argument.shape(colors)})"

    def inside(self) -> tuple[Expression]:
        """e"""
        return (self.argument,)

    def mapped(self, change: Change) -> Expression:
        """f of another expression."""
        return self.function(change(self.argument))

    def rewritten(self, powers: Powers) -> Expression | None:
        """sin(e)^2 = 1 - cos(e)^2, for whole powers of 2 or more"""
        if self.function is not sin or powers[self] < 2 or powers[self].denominator > 1:
            return None
        return product({**powers, self: powers[self] - 2}.items()) * (ONE - of(Applied(cos, self.argument), 2))

    def derivative(self, variable: Factor) -> Expression:
        """The chain rule: f'(e)·∂e/∂x"""
        slope = self.argument.derivative(variable)
        return self.function.derivative(self.argument) * slope if slope else ZERO


def arbitrary(name: str) -> Function:
    """A function of which nothing is known but the name of its derivative: act' for act."""
    if name in KNOWN:
        raise ValueError(f"{name} is known; expected another name for an arbitrary function")
    return Function(checked_name(name), lambda e: arbitrary(f"{name}'")(e))


INFINITE = Constant("∞")  # a number above all others; where it is taken from itself, nothing is known


# -- exponentials and logarithms ---------------------------------------------------------------


def _exp(e: Expression) -> Expression:
    """exp(a + c·b) = exp(a)·exp(b)^c, exp(c·log(a)) = a^c, and exp(a - ∞) = 0"""

    def of_term(m: Monomial, c: Fraction) -> Expression:
        match m:
            case ((Applied(function=function, argument=a), 1),) if function is log:
                return power(a, c)
        return of(Applied(exp, Expression({m: Fraction(1)})), c)

    if any(c < 0 and INFINITE in dict(m) and all(f.is_positive for f, _ in m) for m, c in e.terms.items()):
        return ZERO
    return multiplied(of_term(m, c) for m, c in e.terms.items())


def _log(e: Expression) -> Expression:
    """log(a^p·b) = p·log(a) + log(b) for positive a, and log(exp(a)) = a"""
    if not e:
        raise UndefinedError("the logarithm of 0")
    c, content, base = parts(e, whole=False)
    found = [_log_of_factor(f).scaled(p) for f, p in content.items()]
    found += [of(Applied(log, as_expression(prime))).scaled(Fraction(p)) for prime, p in prime_factors(c).items()]
    return total(found + ([_log_of_factor(base)] if base else []))


def _log_of_factor(f: Factor) -> Expression:
    if isinstance(f, Applied) and f.function is exp:
        return f.argument
    if isinstance(f, Constant) and f.name.isdigit():
        return of(Applied(log, as_expression(int(f.name))))
    return of(Applied(log, f.expression if isinstance(f, Base) else of(f)))


exp: Function = Function("exp", lambda e: exp(e), _exp, is_positive=True)
log: Function = Function("log", lambda e: power(e, Fraction(-1)), _log)


def _odd(f: Callable[[], Function]) -> Callable[[Expression], Expression | None]:
    """f(0) = 0, and f(-e) = -f(e)"""
    return lambda e: (None if first_coefficient(e) > 0 else -f()(-e)) if e else ZERO


def _multiple(e: Expression) -> tuple[Expression, Expression] | None:
    """(n - 1)·e and e, for n·e with n = 2, …, 8"""
    n = next(iter(e.terms.values())) if len(e.terms) == 1 else Fraction(1)
    return (e.scaled((n - 1) / n), e.scaled(1 / n)) if n.denominator == 1 and 1 < n <= MOST_ANGLES else None


def _sin(e: Expression) -> Expression | None:
    """sin(0) = 0, sin(-e) = -sin(e), and sin(a + b) = sin(a)·cos(b) + cos(a)·sin(b) for multiples"""
    if (found := _multiple(e)) is not None:
        a, b = found
        return sin(a) * cos(b) + cos(a) * sin(b)
    return _odd(lambda: sin)(e)


def _cos(e: Expression) -> Expression | None:
    """cos(0) = 1, cos(-e) = cos(e), and cos(a + b) = cos(a)·cos(b) - sin(a)·sin(b) for multiples"""
    if (found := _multiple(e)) is not None:
        a, b = found
        return cos(a) * cos(b) - sin(a) * sin(b)
    return (None if first_coefficient(e) > 0 else cos(-e)) if e else ONE


erf: Function = Function("erf", lambda e: power(PI, Fraction(-1, 2)) * exp(-e * e) * 2, _odd(lambda: erf))
sin: Function = Function("sin", lambda e: cos(e), _sin)
cos: Function = Function("cos", lambda e: -sin(e), _cos)


def tanh(e: Expression) -> Expression:
    """(e^x - e^-x) / (e^x + e^-x)"""
    return (exp(e) - exp(-e)) / (exp(e) + exp(-e))


def sqrt(e: Expression) -> Expression:
    """x^(1/2)"""
    return power(e, Fraction(1, 2))


def raised(e: Expression, p: Expression) -> Expression:
    """e^p, for a number p"""
    if p.constant is None:
        raise UndefinedError(f"a power with the exponent {p}: expected a number")
    return power(e, p.constant)


class Maximum(Factor):
    """max_k e, for an expression e every term of which depends on k; the name of k has the height in it."""

    is_analytic = False

    def __init__(self, k: Index, argument: Expression, height: int) -> None:
        self.index, self.argument, self.height = k, argument, height
        self.free = self.argument.free - {k}
        self.is_positive = argument.is_positive
        self.key = f"max{{{k.name}:{k.size}}}({argument.key})"

    def shape(self, colors: Colors) -> str:
        """The shape of e, with the size for k."""
        return f"max({self.argument.shape({**colors, self.index: self.index.size})})"

    def inside(self) -> tuple[Expression]:
        """e"""
        return (self.argument,)

    def mapped(self, change: Change) -> Expression:
        """The maximum of another expression."""
        return maximum(lambda k: change(self.argument.substituted({self.index: k})), self.index.size)

    def is_of(self, k: Index, e: Expression) -> bool:
        """Whether this is max_k e, for an analytic e_k with entries that no other e_l has."""
        entries = [f for f in e.inner() if isinstance(f, Entry) and not f.is_unit]
        shared = {f.name for f in entries if k not in f.indices}
        is_own = e.is_analytic and any(f.name not in shared for f in entries)
        return is_own and k.size == self.index.size and self.argument == e.substituted({k: self.index})

    def derivative(self, variable: Factor) -> Expression:
        """Σ_k [e_k ≥ max]·∂e_k/∂x / Σ_k [e_k ≥ max], except where two that are not always equal are the greatest

        Shares, because an element that occurs twice among the e_k, as in a window with repeated padding, is the
        greatest twice: there the maximum has a derivative, which would be counted twice without them.
        """

        def is_greatest(k: Index) -> Expression:
            return step(self.argument.substituted({self.index: k}) - of(self))

        slope = self.argument.derivative(variable)
        found = summed(lambda k: is_greatest(k) * slope.substituted({self.index: k}), self.index.size)
        return found / summed(is_greatest, self.index.size) if found else ZERO


def without_ties(f: Factor) -> Expression | None:
    """Σ_k [e_k ≥ max_l e_l] = 1, except where two are the greatest, for e_k with entries that no other e_l has"""
    match f:
        case Sum(bound=(k,), body=((Step(argument=e), _),)):
            for g in (g for g in e.factors() if isinstance(g, Maximum)):
                c = e.terms.get(((g, Fraction(1)),), Fraction(0))
                if c < 0 and g.is_of(k, e.scaled(-1 / c) + of(g)):
                    return ONE
    return None


def not_above(f: Factor) -> Expression | None:
    """[max_l e_l ≥ e_k] = 1"""
    match f:
        case Step(argument=e, relation="≥"):
            for g in (g for g in e.factors() if isinstance(g, Maximum)):
                c = e.terms.get(((g, Fraction(1)),), Fraction(0))
                if c > 0 and any(g.is_of(k, of(g) - e.scaled(1 / c)) for k in e.free if k.size == g.index.size):
                    return ONE
    return None


def maximum(e: Callable[[Index], Expression], over: str) -> Expression:
    """max_k e(k), for k = 1, …, over: max_k (a + c·b_k) = a + c·max_k b_k, for c > 0"""
    k = new_index(over)
    return reduce(lambda found, part: _maximum(part, found), sorted(k.parts, key=lambda i: i.size), e(k))


def _maximum(k: Index, e: Expression) -> Expression:
    if (cases := e.by_cases(lambda case: _maximum(k, case), bound={k})) is not None:
        return cases
    outside = Expression({m: c for m, c in e.terms.items() if all(k not in f.free for f, _ in m)})
    height = 1 + e.height
    name = Index(f"~{height}.0", k.size)
    inside = (e - outside).substituted({k: name})
    if not inside:
        return outside
    c = abs(first_coefficient(inside))
    return outside + of(Maximum(name, inside.scaled(1 / c), height)).scaled(c)


# -- the exact numbers that floating-point numbers stand for ------------------------------------


def irrationals(sqrt: Callable[[Any], Any], pi: Any, e: Any, log_2: Any) -> tuple[Any, ...]:
    """The irrational numbers of which multiples are recognized."""
    roots = (sqrt(2), sqrt(3), sqrt(pi), 1 / sqrt(pi), sqrt(2 * pi), 1 / sqrt(2 * pi), sqrt(2 / pi))
    return (*roots, pi, 1 / pi, e, log_2, 1 / log_2)


FLOATS = irrationals(math.sqrt, math.pi, math.e, math.log(2))
IRRATIONALS = irrationals(lambda x: sqrt(as_expression(x)), PI, exp(ONE), log(as_expression(2)))


def exact(x: float) -> Expression:
    """The number that x stands for, up to rounding, such as 1/3, 3/10 or √2/2; any other is the binary fraction x."""
    if isinstance(x, int):
        return as_expression(x)
    if not math.isfinite(x):
        raise ArithmeticError(f"expected a finite number, found {x}")
    factor, irrational = recognized(x, zip(IRRATIONALS, FLOATS, strict=True)) or (Fraction(x), None)
    return (ONE if irrational is None else irrational) * factor
