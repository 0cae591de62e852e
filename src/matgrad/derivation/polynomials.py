"""Polynomials: sums of products of powers of values, element by element.

A polynomial is a map from monomials to rational numbers. A monomial is a product of powers of factors, which are
values of shape m×n, 1×n, m×1, 1×1 or (): those with fewer rows or columns count as repeated.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from functools import reduce
from math import gcd, lcm

from matgrad.derivation.values import apply, is_one, number, text
from matgrad.program.program import Value, in_order
from matgrad.program.shapes import Shape, Size, size_name

Monomial = tuple[tuple[Value, Fraction], ...]
Polynomial = dict[Monomial, Fraction]
ONE: Monomial = ()
LONGEST = 400  # the most terms of a polynomial


class TooLongError(ArithmeticError):
    """A polynomial that has too many terms to be read."""


def monomial(powers: Mapping[Value, Fraction]) -> Monomial:
    """The product of powers, sorted."""
    return tuple(sorted(((f, p) for f, p in powers.items() if p), key=lambda item: text(item[0])))


def atom(f: Value, p: Fraction = Fraction(1)) -> Polynomial:
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
    powers: dict[Value, Fraction] = defaultdict(Fraction)
    for f, p in (*m, *n):
        powers[f] += p
    return monomial(powers)


def product(polynomials: Iterable[Polynomial]) -> Polynomial:
    """The product of several polynomials."""
    return reduce(times, polynomials, {ONE: Fraction(1)})


def depends(f: Value, axis: int) -> bool:
    """Whether a factor has more than one row, for axis 0, or column, for axis 1."""
    return f.shape != () and not is_one(f.shape[axis])


def split(m: Monomial, chosen: Callable[[Value], bool]) -> tuple[Monomial, Monomial]:
    """The powers of the chosen factors, and the others."""
    return tuple(item for item in m if chosen(item[0])), tuple(item for item in m if not chosen(item[0]))


def is_single(m: Monomial, operation: str) -> bool:
    """Whether a monomial is one factor, the result of this operation."""
    return len(m) == 1 and m[0][0].operation == operation and m[0][1] == 1


# -- terms of polynomials: common factors are taken out, and what is smaller is repeated late ---


Powers = dict[Value, Fraction]
SUMS = ("add", "subtract", "negative")


def build(p: Polynomial, shape: Shape) -> Value:
    """The polynomial as a term of this shape."""
    if not p:
        return number(0, shape)
    c, common = _content(p)
    if len(p) == 1:
        return _monomial(common, c, shape)
    below = tuple((f, -x) for f, x in common.items())
    rest = {joined(m, below): d / c for m, d in p.items()}
    total = _total(rest, _shape_of(rest, shape) if common or abs(c) != 1 else shape)
    return _monomial({**common, total: Fraction(1)}, c, shape) if common or c != 1 else total


def _content(p: Polynomial) -> tuple[Fraction, Powers]:
    """The greatest common factor of all terms; sizes in denominators are taken out in any case."""
    factors = dict.fromkeys(f for m in p for f, _ in m)
    common: Powers = {}
    for f in factors:
        exponents = [dict(m).get(f, Fraction(0)) for m in p]
        if isinstance(f.number, Size) or min(exponents) > 0:
            common[f] = min(exponents)
        elif max(exponents) < 0:
            common[f] = max(exponents)
    sign = -1 if all(c < 0 for c in p.values()) else 1
    c = Fraction(sign * gcd(*(c.numerator for c in p.values())), lcm(*(c.denominator for c in p.values())))
    return c, {f: x for f, x in common.items() if x}


def _shape_of(p: Polynomial, shape: Shape) -> Shape:
    """The smallest shape in which all factors have place; that of a scalar only if the polynomial has no matrices."""
    matrices = [f for m in p for f, _ in m if f.shape != ()]
    if not matrices:
        return ()
    return tuple(shape[k] if any(not is_one(f.shape[k]) for f in matrices) else 1 for k in (0, 1))


# -- sums --------------------------------------------------------------------------------------


def _total(p: Polynomial, shape: Shape) -> Value:
    """The sum of terms, those with a plus first; terms that share a factor, or that are smaller, are added first."""

    def order(item: tuple[int, Value]) -> tuple[bool, int, str]:
        sign, term = item
        return sign < 0, sum(1 for x in in_order([term]) if x.operands), text(term)

    (sign, total), *others = sorted(_grouped(p, shape), key=order)
    total = total if sign > 0 else apply("negative", total)
    for sign, term in others:
        total = apply("add" if sign > 0 else "subtract", total, term)
    return total


def _grouped(p: Polynomial, shape: Shape) -> list[tuple[int, Value]]:
    """Terms with their signs."""
    for group in (_small(p, shape), _sharing(p)):
        if group:
            rest = {m: c for m, c in p.items() if m not in group}
            return [_signed(group, shape), *(_grouped(rest, shape) if rest else [])]
    return [_signed({m: c}, shape) for m, c in p.items()]


def _signed(p: Polynomial, shape: Shape) -> tuple[int, Value]:
    """The sum of some terms with the sign that most of them have, and this sign."""
    is_negative = sum(1 if c < 0 else -1 for c in p.values()) > 0
    return (-1, build(scaled(p, Fraction(-1)), shape)) if is_negative else (1, build(p, shape))


def _small(p: Polynomial, shape: Shape) -> Polynomial | None:
    """Two or more terms of one smaller shape."""
    shapes = {m: tuple(map(size_name, _shape_of({m: Fraction(1)}, shape))) for m in p}
    for small, n in Counter(shapes.values()).items():
        if 1 < n < len(p) and small != tuple(map(size_name, shape)):
            return {m: c for m, c in p.items() if shapes[m] == small}
    return None


def _sharing(p: Polynomial) -> Polynomial | None:
    """The terms that share the factor that most of them have, if there are two or more, and others."""
    counts = Counter((f, x > 0) for m in p for f, x in m if f.shape != ())
    found = [(n, len(text(f)), text(f), f, sign) for (f, sign), n in counts.items() if 1 < n < len(p)]
    if not found:
        return None
    *_, factor, sign = max(found, key=lambda item: item[:3])
    return {m: c for m, c in p.items() if any(f is factor and (x > 0) == sign for f, x in m)}


# -- products ----------------------------------------------------------------------------------


def _monomial(powers: Powers, c: Fraction, shape: Shape) -> Value:
    """c times a product of powers, as a term of this shape."""
    by_shape: dict[tuple[bool, ...], Powers] = {}
    for f, x in powers.items():
        by_shape.setdefault(tuple(not is_one(n) for n in f.shape), {})[f] = x
    scalars = by_shape.pop((), {})
    body = _matrix(by_shape, shape)
    above, below = ([number(n)] if n != 1 else [] for n in (abs(c.numerator), c.denominator))
    for f, x in scalars.items():
        (above if x > 0 else below).extend(_factors(f, abs(x)))
    found = reduce(lambda a, b: apply("hadamard", a, b), above) if above else None
    if body is not None:
        found = apply("scale", found, body) if found else body
    found = reduce(lambda a, b: apply("divide", a, b), below, found or number(1))
    return apply("negative", number(found, shape)) if c < 0 else number(found, shape)


def _factors(f: Value, x: Fraction) -> list[Value]:
    """f^x, for x ≥ 0, as a product."""
    whole, rest = divmod(x, 1)
    root = apply("sqrt", f) if rest == Fraction(1, 2) else apply("power", f, number(float(rest)))
    return [f] * int(whole) + ([root] if rest else [])


def _matrix(by_shape: dict[tuple[bool, ...], Powers], shape: Shape) -> Value | None:
    """The product of all matrices, repeated to this shape; None if there are none."""
    if not by_shape:
        return None
    m, n = shape
    own, row, column = (not is_one(m), not is_one(n)), (False, True), (True, False)
    exact = by_shape.pop(own, {})
    smaller = {k: by_shape[k] for k in (column, row) if k in by_shape}
    if (False, False) in by_shape:  # 1×1 is repeated with whatever is repeated, or on its own
        side = next((k for k in (row, column) if k in smaller), row if own[1] else column)
        x = _repeated(_product(by_shape[False, False]), (m if side[0] else 1, n if side[1] else 1))
        (exact if side == own else smaller.setdefault(side, {}))[x] = Fraction(1)
    repeated = [_product(powers) for powers in smaller.values()]
    if len(repeated) == 2 and not exact:
        return apply("matmul", *repeated)  # x yᵀ
    return _hadamard([*(_repeated(x, shape) for x in repeated), *([_product(exact)] if exact else [])])


def _repeated(x: Value, shape: Shape) -> Value:
    """A smaller matrix, repeated."""
    m, n = shape
    if is_one(x.shape[1]) and not is_one(n):
        x = apply("column_repeat", x, n=n)
    return apply("row_repeat", x, m=m) if is_one(x.shape[0]) and not is_one(m) else x


def _product(powers: Powers) -> Value:
    """The product of powers of matrices of one shape."""
    above: list[Value] = []
    below: list[Value] = []
    for f, x in sorted(powers.items(), key=_order):
        if x < 0 and x.denominator == 2:
            above.append(apply("inv_sqrt", f, number(0)))
            x += Fraction(1, 2)
        (above if x > 0 else below).extend(_factors(f, abs(x)))
    return _hadamard([*above, *(apply("reciprocal", f) for f in below)])


def _order(item: tuple[Value, Fraction]) -> tuple:
    """Sums last; gradients first among the others, unless there is a sum."""
    f, _ = item
    return f.operation in SUMS, bool(f.operands), not (f.operation == "input" and f.name.startswith("D")), text(f)


def _hadamard(terms: list[Value]) -> Value:
    """A ⊙ (B ⊙ C)"""
    return reduce(lambda found, term: apply("hadamard", term, found), reversed(terms))
