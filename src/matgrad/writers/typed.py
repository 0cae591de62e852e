"""Typed equations: what may be written, which is checked before anything is computed, and what it means."""

from __future__ import annotations

import ast
import inspect
import keyword
import math
import re
import unicodedata
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from functools import partial
from typing import Any

import numpy as np

from matgrad import matrix_operations, softmax_functions
from matgrad.activation_functions import ACTIVATIONS
from matgrad.foundation.notation import function_name
from matgrad.judges import definitions
from matgrad.judges.definitions import ArbitraryActivation
from matgrad.layers.layer import Layer
from matgrad.program.entries import IndexMatrix, lifted, symbols
from matgrad.program.shapes import Size
from matgrad.sparse.operands import BlockDiagonal

SOFTMAX = {name: getattr(softmax_functions, name) for name in definitions.SOFTMAX}
IGNORED = ("apply", "uniform", "product_on", "positive", "one_hot")  # of the table: they are not for equations


def table(like: Any) -> dict[str, Callable[..., Any]]:
    """The operations that equations may call; new matrices are made like this one."""
    found = {name: getattr(matrix_operations, name) for name in matrix_operations.__all__ if name not in IGNORED}
    return found | {name: partial(found[name], like=like) for name in ("ones", "zeros", "identity")}


TABLE = table(lifted(1))
FUNCTIONS = (*sorted(TABLE), *SOFTMAX, *ACTIVATIONS)
ALIASES = {function_name(cls): name for name, cls in ACTIVATIONS.items()} | {"σ": "Sigmoid"}  # as they are written
ALIASES = {alias: name for alias, name in ALIASES.items() if alias not in FUNCTIONS}
RESERVED = {"N", "D", "K", "self", *FUNCTIONS, *dir(Layer(1, 1))} - {"X", "Y"}  # names that mean something else
EXPECTED = "expected NAME = EXPRESSION, or NAME: ROWS COLUMNS"
ALLOWED = "the operators + - * / @ ** and .T, numbers, sizes, names, and operations of the table"
DECLARATION = re.compile(r"(\w+)\s*:\s*(\w+)(?:\s*[x×,]\s*|\s+)(\w+)\s*(?:=\s*(\S+))?")
OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a * TABLE["reciprocal"](b) if _is_matrix(b) else a / b,
    ast.MatMult: lambda a, b: a @ b,
    ast.Pow: lambda a, b: a**b,
}
LONGEST, DEEPEST = 1000, 50  # names, numbers and operators in an equation, and how many of them are inside each other
STEEPEST = 1000  # exponent
LARGEST = float(np.finfo(np.float32).max)  # number that a parameter begins with


class Equations:
    """Equations such as ``gamma: 1 D = 1; s = inv_sqrt(rows_mean(hadamard(X, X))); Y = …``.

    ``name: rows columns`` declares a parameter, ``= number`` says what it begins with; X is N×D unless it is declared.
    """

    def __init__(self, text: str) -> None:
        self.declared: dict[str, tuple[str, str]] = {}  # sizes
        self.initial: dict[str, float | None] = {}
        self.lines: list[tuple[str, str, ast.expr]] = []  # name, text and right-hand side
        without_comments = (line.partition("#")[0] for line in unicodedata.normalize("NFKC", text).splitlines())
        for line in filter(None, map(str.strip, ";".join(without_comments).split(";"))):
            with about(line):
                self._read(line)
        if not self.lines or self.lines[-1][0] != "Y":
            found = f"found {self.lines[-1][0]}" if self.lines else "found no equation"
            raise ValueError(f"the last equation: expected that of the output, Y = …, {found}")
        self.declared.setdefault("X", ("N", "D"))
        self._check_names()
        sizes = self.sizes()
        # each in terms of symbols for those before it, and of arbitrary activation functions
        self.values = self.evaluated(self.inputs(sizes), sizes, ArbitraryActivation, symbols)

    # -- reading --------------------------------------------------------------------------------
    def _read(self, line: str) -> None:
        """A declaration or an equation."""
        if match := DECLARATION.fullmatch(line):
            name, rows, columns, value = match.groups()
            self._check_new(name, {*self.declared})
            for size in (rows, columns):
                if size != "1" and not (size.isidentifier() and size[0].isupper() and not keyword.iskeyword(size)):
                    raise ValueError(f"expected two sizes, each 1 or a name such as N, D or K, found {size!r}")
            self.declared[name], self.initial[name] = (rows, columns), _initial(value)
            return
        name, node = parsed(line)
        self._check_new(name, {"X", *self.declared})
        check(node)
        self.lines.append((name, line, node))

    def _check_new(self, name: str, declared: set[str]) -> None:
        known = declared.union(n for n, *_ in self.lines)
        if name in known or f"D{name}" in known or name in {f"D{x}" for x in (*known, "X", "Y")}:
            raise ValueError(f"{name} has a meaning already; a matrix has one equation, and DX is the gradient of X")
        if name in RESERVED:
            raise ValueError(f"{name} is the name of a size or a function, or of something in a layer; choose another")
        if not name[0].isalpha() or keyword.iskeyword(name):
            raise ValueError(f"expected a name that begins with a letter and is no word of Python, found {name}")

    def _check_names(self) -> None:
        """Raise if a size has the name of a matrix, of a gradient or of a function."""
        names = {*self.declared, *(name for name, *_ in self.lines)}
        for matrix, shape in self.declared.items():
            for size in shape:
                if size in {*names, *(f"D{x}" for x in names), *FUNCTIONS}:
                    raise ValueError(f"{matrix}: {' '.join(shape)}: {size} is no size, as it means something else")

    @property
    def activations(self) -> list[str]:
        """The activation functions in them."""
        names = {x.id for _, _, node in self.lines for x in ast.walk(node) if isinstance(x, ast.Name)}
        return [name for name in ACTIVATIONS if name in names]

    # -- evaluation -----------------------------------------------------------------------------
    def sizes(self, make: Callable[[str], Any] = Size) -> dict[str, Any]:
        """What stands for the sizes in declarations."""
        names = {n for shape in self.declared.values() for n in shape} - {"1"}
        return {"1": 1, **{name: make(name) for name in sorted(names)}}

    def inputs(self, sizes: dict[str, Any]) -> dict[str, IndexMatrix]:
        """Symbols for the matrices that are given."""
        return {name: symbols(name, *(sizes[n] for n in shape)) for name, shape in self.declared.items()}

    def evaluated(
        self, inputs: dict[str, Any], sizes: dict[str, Any], function: Any, renamed: Any = None
    ) -> dict[str, Any]:
        """The values of all equations; the right-hand side of V is called 'V ='."""
        values: dict[str, Any] = {**TABLE, **SOFTMAX, **{f: function(f) for f in ACTIVATIONS}, **sizes, **inputs}
        for name, line, node in self.lines:
            with about(line):
                value = value_of(node, values)
                if not isinstance(value, IndexMatrix) or (name == "Y" and value.shape == ()):
                    raise ValueError(f"expected a matrix, found {_described(value)}")
            values[f"{name} ="] = value
            values[name] = renamed(name, *value.shape) if renamed else value
        return values


@contextmanager
def about(line: str) -> Iterator[None]:
    """Errors begin with the line that they are about."""
    shown = repr(line if len(line) <= 100 else f"{line[:100]}…")
    try:
        yield
    except SyntaxError as error:
        raise ValueError(f"{shown}: {error.msg}; {EXPECTED}") from None
    except (RecursionError, MemoryError):
        raise ValueError(f"{shown}: nested too deeply; {TOO_LONG}") from None
    except (ValueError, TypeError, ArithmeticError) as error:
        raise ValueError(f"{shown}: {error}") from None


TOO_LONG = "give its parts names, in equations of their own"


def parsed(line: str) -> tuple[str, ast.expr]:
    """The name and the right-hand side of an equation."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # whatever Python would say of it, such as of 3(X)
        match ast.parse(line).body:
            case [ast.Assign(targets=[ast.Name(id=name)], value=node)]:
                return name, _Written().visit(node)
    raise ValueError(EXPECTED)


class _Written(ast.NodeTransformer):
    """What people write for functions of the package: sigmoid(X) for Sigmoid(X), max(0, X) for ReLU(X)."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        match node:
            case ast.Call(func=ast.Name(id="max"), args=[X, ast.Constant(value=0)] | [ast.Constant(value=0), X]):
                return ast.Call(ast.Name("ReLU"), [X], [])
            case ast.Call(func=ast.Name(id="max")):
                raise ValueError(
                    "max: expected max(X, 0); rows_max(X) and columns_max(X) are those of rows and columns"
                )
            case ast.Call(func=ast.Name(id=name)) if name in ALIASES:
                node.func = ast.Name(ALIASES[name])
        return node


def suggestion(name: str, known: Sequence[str]) -> str:
    """The names that are nearest to an unknown one; all names, if none is near."""
    lower = {x.lower(): x for x in reversed(known)}
    near = [lower[x] for x in get_close_matches(name.lower(), lower, cutoff=0.7)]
    return f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(known)}"


def _initial(value: str | None) -> float | None:
    """The number that the elements of a parameter begin with."""
    try:
        found = None if value is None else float(value)
    except ValueError:
        raise ValueError(f"expected a number after =, found {value!r}") from None
    if found is not None and not abs(found) <= LARGEST:
        raise ValueError(f"expected a number of float32 after =, at most {LARGEST:.1e}, found {value}")
    return found


def check(node: ast.expr) -> None:
    """Raise if something is not part of the notation, or if it is too long."""
    level: list[ast.AST] = [node]
    count = 0
    for _ in range(DEEPEST):
        count += len(level)
        level = [child for x in level for child in ast.iter_child_nodes(x)]
    if level or count > LONGEST:
        what = f"more than {DEEPEST} levels deep" if level else f"more than {LONGEST} names, numbers and operators long"
        raise ValueError(f"the equation is {what}; {TOO_LONG}")
    for x in ast.walk(node):
        match x:
            case ast.Call(func=ast.Name(id=name)) if name not in FUNCTIONS:
                raise ValueError(f"unknown operation {name!r}; {suggestion(name, FUNCTIONS)}")
            case ast.Call(func=func, keywords=keywords):
                is_allowed = isinstance(func, ast.Name) and all(k.arg == "epsilon" for k in keywords)
            case ast.Constant(value=value):
                is_allowed = isinstance(value, int | float) and not isinstance(value, bool)
            case ast.Attribute(attr=name):
                is_allowed = name == "T"
            case ast.UnaryOp(op=op):
                is_allowed = isinstance(op, ast.USub)
            case ast.operator():
                is_allowed = type(x) in OPERATORS
            case _:
                is_allowed = isinstance(x, ast.Name | ast.BinOp | ast.keyword | ast.expr_context | ast.unaryop)
        if not is_allowed:
            raise ValueError(f"{ast.unparse(x) or type(x).__name__} is not allowed; expected {ALLOWED}")


# -- values of expressions ----------------------------------------------------------------------


def value_of(node: ast.expr, values: dict[str, Any]) -> Any:
    """The value of an expression: a matrix or a scalar in index notation, a size, a number or a function."""
    match node:
        case ast.Constant(value=number):
            return _finite(number)
        case ast.Name(id=name):
            if name not in values:
                known = [n for n in values if n.isidentifier() and n not in FUNCTIONS]
                raise ValueError(f"{name} is not defined; {suggestion(name, (*known, *sorted(TABLE)))}")
            return values[name]
        case ast.Attribute(value=inner):
            return matrix(".T", value_of(inner, values)).T
        case ast.UnaryOp(operand=inner):
            return -_quantity("-", value_of(inner, values))
        case ast.BinOp(left=left, op=op, right=right):
            return _operation(op, value_of(left, values), value_of(right, values))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords):
            options = {str(k.arg): value_of(k.value, values) for k in keywords}
            return _call(name, values[name], [value_of(x, values) for x in args], options)
    raise ValueError(f"{ast.unparse(node)} is not allowed; expected {ALLOWED}")


def _operation(op: ast.operator, a: Any, b: Any) -> Any:
    sign = {ast.MatMult: "@", ast.Pow: "**", ast.Div: "/", ast.Mult: "*", ast.Add: "+", ast.Sub: "-"}[type(op)]
    checked = matrix if sign == "@" else _quantity
    a, b = checked(sign, a), checked(sign, b)
    if sign == "**" and not (isinstance(b, int | float) and abs(b) <= STEEPEST):
        raise ValueError(f"**: expected a number from -{STEEPEST} to {STEEPEST} as exponent, found {_described(b)}")
    if sign == "/" and isinstance(b, int | float) and b == 0:
        raise ValueError("/: expected a number other than 0 to divide by")
    try:
        return _finite(OPERATORS[type(op)](a, b))
    except (OverflowError, ZeroDivisionError) as error:
        raise ValueError(f"{sign}: {error}") from None


def _call(name: str, f: Callable[..., Any], args: list[Any], options: dict[str, Any]) -> Any:
    """f(args), where a matrix or a scalar, a size or a number is expected by the name of the parameter."""
    parameters = inspect.signature(f).parameters
    wanted = [p for p in parameters if p not in ("like", "s")]
    required = [p for p in wanted if parameters[p].default is inspect.Parameter.empty]
    unknown = [k for k in options if k not in wanted[len(args) :]]
    if unknown or not len(required) <= len(args) + len(options) <= len(wanted):
        found = ", ".join([*map(_described, args), *(f"{k}=…" for k in options)]) or "nothing"
        count = " or ".join(map(str, sorted({len(required), len(wanted)})))
        raise ValueError(f"{name}({', '.join(wanted)}): expected {count} of them, found {found}")
    for parameter, x in zip(wanted, args, strict=False):
        if parameter in "Xxy" or parameter == "Y":
            checked = matrix if name in (*ACTIVATIONS, *SOFTMAX) else _of_matrices
            checked(name, x)
        else:
            _quantity(name, x)
    return f(*args, **options)


def _is_matrix(x: Any) -> bool:
    return isinstance(x, IndexMatrix) and x.shape != ()


def _quantity(where: str, x: Any) -> Any:
    if not isinstance(x, IndexMatrix | Size | int | float):
        raise ValueError(f"{where}: expected a matrix, a size or a number, found {_described(x)}")
    return x


def _of_matrices(where: str, x: Any) -> Any:
    if not isinstance(x, IndexMatrix):
        raise ValueError(f"{where}: expected a matrix, found {_described(x)}")
    return x


def matrix(where: str, x: Any) -> Any:
    """A matrix, or for products and .T a block-diagonal one."""
    is_block_diagonal = isinstance(x, BlockDiagonal) and where in ("@", ".T")
    if not is_block_diagonal and (not isinstance(x, IndexMatrix) or x.shape == ()):
        raise ValueError(f"{where}: expected a matrix, found {_described(x)}")
    return x


def _finite(x: Any) -> Any:
    """x, if it is not a number without a finite real value; a large integer becomes a floating-point number."""
    if isinstance(x, complex) or (isinstance(x, float) and not math.isfinite(x)):
        raise ValueError(f"expected real and finite numbers, found {x}")
    return float(x) if isinstance(x, int) and abs(x) > 2**53 else x


def _described(x: Any) -> str:
    """What a value is, for messages."""
    if isinstance(x, IndexMatrix):
        return f"a matrix of size {' × '.join(map(str, x.shape))}" if x.shape else "a scalar"
    if isinstance(x, BlockDiagonal):
        return "a block-diagonal matrix, which is for products"
    if isinstance(x, int | float | Size):
        return str(x)
    names = getattr(x, "__name__", ""), getattr(x, "name", "")
    return next((name for name in FUNCTIONS if name in names), "a function")
