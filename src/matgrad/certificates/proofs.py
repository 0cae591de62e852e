"""Proofs in Coq of derivatives and equations between terms, for all sizes: definitions, lemmas and a theorem."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from itertools import permutations

from matgrad.certificates.leaves import Definition, Leaves, leaves_in, reduced, rules_of
from matgrad.certificates.terms import (
    MINUS_ONE,
    Apply,
    Equal,
    Indices,
    Leaf,
    NotPrintableError,
    Number,
    Over,
    Plus,
    Symbol,
    Term,
    Times,
    added,
    expression,
    inverse,
    mapped,
    multiplied,
    parts,
    shape,
    substituted,
    term_of,
)
from matgrad.certificates.writing import RESERVED, Table, Writer
from matgrad.index_notation import functions, powers
from matgrad.index_notation.expressions import Expression, Index, is_equal, of


class Proof:
    """The lemmas of one theorem."""

    def __init__(self, writer: Writer, leaves: Leaves, is_split: bool, suffix: str = "e") -> None:
        self.writer, self.leaves, self.is_split, self.suffix = writer, leaves, is_split, suffix
        self.variable = writer.variable
        self.lines: list[str] = []
        self.hypotheses: list[str] = []
        self.defined: set[str] = set()
        self.tangents: dict[str, Term | None] = {}
        self.representatives: dict[str, tuple[Definition, Indices]] = {}  # with the order of parameters in their keys
        self.replaced: dict[str, Term] = {}
        self.unfolding: list[str] = []

    # -- definitions ----------------------------------------------------------------------------
    def define(self, *terms: Term) -> None:
        """The definitions in terms."""
        for d in leaves_in(*terms):
            if d.name not in self.defined:
                self.defined.add(d.name)
                self.unfolding.append(d.name)
                text, names = self.writer.term(d.body), [i.name for i in d.parameters]
                self.lines.append(self.writer.definition(d.name, d.depends, names, text))

    def unfold(self, *terms: Term) -> str:
        """The tactic that puts in the definitions of terms, but not of those inside them; by default all."""
        own = {d.name for d in leaves_of(*terms)}
        names = [name for name in reversed(self.unfolding) if not terms or name in own]
        return f"unfold {', '.join(names)}; " if names else ""

    # -- derivatives ----------------------------------------------------------------------------
    def tangent(self, x: Term) -> tuple[Term | None, str]:
        """The derivative with respect to t, if the term depends on it, and the tactic that proves it."""
        match x:
            case Symbol(name, indices) if self.variable and name == self.variable.name:
                deltas: list[Term] = [Equal(i, j) for i, j in zip(indices, self.variable.indices, strict=True)]
                return multiplied(deltas), f"apply d_put{len(indices)}" if indices else "apply d_id"
            case Leaf(definition, indices) if definition.depends:
                slope = self.tangent_of(definition)
                found = None if slope is None else definition.put(slope, indices)
                return found, f"apply {definition.name}_d; assumption"
            case Plus(y, z) | Times(y, z):
                (dy, sy), (dz, sz) = self.tangent(y), self.tangent(z)
                name, goals = ("plus", "") if isinstance(x, Plus) else ("times", " | here | here")
                left = dy and (dy if not goals else dy * z)
                right = dz and (dz if not goals else y * dz)
                if left and right:
                    return left + right, f"apply d_{name}; [{sy} | {sz}{goals}]"
                side, tactic = ("left", sy) if left else ("right", sz)
                return left or right, f"apply d_{name}_{side}; {tactic}"
            case Over(k, y):
                dy, sy = self.tangent(y)
                return (None if dy is None else Over(k, dy)), f"apply d_sum; intros ? ?; {sy}"
        return None, ""

    def tangent_of(self, d: Definition) -> Term | None:
        """The derivative of a definition, for which there is a lemma."""
        if d.name in self.tangents:
            return self.tangents[d.name]
        du, su = self.tangent(d.body.x)
        if du is None:
            self.tangents[d.name] = None
            return None
        own, w = Leaf(d, d.parameters), self.writer
        slope, rule, condition = self._rule(d.body, own)
        slope = slope if d.body.function == "step" else slope * du
        self.define(slope)
        goals = [su, "here"] if d.body.function != "step" else [su]
        if condition:
            side = self.condition(d, condition)
            goals.append(f"cbv beta; rewrite ?put1_same, ?put2_same, ?put3_same, ?put4_same; {side}")
        goal, statement = (f"is_derive (fun t => {w.term(x, moving=True)})" for x in (d.body, own))
        at = f"({w.point}) {w.term(slope)}"
        self.lines += [
            f"Lemma {d.name}_d : {w.bounds(d.parameters)}{statement} {at}.",
            f"Proof. {introduced(d.parameters)}change ({goal} {at}); {rule}; [{' | '.join(goals)}]. Qed.",
        ]
        self.tangents[d.name] = slope
        return slope

    def _rule(self, x: Apply, own: Leaf) -> tuple[Term, str, str]:
        """f'(u) for f(u), the tactic that proves it, and the condition on u."""
        f, u, leaf = x.function, x.x, self.leaves.leaf
        match f:
            case "exp":
                return own, "apply d_exp", ""
            case "inverse":
                return MINUS_ONE * (own * own), "apply d_inv", "{} <> 0"
            case "ln":
                return leaf(Apply("inverse", u)), "apply d_ln", "0 < {}"
            case "sqrt":
                return Number(Fraction(1, 2)) * leaf(Apply("inverse", own)), "apply d_sqrt", "0 < {}"
            case "step":
                return Number(Fraction(0)), "eapply d_step", "{} <> 0"
            case "sin":
                return leaf(Apply("cos", u)), "apply (d_function sin cos is_derive_sin)", ""
            case "cos":
                slope = MINUS_ONE * leaf(Apply("sin", u))
                return slope, "apply (d_function cos (fun x => (-1) * sin x) d_cos)", ""
            case "erf":
                two = Number(Fraction(2)) * self.leaves.folded(inverse(Apply("sqrt", Symbol("PI"))))
                return two * leaf(Apply("exp", MINUS_ONE * (u * u))), "apply (d_function erf _ erf_d)", ""
            case "maximum":
                raise NotPrintableError("the derivative of a maximum")
        slope, n = leaf(Apply(f"{f}'", u)), self.writer.names(f)
        return slope, f"apply (d_function {n} {self.writer.names(f + chr(39))} {n}_d)", ""

    def condition(self, d: Definition, condition: str) -> str:
        """The tactic for a condition on what a definition applies a function to, which is known or a hypothesis."""
        u = d.body.x
        if d.body.function != "step" and self.leaves.is_positive(u):
            return f"{self.unfold()}positive"
        statement = f"{self.writer.bounds(d.parameters)}{condition.format(self.writer.term(self.unfolded(u)))}"
        self.hypotheses.append(f"Hypothesis H_{d.name} : {statement}.")
        return f"apply H_{d.name}; assumption"

    def unfolded(self, x: Term) -> Term:
        """The term with what its definitions stand for."""

        return mapped(x, lambda y: self.unfolded(y.definition.at(y.indices)) if isinstance(y, Leaf) else None)

    # -- other names for definitions -------------------------------------------------------------
    def renamed(self, x: Term) -> Term:
        """The term with the representatives of its definitions."""

        def change(y: Term) -> Term | None:
            return y.definition.put(self.replacement(y.definition), y.indices) if isinstance(y, Leaf) else None

        return mapped(x, change)

    def replacement(self, d: Definition) -> Term:
        """What a definition is in terms of representatives, for which there is a lemma."""
        if d.name not in self.replaced:
            self.replaced[d.name] = Leaf(d, d.parameters)  # it does not occur in what it stands for
            e = expression(d.body.x)
            found = self._split(d, e) if self.is_split else None
            self.replaced[d.name] = self._merged(d, e) if found is None else found
        return self.replaced[d.name]

    def _merged(self, d: Definition, e: Expression) -> Term:
        """The first definition of the same function of something equal."""
        if d.body.index is not None:
            e = expression(d.body)
        key, order = least_key(e, d.parameters)
        other, places = self.representatives.setdefault(f"{d.body.function}:{key}", (d, order))
        own = Leaf(d, d.parameters)
        if other is d or [i.size for i in places] != [i.size for i in order]:
            return own
        at = dict(zip(places, order, strict=True))
        found = Leaf(other, tuple(at[i] for i in other.parameters))
        self.define(own, found)
        v = other.at(found.indices)
        assert isinstance(v, Apply)
        by = self._equal_arguments(d, d.body.x, v.x) if d.body.index is None else self._equal_maxima(d, v, Fraction(1))
        self._lemma(d, found, by)
        return found

    def _equal_maxima(self, d: Definition, other: Apply, c: Fraction) -> str:
        """max_k c·b_k = c·max_k b_k, for a definition and another maximum, and c > 0"""
        assert d.body.index
        assert other.index
        k, w = Index("k0", d.body.index.size), self.writer
        x, y = (substituted(z.x, {z.index: k}) for z in (d.body, other) if z.index)
        factor, scaled = (Number(c), "rewrite <- maximum_scale by lra; ") if c != 1 else (None, "")
        whole, y = (other, y) if factor is None else (Times(factor, other), Times(factor, y))
        by = self.equal(x, y, (*d.parameters, k))
        change = f"change ({w.term(d.body)} = {w.term(whole)}); {scaled}apply maximum_ext; intros k0 ?; "
        return f"{change}change ({w.term(x)} = {w.term(y)}); {by}"

    def _equal_arguments(self, d: Definition, u: Term, v: Term) -> str:
        """f(u) = f(v), by u = v"""
        f = self._function(d.body.function)
        w = self.writer
        own = f"change ({f} {w.term(u)} = {f} {w.term(v)}); apply (f_equal {f}); "
        return own + self.equal(u, v, d.parameters)

    def _function(self, f: str) -> str:
        return "Rinv" if f == "inverse" else f if f in RESERVED else self.writer.names(f)

    def _lemma(self, d: Definition, found: Term, tactic: str) -> None:
        w = self.writer
        own = w.term(Leaf(d, d.parameters))
        self.lines += [
            f"Lemma {d.name}_{self.suffix} : {w.bounds(d.parameters)}{own} = {w.term(found)}.",
            f"Proof. {introduced(d.parameters)}{tactic}. Qed.",
        ]

    def _split(self, d: Definition, e: Expression) -> Term | None:
        """exp(a + b) = exp(a)·exp(b), 1/(a·b) = 1/a·1/b and log(a·b) = log(a) + log(b), by canonical forms."""
        f = d.body.function
        if f == "maximum":
            return self._scaled(d, expression(d.body))
        if f == "exp" and len(e.terms) > 1:
            items = [term_of(Expression({m: c})) for m, c in e.terms.items()]
            whole, found = added(items), multiplied([Apply("exp", x) for x in items])
            tactic = "rewrite <- ?exp_plus; reflexivity"
        elif f in ("inverse", "ln") and (factors := self._factors(e)) is not None and len(factors) > 1:
            whole = multiplied(factors)
            if f == "inverse":
                found = multiplied(list(map(inverted, factors)))
                tactic = "rewrite ?Rinv_mult, ?Rinv_inv, <- ?exp_Ropp; factors"
            else:
                if not all(self.leaves.is_positive(self.leaves.folded(x)) for x in factors):
                    raise NotPrintableError("the logarithm of what may be negative")
                found = added(list(map(logarithm, factors)))
                tactic = f"rewrite ?ln_mult by ({self.unfold()}positive); rewrite ?ln_exp; reflexivity"
        else:
            return None
        return self._by(d, self.leaves.folded(whole), self.leaves.folded(found), tactic)

    def _scaled(self, d: Definition, e: Expression) -> Term | None:
        """max_k c·b_k = c·max_k b_k"""
        match [*e.terms.items()]:
            case [(((functions.Maximum() as f, 1),), c)] if c not in (0, 1) and c > 0:
                plain = self.leaves.folded(term_of(of(f)))
                assert isinstance(plain, Leaf)
                other = plain.definition.at(plain.indices)
                assert isinstance(other, Apply)
                found = Times(Number(c), self.renamed(plain))
                self.define(Leaf(d, d.parameters), plain, found)
                w, middle = self.writer, Times(Number(c), plain)
                first = f"transitivity {w.term(middle)}; [{self._equal_maxima(d, other, c)} | {self.renaming(middle)}]"
                self._lemma(d, found, first)
                return found
        return None

    def _by(self, d: Definition, whole: Term, found: Term, tactic: str) -> Term:
        """f(u) = f(whole) = found, which is renamed."""
        w, last = self.writer, self.renamed(found)
        self.define(Leaf(d, d.parameters), whole, found, last)
        first = self._equal_arguments(d, d.body.x, whole)
        steps = f"transitivity ({self._function(d.body.function)} {w.term(whole)}); [{first} | "
        self._lemma(
            d,
            last,
            f"{steps}transitivity {w.term(found)}; [{self.unfold(whole, found)}{tactic} | {self.renaming(found)}]]",
        )
        return last

    def _factors(self, e: Expression) -> list[Term] | None:
        """c, f and b with e = c·f·b, such as exp(m) and a sum."""
        c, content, base = powers.parts(e, whole=True)
        found: list[Term] = [Number(c)] if c != 1 else []
        for f, p in content.items():
            if p.denominator != 1:
                return None
            if isinstance(f, functions.Applied) and f.function is functions.exp:
                found.append(term_of(of(f, p)))
            else:
                found += [term_of(of(f)) if p > 0 else inverse(term_of(of(f)))] * abs(int(p))
        return found + ([term_of(base.expression)] if base else [])

    # -- equations ------------------------------------------------------------------------------
    def equal(self, x: Term, y: Term, indices: Indices) -> str:
        """The tactic for x = y, for free indices in the context: both are polynomials in representatives."""
        u, v, w = self.renamed(x), self.renamed(y), self.writer
        self.define(x, y, u, v)
        by = self.renaming(x, y)
        return (
            f"transitivity {w.term(u)}; [{by} | transitivity {w.term(v)}; "
            f"[{self.normal(u, v, indices)} | symmetry; {by}]]"
        )

    def renaming(self, *terms: Term) -> str:
        """The tactic that puts representatives into terms."""
        changed = [d for d in dict.fromkeys(leaves_of(*terms)) if self.replacement(d) != Leaf(d, d.parameters)]
        lemmas = " | ".join(f"apply {d.name}_{self.suffix}" for d in changed)
        return f"renamed ltac:(first [{lemmas}]; assumption)" if lemmas else "reflexivity"

    def normal(self, u: Term, v: Term, indices: Indices) -> str:
        """The tactic for u = v by normal forms."""
        if shape(u) == shape(v):
            return "reflexivity"
        rules = rules_of(self.leaves, self.unfold(), u, v)
        if not is_equal(reduced(expression(u, True), rules), reduced(expression(v, True), rules)):
            raise NotPrintableError("two forms that are equal by more than the rules of polynomials")
        table = Table(self.writer, indices, [u, v, *(x for r in rules for x in (r.first, r.second))], rules)
        t, t2 = table.term(u, {}), table.term(v, {})
        proofs = "".join(f"refine (conj (fun l L => _) _); [bounds; rule_goal; {r.proof} | " for r in rules)
        own = "; ".join(i.name for i in indices)
        return f"normal {table.lists()} ([{own}] : list nat) {t} {t2} ltac:({proofs}exact I{']' * len(rules)})"


def least_key(e: Expression, parameters: Indices) -> tuple[str, Indices]:
    """The least key of an expression under other names of its parameters, and their order in it."""
    names = [Index(f"q{n}", i.size) for n, i in enumerate(parameters)]
    fitting = (p for p in permutations(parameters) if [i.size for i in p] == [i.size for i in parameters])
    return min((e.substituted(dict(zip(p, names, strict=True))).key, p) for p in fitting)


def introduced(indices: Indices) -> str:
    """The tactic that introduces indices and their bounds."""
    names = " ".join(i.name for i in indices)
    return f"intros {names}{' ?' * len(indices)}; " if names else ""


def leaves_of(*terms: Term) -> Iterable[Definition]:
    """The definitions in terms, but not those inside them."""
    return (x.definition for term in terms for x in parts(term) if isinstance(x, Leaf))


def logarithm(x: Term) -> Term:
    """log(x), or y for exp(y)"""
    match x:
        case Apply("exp", y, _):
            return y
    return Apply("ln", x)


def inverted(x: Term) -> Term:
    """1/x, or exp(-y) for exp(y)"""
    match x:
        case Apply("inverse", y, _):
            return y
        case Apply("exp", y, _):
            return Apply("exp", term_of(-expression(y)))
        case Number(c):
            return Number(1 / c)
    return inverse(x)
