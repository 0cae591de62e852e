"""The paper's labels of equations, which are comments beside the equations in the source.

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
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

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
