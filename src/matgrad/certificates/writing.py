"""Terms written for Coq, also as the data that the decision procedure reads: indices, sizes and atoms have numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from types import MappingProxyType

from matgrad.certificates.leaves import Rule
from matgrad.certificates.terms import (
    Apply,
    Equal,
    Indices,
    Leaf,
    Named,
    NotPrintableError,
    Number,
    Over,
    Plus,
    SizeOf,
    Symbol,
    Term,
    Times,
    parts,
    sizes,
)
from matgrad.index_notation.expressions import Index

RESERVED = (
    *("sum", "delta", "exp", "ln", "sqrt", "step", "maximum", "inverse", "erf", "sin", "cos", "INR", "PI", "R", "nat"),
    *("fun", "forall", "put1", "put2", "put3", "put4", "is_derive", "t", "nth", "At", "Const", "Eq", "Plus", "Times"),
    *("Over", "Rule", "Prop", "Set", "Type", "in", "let", "if", "as", "at", "end", "with", "then", "else", "using"),
)


class Names:
    """Identifiers of Coq for names, each with its own; a value may have the name of a symbol."""

    def __init__(self) -> None:
        self.known: dict[str, str] = {}

    def __call__(self, name: str, key: str = "") -> str:
        """The identifier of a name, or of a key that should have this name."""
        key = key or name
        if key not in self.known:
            plain = re.sub(r"[^A-Za-z0-9_']", "_", name.replace("μ", "mu"))
            if not plain[0].isalpha() or plain in RESERVED or re.fullmatch(r"[klpH]\d*(_\w+)?|[ab]\d?", plain):
                plain = f"x_{plain}"
            while plain in self.known.values():
                plain += "_"
            self.known[key] = plain
        return self.known[key]

    def size(self, name: str) -> str:
        """The identifier of a size, which a symbol may have as its name."""
        return self(name, f"size {name}")


@dataclass(frozen=True)
class Variable:
    """What is differentiated with respect to: the entry of a symbol at some indices."""

    name: str
    indices: Indices


@dataclass
class Writer:
    """Terms in Coq, in which the variable is X, or X with t for one entry."""

    variable: Variable | None
    names: Names = field(default_factory=Names)

    @property
    def point(self) -> str:
        """The entry that t stands for."""
        assert self.variable
        return " ".join([self.names(self.variable.name), *(i.name for i in self.variable.indices)])

    def matrix(self, moving: bool) -> str:
        """The matrix of the variable, if it is moving with t for the entry."""
        assert self.variable
        n = len(self.variable.indices)
        if not moving:
            return self.names(self.variable.name)
        if n > 4:
            raise NotPrintableError(f"a derivative with respect to an entry with {n} indices")
        return f"(put{n} {self.point} t)" if n else "t"

    def depends(self, name: str) -> bool:
        """Whether a symbol is the variable."""
        return self.variable is not None and self.variable.name == name

    def term(self, x: Term, at: Mapping[Index, str] = MappingProxyType({}), moving: bool = False) -> str:
        """A term, in parentheses if it is a sum or a product; some indices have other names."""

        def name(i: Index) -> str:
            return at.get(i, i.name)

        def inside(y: Term) -> str:
            return self.term(y, at, moving)

        match x:
            case Number(c):
                n = f"({c.numerator})" if c < 0 else str(c.numerator)
                return n if c.denominator == 1 else f"({n} * / {c.denominator})"
            case SizeOf(n):
                return f"(INR {self.names.size(n)})"
            case Symbol("PI", ()):
                return "PI"
            case Symbol(n, indices):
                return applied(self.matrix(moving) if self.depends(n) else self.names(n), *map(name, indices))
            case Leaf(definition, indices):
                return inside(Named(definition.name, definition.depends, indices))
            case Named(n, depends, indices):
                return applied(n, *([self.matrix(moving)] if depends else []), *map(name, indices))
            case Equal(i, j):
                return f"(delta {name(i)} {name(j)})"
            case Plus(y, z):
                return f"({inside(y)} + {inside(z)})"
            case Times(y, z):
                return f"({inside(y)} * {inside(z)})"
            case Over(k, y) | Apply("maximum", y, k) if k is not None:
                word, new = "sum" if isinstance(x, Over) else "maximum", f"k{len(at) + 1}"
                return f"({word} {self.names.size(k.size)} (fun {new} => {self.term(y, {**at, k: new}, moving)}))"
            case Apply("inverse", y, _):
                return f"(/ {inside(y)})"
            case Apply(f, y, _):
                return f"({f if f in RESERVED else self.names(f)} {inside(y)})"
        raise TypeError(x)

    def definition(self, name: str, depends: bool, indices: Sequence[str], text: str) -> str:
        """Definition name (X : …) (i j : nat) : R := text."""
        words = [name]
        if depends and self.variable:
            words.append(f"({self.names(self.variable.name)} : {arrows(self.variable.indices)})")
        if indices:
            words.append(f"({' '.join(indices)} : nat)")
        return f"Definition {' '.join(words)} : R := {text}."

    def bounds(self, indices: Indices) -> str:
        """forall i j, (i < N)%nat -> (j < K)%nat ->"""
        if not indices:
            return ""
        hypotheses = (f"({i.name} < {self.names.size(i.size)})%nat -> " for i in indices)
        return f"forall {' '.join(i.name for i in indices)} : nat, {''.join(hypotheses)}"


def arrows(indices: Indices) -> str:
    """nat -> nat -> R"""
    return "nat -> " * len(indices) + "R"


def applied(*words: str) -> str:
    """A function of arguments; a name alone has no parentheses."""
    return words[0] if len(words) == 1 else f"({' '.join(words)})"


# -- terms as data ---------------------------------------------------------------------------------


class Table:
    """The numbers of indices, sizes and atoms in a term for the decision procedure."""

    def __init__(self, writer: Writer, indices: Indices, terms: Sequence[Term], rules: Sequence[Rule]) -> None:
        everything = [*terms, *(x for r in rules for _, xs in r.result for x in xs)]
        self.writer, self.rules = writer, rules
        self.sizes = list(dict.fromkeys([*(i.size for i in indices), *sizes(*everything)])) or [""]
        self.atoms: dict[str, str] = {}  # as functions of lists of indices
        for x in (y for term in everything for y in parts(term)):
            if isinstance(x, Leaf | Symbol):
                self.number(x)
        self.free = {i: n for n, i in enumerate(indices)}
        self.types = [self.sizes.index(i.size) for i in indices]  # the number of the size of each index

    def number(self, x: Term) -> int:
        """The number of an atom."""
        if isinstance(x, SizeOf):
            return self.sizes.index(x.name)
        assert isinstance(x, Leaf | Symbol)
        name = f"!{x.definition.name}" if isinstance(x, Leaf) else x.name
        if name not in self.atoms:
            dummies = tuple(Index(f"q{k}", i.size) for k, i in enumerate(x.indices))
            at = {i: f"(nth {k} l 0%nat)" for k, i in enumerate(dummies)}
            self.atoms[name] = f"fun l => {self.writer.term(replace(x, indices=dummies), at)}"
        return list(self.atoms).index(name) + len(self.sizes)

    def lists(self) -> str:
        """Sizes, the types of indices, atoms and rules, after all terms are written."""
        known = [self.writer.names.size(n) if n else "1%nat" for n in self.sizes]
        columns = (known, "nat"), (_nat(self.types), "nat"), (self.atoms.values(), "(list nat -> R)")
        return " ".join(f"({_list(x)} : list {kind})" for x, kind in (*columns, (map(self._rule, self.rules), "rule")))

    def _rule(self, r: Rule) -> str:
        result = [f"({_q(c)}, {_list(_nat(map(self.number, xs)))} : list nat)" for c, xs in r.result]
        types = _list(_nat(self.sizes.index(i.size) for i in r.indices))
        return f"Rule {self.number(r.first)} {self.number(r.second)} {types} {_list(result)}"

    def term(self, x: Term, at: Mapping[Index, int]) -> str:
        """A term; every bound index has a number of its own."""
        numbers = {**self.free, **at}
        match x:
            case Number(c):
                return f"(Const {_q(c)})"
            case SizeOf():
                return f"(At {self.number(x)} [])"
            case Symbol(_, own) | Leaf(_, own):
                return f"(At {self.number(x)} {_list(_nat(numbers[i] for i in own))})"
            case Equal(i, j):
                return f"(Eq {numbers[i]} {numbers[j]})"
            case Plus(y, z) | Times(y, z):
                return f"({type(x).__name__} {self.term(y, at)} {self.term(z, at)})"
            case Over(k, y):
                self.types.append(self.sizes.index(k.size))
                new = len(self.types) - 1
                return f"(Over {new} {self.term(y, {**at, k: new})})"
        raise TypeError(x)


def _list(items: Iterable[str]) -> str:
    return f"[{'; '.join(items)}]"


def _nat(numbers: Iterable[int]) -> list[str]:
    return [f"{n}%nat" for n in numbers]


def _q(c: Fraction) -> str:
    return f"({c.numerator} # {c.denominator})"
