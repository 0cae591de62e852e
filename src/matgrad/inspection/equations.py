"""The equations of layers, losses, functions and optimizers, read from their source: names, lines, places and labels.

An equation is a plain assignment ``name = expression`` in `feedforward` or `backpropagate`. An assignment
that only unpacks (``act = self.act``, ``N, _ = X.shape``) or stores (``self.X = X``) is not an equation.

``# eq:…``, at the end of a line or alone on the line before, is the label of an equation in the paper. ``# appendix:…``
is that of a section: it holds for everything in a class or function that has no label of its own::

    class SoftmaxLayer(LinearLayer):  # appendix:layers
        ...
            DZ = hadamard(Y, DY - column_repeat(rows_sum(hadamard(DY, Y)), K))  # eq:softmax-layer-backprop1
            super().backpropagate(Z, DZ)  # eq:softmax-layer-backprop2
"""

from __future__ import annotations

import ast
import inspect
import linecache
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from matgrad.layers.layer import Layer

METHODS = ("feedforward", "backpropagate")
LABEL = re.compile(r"# ((?:eq|appendix):[\w-]+)$")


@dataclass(frozen=True)
class Equation:
    """``name = expression``, as a layer class executes it.

    An inherited equation has the file, line and source of the base class. The equation of
    ``Z = super().feedforward(X)`` has the name Z and the source of what the base class returns.
    """

    layer: type  # the class that executes it
    method: str
    name: str
    line: int
    file: str
    source: str
    owner: type | None = None  # the class in whose method it has this name: `layer` or one of its bases
    defined_by: type | None = None  # the class in whose method it stands

    @property
    def location(self) -> str:
        """File and line relative to the current folder, such as ``src/matgrad/layers/linear.py:71``."""
        return f"{relative_path(self.file)}:{self.line}"

    @property
    def origin(self) -> tuple[str, str]:
        """The location and the source."""
        return self.location, self.source

    def __str__(self) -> str:
        return f"{self.layer.__name__}.{self.name}"


def relative_path(file: str) -> str:
    """The path of a file, relative to the current folder if it is inside; cells of a notebook have no path."""
    if re.search(r"\Wipykernel_\d+\W|ipython-input-", file):
        return "notebook cell"
    return os.path.relpath(file) if Path(file).is_relative_to(Path.cwd()) else file


def equations(layer_class: type[Layer], method: str) -> list[Equation]:
    """The equations of `method` in order of execution, with those of a base class where `super()` calls them."""
    if method not in METHODS:
        raise ValueError(f"method: expected one of {', '.join(METHODS)}, found {method!r}")
    return list(executed(layer_class, method).values())


def assignment(cls: type, method: str, name: str) -> Equation:
    """The last statement by which a class sets `name`, a variable or an attribute, also by unpacking.

    It is looked for in the given method, then in the others, but in constructors only if that is the method. If none
    sets it, it is the last ``return`` of the method, or its first line; the file is '?' without source.
    """
    function = getattr(cls, method)
    has_super = "super" in getattr(getattr(inspect.unwrap(function), "__code__", None), "co_names", ())
    members: dict[Any, Any] = {}
    for base in (base for base in cls.__mro__ if not issubclass(Layer, base)):
        for key, f in vars(base).items():
            if callable(f) and (key != "__init__" or method == "__init__"):
                members.setdefault((base, key) if key == method and has_super else key, f)
    sources = [source for f in (function, *members.values()) if (source := _known_source(f))]
    for source in sources:
        if found := [node for node in source.statements if name in _assigned(node)]:
            return Equation(cls, method, name, found[-1].lineno, source.file, source.text(found[-1]))
    own = _known_source(function)
    if own is None:
        return Equation(cls, method, name, 0, "?", f"{method}(…)")
    returned = [node for node in own.statements if isinstance(node, ast.Return)]
    line = returned[-1].lineno if returned else own.node.lineno
    return Equation(cls, method, name, line, own.file, own.text(returned[-1]) if returned else own.line(line))


def last_line(function: Callable[..., Any]) -> tuple[str, str]:
    """The location and source of the last line of a function; '?' if there is no source."""
    source = _known_source(function)
    if source is None:
        return "?", f"{getattr(function, '__name__', function)}(…)"
    number = source.node.end_lineno or 1
    return f"{relative_path(source.file)}:{number}", source.line(number)


@cache
def label_of(thing: type | Callable[..., Any], quantity: str = "") -> str:
    """The label of a class or function, or of what it computes, such as 'DZ' or 'gradient'; '' if there is none."""
    source = _known_source(thing)
    if source is None:  # defined in an interactive session
        return ""
    statements = [node for node in ast.walk(source.node) if isinstance(node, ast.stmt)]
    name = "__call__" if quantity == "value" else quantity
    own = [node for node in statements if name in (target_of(node), getattr(node, "name", None))]
    # the gradients of the base class are set by ``super().backpropagate(...)``
    base = [node for node in statements if isinstance(node, ast.Expr) and is_base_call(node.value, "backpropagate")]
    defining = own or (base if quantity.startswith("D") else [])
    return next(filter(None, (source.label(node) for node in (*defining, source.node))), "")


# -- source ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Source:
    """A function or class as it stands in a file, with the line numbers of the file."""

    node: ast.FunctionDef | ast.ClassDef
    lines: list[str]  # of the file, empty before the definition
    file: str

    @cached_property
    def statements(self) -> list[ast.stmt]:
        """The statements without a body of their own, in order; without those of inner functions."""
        return [*_simple_statements(self.node)]

    def line(self, number: int) -> str:
        """A line of the file."""
        return self.lines[number - 1].strip()

    def text(self, node: ast.stmt) -> str:
        """A statement in one line."""
        lines = [line.encode() for line in self.lines[node.lineno - 1 : node.end_lineno]]  # columns count bytes
        lines[-1] = lines[-1][: node.end_col_offset]
        lines[0] = lines[0][node.col_offset :]
        return " ".join(b"".join(lines).decode().split())

    def label(self, node: ast.stmt) -> str:
        """The label at the end of a statement, or of the first line of a definition, or alone on the line before."""
        is_definition = isinstance(node, ast.FunctionDef | ast.ClassDef)
        line = self.line(node.lineno if is_definition else node.end_lineno or node.lineno)
        found = LABEL.search(line) or LABEL.match(self.line(node.lineno - 1))
        return found[1] if found else ""


@cache
def source_of(thing: type | Callable[..., Any]) -> Source:
    """The source of a function or class; raises ValueError if it is not available or no definition."""
    thing = inspect.unwrap(thing)
    name = getattr(thing, "__name__", repr(thing))
    try:
        lines, first = inspect.getsourcelines(thing)
        lines = ["\n"] * (first - 1) + lines
        if lines[first - 1][0].isspace():  # an indented method goes under an `if`, so that its columns stay the same
            lines[first - 2] = "if True:\n"
        found = ast.walk(ast.parse("".join(lines)))
        node = next(n for n in found if isinstance(n, ast.FunctionDef | ast.ClassDef) and n.name == name)
        return Source(node, lines, inspect.getsourcefile(thing) or inspect.getfile(thing))
    except (OSError, TypeError, SyntaxError, StopIteration) as error:  # such as a lambda in the middle of something
        problem = f"the source of {getattr(thing, '__qualname__', name)} is not available"
        raise ValueError(f"{problem}: expected a plain `def {name}` in a file") from error


@cache
def read(function: FunctionType) -> Source:
    """The source of a method, which is what runs."""
    source = source_of(function)
    if not isinstance(function, FunctionType) or source.node.decorator_list or inspect.unwrap(function) is not function:
        raise ValueError(f"the equations of {source.node.name} cannot be read: expected a plain `def` in a file")
    flags = function.__code__.co_flags & annotations.compiler_flag  # which a notebook keeps from cell to cell
    if function.__code__ not in _codes_in(source.file, "".join(linecache.getlines(source.file)), flags):
        raise ValueError(f"the source of {function.__qualname__} is not what runs: it was edited after the import")
    return source


@cache
def _codes_in(file: str, source: str, flags: int) -> set[CodeType]:
    """The code of every function in a file."""
    found = [compile(source, file, "exec", flags, dont_inherit=True)]
    for code in found:
        found += (c for c in code.co_consts if isinstance(c, CodeType))
    return set(found)


def _known_source(thing: Any) -> Source | None:
    """The source of a function or class; None if it is not available."""
    with suppress(ValueError):
        return source_of(thing)
    return None


def _simple_statements(node: ast.AST) -> Iterator[ast.stmt]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt) and not hasattr(child, "body") and not isinstance(child, ast.Match):
            yield child
        elif not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.expr):
            yield from _simple_statements(child)


def target_of(node: ast.stmt) -> str | None:
    """The name that a plain assignment assigns to."""
    found = node.targets if isinstance(node, ast.Assign) else []
    return found[0].id if len(found) == 1 and isinstance(found[0], ast.Name) else None


def is_equation(node: ast.stmt) -> bool:
    """Whether it assigns to one name and does more than unpack a constant, an attribute or an element of a name."""
    if not isinstance(node, ast.Assign) or target_of(node) is None:
        return False
    value = node.value
    while isinstance(value, ast.Subscript) or (isinstance(value, ast.Attribute) and value.attr != "T"):
        value = value.value
    return not (isinstance(value, ast.Constant) or (value is not node.value and isinstance(value, ast.Name)))


def is_base_call(node: ast.AST | None, method: str) -> bool:
    """Whether the node is ``super().method(...)``."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr=name)):
            return name == method
    return False


def _assigned(node: ast.stmt) -> Iterator[str]:
    """The variables and attributes that a statement sets."""
    for child in ast.walk(node):
        match child:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name


# -- what a class executes ---------------------------------------------------------------------

Place = tuple[type, str, int]  # a class, a method that it defines itself, and the number of a statement in it


def executed(
    layer_class: type, method: str, classes: Sequence[type] | None = None, result: tuple[str, type] | None = None
) -> dict[Place, Equation]:
    """The equations of a method in order of execution, by their places.

    They are those of the first of the classes, and of the others as far as `super()` calls them. `result` is a name
    for what is returned, and the class whose method calls it that.
    """
    found: dict[Place, Equation] = {}
    if not (defining := definers(layer_class.__mro__ if classes is None else classes, method)):
        return found
    cls, *bases = defining
    source = read(vars(cls)[method])
    returned = [getattr(node.value, "id", "") for node in source.statements if isinstance(node, ast.Return)]
    for k, node in enumerate(source.statements):
        name, value = target_of(node), getattr(node, "value", None)
        if any(is_base_call(child, method) for child in ast.walk(node)):
            known_as = (name, cls) if name else result if isinstance(node, ast.Return) else None
            base = executed(layer_class, method, bases, known_as if is_base_call(value, method) else None)
            found |= base
            if any((e.name, e.owner) == known_as for e in base.values()):
                continue  # the value is that of an equation of the base class
        if name and is_equation(node):
            called = result if result and returned and name == returned[-1] else (name, cls)
            about = called[0], node.lineno, source.file, source.text(node), called[1], cls
            found[cls, method, k] = Equation(layer_class, method, *about)
    return found


def definers(classes: Iterable[type], method: str) -> list[type]:
    """The classes that define the method themselves, without `Layer`, whose methods have no equations."""
    return [cls for cls in classes if method in vars(cls) and cls is not Layer]
