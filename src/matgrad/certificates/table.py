"""Terms written as the data that the decision procedure in Coq reads: indices, sizes and atoms have numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from matgrad.certificates.rules import Rule
from matgrad.certificates.terms import (
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
    parts,
    sizes,
)
from matgrad.certificates.writing import Writer
from matgrad.index_notation.expressions import Index


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
