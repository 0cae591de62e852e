"""Terms written for Coq."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

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
                of = [self.matrix(moving)] if definition.depends else []
                return applied(definition.name, *of, *map(name, indices))
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

    def bounds(self, indices: Indices) -> str:
        """forall i j, (i < N)%nat -> (j < K)%nat ->"""
        if not indices:
            return ""
        hypotheses = (f"({i.name} < {self.names.size(i.size)})%nat -> " for i in indices)
        return f"forall {' '.join(i.name for i in indices)} : nat, {''.join(hypotheses)}"


def applied(*words: str) -> str:
    """A function of arguments; a name alone has no parentheses."""
    return words[0] if len(words) == 1 else f"({' '.join(words)})"
