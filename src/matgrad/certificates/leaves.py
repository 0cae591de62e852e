"""What functions are applied to in a term, with names: definitions, of which proofs have lemmas."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

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
    free,
    mapped,
    parts,
    shape,
    substituted,
)
from matgrad.index_notation.expressions import Index


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
        match x:
            case Number(c):
                return c > 0
            case SizeOf() | Symbol("PI"):
                return True
            case Symbol(name, _):
                return name in self.positive_symbols
            case Leaf(definition, _):
                f, y = definition.body.function, definition.body.x
                return f == "exp" or (f in ("inverse", "sqrt") and self.is_positive(y))
            case Plus(y, z):
                pair = (self.is_positive, self.is_at_least_zero)
                return any(f(y) and g(z) for f, g in (pair, pair[::-1]))
            case Times(y, z):
                return self.is_positive(y) and self.is_positive(z)
            case Over(_, y):
                return self.is_positive(y)
        return False

    def is_at_least_zero(self, x: Term) -> bool:
        """Whether it is 0 or above."""
        match x:
            case Number(c):
                return c >= 0
            case Plus(y, z):
                return self.is_at_least_zero(y) and self.is_at_least_zero(z)
            case Times(y, z):
                return shape(y) == shape(z) or (self.is_at_least_zero(y) and self.is_at_least_zero(z))
            case Over(_, y):
                return self.is_at_least_zero(y)
            case Equal():
                return True
            case Leaf(definition, _) if definition.body.function in ("step", "sqrt"):
                return True
        return self.is_positive(x)


def leaves_in(*terms: Term) -> Iterator[Definition]:
    """The definitions in terms and in what these stand for, those first that others need."""
    for x in terms:
        for y in parts(x):
            if isinstance(y, Leaf):
                yield from leaves_in(y.definition.body)
                yield y.definition
