r"""LaTeX of the equations that run: of a layer, a function, a loss or an optimizer, recorded with named sizes.

Code runs on matrices of symbolic sizes, in which each value of an equation is replaced by a matrix with its name. What
is recorded is printed as programs are, except that functions of matrices with names, such as \mathrm{relu}'(Z), have
their notation, as have the sizes N, D and K, and the numbers that a class keeps.
"""

from __future__ import annotations

import copy
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any

import numpy as np

from matgrad import softmax_functions
from matgrad.activation_functions import ActivationFunction, relu, sigmoid
from matgrad.foundation.notation import (
    document,
    escape,
    function_name,
    function_symbol,
    is_power,
    is_word,
    parenthesized,
    symbol,
)
from matgrad.inspection.equations import Equation
from matgrad.inspection.observing import observed
from matgrad.layers.layer import Layer
from matgrad.loss_functions import LossFunction
from matgrad.matrix_operations import stack
from matgrad.optimizers import Optimizer
from matgrad.program.entries import IndexMatrix, symbols
from matgrad.program.program import Value
from matgrad.program.recorder import RecordedMatrix, Recording
from matgrad.program.shapes import BoundSize, Size, size_name
from matgrad.program.text import LatexPrinter, Piece

OTHERS = "CMLHPQ"  # the names of sizes other than N, D and K
SOFTMAX = ("softmax", "stable_softmax", "log_softmax", "stable_log_softmax", "half_log_softmax")
Known = Mapping[Value, Piece]
Functions = list[tuple[str, Callable[..., Any]]]  # of one matrix, with their notation
COMMON: Functions = [(function_symbol(name), getattr(softmax_functions, name)) for name in SOFTMAX]


class EquationPrinter(LatexPrinter):
    """Writes values; those in `known` have a notation. Gradients of these parameters begin with D, also if words."""

    def __init__(self, known: Mapping[Value, Piece], parameters: Iterable[str] = ()) -> None:
        self.names, self.known, self.parameters = {}, known, parameters

    def name(self, name: str) -> Piece:
        """A name without the number of a layer."""
        if name[:1] == "D" and name[1:] in self.parameters and is_word(name):
            return rf"\mathsf{{D}}{symbol(name[1:])}", "atom"
        return (tex := symbol(name)), "unary" if is_power(tex) else "atom"

    def expression(self, value: Value) -> Piece:
        """The notation of a value, or the expression that gives it."""
        if value.operation == "full" and value.operands[0].number == 1 and size_name(value.shape[1]) == 1:
            return f"1_{self.size(value.shape[0])}", "atom"
        return self.known.get(value) or super().expression(value)

    def line(self, name: str, value: Value) -> str:
        """``name = expression``, with := if the left side is a notation rather than a letter."""
        left, binds = self.name(name)
        return f"{left} {':=' if binds == 'unary' else '='} {self.expression(value)[0]}"


def layer_latex(layer: Layer) -> dict[Equation, str]:
    r"""The equations that a layer executes in its present mode, such as \mathsf{D}X = \mathsf{D}Y \cdot W.

    A layer that cannot be recorded has those before the first error.
    """
    for sizes in (_Sizes(layer), _Sizes(layer, is_square=False), _BoundSizes(layer)):
        if (run := _Run(layer, sizes)).is_complete:
            break
    attributes = {f"{x}{path}": A for path, part in run.layer.walk() for x, A in vars(part).items()}
    known = {A.value: EquationPrinter({}).name(x) for x, A in attributes.items() if _is_computed(A)}
    functions = [f for x in attributes.values() if isinstance(x, ActivationFunction) for f in _functions(x)]
    known = {**_applied([*functions, *COMMON], run.named.values(), known), **known}
    printer = EquationPrinter(known, layer.parameters)
    return {equation: printer.line(name, value) for equation, name, value in run.found}


def mode_latex(layer: Layer) -> dict[Equation, list[str]]:
    """The equations of a layer in training mode, and those that differ in evaluation mode."""
    training, evaluation = layer_latex(_in_mode(layer, True)), layer_latex(_in_mode(layer, False))
    found = {equation: [latex] for equation, latex in training.items()}
    for equation, latex in evaluation.items():
        if training.get(equation) != latex:
            found.setdefault(equation, []).append(rf"{latex} \quad \text{{in evaluation mode}}")
    return found


def _in_mode(layer: Layer, training: bool) -> Layer:
    layer = layer.clone()
    for _, part in layer.walk():
        part.training = training
    return layer


class _Run:
    """A run of a layer on symbols, in which every value of an equation is replaced by a matrix with its name."""

    def __init__(self, layer: Layer, sizes: _Sizes) -> None:
        self.layer, self.is_complete = layer.clone(), False
        self.layer.forget()
        self.symbols = sizes.symbols
        self.found: list[tuple[Equation, str, Value]] = []
        self.named: dict[str, RecordedMatrix] = {}
        self.paths = {id(part): path for path, part in self.layer.walk()}
        with observed((part for _, part in self.layer.walk()), self._keep), suppress(Exception):
            for path, part in self.layer.walk():
                for name, value in list(vars(part).items()):
                    vars(part)[name] = sizes.symbolic(f"{name}{path}", value)
                part.input_size, part.output_size = sizes.of(part.input_size), sizes.of(part.output_size, "K")
            X = self.named["X"] = self.symbols("X", sizes.N, self.layer.input_size)
            Y: Any = self.layer.feedforward(X)
            DY = self.named["DY"] = self.symbols("DY", *Y.shape)
            self.layer.backpropagate(Y, DY)
            self.is_complete = True

    def _keep(self, part: Layer, equation: Equation, value: Any) -> Any:
        if not isinstance(value, RecordedMatrix):
            return value
        name = f"{equation.name}{self.paths[id(part)]}"
        while name in self.named:
            name += "'"
        if part is self.layer:
            self.found.append((equation, name, value.value))
        self.named[name] = self.symbols(name, *value.shape)
        return self.named[name]


def function_latex(function: Callable[..., Any]) -> str:
    """``f(X) = expression`` for a function, or a method of an object, after the variables that it sets."""
    owner = _with_symbols(getattr(function, "__self__", None))
    name, bound = function.__name__, function if owner is None else getattr(owner, function.__name__)
    parameters = [p.name for p in inspect.signature(bound).parameters.values() if p.default is p.empty]
    has_tokens = getattr(owner, "has_tokens", False)
    rows = {"Y": ("N", "L·V"), "T": ("N", "L")} if has_tokens else {"Y": ("N", "K"), "T": ("N", "K")}
    made = _Recording().named if has_tokens else symbols
    arguments = [made(p, *map(_size, rows.get(p, ("N" if p.isupper() else "1", "D")))) for p in parameters]
    L: Any = Size("L")
    stacked = [stack(arguments[0], L)] if has_tokens else []
    result, variables = _with_variables(bound, *arguments)
    found = {f"{x}'" if x in parameters else x: A for x, A in variables.items() if _is_computed(A)}
    found = {x: A for x, A in found.items() if A.value is not result.value}
    known = {A.value: EquationPrinter({}).name(x) for x, A in found.items()}
    others = [*(_functions(owner) if owner is not None else ()), *COMMON, *_functions(relu), *_functions(sigmoid)]
    others = [(head, f) for head, f in others if head != notation(owner, name)]
    applied = _applied(others, [*arguments, *stacked, *found.values()], known)
    lines = latex_lines({x: A.value for x, A in found.items()}, applied)
    head = notation(owner, name) + parenthesized(", ".join(map(symbol, parameters)))
    return aligned([*lines, f"{head} = {EquationPrinter({**applied, **known}).expression(result.value)[0]}"])


def update_latex(optimizer: Optimizer) -> dict[str, str]:
    """The update of x and of what an optimizer keeps, by their names."""
    o, m, n = _with_symbols(optimizer), Size("m"), Size("n")
    for name in o.state_names:
        setattr(o, name, symbols(name, *((m, n) if len(getattr(o, name).shape) == 2 else ())))
    o.x, o.Dx = symbols("x", m, n), symbols("Dx", m, n)
    o.update(symbols("eta"))
    values = {name: getattr(o, name).value for name in (*o.state_names, "x")}
    return dict(zip(values, latex_lines({f"{name}'": x for name, x in values.items()}), strict=True))


def latex_lines(values: Mapping[str, Value], applied: Known = MappingProxyType({})) -> list[str]:
    """``name = expression`` for each value, with the names of the others in it, and functions as they are applied."""
    known = {x: EquationPrinter({}).name(name) for name, x in values.items()}
    lines = []
    for name, x in values.items():
        others = {y: piece for y, piece in known.items() if y is not x}
        lines.append(EquationPrinter({**applied, **others}).line(name, x))
    return lines


def aligned(lines: list[str]) -> str:
    """Lines in an ``aligned`` environment, which begins at the first relation of each; a single line stands alone."""
    if len(lines) == 1:
        return lines[0]
    marked = (re.sub(r" (:?=) ", r" &\1 ", x, count=1) for x in lines)
    return r"\begin{aligned} " + r" \\ ".join(marked) + r" \end{aligned}"


def latex_document(sections: list[tuple[str, list[str]]]) -> str:
    """A document for pdflatex: sections with a title and equations, each equation on lines of its own."""
    content = []
    for title, lines in sections:
        content += ["", rf"\section*{{{escape(title)}}}", *(f"\\[\n{line}\n\\]" for line in lines)]
    return document(*content)


# -- names -------------------------------------------------------------------------------------


def notation(owner: Any, method: str) -> str:
    r"""How a method is written: \sigma and \sigma', \mathcal{L}_{\mathrm{SE}} and its \nabla_Y, or by its name."""
    if owner is None and method.endswith("_jacobian"):
        return rf"\frac{{\partial}}{{\partial x}} {function_symbol(method.removesuffix('_jacobian'))}"
    if owner is None or method not in ("__call__", "gradient"):
        return function_symbol(method)
    if isinstance(owner, LossFunction):
        name = type(owner).__name__.removesuffix("Loss") or type(owner).__name__
        initials = "".join(re.findall("[A-Z]", name))
        index = initials if len(initials) > 1 else name
        return (r"\nabla_Y " if method == "gradient" else "") + rf"\mathcal{{L}}_{{\mathrm{{{index}}}}}"
    return function_symbol(function_name(type(owner))) + ("'" if method == "gradient" else "")


def _functions(thing: Any) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The methods of an activation function or a loss that take one matrix."""
    for name, f in inspect.getmembers(thing, inspect.ismethod):
        if (name == "__call__" or name[0] != "_") and len(inspect.signature(f).parameters) == 1:
            yield notation(thing, name), f


def _applied(functions: Functions, matrices: Iterable[RecordedMatrix], known: Known) -> dict[Value, Piece]:
    """The values of functions of matrices that have names, with their notation."""
    found: dict[Value, Piece] = {}
    for X in [X for X in matrices if X.shape]:
        for head, f in functions:
            with suppress(Exception):  # such as for another size
                if _is_computed(Y := f(X)) and Y.value.operation != "call" and Y.value is not X.value:
                    argument = parenthesized(EquationPrinter(known).expression(X.value)[0])
                    found.setdefault(Y.value, (head + argument, "atom"))
    return found


# -- symbols -------------------------------------------------------------------------------------


def _size(name: str) -> Size | int:
    return 1 if name == "1" else Size(name)


class _Sizes:
    """Names for the sizes of a layer; if D = K, that of W is K×D and that of b is 1×K unless the layer keeps sizes."""

    N: Any = Size("N")
    symbols: Callable[..., Any] = staticmethod(symbols)

    def __init__(self, layer: Layer, is_square: bool = True) -> None:
        is_square &= layer.input_size == layer.output_size and not layer.keeps_size
        self.K = layer.output_size if is_square else None
        self.names: dict[int, Any] = {1: 1, layer.output_size: Size("K"), layer.input_size: Size("D")}
        self.others = iter(OTHERS)

    def of(self, n: Any, name: str = "D") -> Any:
        """A size that has a name: this one if it is D and K."""
        if isinstance(n, Size):
            return n
        return Size(name) if n == self.K else self.names.get(n) or self.names.setdefault(n, Size(next(self.others)))

    def symbolic(self, name: str, x: Any) -> Any:
        """A matrix, or a number that is not 0, by its name; of a function, its numbers; anything else as it is."""
        shape: Any = getattr(x, "shape", ())
        if isinstance(x, ActivationFunction):
            return _with_symbols(x)
        if len(shape) == 2 and not isinstance(x, IndexMatrix):
            return self.symbols(name, self.of(shape[0], "K"), self.of(shape[1], "K" if shape[0] == 1 else "D"))
        return symbols(name, is_positive=x > 0) if isinstance(x, float) and x else x


class _BoundSizes(_Sizes):
    """Numbers as sizes, except N, and as numbers: for layers that need them, such as those of images."""

    N = BoundSize(1_000_003, "N")  # which divides nothing

    def __init__(self, layer: Layer) -> None:
        self.symbols = _Recording().named

    def of(self, n: Any, name: str = "D") -> Any:
        return n

    def symbolic(self, name: str, x: Any) -> Any:
        if len(getattr(x, "shape", ())) == 2:
            return super().symbolic(name, x)
        return x.item() if isinstance(x, np.ndarray) and not x.shape else x


class _Recording(Recording):
    """Values that are computed in the same way are one."""

    def __init__(self) -> None:
        super().__init__()
        self.values: dict[tuple[Any, ...], Value] = {}

    def matrix(self, value: Value) -> RecordedMatrix:
        return super().matrix(self.values.setdefault(value.key(), value))

    def named(self, name: str, *shape: Any) -> RecordedMatrix:
        """A matrix that is given."""
        return self.append("input", (), shape, "float64", name=name)


def _with_symbols(thing: Any) -> Any:
    """A copy of an activation function, a loss or an optimizer, with symbols for its numbers, also of its class."""
    clone = copy.copy(thing)
    attributes = (vars(base) for base in (*reversed(type(thing).__mro__), thing) if thing is not None)
    for name, x in [item for found in attributes for item in found.items()]:
        if isinstance(x, float) and x:
            setattr(clone, name, symbols(name, is_positive=x > 0))
    return clone


def _is_computed(A: Any) -> bool:
    """Whether something is a matrix that is neither given nor has a name already."""
    return isinstance(A, RecordedMatrix) and bool(A.value.operands)


def _with_variables(function: Callable[..., Any], *arguments: Any) -> tuple[Any, dict[str, Any]]:
    """What a function returns, and its variables."""
    variables: dict[str, Any] = {}
    code = inspect.unwrap(getattr(function, "__func__", function)).__code__

    def watch(frame: Any, event: str, _: Any) -> None:
        if event == "return" and frame.f_code is code:
            variables.update(frame.f_locals)

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        return function(*arguments), variables
    finally:
        sys.setprofile(before)
