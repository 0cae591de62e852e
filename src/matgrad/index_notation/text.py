"""Expressions as text, Σ_k x_ik·w_jk + b_j, and in LaTeX."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from functools import lru_cache
from typing import Any

from matgrad.foundation.notation import function_symbol, parenthesized, symbol
from matgrad.index_notation.conditions import Flag, Order, Step
from matgrad.index_notation.expressions import (
    KNOWN,
    Delta,
    Entry,
    Expression,
    Factor,
    Monomial,
    is_natural,
    written_terms,
)
from matgrad.index_notation.functions import Applied, Maximum
from matgrad.index_notation.indices import Index, Label, Last, Reversed, Shifted, shifted, unshifted
from matgrad.index_notation.positions import Position
from matgrad.index_notation.powers import Base
from matgrad.index_notation.sums import Sum

Names = dict[Index, str]  # how indices are written
LETTERS = "klmnpqrstuvw"


def text(e: Expression, names: Names | None = None) -> str:
    """The expression as text; `names` has the indices that are written in another way than they are called."""
    return TEXT.expression(e, names or {})


class Text:
    """Expressions as text; what is different in LaTeX are the methods after `factor`."""

    def expression(self, e: Expression, names: Names) -> str:
        """Terms, those with a minus sign last."""
        match [*e.terms.items()]:
            case [(((Sum() as f, 1),), 1)]:
                return self.factor(f, names)
        first, *others = [self.term(m, c, names) for m, c in written_terms(e)] or ["0"]
        return first + "".join(f" - {t[1:]}" if t[0] == "-" else f" + {t}" for t in others)

    def term(self, m: Monomial, c: Fraction, names: Names) -> str:
        """A product; what has negative exponents is below the line, but e^-x is not."""
        powers = sorted(m, key=lambda item: (isinstance(item[0], Sum), item[0].key))
        below = [(f, -p) for f, p in powers if p < 0 and not _is_exponential(f)]
        above = [self.power(f, p, names) for f, p in powers if (f, -p) not in below]
        sign, number = "-" if c < 0 else "", abs(c)
        if number != 1 or not above:
            above = [self.number(number, above or below), *above]
        match below:
            case [(Sum() as f, 1)]:
                return sign + self.quotient(above, [self.divisor(self.factor(f, names))])
        return sign + self.quotient(above, [self.power(f, p, names) for f, p in below])

    def power(self, f: Factor, p: Fraction, names: Names) -> str:
        """f^p, in parentheses if f is a sum."""
        if isinstance(f, Applied) and _is_exponential(f):
            return self.applied(f.function.name, self.expression(f.argument.scaled(p), names))
        base = self.factor(f, names)
        base = self.in_parentheses(base) if isinstance(f, Sum) else base
        return base if p == 1 else f"{base}^{self.exponent(p)}"

    def factor(self, f: Factor, names: Names) -> str:
        """A factor, with letters for the indices that it binds; as it occurs in many terms, it is written once."""
        return _written(self, f, tuple(names.items()))

    def written(self, f: Factor, names: Names) -> str:
        """A factor."""

        def name(i: Index) -> str:
            if isinstance(i, Reversed):
                return f"-{name(i.inner)}"
            if isinstance(k := unshifted(i)[0], Last):
                d = unshifted(i)[1]
                return str(d) if d > 0 else f"{k.size}{d or ''}"
            if isinstance(i, Shifted):
                return f"{name(i.inner)}{i.by:+}"
            return self.entry(i.label, list(map(name, i.arguments))) if isinstance(i, Label) else names.get(i, i.name)

        match f:
            case Entry() | Flag():
                return self.entry(f.name, [name(i) for i in f.indices])
            case Position():
                return name(f.index)
            case Order():
                return self.condition(f"{name(f.i)}{f' + {f.d - 1}' if f.d > 1 else ''} < {name(f.j)}")
            case Delta():
                (i, d), j = unshifted(f.i), f.j
                i, j = (i, shifted(j, -d)) if isinstance(unshifted(j)[0], Last) else (f.i, j)
                return self.condition(f"{name(i)}={name(j)}")
            case Step():
                relation = self.at_least_zero if f.relation == "≥" else "{} > 0".format
                return self.condition(relation(self.expression(f.argument, names)))
            case Applied():
                return self.applied(f.function.name, self.expression(f.argument, names))
            case Base():
                return self.in_parentheses(self.expression(f.expression, names))
            case Sum():
                new = names | dict(zip(f.bound, _letters(f, names), strict=False))
                return self.over("Σ", [new[i] for i in f.bound], self.term(f.body, Fraction(1), new))
            case Maximum():
                new = names | {f.index: next(_letters(f, names))}
                return self.over("max", [new[f.index]], self.in_parentheses(self.expression(f.argument, new)))
        return self.other(f.key)

    # -- notation -------------------------------------------------------------------------------
    in_parentheses: Callable[[str], str] = "({})".format
    divisor: Callable[[str], str] = in_parentheses  # a sum below a line
    condition, at_least_zero = "[{}]".format, "{} ≥ 0".format
    derivative, times = "∂{}/∂{}".format, "{}·{}".format
    applied: Callable[[str, str], str] = "{}({})".format
    other: Callable[[str], str] = str  # a constant such as π
    words: Callable[[str], str] = str  # a remark

    def number(self, c: Fraction, others: list[Any]) -> str:
        """A number before other factors."""
        return str(c) if c.denominator == 1 or not others else f"({c})"

    def quotient(self, above: list[str], below: list[str]) -> str:
        """Products of factors above and below a line."""
        product, divisor = "·".join(above), "·".join(below)
        return product if not below else f"{product} / {divisor if len(below) == 1 else f'({divisor})'}"

    def exponent(self, p: Fraction) -> str:
        """p, in parentheses if it needs them."""
        return str(p) if is_natural(p) else f"({p})"

    def entry(self, name: str, indices: list[str]) -> str:
        """name_ij, or name_i,t_i if an index has indices itself, or is another one with a number"""
        return name + (
            "_" + ("," if any(is_numbered(i) or "_" in i for i in indices) else "").join(indices) if indices else ""
        )

    def over(self, what: str, indices: Iterable[str], x: str) -> str:
        """Σ_k x, or max_k(x)"""
        return f"{what}_{''.join(indices)}{' ' if what == 'Σ' else ''}{x}"


TEXT = Text()


@lru_cache(KNOWN)
def _written(writer: Text, f: Factor, names: tuple[tuple[Index, str], ...]) -> str:
    return writer.written(f, dict(names))


class Latex(Text):
    """Expressions in LaTeX; a sum below a line needs no parentheses."""

    in_parentheses, divisor = staticmethod(parenthesized), str
    at_least_zero, exponent, words = r"{} \geq 0".format, "{{{}}}".format, r"\text{{{}}}".format
    derivative, times = r"\frac{{\partial {}}}{{\partial {}}}".format, r"{}\,{}".format
    other = staticmethod(lambda key: r"\pi" if key == "π" else key)

    def number(self, c: Fraction, others: list[Any]) -> str:
        """A number, as a fraction if it is one."""
        return str(c) if c.denominator == 1 else rf"\frac{{{c.numerator}}}{{{c.denominator}}}"

    def quotient(self, above: list[str], below: list[str]) -> str:
        """A fraction."""
        product, divisor = r"\,".join(above), r"\,".join(below)
        return product if not below else rf"\frac{{{product}}}{{{divisor}}}"

    def entry(self, name: str, indices: list[str]) -> str:
        """x_{ij}, with the symbols of the paper."""
        of = symbol(name[1:]) if name[0] == "D" and len(name) > 1 else None
        tex = rf"\mathsf{{D}}{of}" if of and not name[1].islower() else symbol(name)
        return tex + (f"_{{{(',' if any(map(is_numbered, indices)) else '').join(indices)}}}" if indices else "")

    def applied(self, function: str, x: str) -> str:
        """f(x), and e^x."""
        return f"e^{{{x}}}" if function == "exp" else function_symbol(function) + parenthesized(x)

    def over(self, what: str, indices: Iterable[str], x: str) -> str:
        """A sum or a maximum."""
        operator = {"Σ": r"\sum", "max": r"\max"}[what]
        return f"{operator}_{{{''.join(indices)}}} {x}"


def is_numbered(i: str) -> bool:
    """Whether an index is written with a number, as k+1, T-1 or 1."""
    return bool(re.search(r".[+-]\d+$|^\d", i))


def _is_exponential(f: Factor) -> bool:
    return isinstance(f, Applied) and f.function.name == "exp"


def _letters(f: Factor, names: Names) -> Iterator[str]:
    """Letters for bound indices, other than those of other indices."""
    used = {*names.values(), *(names.get(i, i.name) for i in f.free)}
    return (letter for letter in (*LETTERS, *(f"k{n}" for n in range(100))) if letter not in used)
