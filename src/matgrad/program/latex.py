r"""Programs as equations in LaTeX, in the paper's notation."""

from __future__ import annotations

import re
from typing import Any

from matgrad.foundation.notation import POWER, is_word, parenthesized, symbol
from matgrad.program.operations import Level
from matgrad.program.program import Program, Value
from matgrad.program.shapes import Size, size_name
from matgrad.program.text import TINY, Printer


def program_latex(program: Program) -> str:
    """The inputs, and one line of an ``align*`` environment for each line of the program's text."""
    printer = LatexPrinter(program)
    given = ", ".join(f"${x}$" for x in printer.given())
    lines = " \\\\\n".join(f"{name} &= {expression}" for name, expression in printer.equations())
    return f"\\allowdisplaybreaks\nGiven {given}:\n\\begin{{align*}}\n{lines}\n\\end{{align*}}"


class LatexPrinter(Printer):
    """Names and expressions in LaTeX."""

    style = "latex"
    times, top = r" \cdot ", r"^\top"
    parenthesized = staticmethod(parenthesized)

    def given(self) -> list[str]:
        """The inputs, each with the set that it belongs to."""
        return [rf"{self.name(self.names[x])[0]} \in {_set(x)}" for x in self.inputs()]

    def name(self, name: str) -> tuple[str, Level]:
        r"""``DZ1`` is \mathsf{D}Z_1, ``W2.1.delta'`` \Delta_{W_{2.1}}', and Z1ᵀ, stored transposed, Z_1^\top."""
        if name.endswith("ᵀ"):
            text, binds = self.name(name[:-1])
            return (text if binds == "atom" else parenthesized(text)) + self.top, "unary"
        variable, suffix = re.fullmatch(r"(.*?(?:\.\d+)*)(?:\.(\D.*))?", name.rstrip("'")).groups()  # type: ignore[union-attr]
        primes = name[len(name.rstrip("'")) :]
        if suffix:
            text, of = _symbol(suffix)[0], _symbol(variable)[0]
            return rf"{f'{{{text}}}' if '_' in text else text}_{{{of}}}{primes}", "atom"
        return _symbol(variable + primes)

    def number(self, x: Any) -> tuple[str, Level]:
        """A number in decimal notation, or the name of a size."""
        if x in TINY:
            return r"\mathrm{tiny}", "atom"
        mantissa, e, exponent = (x.name if isinstance(x, Size) else f"{x:g}").partition("e")
        text = rf"{mantissa} \cdot 10^{{{int(exponent)}}}".removeprefix(r"1 \cdot ") if e else mantissa
        return text, "sum" if text.startswith("-") else "scaled" if e else "atom"

    def size(self, n: Any) -> str:
        """A size as an index, in braces if it is long."""
        return str(n) if len(str(n)) == 1 else f"{{{n}}}"


def _symbol(name: str) -> tuple[str, Level]:
    """A variable; its last digits, if any, are the number of its layer, such as 2, or 2.1 for a part of it."""
    plain, index, primes = re.fullmatch(r"(.*?)((?:\d+\.)*\d*)('*)", name.replace("η", "eta")).groups()  # type: ignore[union-attr]
    is_part = "." in index
    tex = symbol(plain if is_part else f"{plain}{index}{primes}")
    if tex.level == POWER:
        return (f"({tex.text})_{{{index}}}{primes}" if is_part else tex.text), "unary"
    if not is_part and (not index or not is_word(f"{plain}{index}")):
        return tex.text, "atom"
    base, _, lower = symbol(plain).text.partition("_")
    return rf"{base}_{{{f'{lower},' if lower else ''}{index}}}{primes}", "atom"


def _set(x: Value) -> str:
    """The set that an input belongs to."""
    numbers = rf"\mathbb{{{'R' if x.dtype.startswith('float') else 'Z'}}}"
    sizes = r" \times ".join(str(size_name(n)) for n in x.shape)
    return f"{numbers}^{{{sizes}}}" if sizes else numbers
