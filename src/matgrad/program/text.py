"""Programs as equations: in characters, in LaTeX in the paper's notation, and as Python over the table."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np

from matgrad.backends.base import DTYPES
from matgrad.foundation.notation import aligned, is_power, is_word, parenthesized, symbol
from matgrad.layers.state import SUPPORT
from matgrad.program.operations import LEVELS, ROWS, Level, Style
from matgrad.program.program import Program, Value
from matgrad.program.shapes import TIMES, Size, size_name

TINY = tuple(float(np.finfo(dtype).tiny) for dtype in DTYPES)  # what `positive` adds, which changes nothing but zeros
Piece = tuple[str, Level]  # an expression, and how tightly it binds
DEEPEST = 25  # the most operations nested in one line; a deeper value gets a line of its own


class Printer:
    """Names for the values of a program, and their expressions; a subclass may write them differently.

    Unless it `is_opened`, the program has softmax(Y) and the like in place of their steps.
    """

    style: Style = "text"
    times, top, like = "·", "ᵀ", ""
    parenthesized: Callable[[str], str] = "({})".format

    def __init__(self, program: Program, *, is_opened: bool = True) -> None:
        self.classes = [] if is_opened else [x for x in map(_of_classes, program.values) if x is not None]
        program = self.program = program if is_opened else named(program)
        self.names: dict[Value, str] = {}
        outputs = {value: name for name, value in program.outputs.items()}
        uses = program.uses()
        taken = {state_name(x.name).rstrip("ᵀ") for x in program.values}
        temporary = map(f"{_free_letter(taken | {x.name for x in program.values})}{{}}".format, count(1))
        depths: dict[Value, int] = {}
        for value in program.values:
            depths[value] = 1 + max((depths[x] for x in value.operands if x not in self.names), default=0)
            if value.operation in ("input", "support"):
                self.names[value] = state_name(value.name)
            elif value in outputs and value.operation != "number":
                self.names[value] = self._output_name(outputs[value])
            elif value.operation != "number" and value.kind != "view":
                is_shared = uses[value] > 1 and not (value.is_scalar and value.operation == "negative")
                if value.name and value.name not in self.names.values():
                    self.names[value] = value.name
                elif depths[value] > DEEPEST or is_shared:
                    self.names[value] = next(temporary)

    def name(self, name: str) -> Piece:
        """A name as it is written, and how tightly it binds."""
        return name, "atom"

    def number(self, x: Any) -> Piece:
        """A number, or the name of a size, and how tightly it binds."""
        return "tiny" if x in TINY else size_name(x) if isinstance(x, Size) else f"{x:g}", "atom"

    def size(self, n: Any) -> str:
        """A size, or its name, as the index of a matrix."""
        return f"({n})" if "/" in str(n) else str(n)

    def given(self) -> list[str]:
        """The inputs that are read, each with the set that it belongs to."""
        inputs = [x for x in self.program.values if x.operation == "input"]
        given = [self.member(x, list(map(str, map(size_name, x.shape)))) for x in inputs]
        return [*given, *(f"{self.expression(x)[0]} = 1_{self.size(size_name(x.shape[0]))}" for x in self.classes[:1])]

    def member(self, x: Value, sizes: list[str]) -> str:
        """An input with the set that it belongs to."""
        return f"{self.names[x]} {'×'.join(sizes)}".strip()

    def lines(self) -> list[Value]:
        """The values that have an equation of their own."""
        return [x for x in self.program.instructions if x in self.names]

    def equations(self) -> list[tuple[str, str]]:
        """Names and expressions; outputs without an equation of their own come at the end."""
        equations = [(self.name(self.names[x])[0], self.expression(x)[0]) for x in self.lines()]
        for name, x in self.program.outputs.items():
            if self.names.get(x) not in (state_name(name), f"{state_name(name)}'"):
                equations.append((self.name(self._output_name(name))[0], self.operand(x, "sum")))
        return equations

    def text(self) -> str:
        """The inputs, and one line for every value that has a name, is an output or is used twice, in order."""
        equations = self.equations()
        width = max((len(name) for name, _ in equations), default=0)
        return "\n".join([f"given {', '.join(self.given())}", "", *(f"{x:<{width}} = {text}" for x, text in equations)])

    def _output_name(self, name: str) -> str:
        """The name of an output, with a prime where it replaces an input."""
        return f"{state_name(name)}'" if name in self.program.inputs else state_name(name)

    def operand(self, value: Value, level: str) -> str:
        """The operand as a name or an expression, in parentheses if it binds less tightly than `level`."""
        text, binds = self.name(self.names[value]) if value in self.names else self.expression(value)
        return text if LEVELS.index(binds) >= LEVELS.index(level) else self.parenthesized(text)

    def expression(self, value: Value) -> Piece:
        """The expression that gives a value, and how tightly it binds."""
        if value.operation == "number":
            return self.number(value.number)
        if value.operation == "input":
            return self.name(value.name)
        if value.operation == "hadamard" and value.operands[1].number is not None and self.style != "code":
            value = replace(value, operands=value.operands[::-1])  # a number comes first
        row = ROWS[value.operation]
        template, binds = row.notation(self.style, value)
        sizes = row.shapes.sizes(value.shape, [x.shape for x in value.operands]) or {}
        named = {name: self.size(size_name(n)) for name, n in sizes.items()} | {"like": self.like}
        return template.format(*(_Operand(self, x) for x in value.operands), **named), binds

    def signed(self, factor: Value) -> str:
        """``+ c·`` or ``- c·`` before a term, by the sign of the factor; c is omitted if it is 1."""
        if factor.number is not None:
            absolute = replace(factor, number=abs(factor.number))
            return f"{'-' if factor.number < 0 else '+'} {self.factor(absolute)}"
        if factor.operation == "negative" and factor not in self.names:
            return f"- {self.factor(factor.operands[0])}"
        return f"+ {self.factor(factor)}"

    def factor(self, factor: Value) -> str:
        """``c·`` before a term; nothing if the factor c is 1."""
        return "" if factor.number == 1 else f"{self.operand(factor, 'atom')}{self.times}"

    def transposed(self, value: Value) -> str:
        """Xᵀ"""
        transpose = value.operation == "transpose" and value not in self.names
        return self.operand(value.operands[0], "atom") if transpose else f"{self.operand(value, 'atom')}{self.top}"

    def base(self, value: Value) -> str:
        """The base of a power: an atom without a sign."""
        text = self.operand(value, "atom")
        return self.parenthesized(text) if text.startswith("-") else text


def _free_letter(names: set[str]) -> str:
    """A letter that begins no name of one letter and a number, whether small or large."""
    used = {name[0].upper() for name in names if re.fullmatch(r"\w[\d.]*'*", name)}
    return next(letter for letter in "UVGHQCAE" if letter not in used)


class LatexPrinter(Printer):
    """Names and expressions in LaTeX."""

    style = "latex"
    times, top = r" \cdot ", r"^\top"
    parenthesized = staticmethod(parenthesized)

    def member(self, x: Value, sizes: list[str]) -> str:
        """An input with the set that it belongs to."""
        numbers, power = "R" if x.dtype.startswith("float") else "Z", r" \times ".join(sizes)
        return rf"{self.name(self.names[x])[0]} \in \mathbb{{{numbers}}}" + (f"^{{{power}}}" if power else "")

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
        if isinstance(x, Size):
            return x.name.replace(TIMES, self.times), "scaled" if TIMES in x.name else "atom"
        mantissa, e, exponent = f"{x:g}".partition("e")
        text = rf"{mantissa} \cdot 10^{{{int(exponent)}}}".removeprefix(r"1 \cdot ") if e else mantissa
        return text, "sum" if text.startswith("-") else "scaled" if e else "atom"

    def size(self, n: Any) -> str:
        """A size as an index, in braces if it is long."""
        return str(n) if len(str(n)) == 1 else f"{{{n}}}"


class CodePrinter(Printer):
    """Writes values as Python expressions; those in `names` as names. New matrices are made like `like`."""

    style = "code"

    def __init__(self, names: dict[Value, str], like: str) -> None:
        self.names, self.like = names, like

    def number(self, x: Any) -> Piece:
        """A number or a size, and how tightly it binds."""
        if isinstance(x, Size):
            return self.size(x.name), "product" if TIMES in x.name else "atom"
        return repr(x), "atom" if x >= 0 else "unary"

    def size(self, n: Any) -> str:
        """A size, or a product of sizes."""
        return str(n).replace(TIMES, " * ")


class _Operand:
    """An operand in a template."""

    def __init__(self, printer: Printer, value: Value) -> None:
        self.printer, self.value = printer, value

    def __format__(self, mark: str) -> str:
        if mark in LEVELS:
            return self.printer.operand(self.value, mark)
        return getattr(self.printer, mark)(self.value)


def named(program: Program, *, are_classes: bool = True) -> Program:
    """The program for people: softmax(Y), and whatever else is a composed operation, without its steps.

    T 1 = 1 for targets of classes, so that softmax(Y) ⊙ (T 1 1ᵀ) = softmax(Y), unless `are_classes` is false.
    """

    def change(value: Value, own: Value) -> Value:
        if are_classes and _of_classes(value) is not None:
            return own.operands[0]
        if own.composed is None:
            return own
        return replace(own.composed, name=own.name, equation=own.equation, order=own.order)

    return program.mapped(change)


def _of_classes(value: Value) -> Value | None:
    """T 1, if the value is softmax(Y) ⊙ (T 1 1ᵀ), for targets T."""
    match value:
        case Value(operation="hadamard", operands=(Y, Value(operation="column_repeat", operands=(total,)))):
            is_of_targets = total.operation == "rows_sum" and total.operands[0].name == "T"
            return total if Y.composed and is_of_targets and total.operands[0].operation == "input" else None
    return None


def state_name(name: str) -> str:
    """The name that an entry of the state has in equations: W1 for '1.W', W1.delta for '1.W.delta', W3.1 for '3.1.W'.

    The support of W1 is S1.
    """
    if name.endswith("ᵀ"):
        return f"{state_name(name[:-1])}ᵀ"
    state = re.fullmatch(r"([\d.]+)\.(\w+)(.*)", name)
    if state is None:
        return {"eta": "η"}.get(name, name)
    layer, parameter, rest = state.groups()
    if rest == SUPPORT:
        return f"S{'' if parameter == 'W' else f'_{parameter}'}{layer}"
    return f"{parameter}{layer}{rest}"


def fused(before: Program, after: Program) -> dict[str, list[str]]:
    """The values with a name that a program has and another computes as a part of these, such as DW1 of W1.delta'."""
    printer, kept = Printer(before), {name.rstrip("ᵀ") for name in Printer(after).names.values()}
    parts: dict[Value, list[str]] = {}
    for value in reversed(before.values):  # readers before what they read
        name = printer.names.get(value, "")
        own = [name] if name in kept else parts.get(value, [])
        for x in value.operands:
            parts[x] = [*dict.fromkeys([*parts.get(x, []), *own])]
    found = {printer.names.get(x, ""): parts.get(x, []) for x in before.instructions if x.name}
    return {name: of for name, of in found.items() if name and name not in kept}


# -- LaTeX -------------------------------------------------------------------------------------


def program_latex(program: Program, *, is_opened: bool = False) -> str:
    """The inputs, and one line of an ``align*`` environment for each line of the program's text."""
    printer = LatexPrinter(program, is_opened=is_opened)
    given = ", ".join(f"${x}$" for x in printer.given())
    lines = aligned(f"{name} &= {expression}" for name, expression in printer.equations())
    return f"\\allowdisplaybreaks\nGiven {given}:\n{lines}"


def _symbol(name: str) -> tuple[str, Level]:
    """A variable; its last digits, if any, are the number of its layer, such as 2, or 2.1 for a part of it."""
    plain, index, primes = re.fullmatch(r"(.*?)((?:\d+\.)*\d*)('*)", name.replace("η", "eta")).groups()  # type: ignore[union-attr]
    is_part = "." in index
    tex = symbol(plain if is_part else f"{plain}{index}{primes}")
    if is_power(tex):
        return (f"({tex})_{{{index}}}{primes}" if is_part else tex), "unary"
    if not is_part and (not index or not is_word(f"{plain}{index}")):
        return tex, "atom"
    base, _, lower = symbol(plain).partition("_")
    return rf"{base}_{{{f'{lower},' if lower else ''}{index}}}{primes}", "atom"
