"""Programs as equations for people to read, and values as Python expressions over the table of operations."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np

from matgrad.backends.base import DTYPES
from matgrad.layers.state import SUPPORT
from matgrad.program.operations import LEVELS, ROWS, Level, Style
from matgrad.program.program import Program, Value
from matgrad.program.shapes import TIMES, Size, size_name

TINY = tuple(float(np.finfo(dtype).tiny) for dtype in DTYPES)  # what `positive` adds, which changes nothing but zeros
Piece = tuple[str, Level]  # an expression, and how tightly it binds
DEEPEST = 25  # the most operations nested in one line; a deeper value gets a line of its own


class Printer:
    """Names for the values of a program, and their expressions; a subclass may write them differently."""

    style: Style = "text"
    times, top, like = "·", "ᵀ", ""
    parenthesized: Callable[[str], str] = "({})".format

    def __init__(self, program: Program) -> None:
        self.program = program
        self.names: dict[Value, str] = {}
        outputs = {value: name for name, value in program.outputs.items()}
        uses = program.uses()
        taken = {state_name(x.name).rstrip("ᵀ") for x in program.values}
        temporary = (name for name in map("t{}".format, count(1)) if name not in taken)
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

    def inputs(self) -> list[Value]:
        """The inputs that are read."""
        return [x for x in self.program.values if x.operation == "input"]

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
        sizes = {x: "×".join(str(size_name(n)) for n in x.shape) for x in self.inputs()}
        inputs, equations = [f"{self.names[x]} {sizes[x]}".strip() for x in sizes], self.equations()
        width = max((len(name) for name, _ in equations), default=0)
        lines = [f"given {', '.join(inputs)}", "", *(f"{name:<{width}} = {text}" for name, text in equations)]
        return "\n".join(lines)

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

    def expression(self, value: Value) -> Piece:
        """The expression that gives a value, and how tightly it binds."""
        return (value.name, "atom") if value.operation == "input" else super().expression(value)


class _Operand:
    """An operand in a template."""

    def __init__(self, printer: Printer, value: Value) -> None:
        self.printer, self.value = printer, value

    def __format__(self, mark: str) -> str:
        if mark in LEVELS:
            return self.printer.operand(self.value, mark)
        return getattr(self.printer, mark)(self.value)


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
