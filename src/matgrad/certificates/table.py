"""Terms written as the data that the decision procedure in Coq reads: indices, sizes and atoms have numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from matgrad.certificates.rules import Rule
from matgrad.certificates.terms import Equal, Indices, Leaf, Number, Over, Plus, SizeOf, Symbol, Term, Times, parts
from matgrad.certificates.writing import Writer
from matgrad.index_notation.expressions import Index


class Table:
    """The numbers of indices, sizes and atoms in a term for the decision procedure."""

    def __init__(self, writer: Writer, indices: Indices, terms: Sequence[Term], rules: Sequence[Rule]) -> None:
        self.writer, self.rules = writer, rules
        self.sizes: list[str] = []
        self.types: list[int] = []
        self.atoms: dict[str, tuple[int, int, str]] = {}
        everything = [*terms, *(x for r in rules for _, xs in r.result for x in xs)]
        for i in indices:
            self._size(i.size)
        for x in (y for term in everything for y in parts(term)):
            match x:
                case SizeOf(n):
                    self._size(n)
                case Over(k, _):
                    self._size(k.size)
                case Equal(i, _):
                    self._size(i.size)
                case Leaf(_, own) | Symbol(_, own):
                    for i in own:
                        self._size(i.size)
        if not self.sizes:
            self.sizes.append("")
        for x in (y for term in everything for y in parts(term)):
            if isinstance(x, Leaf | Symbol):
                self._atom(x)
        self.free = {i: n for n, i in enumerate(indices)}
        self.types = [self.sizes.index(i.size) for i in indices]

    def _size(self, n: str) -> None:
        if n not in self.sizes:
            self.sizes.append(n)

    def _atom(self, x: Leaf | Symbol) -> int:
        name = f"!{x.definition.name}" if isinstance(x, Leaf) else x.name
        if name not in self.atoms:
            dummy = tuple(Index(f"q{k}", i.size) for k, i in enumerate(x.indices))
            own = Leaf(x.definition, dummy) if isinstance(x, Leaf) else Symbol(x.name, dummy)
            at = {i: f"(nth {k} l 0%nat)" for k, i in enumerate(dummy)}
            text = f"fun l => {self.writer.term(own, at)}"
            self.atoms[name] = len(self.atoms), len(x.indices), text
        return self.atoms[name][0] + len(self.sizes)

    def size_texts(self) -> list[str]:
        """The sizes."""
        return [self.writer.names.size(n) if n else "1%nat" for n in self.sizes]

    def type_list(self) -> str:
        """The number of the size of each index."""
        return f"[{'; '.join(f'{n}%nat' for n in self.types)}]"

    def atom_list(self) -> str:
        """The atoms as functions of lists of indices."""
        return f"[{'; '.join(text for _, _, text in self.atoms.values())}]"

    def number(self, x: Term) -> int:
        """The number of an atom."""
        if isinstance(x, SizeOf):
            return self.sizes.index(x.name)
        assert isinstance(x, Leaf | Symbol)
        return self._atom(x)

    def rule_list(self) -> str:
        """The rules."""
        found = []
        for r in self.rules:
            result = "; ".join(
                f"({_q(c)}, [{'; '.join(f'{self.number(x)}%nat' for x in xs)}] : list nat)" for c, xs in r.result
            )
            types = "; ".join(f"{self.sizes.index(i.size)}%nat" for i in r.indices)
            found.append(f"Rule {self.number(r.first)} {self.number(r.second)} [{types}] [{result}]")
        return "; ".join(found)

    def term(self, x: Term, at: Mapping[Index, int]) -> str:
        """A term; every bound index has a number of its own."""

        def number(i: Index) -> str:
            return str(at[i] if i in at else self.free[i])

        match x:
            case Number(c):
                return f"(Const {_q(c)})"
            case SizeOf():
                return f"(At {self.number(x)} [])"
            case Symbol(_, own) | Leaf(_, own):
                return f"(At {self.number(x)} [{'; '.join(f'{number(i)}%nat' for i in own)}])"
            case Equal(i, j):
                return f"(Eq {number(i)} {number(j)})"
            case Plus(y, z):
                return f"(Plus {self.term(y, at)} {self.term(z, at)})"
            case Times(y, z):
                return f"(Times {self.term(y, at)} {self.term(z, at)})"
            case Over(k, y):
                self.types.append(self.sizes.index(k.size))
                new = len(self.types) - 1
                return f"(Over {new} {self.term(y, {**at, k: new})})"
        raise TypeError(x)


def _q(c: Fraction) -> str:
    return f"({c.numerator} # {c.denominator})"
