"""The language of elementwise operations: one line for an element, from which the kernels of every engine are made.

``x + c * y`` is an element of the result for the elements x and y of its matrices and a scalar c. There are
``+ - * / **``, ``(x >= 0)``, which is 1 or 0, numbers, and functions of one argument, such as ``exp(x)``.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

LETTERS = "xyz"  # of operands of any shape, in order; a scalar is called c
_SYMBOLS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
_LEVELS = {ast.Add: 1, ast.Sub: 1, ast.Mult: 2, ast.Div: 2}  # how tightly they bind
_UNARY, _ATOM = 3, 4


def letters(rule: str) -> list[str]:
    """The names of the operands of a rule such as ``*, (), * -> *``: x, c and y."""
    free = iter(LETTERS)
    return ["c" if shape.strip() == "()" else next(free) for shape in rule.partition("->")[0].split(",")]


def parsed(scalar: str) -> ast.expr:
    """The syntax tree of a line."""
    return ast.parse(scalar, mode="eval").body


def functions_in(scalar: str) -> set[str]:
    """The functions that a line calls."""
    return {node.func.id for node in ast.walk(parsed(scalar)) if isinstance(node, ast.Call)}  # type: ignore[attr-defined]


class ScalarWriter:
    """Lines in Python or, in a subclass, another programming language: the attributes say how to write what differs."""

    call = "{function}({argument})"
    power = "power({base}, {exponent})"
    step = "step({argument})"
    divide = ""  # the name of a function; without one it is an operator
    number = "{number}"

    def __init__(self, **names: str) -> None:
        self.names = names  # what is written for each operand

    def __call__(self, scalar: str) -> str:
        """The line in this language."""
        return self._written(parsed(scalar), 0)

    def _written(self, node: ast.expr, level: int) -> str:
        text, own = self._piece(node)
        return text if own >= level else f"({text})"

    def _piece(self, node: ast.expr) -> tuple[str, int]:
        match node:
            case ast.Name(id=name):
                return self.names.get(name, name), _ATOM
            case ast.Constant(value=int() | float() as number):
                return self.number.format(number=number), _ATOM
            case ast.UnaryOp(op=ast.USub(), operand=x):
                return f"-{self._written(x, _UNARY)}", _UNARY
            case ast.Compare(left=x, ops=[ast.GtE()], comparators=[ast.Constant(value=0)]):
                return self.step.format(argument=self._written(x, _ATOM)), _ATOM
            case ast.Call(func=ast.Name(id=function), args=[x]):
                return self.call.format(function=function, argument=self._written(x, 0)), _ATOM
            case ast.BinOp(left=x, op=ast.Pow(), right=y):
                return self.power.format(base=self._written(x, 0), exponent=self._written(y, 0)), _ATOM
            case ast.BinOp(left=x, op=ast.Div(), right=y) if self.divide:
                return f"{self.divide}({self._written(x, 0)}, {self._written(y, 0)})", _ATOM
            case ast.BinOp(left=x, op=op, right=y) if type(op) in _LEVELS:
                own = _LEVELS[type(op)]
                return f"{self._written(x, own)} {_SYMBOLS[type(op)]} {self._written(y, own + 1)}", own
        raise ValueError(f"{ast.unparse(node)}: expected + - * / **, (x >= 0), a number or a function of one argument")


def as_function(scalar: str, names: list[str], functions: Mapping[str, Callable[..., Any]]) -> Callable[..., Any]:
    """The function of operands with these names that a line stands for, by functions with the names in it."""
    code = compile(f"lambda {', '.join(names)}: {ScalarWriter()(scalar)}", __file__, "eval")
    return eval(code, dict(functions))
