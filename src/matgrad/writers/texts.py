"""What verdicts say: a missing term or factor first, in the names of the code, and the line that computes it."""

from __future__ import annotations

import linecache
import re
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from matgrad.index_notation import text as notation
from matgrad.index_notation.conditions import Step
from matgrad.index_notation.expressions import Condition, Entry, Expression, UndefinedError, is_equal, product
from matgrad.index_notation.functions import Maximum
from matgrad.index_notation.indices import Index
from matgrad.index_notation.powers import parts
from matgrad.index_notation.rules import folded
from matgrad.writers.slots import Key, indices
from matgrad.writers.tensors import Tensor, entry_name
from matgrad.writers.verdicts import Formula

LIBRARIES = (str(Path(__file__).parent), str(Path(traceback.__file__).parent))
LETTERS = "ijklmnpqrstuv"
ROUNDING = 1e-6  # relative: constants that are written with 7 digits
text = notation.text
TEXT, TEX = notation.Text(), notation.Latex()
DOTS = {TEXT: "·", TEX: r"\cdot"}
Kink = Step | Maximum
Definitions = Sequence[tuple[Entry, Expression]]


def shorten(x: str, length: int) -> str:
    """A text that is not too long."""
    return x if len(x) <= length else x[:length] + " …"


def is_name(x: str) -> bool:
    """Whether entries can be called so."""
    return bool(re.fullmatch(r"[^\W_]\w*", x))


def source(file: str, line: int) -> str:
    """file:line: the code"""
    return f"{Path(file).name}:{line}: {linecache.getline(file, line).strip()}"


def place_of(error: BaseException) -> str:
    """The last line of the user's code that an error passed."""
    files = [(f.filename, f.lineno or 0) for f in traceback.extract_tb(error.__traceback__)]
    if found := getattr(error, "place", None):
        return f", in {source(*found)}"
    own = [f for f in files if f[0].endswith(".py") and not f[0].startswith(LIBRARIES) and "site-packages" not in f[0]]
    return f", in {source(*own[-1])}" if own else ""


def difference(
    n: str, key: Key, x: Tensor, forms: tuple[Expression, Expression, Expression], is_factor: bool
) -> list[Formula]:
    """How the returned gradient differs from the true one: the missing factor or term, and then both."""
    returned, missing, true = forms
    names = letters(x)
    slope, latex = derivative(n, key, names)
    if is_factor:
        first = Formula(
            f"{slope}: true = returned · {text(missing)}",
            rf"{latex} = \text{{returned}} \cdot {TEX.expression(missing, {})}",
        )
    else:
        first = Formula(
            f"{slope}: true − returned = {shorten(factored(TEXT, missing, names), 600)}",
            rf"{latex} - \text{{returned}} = {factored(TEX, missing, names)}",
        )
    others = [
        Formula(f"    {what:<8} {shorten(text(e, names), 300)}", rf"\text{{{what}: }} {TEX.expression(e, names)}")
        for what, e in (("returned", returned), ("true", true))
    ]
    return [first, *others]


def equation(left: tuple[str, str], e: Expression, x: Tensor) -> Formula:
    """left = e, for a left side as text and in LaTeX, of an entry of a tensor."""
    names = letters(x)
    return Formula(f"{left[0]} = {shorten(text(e, names), 600)}", f"{left[1]} = {TEX.expression(e, names)}")


def letters(t: Tensor) -> dict[Index, str]:
    """How the indices of a tensor are written."""
    return dict(zip(indices(t.dims), LETTERS, strict=False))


def entry(name: str, key: Key, names: dict[Index, str]) -> tuple[str, str]:
    """x_ij, as text and in LaTeX."""
    found = [writer.entry(entry_name(name, key), list(names.values())) for writer in (TEXT, TEX)]
    return found[0], found[1]


def derivative(name: str, key: Key, names: dict[Index, str]) -> tuple[str, str]:
    """∂/∂x_ij, as text and in LaTeX."""
    x, latex = entry(name, key, names)
    return TEXT.derivative("", x), rf"\frac{{\partial}}{{\partial {latex}}}"


def short(e: Expression, definitions: Definitions) -> Expression:
    """The shortest form with variables of the code in place of what they are."""
    for entry, definition in definitions:
        found = folded(e, entry, definition)
        e = found if len(found.key) < len(e.key) else e
    return e


def factored(writer: notation.Text, e: Expression, names: dict[Index, str]) -> str:
    """(the rest)·content, which shows a missing factor as such"""
    if len(e.terms) > 1 and not any(isinstance(f, Condition) for f in e.factors()):
        with suppress(UndefinedError):
            c, content, base = parts(e, whole=True)
            if base is not None and content:
                outside, rest = product(content.items()).scaled(c), writer.expression(base.expression, names)
                return f"{writer.in_parentheses(rest)} {DOTS[writer]} {writer.expression(outside, names)}"
    return writer.expression(e, names)


def ratio(a: Expression, b: Expression) -> Expression | None:
    """r, of numbers and sizes, for which b = r·a."""
    for m, c in list(a.terms.items())[:1]:
        for n, d in b.terms.items():
            try:
                r = (product(n) / product(m)).scaled(d / c)
            except UndefinedError:  # of conditions
                continue
            if all(isinstance(f, Entry) and f.is_unit for f in r.factors()) and is_equal(a * r, b):
                return r
    return None


def is_rounding(e: Expression, a: Expression, b: Expression) -> bool:
    """Whether the difference e of a and b has relatively small coefficients on terms that they have."""
    scales = {m: max(abs(float(x.terms.get(m, 0))) for x in (a, b)) for m in e.terms}
    return all(abs(c) <= ROUNDING * scales[m] for m, c in e.terms.items())


def kinks(tensors: Sequence[Tensor]) -> dict[str, Kink]:
    """Where conditions and maxima change, which is excluded, in words."""
    found: dict[str, tuple[str, Kink]] = {}
    for t in tensors:
        for f in (f for e in t.data.values() if isinstance(e, Expression) for f in e.inner()):
            if not isinstance(f, Step | Maximum):
                continue
            shape, names = f.shape({i: i.size for i in f.free}), letters(t)
            bound = sorted(f.free - names.keys(), reverse=True)
            names |= dict(zip(bound, (x for x in LETTERS if x not in names.values()), strict=False))
            if isinstance(f, Step) and not any(isinstance(g, Maximum) for g in f.argument.inner()):
                found.setdefault(shape, (f"{text(f.argument, names)} = 0", f))
            if isinstance(f, Maximum):
                found.setdefault(shape, ("two are the greatest", f))
    return dict(found.values())


def either(shown: Sequence[str]) -> str:
    """a, b or c"""
    return " or ".join(shown[:4]) + (" …" if len(shown) > 4 else "")
