"""What a feedforward comes from: the code of a layer, or equations in the notation of the table."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from matgrad import matrix_operations, softmax_functions
from matgrad.activation_functions import ACTIVATIONS, ActivationFunction, create_activation
from matgrad.backends.base import Matrix
from matgrad.derivation.backpropagation import Equation, Feedforward
from matgrad.derivation.values import is_one, named, substituted
from matgrad.inspection.equations import Equation as SourceEquation
from matgrad.inspection.observing import observed
from matgrad.inspection.verdicts import suffixed
from matgrad.judges import definitions
from matgrad.judges.algebra import MakeLayer, for_equal_sizes
from matgrad.judges.definitions import ArbitraryActivation
from matgrad.judges.index_judge import SMALL, Symbols
from matgrad.layers.layer import Layer
from matgrad.program.entries import IndexMatrix, lifted, symbols
from matgrad.program.program import Value, in_order
from matgrad.program.shapes import Questions, Size

DRAWN = "U"  # a matrix of random numbers
SOFTMAX = {name: getattr(softmax_functions, name) for name in definitions.SOFTMAX}
IGNORED = ("apply", "uniform", "product_on", "positive")  # of the table: they are not for equations
TABLE = {
    **{name: getattr(matrix_operations, name) for name in matrix_operations.__all__ if name not in IGNORED},
    **{name: partial(getattr(matrix_operations, name), like=lifted(1)) for name in ("ones", "zeros", "identity")},
}
FUNCTIONS = (*sorted(TABLE), *SOFTMAX, *ACTIVATIONS)
EXPECTED = "expected NAME = EXPRESSION, or NAME: ROWS COLUMNS"
ALLOWED = "the operators + - * / @ ** and .T, numbers, sizes, names, and operations of the table"
BINARY = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.MatMult, ast.Pow)
PLAIN = (ast.Name, ast.BinOp, ast.keyword, ast.expr_context, ast.unaryop, *BINARY)
DECLARATION = re.compile(r"(\w+)\s*:\s*(\w+)(?:\s*[x×,]\s*|\s+)(\w+)\s*(?:=\s*(\S+))?")


class Values(NamedTuple):
    """Inputs in index notation by name, and the feedforward as a function of X."""

    inputs: dict[str, Any]
    feedforward: Callable[[Any], Any]


class Source:
    """A feedforward, and its values in index notation."""

    class_name: str  # of the derived layer, if it is given no other
    feedforward: Feedforward
    functions: dict[str, str]  # the activation functions by their names in the equations, with their specifications
    initial: dict[str, float | None]  # what the inputs begin with, if that is known
    values: Callable[[Symbols], Values]  # with the symbols of a judge


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
        without_comments = (line.partition("#")[0] for line in text.splitlines())
        for line in filter(None, map(str.strip, ";".join(without_comments).split(";"))):
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
        match ast.parse(line).body:
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

    def values(self, a: Symbols) -> Values:
        """See `Source`."""
        sizes = self._sizes(a.size)
        inputs = {name: symbols(name, *(sizes[n] for n in shape)) for name, shape in self.declared.items()}

        def feedforward(X: Any) -> Any:
            return self._evaluated({**inputs, "X": X}, sizes, create_activation)["Y"]

        functions = {name: create_activation(f) for name, f in self.functions.items()}
        return Values({**inputs, **functions}, feedforward)


@contextmanager
def _about(line: str) -> Iterator[None]:
    """Errors begin with the line that they are about."""
    try:
        yield
    except SyntaxError as error:
        raise ValueError(f"{line!r}: {error.msg}; {EXPECTED}") from None
    except (ValueError, TypeError, ArithmeticError) as error:
        raise ValueError(f"{line!r}: {error}") from None


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
            case ast.Call(func=func, keywords=keywords):
                is_allowed = isinstance(func, ast.Name) and all(k.arg == "epsilon" for k in keywords)
            case ast.Constant(value=value):
                is_allowed = isinstance(value, int | float) and not isinstance(value, bool)
            case ast.Attribute(attr=name):
                is_allowed = name == "T"
            case ast.UnaryOp(op=op):
                is_allowed = isinstance(op, ast.USub)
            case _:
                is_allowed = isinstance(x, PLAIN)
        if not is_allowed:
            raise ValueError(f"{ast.unparse(x) or type(x).__name__} is not allowed; expected {ALLOWED}")


# -- the code of a layer -----------------------------------------------------------------------


class LayerSource(Source):
    """The feedforward of the layer make(D, K), in training or in evaluation mode.

    Without `named_functions`, activation functions are looked into.
    """

    def __init__(self, make: MakeLayer, *, training: bool = True, named_functions: bool = True) -> None:
        self.make: MakeLayer = for_equal_sizes(make)
        self.training, self.example = training, self.make(*SMALL.values())
        self.class_name = f"Derived{type(self.example).__name__}"
        self.functions: dict[str, str] = {}
        self.named_functions = named_functions
        self.symbols = _NamedSymbols(self)
        self.layer = self.symbols.layer(self.make, training=training)
        self.feedforward = self._traced()
        values = _attributes(self.example)
        self.initial = {x.name: _constant(values.get(x.name)) for x in self.feedforward.inputs}

    def _traced(self) -> Feedforward:
        """The equations that feedforward executes, with what they depend on."""
        paths = {id(part): path for path, part in self.layer.walk()}
        equations: list[Equation] = []
        parameters = [getattr(part, name).value for _, part in self.layer.walk() for name in part.parameters]
        taken = {"X", *(x.name for x in parameters)}

        def observe(part: Layer, equation: SourceEquation, value: Any) -> Any:
            if not isinstance(value, IndexMatrix) or not value.value.operands:
                return value
            name = plain_name(suffixed(equation.name, paths[id(part)]))
            while name in taken:
                name += "_"
            taken.add(name)
            found = symbols(name, *value.shape)
            equations.append((found.value, value.value))
            return found

        X = symbols("X", self.symbols.size("N"), self.layer.input_size)
        with observed((part for _, part in self.layer.walk()), observe):
            Y: Any = self.layer.feedforward(X)
        if not isinstance(Y, IndexMatrix) or not Y.shape:
            raise TypeError(f"{type(self.example).__name__}.feedforward: expected a matrix, found {Y!r}")
        if not equations or equations[-1][0] is not Y.value or Y.value.name != "Y":
            equations.append((named("Y" if "Y" not in taken else "Y_", *Y.shape), Y.value))
        known = {x: named(DRAWN, *x.shape) for x in in_order(rhs for _, rhs in equations) if is_drawn(x)}
        equations = [(V, substituted(rhs, known)) for V, rhs in equations]
        wanted = [*parameters, X.value]
        found = Feedforward([], wanted, equations, tuple(self.example.intermediates))
        leaves = {x for x in in_order(rhs for _, rhs in found.equations) if x.operation == "input"}
        found.inputs = sorted((leaves | set(wanted)) - {V for V, _ in found.equations}, key=lambda x: x.name)
        return found

    def values(self, a: Symbols) -> Values:
        """See `Source`."""
        layer = a.layer(self.make, training=self.training)
        values = _attributes(layer) | {"X": a.symbols("X", a.size("N"), layer.input_size)}
        for x in self.feedforward.inputs:
            if x.name == DRAWN:
                Y: Any = layer.clone().feedforward(values["X"])
                drawn = next(x.name for x in in_order([Y.value]) if is_drawn(x))
                values[DRAWN] = symbols(drawn, *(n if is_one(n) else a.size(n.name) for n in x.shape))
        return Values(values, layer.feedforward)


def _attributes(layer: Layer) -> dict[str, Any]:
    """The attributes of a layer and its parts, by names that Python can have."""
    return {plain_name(suffixed(name, path)): x for path, part in layer.walk() for name, x in vars(part).items()}


def _constant(value: Any) -> Any:
    """The number that all elements of a matrix are, or None; a number itself."""
    if isinstance(value, np.ndarray):
        return value.flat[0] if np.ptp(value) == 0 else None
    return value


def is_drawn(x: Value) -> bool:
    """Whether a value is a matrix of random numbers."""
    return x.operation == "input" and x.name.startswith(f"{DRAWN}.")


class _NamedSymbols(Symbols):
    """Symbols whose names Python can have; activation functions are known by their names."""

    def __init__(self, source: LayerSource) -> None:
        super().__init__()
        self.source = source

    def own_symbols(self, name: str, *shape: Any, is_positive: bool = False) -> Matrix:
        """The matrix of this name."""
        return symbols(plain_name(name), *shape, is_positive=not shape)  # a number that is a symbol is not 0

    def _attribute(self, part: Layer, name: str, value: Any, other: Any) -> Any:
        if isinstance(value, ActivationFunction) and self.source.named_functions:
            if any(isinstance(x, np.ndarray) for x in vars(value).values()):
                return value  # it has matrices of the layer, which sets it anew
            self.source.functions[plain_name(name)] = repr(value)
            return ArbitraryActivation(plain_name(name))
        return super()._attribute(part, name, value, other)


def plain_name(name: str) -> str:
    """A name that Python can have: W_1 for W.1"""
    return name.replace(".", "_")
