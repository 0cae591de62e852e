r"""LaTeX of the equations that run, generated from the source of layers, losses and other classes.

Nothing is typed twice: `matgrad.typesetting.methods` follows what a method executes, and
`matgrad.typesetting.expressions` has the notation of the paper's table.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any

from matgrad.activation_functions import ActivationFunction
from matgrad.foundation.notation import document, escape
from matgrad.inspection.equations import METHODS, Equation
from matgrad.layers.dropout import LayerWithDropout
from matgrad.layers.layer import Layer
from matgrad.optimizers import Optimizer
from matgrad.typesetting.expressions import Typesetter
from matgrad.typesetting.methods import Line, Reader, method_of, notation, optional, words_of


def latex_equation(equation: Equation, of: Layer | None = None) -> str:
    r"""``name = expression`` in the paper's notation, such as \mathsf{D}Z = \mathsf{D}Y \odot \mathrm{act}'(Z).

    The names are those of the layer that executes it, even if a base class uses other names. An equation
    inside an ``if`` is followed by its condition. A size that the layer does not name is left out. For a layer `of`
    this class, what is switched off in it, such as dropout, is left out, and its activation function is named.
    """
    reader = Reader(equation.layer, _fixed(of))
    for method in METHODS[: METHODS.index(equation.method) + 1]:
        reader.lines.clear()  # backpropagate needs only the sizes from feedforward
        if function := method_of(equation.layer, method):
            reader.read(function)
    for line in reader.lines:
        if (line.file, line.number, line.variable) == (equation.file, equation.line, equation.name):
            return line.text(" = ")
    if of is None:
        raise ValueError(f"{equation.source} cannot be typeset")
    return latex_equation(equation)  # of a branch that is not taken


def latex_function(function: Callable[..., Any], owner: type | None = None) -> str:
    """``f(X) = expression`` for a function, after the assignments that it needs, in an ``aligned`` environment.

    It takes functions, methods and callable objects. `owner` is the class for which an inherited method is
    meant, if the method is not bound to an object. The updates of an optimizer are listed line by line.
    """
    if not isinstance(function, FunctionType | MethodType):
        function = function.__call__  # type: ignore[operator]
    plain = inspect.unwrap(getattr(function, "__func__", function))
    owner = owner or (type(function.__self__) if isinstance(function, MethodType) else _owner(plain))
    reader = Reader(owner)
    reader.read(plain)
    this = reader.this(plain)
    given = inspect.signature(plain).parameters.keys() - {this} - optional(plain).keys()
    arguments: list[ast.expr] = [ast.Name(name) for name in inspect.signature(plain).parameters if name in given]
    name = notation(owner, plain.__name__) if this else plain.__name__
    head = Typesetter({})(ast.Call(ast.Name(name), arguments, [])).text
    if not reader.lines:
        raise ValueError(f"{plain.__qualname__} has no equation: expected an assignment or a returned value")
    return aligned([line.text(" &= ", head) for line in reader.lines])


def aligned(lines: list[str]) -> str:
    """Lines with an & before the relation in an ``aligned`` environment; a single line stands alone."""
    if len(lines) == 1:
        return lines[0].replace(" &", " ", 1)
    return r"\begin{aligned} " + r" \\ ".join(lines) + r" \end{aligned}"


def update_lines(optimizer: type[Optimizer]) -> list[Line]:
    """What the update of an optimizer executes, with that of its base class where it calls it."""
    reader = Reader(optimizer)
    if function := method_of(optimizer, "update"):
        reader.read(function)
    return reader.lines


def latex_document(sections: list[tuple[str, list[str]]]) -> str:
    """A document for pdflatex: sections with a title and equations, each equation on lines of its own."""
    content = []
    for title, lines in sections:
        content += ["", rf"\section*{{{escape(title)}}}", *(f"\\[\n{line}\n\\]" for line in lines)]
    return document(*content)


def _fixed(layer: Layer | None) -> dict[str, ast.expr]:
    """The attributes of a layer that equations depend on as switches, or that are functions with a name."""
    has_none = isinstance(layer, LayerWithDropout) and not layer.dropout
    found: dict[str, ast.expr] = {"R": ast.Constant(None)} if has_none else {}
    for name, value in vars(layer).items() if layer else ():
        if isinstance(value, bool):
            found[name] = ast.Constant(value)
        elif isinstance(value, ActivationFunction):
            found[name] = ast.Name(words_of(type(value)))
    return found


def _owner(function: FunctionType) -> type | None:
    """The class whose body defines a function."""
    found = function.__globals__.get(function.__qualname__.partition(".")[0])
    return found if isinstance(found, type) else None
