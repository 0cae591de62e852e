"""What a feedforward comes from: the code of a layer, or equations in the notation of the table."""

from __future__ import annotations

import ast
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from matgrad import matrix_operations, softmax_functions
from matgrad.activation_functions import ACTIVATIONS, create_activation
from matgrad.derivation.backpropagation import Feedforward
from matgrad.judges import definitions
from matgrad.judges.definitions import ArbitraryActivation
from matgrad.judges.index_judge import Symbols
from matgrad.program.entries import lifted, symbols
from matgrad.program.shapes import Questions, Size

SOFTMAX = {name: getattr(softmax_functions, name) for name in definitions.SOFTMAX}
IGNORED = ("apply", "uniform", "product_on", "positive")  # of the table: they are not for equations
TABLE = {
    **{name: getattr(matrix_operations, name) for name in matrix_operations.__all__ if name not in IGNORED},
    **{name: partial(getattr(matrix_operations, name), like=lifted(1)) for name in ("ones", "zeros", "identity")},
}
FUNCTIONS = (*sorted(TABLE), *SOFTMAX, *ACTIVATIONS)
EXPECTED = "expected NAME = EXPRESSION, or NAME: ROWS COLUMNS"
ALLOWED = "the operators + - * / @ ** and .T, numbers, sizes, names, and operations of the table"
DECLARATION = re.compile(r"(\w+)\s*:\s*(\w+)(?:\s*[x×,]\s*|\s+)(\w+)\s*(?:=\s*(\S+))?")


class Values(NamedTuple):
    """Inputs in index notation by name, the feedforward as a function of X, and what it asks about sizes."""

    inputs: dict[str, Any]
    feedforward: Callable[[Any], Any]
    questions: Questions


class Source(ABC):
    """A feedforward, and its values in index notation."""

    class_name: str  # of the derived layer, if it is given no other
    feedforward: Feedforward
    functions: dict[str, str]  # the activation functions by their names in the equations, with their specifications
    initial: dict[str, float | None]  # what the inputs begin with, if that is known

    @abstractmethod
    def values(self, ones: frozenset[str], keep_numbers: bool) -> Values:
        """The values of the inputs in index notation; sizes in `ones` are 1."""


class TextSource(Source):
    """Equations such as ``gamma: 1 D = 1; s = inv_sqrt(rows_mean(hadamard(X, X))); Y = …``.

    ``name: rows columns`` declares a parameter, ``= number`` says what it begins with; X is N×D unless it is declared.
    """

    def __init__(self, text: str, name: str = "New") -> None:
        if not name.isidentifier():
            raise ValueError(f"name: expected one that a Python class can have, found {name!r}")
        self.class_name = name
        self.declared: dict[str, tuple[str, str]] = {}  # sizes
        self.initial = {}
        self.lines: list[tuple[str, str, ast.expr]] = []  # name, text and right-hand side
        self.functions: dict[str, str] = {}
        for line in _split(text):
            with _about(line):
                self._read(line)
        if not self.lines or self.lines[-1][0] != "Y":
            found = f"found {self.lines[-1][0]}" if self.lines else "found no equation"
            raise ValueError(f"the last equation: expected that of the output, Y = …, {found}")
        self.declared.setdefault("X", ("N", "D"))
        self.feedforward = self._traced()

    # -- reading --------------------------------------------------------------------------------
    def _read(self, line: str) -> None:
        """A declaration or an equation."""
        if match := DECLARATION.fullmatch(line):
            name, rows, columns, value = match.groups()
            self._check_name(name, {*self.declared})
            for size in (rows, columns):
                if size != "1" and not (size.isidentifier() and size[0].isupper()):
                    raise ValueError(f"expected two sizes, each 1 or a name such as N, D or K, found {size!r}")
            self.declared[name], self.initial[name] = (rows, columns), _number(value)
            return
        match _parsed(line):
            case [ast.Assign(targets=[ast.Name(id=name)], value=value)]:
                self._check_name(name, {"X", *self.declared})
                _check(value)
                self.lines.append((name, line, value))
            case _:
                raise ValueError(EXPECTED)

    def _check_name(self, name: str, declared: set[str]) -> None:
        known = declared.union(n for n, *_ in self.lines)
        if name in known or name in {f"D{x}" for x in known} or f"D{name}" in known:
            raise ValueError(f"{name} has a meaning already; a matrix has one equation, and DX is the gradient of X")
        if name in (*FUNCTIONS, "N", "D", "K", "self"):
            raise ValueError(f"{name} is the name of a size or a function; choose another")

    # -- evaluation -----------------------------------------------------------------------------
    def _traced(self) -> Feedforward:
        questions = Questions()
        sizes = self._sizes(lambda name: Size(name, questions))
        inputs = {name: symbols(name, *(sizes[n] for n in shape)) for name, shape in self.declared.items()}
        values = self._evaluated(inputs, sizes, ArbitraryActivation, symbols)
        equations = [(values[name].value, values[f"{name} ="].value) for name, *_ in self.lines]
        wanted = [*(x.value for name, x in inputs.items() if name != "X"), inputs["X"].value]
        return Feedforward([x.value for x in inputs.values()], wanted, equations)

    def _sizes(self, make: Callable[[str], Any]) -> dict[str, Any]:
        names = {"N", "D", "K", *(n for shape in self.declared.values() for n in shape)} - {"1"}
        return {"1": 1, **{name: make(name) for name in sorted(names)}}

    def _evaluated(
        self, inputs: dict[str, Any], sizes: dict[str, Any], function: Any, renamed: Any = None
    ) -> dict[str, Any]:
        """The values of all equations; the right-hand side of V is called 'V ='."""
        functions = {name: function(name) for name in ACTIVATIONS}
        values: dict[str, Any] = {**TABLE, **SOFTMAX, **functions, **sizes, **inputs}
        for name, line, node in self.lines:
            self.functions |= {x.id: x.id for x in ast.walk(node) if isinstance(x, ast.Name) and x.id in functions}
            with _about(line):
                value = self._value(name, node, values)
            values[f"{name} ="] = value
            values[name] = renamed(name, *value.shape) if renamed else value
        return values

    def _value(self, name: str, node: ast.expr, values: dict[str, Any]) -> Any:
        for x in ast.walk(node):
            if isinstance(x, ast.Name) and x.id not in values:
                known = [n for n in values if n.isidentifier() and n not in FUNCTIONS]
                raise ValueError(f"{x.id} is not defined; known are {', '.join(known)}, and {', '.join(sorted(TABLE))}")
        value = eval(compile(ast.Expression(node), "<equation>", "eval"), {"__builtins__": {}, **values})
        if not hasattr(value, "shape"):
            raise ValueError(f"expected a matrix, found {getattr(value, '__name__', value)}")
        if name == "Y" and value.shape == ():
            raise ValueError("expected a matrix, found a scalar")
        return value

    def values(self, ones: frozenset[str], keep_numbers: bool) -> Values:
        """The values of the inputs in index notation; sizes in `ones` are 1."""
        sizes = self._sizes(Symbols(ones).size)
        inputs = {name: symbols(name, *(sizes[n] for n in shape)) for name, shape in self.declared.items()}

        def feedforward(X: Any) -> Any:
            return self._evaluated({**inputs, "X": X}, sizes, create_activation)["Y"]

        functions = {name: create_activation(f) for name, f in self.functions.items()}
        return Values({**inputs, **functions}, feedforward, Questions())


def _split(text: str) -> list[str]:
    """Lines, which may also be separated by semicolons; what follows # is a comment."""
    lines = (line.partition("#")[0] for line in text.splitlines())
    return [part.strip() for line in lines for part in line.split(";") if part.strip()]


@contextmanager
def _about(line: str) -> Iterator[None]:
    """Errors begin with the line that they are about."""
    try:
        yield
    except (ValueError, TypeError, ArithmeticError) as error:
        raise ValueError(f"{line!r}: {error}") from None


def _parsed(line: str) -> list[ast.stmt]:
    try:
        return ast.parse(line).body
    except (SyntaxError, ValueError) as error:
        raise ValueError(f"{getattr(error, 'msg', error)}; {EXPECTED}") from None


def _number(value: str | None) -> float | None:
    try:
        return None if value is None else float(value)
    except ValueError:
        raise ValueError(f"expected a number after =, found {value!r}") from None


def _check(node: ast.expr) -> None:
    """Raise if something is not part of the notation."""
    for x in ast.walk(node):
        match x:
            case ast.Call(func=ast.Name(id=name)) if name not in FUNCTIONS:
                raise ValueError(f"unknown operation {name!r}; known: {', '.join(FUNCTIONS)}")
            case ast.Call(func=ast.Name(), keywords=keywords) if all(k.arg == "epsilon" for k in keywords):
                continue
            case ast.Constant(value=value) if isinstance(value, int | float) and not isinstance(value, bool):
                continue
            case ast.Name() | ast.Attribute(attr="T") | ast.UnaryOp(op=ast.USub()) | ast.BinOp():
                continue
            case ast.keyword() | ast.expr_context() | ast.unaryop():
                continue
            case ast.Add() | ast.Sub() | ast.Mult() | ast.Div() | ast.MatMult() | ast.Pow():
                continue
        raise ValueError(f"{ast.unparse(x) or type(x).__name__} is not allowed; expected {ALLOWED}")
