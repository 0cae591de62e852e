"""The normal form of values: polynomials, which are sums of products of powers of values, element by element.

A polynomial is a map from monomials to rational numbers. A monomial is a product of powers of factors, which are
values of shape m×n, 1×n, m×1, 1×1 or (): those with fewer rows or columns count as repeated. Sums over rows and columns
and products of matrices are expanded, and factors that do not depend on what is summed over are taken out of them:

    rows_sum(A ⊙ (x 1_nᵀ)) = x ⊙ rows_sum(A)
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from functools import reduce
from math import gcd, lcm
from typing import Any

from matgrad.derivation.values import apply, is_one, number, text, with_operands
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


# -- from values to polynomials -----------------------------------------------------------------


class Normalizer:
    """Terms as polynomials, in which `rules` say what is put for some factors, also inside others.

    Terms in `keep` are not looked into. `fact` may know a simpler form of a sum.
    """

    def __init__(
        self,
        rules: Mapping[Value, Polynomial] | None = None,
        keep: Iterable[Value] = (),
        fact: Callable[[Value], Polynomial | None] = lambda term: None,
        positive: Iterable[Value] = (),
    ) -> None:
        self.rules, self.keep, self.fact = rules or {}, frozenset(keep), fact
        self.positive = frozenset(positive)  # of whose powers any power can be taken
        self.known: dict[Value, Polynomial] = {}

    def __call__(self, term: Value) -> Polynomial:
        """The polynomial of a term."""
        if term not in self.known:
            if term in self.keep:
                found = atom(term)
            elif term in self.rules:
                found = self.rules[term]
            elif term.operation in _RULES:
                found = _RULES[term.operation](self, term, *term.operands)
            else:
                found = self.factor(with_operands(term, tuple(map(self.normal, term.operands))))
            self.known[term] = found
        return self.known[term]

    def factor(self, term: Value) -> Polynomial:
        """A factor whose operands are in normal form."""
        return self.rules.get(term) or atom(term)

    def normal(self, term: Value) -> Value:
        """The term in normal form."""
        return build(self(term), term.shape)

    # -- powers ---------------------------------------------------------------------------------
    def power(self, p: Polynomial, exponent: Fraction, shape: Shape) -> Polynomial:
        """p^exponent: whole powers of products are those of their factors; others are factors of their own."""
        if len(p) == 1:
            ((m, c),) = p.items()
            is_whole = exponent.denominator == 1
            if is_whole or (c == 1 and len(m) == 1 and (abs(m[0][1]) == 1 or m[0][0] in self.positive)):
                coefficient = c ** int(exponent) if is_whole else Fraction(1)
                return {monomial({f: x * exponent for f, x in m}): coefficient}
        if exponent.denominator == 1 and exponent > 0:
            return reduce(times, [p] * int(exponent))
        f = build(p, shape)
        found = self.factor(f)
        if len(found) == 1 and len(next(iter(found))) == 1:
            return self.power(found, exponent, f.shape)
        return atom(f, exponent)

    # -- sums -----------------------------------------------------------------------------------
    def sum_over(self, axis: int, p: Polynomial, shape: Shape) -> Polynomial:
        """Σ_i p_ij, a 1×n matrix, for axis 0; Σ_j p_ij, an m×1 matrix, for axis 1"""
        return plus(scaled(self._sum_over(axis, m, shape), c) for m, c in p.items())

    def _sum_over(self, axis: int, m: Monomial, shape: Shape) -> Polynomial:
        if is_one(shape[axis]):
            return {m: Fraction(1)}
        inside, others = split(m, lambda f: depends(f, axis))
        outside = {others: Fraction(1)}
        if not inside:
            return times(outside, self.size(shape[axis]))
        if is_single(inside, "matmul"):  # 1_mᵀ (A B) = (1_mᵀ A) B, and (A B) 1_n = A (B 1_n)
            A, B = inside[0][0].operands
            if axis == 1:
                return times(outside, self.matmul(self(A), self.sum_over(1, self(B), B.shape), A.shape, 1))
            left = self.sum_over(0, self(A), A.shape)
            return times(outside, self.matmul(left, self(B), (1, A.shape[1]), B.shape[1]))
        inner = tuple(n if any(depends(f, k) for f, _ in inside) else 1 for k, n in enumerate(shape))
        return times(outside, self._sum(("columns_sum", "rows_sum")[axis], inside, inner))

    def elements_sum(self, p: Polynomial, shape: Shape) -> Polynomial:
        """Σ_ij p_ij, a scalar"""
        return plus(times(self._elements_sum(m, shape), {ONE: c}) for m, c in p.items())

    def _elements_sum(self, m: Monomial, shape: Shape) -> Polynomial:
        rows, columns = shape
        full, rest = split(m, lambda f: depends(f, 0) and depends(f, 1))
        down, rest = split(rest, lambda f: depends(f, 0))
        across, rest = split(rest, lambda f: depends(f, 1))
        single, scalars = split(rest, lambda f: f.shape != ())
        found = [{scalars: Fraction(1)}, *(atom(apply("elements_sum", f), p) for f, p in single)]
        if full:
            found.append(self._sum("elements_sum", (*full, *down, *across), shape))
        else:
            found.append(self._sum("elements_sum", down, (rows, 1)) if down else self.size(rows))
            found.append(self._sum("elements_sum", across, (1, columns)) if across else self.size(columns))
        return product(found)

    def size(self, n: Any) -> Polynomial:
        """A size as a scalar; a product of sizes is that of its factors."""
        names = n.factors if isinstance(n, Size) else []
        return product(atom(number(Size(name, n.questions))) for name in names)

    def _sum(self, operation: str, inside: Monomial, shape: Shape) -> Polynomial:
        """A sum over what depends on its indices, by a fact if there is one."""
        term = apply(operation, build({monomial(dict(inside)): Fraction(1)}, shape))
        found = self.fact(term)
        return self.factor(term) if found is None else found

    # -- products -------------------------------------------------------------------------------
    def matmul(self, P: Polynomial, Q: Polynomial, shape: Shape, columns: Any) -> Polynomial:
        """P Q, for an m×k polynomial P and a Q with n columns."""
        rows, inner = shape
        if is_one(inner):
            return times(P, Q)
        return plus(
            scaled(self._product(m, n, (rows, inner, columns)), c * d) for m, c in P.items() for n, d in Q.items()
        )

    def _product(self, m: Monomial, n: Monomial, sizes: Shape) -> Polynomial:
        rows, inner, columns = sizes
        left, outside = split(m, lambda f: depends(f, 1))
        right, more = split(n, lambda f: depends(f, 0))
        outside = joined(outside, more)
        rows = rows if any(depends(f, 0) for f, _ in left) else 1
        columns = columns if any(depends(f, 1) for f, _ in right) else 1
        return times({outside: Fraction(1)}, self._inner_product(left, right, (rows, inner, columns)))

    def _inner_product(self, left: Monomial, right: Monomial, sizes: Shape) -> Polynomial:
        """The product of matrices all of whose factors depend on the inner index."""
        rows, inner, columns = sizes
        if not left:
            return self._sum_over(0, right, (inner, columns))
        if not right:
            return self._sum_over(1, left, (rows, inner))
        for one, other in ((left, right), (right, left)):
            if is_single(one, "identity"):
                return {other: Fraction(1)}
            if is_single(one, "Diag"):  # Diag(x) A = (x 1_nᵀ) ⊙ A
                x = one[0][0].operands[0]
                x = x if depends(x, 0 if one is left else 1) else transposed(x)
                return times(self(x), {other: Fraction(1)})
        A = build({left: Fraction(1)}, (rows, inner))
        B = build({right: Fraction(1)}, (inner, columns))
        return self.factor(apply("matmul", A, B))

    def transpose(self, p: Polynomial) -> Polynomial:
        """Pᵀ"""
        return self.each(p, lambda f: self.factor(transposed(f)), ())

    def each(self, p: Polynomial, of: Callable[[Value], Polynomial], shape: Shape) -> Polynomial:
        """The polynomial with of(f) for every factor f."""
        return plus(times({ONE: c}, product(self.power(of(f), x, shape) for f, x in m)) for m, c in p.items())

    def diag(self, f: Value) -> Polynomial:
        """The diagonal of a factor, an n×1 matrix."""
        if not (depends(f, 0) and depends(f, 1)):
            return self.factor(transposed(f) if depends(f, 1) else f)
        if f.operation == "matmul":  # diag(A B) = rows_sum(A ⊙ Bᵀ)
            A, B = f.operands
            return self.sum_over(1, times(self(A), self.transpose(self(B))), A.shape)
        return self.factor(apply("diag", f))


def transposed(f: Value) -> Value:
    """Fᵀ, with the transposes of the factors of a product."""
    if f.operation in ("identity", "Diag") or not (depends(f, 0) or depends(f, 1)):
        return f
    if f.operation == "matmul":
        A, B = f.operands
        return apply("matmul", transposed(B), transposed(A))
    return apply("transpose", f)


def _number(n: Normalizer, term: Value) -> Polynomial:
    """A number: short ones are coefficients, and others, such as √2, are factors."""
    x: Any = term.number
    if isinstance(x, Size):
        return n.size(x)
    is_short = isinstance(x, int) or len(repr(x)) < 9
    return ({ONE: Fraction(str(x))} if x else {}) if is_short else atom(term)


def _power(n: Normalizer, term: Value, X: Value, p: Value) -> Polynomial:
    is_known = p.number is not None and not isinstance(p.number, Size)
    return n.power(n(X), Fraction(str(p.number)), X.shape) if is_known else n.factor(term)


def _inv_sqrt(n: Normalizer, term: Value, X: Value, epsilon: Value) -> Polynomial:
    is_power = epsilon.number == 0
    return n.power(n(X), Fraction(-1, 2), X.shape) if is_power else n.factor(apply("inv_sqrt", n.normal(X), epsilon))


def _mean(axis: int) -> Callable[[Normalizer, Value, Value], Polynomial]:
    """The sum over rows or columns, divided by their number."""
    return lambda n, t, X: times(n.sum_over(axis, n(X), X.shape), n.power(n.size(X.shape[axis]), Fraction(-1), ()))


_RULES: dict[str, Callable[..., Polynomial]] = {
    "number": _number,
    **dict.fromkeys(("full", "row_repeat", "column_repeat", "copy"), lambda n, t, x: n(x)),
    "add": lambda n, t, A, B: plus([n(A), n(B)]),
    "subtract": lambda n, t, A, B: plus([n(A), scaled(n(B), Fraction(-1))]),
    "negative": lambda n, t, X: scaled(n(X), Fraction(-1)),
    "hadamard": lambda n, t, A, B: times(n(A), n(B)),
    "scale": lambda n, t, c, X: times(n(c), n(X)),
    "divide": lambda n, t, X, c: times(n(X), n.power(n(c), Fraction(-1), ())),
    "reciprocal": lambda n, t, X: n.power(n(X), Fraction(-1), X.shape),
    "sqrt": lambda n, t, X: n.power(n(X), Fraction(1, 2), X.shape),
    "power": _power,
    "inv_sqrt": _inv_sqrt,
    "transpose": lambda n, t, X: n.transpose(n(X)),
    "rows_sum": lambda n, t, X: n.sum_over(1, n(X), X.shape),
    "columns_sum": lambda n, t, X: n.sum_over(0, n(X), X.shape),
    "elements_sum": lambda n, t, X: n.elements_sum(n(X), X.shape),
    "rows_mean": _mean(1),
    "columns_mean": _mean(0),
    "dot": lambda n, t, x, y: n.elements_sum(times(n(x), n(y)), x.shape),
    "matmul": lambda n, t, A, B: n.matmul(n(A), n(B), A.shape, B.shape[1]),
    "diag": lambda n, t, X: n.each(n(X), n.diag, (X.shape[0], 1)),  # diag(A ⊙ B) = diag(A) ⊙ diag(B)
}
