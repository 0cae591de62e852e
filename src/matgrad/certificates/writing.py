"""Terms written for Coq."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from matgrad.certificates.terms import (
    Apply,
    Equal,
    Indices,
    Leaf,
    NotPrintableError,
    Number,
    Over,
    Plus,
    SizeOf,
    Symbol,
    Term,
    Times,
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

    @property
    def symbol(self) -> Symbol:
        """The entry."""
        return Symbol(self.name, self.indices)


@dataclass
class Writer:
    """Terms in Coq, in which the variable is X, or X with t for one entry."""

    variable: Variable | None
    names: Names = field(default_factory=Names)

    @property
    def point(self) -> str:
        """The entry that t stands for."""
        assert self.variable
        return " ".join([self.names(self.variable.name), *map(self.index, self.variable.indices)])

    @property
    def moving(self) -> str:
        """The matrix of the variable, with t for the entry."""
        assert self.variable
        if not self.variable.indices:
            return "t"
        n = len(self.variable.indices)
        if n > 4:
            raise NotPrintableError(f"a derivative with respect to an entry with {n} indices")
        return f"(put{n} {self.point} t)"

    @staticmethod
    def index(i: Index) -> str:
        """The name of a free index."""
        return i.name

    def term(self, x: Term, at: Mapping[Index, str] | None = None, moving: bool = False) -> str:
        """A term, in parentheses if it is a sum or a product."""
        own = at or {}

        def applied(name: str, indices: Indices, depends: bool) -> str:
            of = [self.variable_text(moving)] if depends else []
            words = [name, *of, *(own.get(i) or self.index(i) for i in indices)]
            return words[0] if len(words) == 1 else f"({' '.join(words)})"

        def inside(y: Term) -> str:
            return self.term(y, own, moving)

        match x:
            case Number(c):
                n = f"({c.numerator})" if c < 0 else str(c.numerator)
                return n if c.denominator == 1 else f"({n} * / {c.denominator})"
            case SizeOf(n):
                return f"(INR {self.names.size(n)})"
            case Symbol("PI", ()):
                return "PI"
            case Symbol(n, indices):
                if self.variable and n == self.variable.name:
                    text = self.variable_text(moving)
                    return f"({' '.join([text, *(own.get(i) or self.index(i) for i in indices)])})" if indices else text
                return applied(self.names(n), indices, False)
            case Leaf(definition, indices):
                return applied(definition.name, indices, definition.depends)
            case Equal(i, j):
                return f"(delta {own.get(i) or self.index(i)} {own.get(j) or self.index(j)})"
            case Plus(y, z):
                return f"({inside(y)} + {inside(z)})"
            case Times(y, z):
                return f"({inside(y)} * {inside(z)})"
            case Over(k, y):
                return f"(sum {self.names.size(k.size)} {self.binder(k, y, own, moving)})"
            case Apply("maximum", y, k) if k is not None:
                return f"(maximum {self.names.size(k.size)} {self.binder(k, y, own, moving)})"
            case Apply("inverse", y, _):
                return f"(/ {inside(y)})"
            case Apply(f, y, _):
                return f"({f if f in RESERVED else self.names(f)} {inside(y)})"
        raise TypeError(x)

    def variable_text(self, moving: bool) -> str:
        """The matrix of the variable."""
        assert self.variable
        return self.moving if moving else self.names(self.variable.name)

    def binder(self, k: Index, y: Term, own: Mapping[Index, str], moving: bool) -> str:
        """fun k => y"""
        name = f"k{len(own) + 1}"
        return f"(fun {name} => {self.term(y, {**own, k: name}, moving)})"

    def bounds(self, indices: Indices) -> str:
        """forall i j, (i < N)%nat -> (j < K)%nat ->"""
        if not indices:
            return ""
        names = " ".join(self.index(i) for i in indices)
        hypotheses = (f"({self.index(i)} < {self.names.size(i.size)})%nat -> " for i in indices)
        return f"forall {names} : nat, {''.join(hypotheses)}"
