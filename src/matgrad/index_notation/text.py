"""Expressions as text: Σ_k x_ik·w_jk + b_j."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from matgrad.index_notation.entries import Delta, Entry
from matgrad.index_notation.expressions import Expression, Factor, Index, Monomial, monomial_key
from matgrad.index_notation.functions import Applied, Maximum, Step
from matgrad.index_notation.powers import Base
from matgrad.index_notation.sums import Sum

Names = dict[Index, str]  # how indices are written
LETTERS = "klmnpqrstuvw"


def text(e: Expression, names: Names | None = None) -> str:
    """The expression as text; `names` has the indices that are written in another way than they are called."""
    names = names or {}
    items = sorted(e.terms.items(), key=lambda item: (item[1] < 0, monomial_key(item[0])))
    terms = [_term(m, c, names) for m, c in items]
    first, *others = terms or ["0"]
    return first + "".join(f" - {t[1:]}" if t[0] == "-" else f" + {t}" for t in others)


def _term(m: Monomial, c: Fraction, names: Names) -> str:
    factors = [_power(f, p, names) for f, p in sorted(m, key=lambda item: (isinstance(item[0], Sum), item[0].key))]
    sign, number = "-" if c < 0 else "", str(abs(c))
    if number == "1" and factors:
        return sign + "·".join(factors)
    return sign + "·".join([number if c.denominator == 1 else f"({number})", *factors])


def _power(f: Factor, p: Fraction, names: Names) -> str:
    base = _factor(f, names)
    if p == 1:
        return f"({base})" if isinstance(f, Sum) else base
    return f"{f'({base})' if isinstance(f, Sum) else base}^{p if is_plain(p) else f'({p})'}"


def is_plain(p: Fraction) -> bool:
    """Whether an exponent needs no parentheses."""
    return p.denominator == 1 and p >= 0


def _factor(f: Factor, names: Names) -> str:
    def name(i: Index) -> str:
        return names.get(i, i.name)

    match f:
        case Entry():
            return f.name + ("_" + "".join(map(name, f.indices)) if f.indices else "")
        case Delta():
            return f"[{name(f.i)}={name(f.j)}]"
        case Step():
            return f"[{text(f.argument, names)} ≥ 0]"
        case Applied():
            return f"{f.function.name}({text(f.argument, names)})"
        case Base():
            return f"({text(f.expression, names)})"
        case Sum():
            new = names | dict(zip(f.bound, _letters(f, names), strict=False))
            return f"Σ_{''.join(new[i] for i in f.bound)} {_term(f.body, Fraction(1), new)}"
        case Maximum():
            new = names | {f.index: next(_letters(f, names))}
            return f"max_{new[f.index]}({text(f.argument, new)})"
    return f.key


def _letters(f: Factor, names: Names) -> Iterator[str]:
    """Letters for bound indices, other than those of the free indices."""
    used = {names.get(i, i.name) for i in f.free}
    return (letter for letter in (*LETTERS, *(f"k{n}" for n in range(100))) if letter not in used)
