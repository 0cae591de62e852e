"""Verdicts on equations: what `matgrad verify` prints about them, where their source is, and their labels in the paper.

``# eq:…``, at the end of a line or alone on the line before, is the label of an equation. ``# appendix:…`` is that of
a section: it holds for everything in a class or function that has no label of its own::

    class SoftmaxLayer(LinearLayer):  # appendix:layers
        ...
            DZ = hadamard(Y, DY - column_repeat(rows_sum(hadamard(DY, Y)), K))  # eq:softmax-layer-backprop1
            super().backpropagate(Z, DZ)  # eq:softmax-layer-backprop2
"""

from __future__ import annotations

import ast
import inspect
import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from matgrad.backends.base import Array
from matgrad.inspection.equations import Equation, assignment, equations, last_line, observed
from matgrad.inspection.faults import fault_of
from matgrad.layers.dropout import LayerWithDropout
from matgrad.layers.layer import Layer

LABEL = re.compile(r"# ((?:eq|appendix):[\w-]+)$")


@cache
def label_of(thing: type | Callable[..., Any], quantity: str = "") -> str:
    """The label of a class or function, or of what it computes, such as 'DZ' or 'gradient'; '' if there is none."""
    try:
        source = inspect.getsource(thing)
    except (OSError, TypeError):  # defined in an interactive session
        return ""
    source = f"if True:\n{source}" if source[0].isspace() else source
    tree = next(node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef | ast.FunctionDef))
    lines = source.splitlines()
    labels = (_label(node, lines) for node in (*_defining_statements(tree, quantity), tree))
    return next((label for label in labels if label), "")


def _defining_statements(tree: ast.AST, quantity: str) -> list[ast.stmt]:
    """The equation or method of that name, or, for a gradient without one, the call of the base class."""
    statements = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]
    own = [node for node in statements if quantity in _names(node)]
    return own or [node for node in statements if quantity.startswith("D") and _calls_base(node)]


def _names(node: ast.stmt) -> Iterator[str]:
    """The name that a statement assigns to or defines; ``__call__`` computes the 'value' of a function."""
    match node:
        case ast.Assign(targets=[ast.Name(id=name)]):
            yield name
        case ast.FunctionDef(name=name):
            yield "value" if name == "__call__" else name


def _calls_base(node: ast.stmt) -> bool:
    """Whether it is ``super().backpropagate(...)``, which sets the gradients of the base class."""
    return isinstance(node, ast.Expr) and ast.unparse(node).startswith("super().backpropagate(")


def _label(node: ast.stmt, lines: list[str]) -> str:
    """The label at the end of a statement, or of the first line of a definition, or alone on the line before."""
    is_definition = isinstance(node, ast.FunctionDef | ast.ClassDef)
    line = lines[(node.lineno if is_definition else node.end_lineno or node.lineno) - 1]
    before = lines[node.lineno - 2].strip() if node.lineno > 1 else ""
    found = LABEL.search(line) or LABEL.match(before)
    return found[1] if found else ""


def feedforward_values(layer: Layer, X: Array, names: Iterable[str]) -> dict[str, Array]:
    """What feedforward computes: the values of its equations, the output Y, and other values of these names."""
    found: dict[str, Array] = {}

    def hook(layer: Layer, equation: Equation, value: Array) -> Array:
        found[equation.name] = value
        return value

    with observed([layer], hook):
        result = layer.feedforward(X)
    return found | {name: getattr(layer, name, None) for name in names if name not in found} | {"Y": result}


def origin_of(layer: Layer, name: str) -> tuple[str, str]:
    """The location and source of what feedforward computes; R and running statistics are set in other methods."""
    if name == "R" and isinstance(layer, LayerWithDropout):
        return last_line(type(layer).dropout_matrix)
    equation = next((e for e in reversed(equations(type(layer), "feedforward")) if e.name == name), None)
    return (equation or assignment(type(layer), "feedforward", name)).origin


@dataclass(frozen=True)
class Check:
    """The verdict on one equation: one row of the table that `matgrad verify` prints."""

    name: str  # 'ActivationLayer.DW', or the name of a derivation
    location: str  # file and line of the equation that ran
    label: str  # of the equation in the paper, such as 'eq:softmax-derivation', or the name of its section
    sizes: str  # 'N=3 D=4 K=5'
    method: str  # 'algebra', 'points', 'numbers' (of NumPy) or 'differences' (central ones); 'none' with a note
    seconds: float
    ok: bool
    message: str = ""  # where it is wrong, with both symbolic entries
    source: str = ""  # of the equation
    note: str = ""  # why there is no verdict: it is then neither right nor wrong


def judged(
    thing: type | Callable[..., Any],
    quantity: str,
    origin: tuple[str, str],
    sizes: str,
    problem: str,
    *,
    method: str = "none",
    start: float | None = None,
    prefix: str = "",
    note: str = "",
) -> Check:
    """The verdict on what a class or function computes; the problem is what its name is followed by, '' if it is right.

    `quantity` names it, such as 'DZ' or 'gradient'. `origin` is its location and source; `start` is when the
    check began; `prefix` names the layer that a class is part of. A `note` says why there is nothing to compare with.
    """
    name = prefix + (f"{thing.__name__}.{quantity}" if quantity else thing.__name__)
    location, source = origin
    message = f"{name} {problem}\n  in {location}: {source}" if problem else ""
    seconds = 0.0 if start is None else time.perf_counter() - start
    label = "" if note else label_of(thing, quantity)
    return Check(name, location, label, sizes, method, seconds, not problem, message, source, note)


def crash(error: Exception, sizes: str = "", default: str = "") -> Check:
    """The verdict on a class that raises an error: its method, or else the `default` name, and the line."""
    fault = fault_of(error)
    name = fault.name or default
    message = f"{name} {fault.reason}\n  in {fault.location}: {fault.source}"
    return Check(name, fault.location, "", sizes, "none", 0.0, False, message, fault.source)


@dataclass(frozen=True)
class Case:
    """Something to check: its name in specifications, and the function that checks it."""

    name: str
    check: Callable[[], list[Check]]
    is_basic: bool = False  # whether it is about symbols, for a batch in training mode

    def run(self) -> list[Check]:
        """The verdicts; an error is one too."""
        try:
            return self.check()
        except Exception as error:
            return [crash(error, default=self.name)]
