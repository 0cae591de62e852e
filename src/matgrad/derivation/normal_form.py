"""The normal form of values: polynomials, which are sums of products of powers of values, element by element.

A polynomial is a map from monomials to rational numbers. A monomial is a product of powers of factors, which are
values of shape m×n, 1×n, m×1, 1×1 or (): those with fewer rows or columns count as repeated. Sums over rows and columns
and products of matrices are expanded, and factors that do not depend on what is summed over are taken out of them:

    rows_sum(A ⊙ (x 1_nᵀ)) = x ⊙ rows_sum(A)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from functools import reduce
from math import gcd, lcm
from typing import Any, NoReturn

from matgrad.derivation.values import apply, is_one, number, text, with_operands
from matgrad.index_notation.expressions import ONE, Expression, Factor, TooLongError, as_expression, of, product, total
from matgrad.index_notation.indices import Colors
from matgrad.program.program import Value, in_order
from matgrad.program.shapes import Shape, Size, size_name

LONGEST = 400  # the most terms of a polynomial
LARGEST = 10**300  # numerator or denominator
MOST_FACTORS = 4  # that are equal; more are written as a power


class Atom(Factor):
    """A value as a factor of polynomials."""

    def __init__(self, value: Value) -> None:
        self.value, self.key = value, text(value)

    def derivative(self, variable: Factor) -> NoReturn:
        """Gradients are derived by the adjoints of operations."""
        raise NotImplementedError

    def shape(self, colors: Colors) -> str:
        """The value, which has no indices."""
        return self.key


Powers = dict[Value, Fraction]


def atom(f: Value, p: Fraction | int = 1) -> Expression:
    """f^p"""
    return of(Atom(f), p)


def times(*polynomials: Expression) -> Expression:
    """The product, element by element."""
    found = ONE
    for p in polynomials:
        if len(found.terms) * len(p.terms) > LONGEST:
            raise TooLongError(f"a product of {len(found.terms)} and {len(p.terms)} terms")
        found = found * p
    return found


def depends(f: Value, axis: int) -> bool:
    """Whether a factor has more than one row, for axis 0, or column, for axis 1."""
    return f.shape != () and not is_one(f.shape[axis])


def terms(p: Expression) -> list[tuple[Powers, Fraction]]:
    """The terms of a polynomial: powers of values, and a coefficient."""
    return [({f.value: x for f, x in m if isinstance(f, Atom)}, c) for m, c in p.terms.items()]


def power_product(powers: Powers) -> Expression:
    """The product of powers of values."""
    return product((Atom(f), x) for f, x in powers.items())


def split(p: Expression, chosen: Callable[[Value], bool]) -> tuple[Expression, Expression]:
    """The powers of the chosen factors of a single term, and the others."""
    ((m, _),) = terms(p)
    inside = {f: x for f, x in m.items() if chosen(f)}
    return power_product(inside), power_product({f: x for f, x in m.items() if f not in inside})


def single(p: Expression) -> Value | None:
    """The only factor of a single term, unless it has another exponent than 1."""
    ((m, _),) = terms(p)
    return next(iter(m)) if [*m.values()] == [1] else None


def each(p: Expression, f: Callable[[Expression], Expression]) -> Expression:
    """The sum of c·f(m), over the terms c·m of a polynomial."""
    return total(f(Expression({m: Fraction(1)})).scaled(c) for m, c in p.terms.items())


# -- terms of polynomials: common factors are taken out, and what is smaller is repeated late ---

SUMS = ("add", "subtract", "negative")


def build(p: Expression, shape: Shape) -> Value:
    """The polynomial as a term of this shape."""
    if not p:
        return number(0, shape)
    c, common = _content(p)
    if max(abs(c.numerator), c.denominator) > LARGEST:
        raise TooLongError(f"a number with {len(str(abs(c.numerator)))} digits")
    if len(p.terms) == 1:
        return _monomial(common, c, shape)
    rest = p.scaled(1 / c) * power_product({f: -x for f, x in common.items()})
    found = _total(rest, _shape_of(rest, shape) if common or abs(c) != 1 else shape)
    return _monomial({**common, found: Fraction(1)}, c, shape) if common or c != 1 else found


def _content(p: Expression) -> tuple[Fraction, Powers]:
    """The greatest common factor of all terms; sizes in denominators are taken out in any case."""
    common: Powers = {}
    monomials = [m for m, _ in terms(p)]
    for f in dict.fromkeys(f for m in monomials for f in m):
        exponents = [m.get(f, Fraction(0)) for m in monomials]
        if isinstance(f.number, Size) or min(exponents) > 0:
            common[f] = min(exponents)
        elif max(exponents) < 0:
            common[f] = max(exponents)
    numbers = p.terms.values()
    sign = -1 if all(c < 0 for c in numbers) else 1
    c = Fraction(sign * gcd(*(c.numerator for c in numbers)), lcm(*(c.denominator for c in numbers)))
    return c, {f: x for f, x in common.items() if x}


def _shape_of(p: Expression, shape: Shape) -> Shape:
    """The smallest shape in which all factors have place; that of a scalar only if the polynomial has no matrices."""
    matrices = [f for m, _ in terms(p) for f in m if f.shape != ()]
    if not matrices:
        return ()
    return tuple(shape[k] if any(not is_one(f.shape[k]) for f in matrices) else 1 for k in (0, 1))


# -- sums --------------------------------------------------------------------------------------


def _total(p: Expression, shape: Shape) -> Value:
    """The sum of terms, those with a plus first; terms that share a factor, or that are smaller, are added first."""

    def order(item: tuple[int, Value]) -> tuple[bool, int, str]:
        sign, term = item
        return sign < 0, sum(1 for x in in_order([term]) if x.operands), text(term)

    (sign, found), *others = sorted(_grouped(p, shape), key=order)
    found = found if sign > 0 else apply("negative", found)
    for sign, term in others:
        found = apply("add" if sign > 0 else "subtract", found, term)
    return found


def _grouped(p: Expression, shape: Shape) -> list[tuple[int, Value]]:
    """Terms with their signs."""
    for group in (_small(p, shape), _sharing(p)):
        if group:
            rest = p - group
            return [_signed(group, shape), *(_grouped(rest, shape) if rest else [])]
    return [_signed(Expression({m: c}), shape) for m, c in p.terms.items()]


def _signed(p: Expression, shape: Shape) -> tuple[int, Value]:
    """The sum of some terms with the sign that most of them have, and this sign."""
    is_negative = sum(1 if c < 0 else -1 for c in p.terms.values()) > 0
    return (-1, build(-p, shape)) if is_negative else (1, build(p, shape))


def _small(p: Expression, shape: Shape) -> Expression | None:
    """Two or more terms of one smaller shape."""
    shapes = {m: tuple(map(size_name, _shape_of(Expression({m: Fraction(1)}), shape))) for m in p.terms}
    for small, n in Counter(shapes.values()).items():
        if 1 < n < len(shapes) and small != tuple(map(size_name, shape)):
            return Expression({m: c for m, c in p.terms.items() if shapes[m] == small})
    return None


def _sharing(p: Expression) -> Expression | None:
    """The terms that share the factor that most of them have, if there are two or more, and others."""
    counts = Counter((text(f), x > 0) for m, _ in terms(p) for f, x in m.items() if f.shape != ())
    found = [(n, len(name), name, sign) for (name, sign), n in counts.items() if 1 < n < len(p.terms)]
    if not found:
        return None
    *_, factor, sign = max(found)
    return Expression({m: c for m, c in p.terms.items() if any((f.key, x > 0) == (factor, sign) for f, x in m)})


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
    if whole > MOST_FACTORS:
        return [apply("power", f, number(int(x) if x.denominator == 1 else float(x)))]
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
        rules: Mapping[Value, Expression] | None = None,
        keep: Iterable[Value] = (),
        fact: Callable[[Value], Expression | None] = lambda term: None,
        positive: Iterable[Value] = (),
    ) -> None:
        self.rules, self.keep, self.fact = rules or {}, frozenset(keep), fact
        self.positive = frozenset(positive)  # of whose powers any power can be taken
        self.known: dict[Value, Expression] = {}

    def __call__(self, term: Value) -> Expression:
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

    def factor(self, term: Value) -> Expression:
        """A factor whose operands are in normal form."""
        return self.rules.get(term) or atom(term)

    def normal(self, term: Value) -> Value:
        """The term in normal form."""
        return build(self(term), term.shape)

    # -- powers ---------------------------------------------------------------------------------
    def power(self, p: Expression, exponent: Fraction | int, shape: Shape = ()) -> Expression:
        """p^exponent: whole powers of products are those of their factors; others are factors of their own."""
        exponent = Fraction(exponent)
        is_whole = exponent.denominator == 1
        if len(p.terms) == 1:
            ((m, c),) = terms(p)
            if is_whole or (c == 1 and len(m) == 1 and all(abs(x) == 1 or f in self.positive for f, x in m.items())):
                found = power_product({f: x * exponent for f, x in m.items()})
                return found.scaled(c ** int(exponent)) if is_whole else found
        if is_whole and 0 < exponent < LONGEST:
            return times(*[p] * int(exponent))
        f = build(p, shape)
        found = self.factor(f)
        is_power = [len(m) for m in found.terms] == [1]
        return self.power(found, exponent, f.shape) if is_power else atom(f, exponent)

    # -- sums -----------------------------------------------------------------------------------
    def sum_over(self, axis: int, p: Expression, shape: Shape) -> Expression:
        """Σ_i p_ij, a 1×n matrix, for axis 0; Σ_j p_ij, an m×1 matrix, for axis 1"""
        return p if is_one(shape[axis]) else each(p, lambda m: self._sum_over(axis, m, shape))

    def _sum_over(self, axis: int, m: Expression, shape: Shape) -> Expression:
        inside, outside = split(m, lambda f: depends(f, axis))
        if inside == ONE:
            return times(outside, self.size(shape[axis]))
        f = single(inside)
        if f and f.operation == "matmul":  # 1_mᵀ (A B) = (1_mᵀ A) B, and (A B) 1_n = A (B 1_n)
            A, B = f.operands
            if axis == 1:
                return times(outside, self.matmul(self(A), self.sum_over(1, self(B), B.shape), A.shape, 1))
            left = self.sum_over(0, self(A), A.shape)
            return times(outside, self.matmul(left, self(B), (1, A.shape[1]), B.shape[1]))
        return times(outside, self._sum(("columns_sum", "rows_sum")[axis], inside, _shape_of(inside, shape)))

    def elements_sum(self, p: Expression, shape: Shape) -> Expression:
        """Σ_ij p_ij, a scalar"""
        return each(p, lambda m: self._elements_sum(m, shape))

    def _elements_sum(self, m: Expression, shape: Shape) -> Expression:
        rows, columns = shape
        full, rest = split(m, lambda f: depends(f, 0) and depends(f, 1))
        down, rest = split(rest, lambda f: depends(f, 0))
        across, rest = split(rest, lambda f: depends(f, 1))
        unit, scalars = split(rest, lambda f: f.shape != ())
        found = [scalars, *(atom(apply("elements_sum", f), p) for powers, _ in terms(unit) for f, p in powers.items())]
        if full != ONE:
            found.append(self._sum("elements_sum", full * down * across, shape))
        else:
            found.append(self.size(rows) if down == ONE else self._sum("elements_sum", down, (rows, 1)))
            found.append(self.size(columns) if across == ONE else self._sum("elements_sum", across, (1, columns)))
        return times(*found)

    def size(self, n: Any) -> Expression:
        """A size as a scalar; a product of sizes is that of its factors."""
        names = n.factors if isinstance(n, Size) else []
        return times(*(atom(number(Size(name, n.questions))) for name in names))

    def _sum(self, operation: str, inside: Expression, shape: Shape) -> Expression:
        """A sum over what depends on its indices, by a fact if there is one."""
        term = apply(operation, build(inside, shape))
        found = self.fact(term)
        return self.factor(term) if found is None else found

    # -- products -------------------------------------------------------------------------------
    def matmul(self, P: Expression, Q: Expression, shape: Shape, columns: Any) -> Expression:
        """P Q, for an m×k polynomial P and a Q with n columns."""
        if is_one(shape[1]):
            return times(P, Q)
        return each(P, lambda m: each(Q, lambda n: self._product(m, n, (*shape, columns))))

    def _product(self, m: Expression, n: Expression, sizes: Shape) -> Expression:
        left, outside = split(m, lambda f: depends(f, 1))
        right, more = split(n, lambda f: depends(f, 0))
        return times(outside, more, self._inner_product(left, right, (sizes[:2], sizes[1:])))

    def _inner_product(self, left: Expression, right: Expression, shapes: tuple[Shape, Shape]) -> Expression:
        """The product of matrices all of whose factors depend on the inner index."""
        if left == ONE:
            return self._sum_over(0, right, shapes[1])
        if right == ONE:
            return self._sum_over(1, left, shapes[0])
        for one, other, axis in ((left, right, 0), (right, left, 1)):
            f = single(one)
            if f and f.operation == "identity":
                return other
            if f and f.operation == "Diag":  # Diag(x) A = (x 1_nᵀ) ⊙ A
                x = f.operands[0]
                return times(self(x if depends(x, axis) else transposed(x)), other)
        A, B = (build(p, _shape_of(p, shape)) for p, shape in zip((left, right), shapes, strict=True))
        return self.factor(apply("matmul", A, B))

    def transpose(self, p: Expression) -> Expression:
        """Pᵀ"""
        return self.by_factors(p, lambda f: self.factor(transposed(f)), ())

    def by_factors(self, p: Expression, change: Callable[[Value], Expression], shape: Shape) -> Expression:
        """The polynomial with change(f) for every factor f."""
        return total(times(*(self.power(change(f), x, shape) for f, x in m.items())).scaled(c) for m, c in terms(p))

    def diag(self, f: Value) -> Expression:
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


def _number(n: Normalizer, term: Value) -> Expression:
    """A number: short ones are coefficients, and others, such as √2, are factors."""
    x: Any = term.number
    if isinstance(x, Size):
        return n.size(x)
    is_short = isinstance(x, int) or len(repr(x)) < 9
    return as_expression(Fraction(str(x))) if is_short else atom(term)


def _power(n: Normalizer, term: Value, X: Value, p: Value) -> Expression:
    is_known = p.number is not None and not isinstance(p.number, Size)
    return n.power(n(X), Fraction(str(p.number)), X.shape) if is_known else n.factor(term)


def _inv_sqrt(n: Normalizer, term: Value, X: Value, epsilon: Value) -> Expression:
    is_power = epsilon.number == 0
    return n.power(n(X), Fraction(-1, 2), X.shape) if is_power else n.factor(apply("inv_sqrt", n.normal(X), epsilon))


def _mean(axis: int) -> Callable[[Normalizer, Value, Value], Expression]:
    """The sum over rows or columns, divided by their number."""
    return lambda n, t, X: times(n.sum_over(axis, n(X), X.shape), n.power(n.size(X.shape[axis]), -1))


_RULES: dict[str, Callable[..., Expression]] = {
    "number": _number,
    **dict.fromkeys(("full", "row_repeat", "column_repeat", "copy"), lambda n, t, x: n(x)),
    "add": lambda n, t, A, B: n(A) + n(B),
    "subtract": lambda n, t, A, B: n(A) - n(B),
    "negative": lambda n, t, X: -n(X),
    "hadamard": lambda n, t, A, B: times(n(A), n(B)),
    "scale": lambda n, t, c, X: times(n(c), n(X)),
    "divide": lambda n, t, X, c: times(n(X), n.power(n(c), -1)),
    "reciprocal": lambda n, t, X: n.power(n(X), -1, X.shape),
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
    "diag": lambda n, t, X: n.by_factors(n(X), n.diag, (X.shape[0], 1)),  # diag(A ⊙ B) = diag(A) ⊙ diag(B)
}
