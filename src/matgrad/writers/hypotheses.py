"""What arguments are said to obey, as rules of index notation: Σ_k t_ik = 1, S = Sᵀ, QᵀQ = 1."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING

from matgrad.index_notation.expressions import Entry, Expression, Factor, Index, Rule, delta, of
from matgrad.index_notation.sums import Sum, summed, summed_over
from matgrad.writers.sizes import UnsupportedError
from matgrad.writers.slots import counted

if TYPE_CHECKING:
    from matgrad.writers.specifications import Specification


class Hypothesis(ABC):
    """What is said of an argument."""

    name: str

    @abstractmethod
    def __str__(self) -> str:
        """As it is said in a verdict."""

    @abstractmethod
    def of(self, f: Factor) -> Expression | None:
        """What a factor is by it, if it says something of it."""

    def free(self, f: Factor) -> Expression | None:
        """What an entry is in terms of those of any matrix, if all that obey it are of that form."""
        return None


class SumIs(Hypothesis):
    """Σ_k t_ik = 1, over indices of a size."""

    def __init__(self, name: str, size: str, value: Fraction) -> None:
        self.name, self.size, self.value = name, size, value

    def __str__(self) -> str:
        return f"Σ_{self.size} {self.name} = {self.value}"

    def of(self, f: Factor) -> Expression | None:
        """Σ_ik t_ik·e_i = Σ_i e_i"""
        if not isinstance(f, Sum) or self.name not in f.key:
            return None
        bound, body = f.opened()
        ((m, c),) = body.terms.items()
        for k in (k for k in bound if k.size == self.size):
            match [(g, p) for g, p in m if k in g.free]:
                case [(Entry(name=self.name) as g, 1)] if [*g.indices].count(k) == 1:
                    others = Expression({tuple(item for item in m if item[0] is not g): c * self.value})
                    return summed_over(bound - {k}, others)
        return None

    def free(self, f: Factor) -> Expression | None:
        """t_ik = u_ik / Σ_l u_il, where u may be t itself"""
        own = [i for i in f.indices if i.size == self.size] if isinstance(f, Entry) and f.name == self.name else []
        if not isinstance(f, Entry) or len(own) != 1:
            return None
        u = Entry(f"{f.name}'", f.indices, is_positive=f.is_positive)
        total = summed(lambda l: of(u.at(*(l if i == own[0] else i for i in f.indices))), self.size)
        return of(u).scaled(self.value) / total


class Symmetric(Hypothesis):
    """S = Sᵀ: S is (A + Aᵀ) / 2 for some matrix A."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __str__(self) -> str:
        return f"{self.name} = {self.name}ᵀ"

    def of(self, f: Factor) -> Expression | None:
        """S_ij = (A_ij + A_ji) / 2"""
        if not isinstance(f, Entry) or f.name != self.name:
            return None
        *first, i, j = f.indices
        pairs = ([*first, i, j], [*first, j, i])
        return (of(Entry(f"{f.name}'", pairs[0])) + of(Entry(f"{f.name}'", pairs[1]))).scaled(Fraction(1, 2))

    free = of  # all are of this form


class Orthonormal(Hypothesis):
    """QᵀQ = 1, or QQᵀ = 1: columns or rows have norm 1 and are orthogonal."""

    def __init__(self, name: str, columns: bool) -> None:
        self.name, self.columns = name, columns

    def __str__(self) -> str:
        return f"{self.name}ᵀ{self.name} = 1" if self.columns else f"{self.name}{self.name}ᵀ = 1"

    def of(self, f: Factor) -> Expression | None:
        """Σ_nk Q_nk·Q_nl·e_kl = Σ_k [k=l]·e_kl"""
        if not isinstance(f, Sum) or self.name not in f.key:
            return None
        bound, body = f.opened()
        ((m, c),) = body.terms.items()
        for n in bound:
            match [(g, p) for g, p in m if n in g.free]:
                case [(Entry(name=self.name) as g, 2)]:
                    h = g
                case [(Entry(name=self.name) as g, 1), (Entry(name=self.name) as h, 1)]:
                    pass
                case _:
                    continue
            if (pair := self._others(g, h, n)) is not None:
                rest = Expression({tuple(item for item in m if item[0] not in (g, h)): c})
                return summed_over(bound - {n}, rest * delta(*pair))
        return None

    def _others(self, g: Entry, h: Entry, n: Index) -> tuple[Index, Index] | None:
        """The two indices that are not summed over, if n is where it has to be and all others are the same."""
        at, other = (-2, -1) if self.columns else (-1, -2)
        is_there = all(x.indices[at] == n and [*x.indices].count(n) == 1 for x in (g, h))
        return (g.indices[other], h.indices[other]) if is_there and g.indices[:-2] == h.indices[:-2] else None


def under(rules: Iterable[Rule], e: Expression) -> Expression:
    """An expression with rules applied until nothing changes."""
    for rule in rules:
        while any(rule(f) is not None for f in e.inner()) and (changed := e.mapped(rule)) != e:
            e = changed
    return e


def hypotheses(specifications: Mapping[str, Specification]) -> list[Hypothesis]:
    """What arguments obey."""
    for name, s in specifications.items():
        if (s.sums or s.facts) and counted(s.dims):
            raise UnsupportedError(f"what is said of {name}, which has numbers in its shape,")
    sums = [SumIs(name, size, value) for name, s in specifications.items() for size, value in s.sums]
    facts = [made(name) for name, s in specifications.items() for fact, made in FACTS.items() if fact in s.facts]
    return [*sums, *facts]


FACTS = {
    "symmetric": Symmetric,
    "QᵀQ": lambda name: Orthonormal(name, columns=True),
    "QQᵀ": lambda name: Orthonormal(name, columns=False),
}
