r"""Equations in LaTeX, as the paper writes them, Y = \sigma(X W^\top + 1_N b), in the notation of the table."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple

from matgrad.writers.typed import FUNCTIONS

TOKEN = re.compile(
    r"\\(?:mathsf|mathrm|mathbf|operatorname|text)\{(?P<word>[^{}]*)\}|(?P<command>\\[A-Za-z]+)"
    rf"|(?P<function>{'|'.join(sorted(FUNCTIONS, key=len, reverse=True))})"
    r"|(?P<number>\d+(?:\.\d+)?)|(?P<letter>[A-Za-z])|(?P<sign>\S)"
)
SPACES = re.compile(r"\\left|\\right|\\[,;:! ]|\\quad|\\displaystyle|[&$~]|\\\\$")
NAMES = {"\\sigma": "Sigmoid", "relu": "ReLU", "\\exp": "exp", "\\log": "log", "\\tanh": "tanh"}
DECLARATION = re.compile(r"(\w+)\s*\\in\s*\\(?:mathbb|R)\{?R?\}?\^\{\s*(\w+)\s*\\times\s*(\w+)\s*\}")


class Part(NamedTuple):
    """A part of an equation as code, and whether it is a number or a size."""

    code: str
    is_scalar: bool = False


def is_latex(text: str) -> bool:
    """Whether equations are in LaTeX."""
    return "\\" in text


def translated(text: str) -> str:
    """All equations and declarations, W \\in \\mathbb{R}^{K \\times D}, in the notation of the table."""
    lines = [SPACES.sub(" ", line).strip() for line in re.split(r"\\\\\s*\n|[;\n]", text)]
    lines = [DECLARATION.sub(r"\1: \2 \3", line) for line in lines if line and not re.match(r"\\(begin|end)\b", line)]
    declared = [re.fullmatch(r"\w+\s*:\s*(\w+)\s+(\w+)", line) for line in lines]
    sizes = {"N", "D"} | {size for match in declared if match for size in match.groups()}
    return "\n".join(
        line if match else Reader(line, sizes).equation() for line, match in zip(lines, declared, strict=True)
    )


class Reader:
    """A reader of one equation, token by token."""

    def __init__(self, line: str, sizes: Collection[str]) -> None:
        self.line, self.sizes = line, sizes
        self.tokens = [m["word"] or m[0] for m in TOKEN.finditer(line)]

    def fail(self, expected: str) -> ValueError:
        """What is wrong."""
        found = self.tokens[0] if self.tokens else "the end of it"
        return ValueError(f"{self.line!r}: expected {expected}, found {found}")

    def next(self) -> str:
        """The next token, which is read."""
        if not self.tokens:
            raise self.fail("an operand")
        return self.tokens.pop(0)

    def take(self, *wanted: str) -> str:
        """The next token if it is one of those that are wanted; otherwise nothing is read."""
        return self.tokens.pop(0) if self.tokens and self.tokens[0] in wanted else ""

    def want(self, token: str) -> None:
        """Read a token that must be there."""
        if not self.take(token):
            raise self.fail(repr(token))

    def equation(self) -> str:
        """name = sum"""
        name = self.name(self.next())
        self.want("=")
        found = self.sum()
        if self.tokens:
            raise self.fail("an operator")
        return f"{name} = {found.code}"

    def sum(self) -> Part:
        """Terms."""
        first = f"-{self.product().code}" if self.take("-") else ""
        found = Part(first) if first else self.product()
        while sign := self.take("+", "-"):
            term = self.product()
            found = Part(f"{found.code} {sign} {term.code}", found.is_scalar and term.is_scalar)
        return found

    def product(self) -> Part:
        """Factors, with ⊙, · or nothing between them."""
        found = self.power()
        while self.tokens and self.tokens[0] not in ("+", "-", ")", "}", "]", "=", ","):
            if self.take("\\odot", "\\circ"):
                found = Part(f"hadamard({found.code}, {self.power().code})")
            elif self.take("/"):
                found = divided(found, self.power())
            else:
                self.take("\\cdot", "\\times")
                other = self.power()
                sign = "*" if found.is_scalar or other.is_scalar else "@"
                found = Part(f"{found.code} {sign} {other.code}", found.is_scalar and other.is_scalar)
        return found

    def power(self) -> Part:
        """An atom, transposed or with an exponent."""
        found = self.atom()
        while self.take("^"):
            exponent = self.group()
            if exponent.code in ("top", "T"):
                found = Part(f"{found.code}.T")
            elif found.code == "e":
                found = Part(f"exp({exponent.code})")
            elif found.is_scalar:
                found = Part(f"{found.code} ** {exponent.code}", True)
            elif exponent.code in ("2", "-1"):
                found = Part(
                    f"hadamard({found.code}, {found.code})" if exponent.code == "2" else f"reciprocal({found.code})"
                )
            else:
                raise self.fail("an exponent \\top, 2 or -1 of a matrix")
        return found

    def group(self) -> Part:
        """{sum}, or one token."""
        if self.take("\\top"):
            return Part("top")
        if not self.take("{"):
            return self.atom()
        found = Part("top") if self.take("\\top") else self.sum()
        self.want("}")
        return found

    def atom(self) -> Part:
        """A number, a name, 1_N, a fraction, a function, or a sum in parentheses."""
        token = self.next()
        if token == "(":
            found = self.sum()
            self.want(")")
            return Part(f"({found.code})", found.is_scalar)
        if token == "\\frac":
            return divided(self.group(), self.group())
        if token[0].isdigit():
            return Part(f"ones({self.group().code}, 1)") if token == "1" and self.take("_") else Part(token, True)
        name = self.name(token)
        if name in FUNCTIONS or f"{name}'" == token:
            slope = "'" if self.take("'") else ""
            self.want("(")
            inner = self.sum()
            self.want(")")
            return Part(f"{name}{slope}({inner.code})")
        return Part(name, name in self.sizes)

    def name(self, token: str) -> str:
        """A name: X, \\gamma, \\mathsf{D}X, W_1, or a function."""
        token = NAMES.get(token, token).removeprefix("\\")
        if token == "D" and self.tokens and re.fullmatch(r"\\?[A-Za-z]\w*", self.tokens[0]):
            token += self.name(self.next())
        if not re.fullmatch(r"[A-Za-z]\w*", token):
            raise ValueError(f"{self.line!r}: expected a name, found {token}")
        return f"{token}_{self.group().code}" if self.take("_") else token


def divided(a: Part, b: Part) -> Part:
    """a / b, element by element if b is a matrix."""
    if b.is_scalar:
        return Part(f"({a.code}) / ({b.code})", a.is_scalar)
    return Part(f"hadamard({a.code}, reciprocal({b.code}))")
