"""What a method executes, as a list of LaTeX lines, read from its source statement by statement.

``super().backpropagate(Z, DZ)`` continues in the base class with DZ as its DY, ``N, K = Z.shape`` gives sizes
their symbols, a variable that is updated from itself gets a prime, and what only unpacks or stores is left out.
A parameter that is None by default, such as the weights of a loss, is left out too.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from types import FunctionType, MappingProxyType

from matgrad.foundation.notation import symbol
from matgrad.inspection.equations import METHODS, source_of
from matgrad.typesetting.expressions import SizeSymbols, Typesetter, known
from matgrad.typesetting.name_resolver import (
    Frame,
    Resolver,
    callee,
    decided,
    defines,
    is_none,
    method_of,
    optional,
)


@dataclass(frozen=True)
class Line:
    """name = right, under conditions; what a function returns has no name."""

    variable: str  # in the source: what the value is assigned to, by the name that the caller uses
    name: str  # in LaTeX: with one prime more if it is updated
    right: str
    conditions: tuple[str, ...]
    file: str
    number: int

    def text(self, relation: str, head: str = "") -> str:
        """The line, with := if the left side is a notation rather than a letter; `head` = what is returned."""
        left = symbol(self.name).text if self.name else head
        relation = relation.replace("=", ":=") if left.endswith(r"^{-\frac12}") else relation
        return "".join([f"{left}{relation}{self.right}", *(rf" \quad {c}" for c in self.conditions)])


class Reader:
    """Reads the methods of a class in order of execution; `lines` has the assignments and returned values.

    `fixed` has attributes of the object whose values are known, such as ``training``: only the branches that are taken
    are read.
    """

    def __init__(self, owner: type | None, fixed: Mapping[str, ast.expr] = MappingProxyType({})) -> None:
        self.owner = owner
        self.lines: list[Line] = []
        self._fixed = fixed
        self._attributes: dict[str, ast.expr] = dict(fixed)
        self._sizes: dict[str, SizeSymbols] = {}
        self._active: list[FunctionType] = []

    def this(self, function: FunctionType) -> str:
        """The name of the object that a method belongs to, such as 'self'; '' for a plain function."""
        is_method = any(defines(cls, function) for cls in (self.owner.__mro__ if self.owner else ()))
        return next(iter(inspect.signature(function).parameters), "") if is_method else ""

    def read(self, function: FunctionType) -> None:
        """Read a function that is called from outside."""
        frame = Frame(function, self.this(function), self.owner, optional(function), self._attributes, self._sizes)
        if {"Y", "T"} <= inspect.signature(function).parameters.keys():
            self._sizes |= {"Y": ("N", "K"), "T": ("N", "K")}  # an output and its targets
        self._run(frame)

    def _run(self, frame: Frame) -> ast.expr | None:
        """Read the frame's function, and return the expression that it returns."""
        self._active.append(frame.function)
        returned = self._block(source_of(frame.function).node.body, frame, ())
        self._active.pop()
        return returned

    def _block(self, body: Iterable[ast.stmt], frame: Frame, conditions: tuple[str, ...]) -> ast.expr | None:
        returned = None
        for statement in body:
            match statement:
                case ast.If(test=test, body=[ast.Return(value=None | ast.Constant(value=None))], orelse=[]):
                    conditions = (*conditions, rf"\text{{unless }} {_condition(test, frame)}")
                case ast.If(test=test, body=inner, orelse=other) if (choice := decided(test, frame)) is not None:
                    returned = self._block(inner if choice else other, frame, conditions) or returned
                case ast.If(test=test, body=inner, orelse=other):
                    returned = self._block(inner, frame, (*conditions, rf"\text{{if }} {_condition(test, frame)}"))
                    returned = self._block(other, frame, (*conditions, r"\text{otherwise}")) or returned
                case ast.For(target=target, iter=values, body=inner):
                    loop = rf"\text{{for }} {_latex(target, frame)} \in {_latex(values, frame)}"
                    returned = self._block(inner, frame, (*conditions, loop))
                case ast.While(body=inner) | ast.With(body=inner) | ast.Try(body=inner):
                    returned = self._block(inner, frame, conditions)
                case ast.Return(value=ast.Call() as call) if base := _base_method(call, frame, self._active):
                    returned = self._run(
                        replace(callee(base, call, frame), result_names=frame.result_names, inner=frame.inner)
                    )
                case ast.Return(value=ast.expr() as value):
                    returned = Resolver(frame).visit(deepcopy(value))
                    if not frame.inner and not is_none(value):
                        self._line("", "", returned, frame, conditions, statement)
                case ast.Expr(value=ast.Call() as call):
                    if method := _base_method(call, frame, self._active) or _own_method(call, frame, self._active):
                        self._run(callee(method, call, frame))
                case (
                    ast.Assign(targets=[target], value=value) | ast.AnnAssign(target=target, value=ast.expr() as value)
                ):
                    self._assign(target, value, frame, conditions, statement)
                case ast.AugAssign(target=target, op=op, value=value):
                    self._assign(target, ast.BinOp(target, op, value), frame, conditions, statement)
        return returned

    def _assign(
        self, target: ast.expr, value: ast.expr, frame: Frame, conditions: tuple[str, ...], at: ast.stmt
    ) -> None:
        """``target = value``: sizes, a call of the base class, or one equation per name in the target."""
        resolver = Resolver(frame)
        if resolver.unpacks_sizes(target, value):
            return
        if isinstance(target, ast.Name) and (base := _base_method(value, frame, self._active)):
            assert isinstance(value, ast.Call)
            result = frame.result_names.get(target.id, target.id)
            returned = (s.value for s in ast.walk(source_of(base).node) if isinstance(s, ast.Return))
            names = [node.id for node in returned if isinstance(node, ast.Name)]
            found = self._run(replace(callee(base, value, frame), result_names=dict.fromkeys(names, result)))
            if found is not None:
                return self._bind(target, found, frame, conditions, at)
        if not isinstance(target, ast.Tuple | ast.List):
            return self._bind(target, resolver.visit(deepcopy(value)), frame, conditions, at)
        for item, element in zip(target.elts, resolver.elements(value), strict=False):
            if frame.function and frame.function.__name__ in METHODS and isinstance(item, ast.Name):
                frame.names[item.id] = element  # it has no equation, so it is written out where it is used
            else:
                self._bind(item, element, frame, conditions, at)

    def _bind(self, target: ast.expr, value: ast.expr, frame: Frame, conditions: tuple[str, ...], at: ast.stmt) -> None:
        """Give a name or an attribute its value."""
        match target:
            case ast.Name(id=key):
                table = frame.names
            case ast.Attribute(value=ast.Name(id=this), attr=key) if this == frame.this and key not in self._fixed:
                table = frame.attributes
            case _:
                return
        plain = frame.display(frame.result_names.get(key, key))
        before = table.get(key)
        name = before.id if isinstance(before, ast.Name) else plain
        stores = table is frame.attributes and isinstance(value, ast.Name | ast.Constant)
        is_fixed = any(value is known_value for known_value in self._fixed.values())
        if stores or is_fixed or (isinstance(value, ast.Name) and value.id == plain):
            table[key] = value
            return
        shown = name + "'" if name in {n.id for n in ast.walk(value) if isinstance(n, ast.Name)} else plain
        table[key] = ast.Name(shown)
        self._line(frame.result_names.get(key, key), shown, value, frame, conditions, at)
        frame.sizes[shown] = known(Typesetter(frame.sizes).size(value), frame.sizes.get(shown, (None, None)))

    def _line(
        self, variable: str, name: str, value: ast.expr, frame: Frame, conditions: tuple[str, ...], at: ast.stmt
    ) -> None:
        file = inspect.getsourcefile(frame.function.__code__) or frame.function.__code__.co_filename
        self.lines.append(Line(variable, name, Typesetter(frame.sizes)(value).text, conditions, file, at.lineno))


def _latex(node: ast.expr, frame: Frame) -> str:
    return Typesetter(frame.sizes)(Resolver(frame).visit(deepcopy(node))).text


def _condition(test: ast.expr, frame: Frame) -> str:
    return Typesetter(frame.sizes).condition(Resolver(frame).visit(deepcopy(test)))


def _base_method(call: ast.expr, frame: Frame, active: list[FunctionType]) -> FunctionType | None:
    """The method that ``super().name(...)`` calls, unless it is being read already."""
    match call:
        case ast.Call(func=ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr=name)):
            found = (vars(cls)[name] for cls in frame.bases() if name in vars(cls))
            function = next((inspect.unwrap(f) for f in found if isinstance(f, FunctionType)), None)
            return function if function not in active else None
    return None


def _own_method(call: ast.expr, frame: Frame, active: list[FunctionType]) -> FunctionType | None:
    """The method that ``self.name(...)`` calls, unless it is being read already."""
    match call:
        case ast.Call(func=ast.Attribute(value=ast.Name(id=this), attr=name)) if this == frame.this:
            function = method_of(frame.owner, name)
            return function if function not in active else None
    return None
