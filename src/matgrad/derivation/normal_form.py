"""The normal form of values: polynomials.

Sums over rows and columns and products of matrices are expanded, and factors that do not depend on what is summed
over are taken out of them:

    rows_sum(A ⊙ (x 1_nᵀ)) = x ⊙ rows_sum(A)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from functools import reduce
from typing import Any

from matgrad.derivation.polynomials import (
    ONE,
    Monomial,
    Polynomial,
    atom,
    build,
    depends,
    is_single,
    joined,
    monomial,
    plus,
    product,
    scaled,
    split,
    times,
)
from matgrad.derivation.values import apply, is_one, number, with_operands
from matgrad.program.program import Value
from matgrad.program.shapes import Shape, Size


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
                wanted = 0 if one is left else 1
                x = x if depends(x, wanted) else transposed(x)
                return times(self(x), {other: Fraction(1)})
        A = build({left: Fraction(1)}, (rows, inner))
        B = build({right: Fraction(1)}, (inner, columns))
        return self.factor(apply("matmul", A, B))

    def transpose(self, p: Polynomial) -> Polynomial:
        """Pᵀ"""
        return self._each(p, lambda f: self.factor(transposed(f)), ())

    def diag(self, p: Polynomial, shape: Shape) -> Polynomial:
        """The diagonal, an n×1 matrix: diag(A ⊙ B) = diag(A) ⊙ diag(B)"""
        return self._each(p, self._diag, (shape[0], 1))

    def _each(self, p: Polynomial, of: Callable[[Value], Polynomial], shape: Shape) -> Polynomial:
        """The polynomial with of(f) for every factor f."""
        return plus(times({ONE: c}, product(self.power(of(f), x, shape) for f, x in m)) for m, c in p.items())

    def _diag(self, f: Value) -> Polynomial:
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
    "diag": lambda n, t, X: n.diag(n(X), X.shape),
}
