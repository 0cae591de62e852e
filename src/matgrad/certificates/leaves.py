"""What functions are applied to in a term, with names: definitions, of which proofs have lemmas.

Rules for products of two atoms, such as N·(1/N) = 1, are what normal forms of polynomials do not know.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations_with_replacement

from matgrad.certificates.terms import (
    Apply,
    Equal,
    Indices,
    Leaf,
    Number,
    Over,
    Plus,
    SizeOf,
    Symbol,
    Term,
    Times,
    expression,
    free,
    mapped,
    parts,
    shape,
    substituted,
)
from matgrad.index_notation.expressions import Entry, Expression, Index, Monomial, multiplied, product, total
from matgrad.index_notation.sums import Sum, summed_over


@dataclass(eq=False)
class Definition:
    """f(x) as a function of indices, for a term x."""

    name: str
    parameters: Indices
    body: Apply
    depends: bool  # on the variable

    def put(self, x: Term, indices: Indices) -> Term:
        """A term in its parameters, at some indices."""
        return substituted(x, dict(zip(self.parameters, indices, strict=True)))

    def at(self, indices: Indices) -> Term:
        """What it stands for at some indices."""
        return self.put(self.body, indices)


@dataclass
class Leaves:
    """The definitions of a proof, about a variable."""

    variable: str
    positive_symbols: frozenset[str]
    known: dict[str, Definition] = field(default_factory=dict)

    def leaf(self, x: Apply) -> Leaf:
        """An application as a definition at some indices; what it is applied to has no applications left."""
        own = tuple(sorted(free(x), key=lambda i: i.size))
        parameters = tuple(Index(f"p{n}", i.size) for n, i in enumerate(own))
        body = substituted(x, dict(zip(own, parameters, strict=True)))
        key = shape(body)
        if key not in self.known:
            assert isinstance(body, Apply)
            self.known[key] = Definition(f"l{len(self.known) + 1}", parameters, body, self.depends(body))
        return Leaf(self.known[key], own)

    def folded(self, x: Term) -> Term:
        """The term with definitions for all applications in it."""

        def change(y: Term) -> Term | None:
            return self.leaf(Apply(y.function, self.folded(y.x), y.index)) if isinstance(y, Apply) else None

        return mapped(x, change)

    def depends(self, x: Term) -> bool:
        """Whether the variable occurs."""
        return any(
            (isinstance(y, Symbol) and y.name == self.variable) or (isinstance(y, Leaf) and y.definition.depends)
            for y in parts(x)
        )

    def is_positive(self, x: Term) -> bool:
        """Whether it is above 0 by what is known of its parts."""
        return self._sign(x) == 2

    def _sign(self, x: Term) -> int:
        """2 for a term above 0, 1 for one that is 0 or above, and 0 if nothing is known."""
        match x:
            case Number(c):
                return 2 if c > 0 else int(c == 0)
            case SizeOf() | Symbol("PI"):
                return 2
            case Symbol(name, _):
                return 2 * (name in self.positive_symbols)
            case Leaf(definition, _):
                least = {"exp": 2, "step": 1, "sqrt": 1}.get(definition.body.function, 0)
                is_kept = definition.body.function in ("inverse", "sqrt") and self.is_positive(definition.body.x)
                return 2 if is_kept else least
            case Plus(y, z):
                a, b = sorted((self._sign(y), self._sign(z)))
                return b if a else 0
            case Times(y, z):
                return max(min(self._sign(y), self._sign(z)), shape(y) == shape(z))
            case Over(_, y):
                return self._sign(y)
        return int(isinstance(x, Equal))


def leaves_in(*terms: Term) -> Iterator[Definition]:
    """The definitions in terms and in what these stand for, those first that others need."""
    for x in terms:
        for y in parts(x):
            if isinstance(y, Leaf):
                yield from leaves_in(y.definition.body)
                yield y.definition


# -- rules for products ----------------------------------------------------------------------------


Polynomial = tuple[tuple[Fraction, tuple[Term, ...]], ...]  # coefficients, with the atoms that they are multiplied by
ONE: Polynomial = ((Fraction(1), ()),)


@dataclass(frozen=True)
class Rule:
    """The product of two atoms at the same indices is a polynomial in atoms at these indices; with its proof."""

    first: Term
    second: Term
    result: Polynomial
    proof: str

    @property
    def indices(self) -> Indices:
        """The indices of the atoms."""
        return atom_indices(self.first)


def atom_indices(x: Term) -> Indices:
    """The indices of an atom."""
    return x.indices if isinstance(x, Leaf | Symbol) else ()


def rules_of(leaves: Leaves, unfold: str, *terms: Term) -> list[Rule]:
    """The rules for products of two atoms in terms; `unfold` is the tactic that puts all definitions in."""
    atoms = {shape(x): x for x in _atoms(leaves, terms)}
    return [r for x, y in combinations_with_replacement(atoms.values(), 2) if (r := _rule(leaves, unfold, x, y))]


def _atoms(leaves: Leaves, terms: Sequence[Term]) -> Iterator[Term]:
    """The atoms of terms at parameters p0, p1, …, with those that functions are applied to."""
    for x in (y for term in terms for y in parts(term)):
        match x:
            case Leaf(definition, _):
                yield Leaf(definition, definition.parameters)
                yield from (x for x in _atoms(leaves, [definition.body.x]) if leaves.is_positive(x))
            case SizeOf():
                yield x
            case Symbol(name, indices):
                yield Symbol(name, tuple(Index(f"p{k}", i.size) for k, i in enumerate(indices)))


def _rule(leaves: Leaves, unfold: str, x: Term, y: Term) -> Rule | None:
    """The rule for a product of two atoms, if there is one."""
    if [i.size for i in atom_indices(x)] != [i.size for i in atom_indices(y)]:
        return None
    for a, b in ((x, y), (y, x)):
        if isinstance(b, Leaf) and (found := _result(leaves, unfold, a, b)):
            return Rule(a, b, *found)
    return None


def _result(leaves: Leaves, unfold: str, a: Term, b: Leaf) -> tuple[Polynomial, str] | None:
    """What a·b is, and the tactic that proves it."""
    f, u, own = b.definition.body.function, b.definition.body.x, f"unfold {b.definition.name}; "
    if f == "inverse" and shape(u) == shape(a) and leaves.is_positive(a):
        return ONE, f"{unfold}rewrite Rinv_r; [ring | positive]"
    if f == "step" and a == b:
        return ((Fraction(1), (b,)),), f"{own}rewrite step_square; ring"
    if f == "sqrt" and a == b and isinstance(u, Number):
        return ((u.value, ()),), f"{own}rewrite sqrt_sqrt by lra; ring"
    if not isinstance(a, Leaf) or a.definition.body.function != "exp":
        return None
    if f == "exp" and not expression(a.definition.body.x) + expression(u):
        other = f"unfold {a.definition.name}; " if a != b else ""
        return ONE, f"{other}{own}exponents"
    if f == "inverse":  # e^x / (c + d·e^x) = 1/d - c/d / (c + d·e^x)
        e = expression(u, is_opaque=True)
        (m,) = expression(a, is_opaque=True).terms
        if set(e.terms) == {(), m} and leaves.is_positive(u):
            c, d = e.terms[()], e.terms[m]
            return ((1 / d, ()), (-c / d, (b,))), f"{own}field; {unfold}positive"
    return None


def reduced(e: Expression, rules: Sequence[Rule]) -> Expression:
    """An expression in opaque atoms after all rules."""
    changed = bool(rules)
    while changed:
        new = [(_reduced(m, rules), m, c) for m, c in e.terms.items()]
        changed = any(x is not None for x, _, _ in new)
        e = total((Expression({m: Fraction(1)}) if x is None else x).scaled(c) for x, m, c in new)
    return e


def _reduced(m: Monomial, rules: Sequence[Rule]) -> Expression | None:
    """A monomial after one rule, also in its sums; None if there is none."""
    powers = dict(m)
    for f, p in m:
        if isinstance(f, Sum) and p >= 1 and p.denominator == 1:
            bound, body = f.opened()
            if (new := reduced(body, rules)) != body:
                return multiplied([product((g, q) for g, q in m if g != f), *[summed_over(bound, new)] * int(p)])
        for r in rules:
            if p < 1 or (at := _matched(r.first, f)) is None:
                continue
            (g,) = expression(substituted(r.second, at), True).factors()
            if powers.get(g, 0) >= (2 if f == g else 1):
                rest = product([*m, (f, Fraction(-1)), (g, Fraction(-1))])
                return rest * total(
                    multiplied(expression(substituted(x, at), True) for x in factors).scaled(c)
                    for c, factors in r.result
                )
    return None


def _matched(x: Term, f: object) -> dict[Index, Index] | None:
    """The indices at which an atom is a factor."""
    (own,) = expression(x, True).factors()
    if not isinstance(f, Entry) or not isinstance(own, Entry) or f.head != own.head:
        return None
    if [i.size for i in f.indices] != [i.size for i in own.indices]:
        return None
    return dict(zip(own.indices, f.indices, strict=True))
