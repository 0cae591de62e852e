"""What the names in a method stand for, and how the functions that it calls are written."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from copy import deepcopy
from dataclasses import dataclass, field, replace
from types import FunctionType
from typing import Any

from matgrad.foundation.notation import function_symbol, is_word, symbol
from matgrad.inspection.equations import source_of
from matgrad.loss_functions import LossFunction
from matgrad.typesetting.expressions import SizeSymbols, Typesetter, known


@dataclass
class Frame:
    """A function that is being read: what its names and its object's attributes stand for."""

    function: Any = None  # a FunctionType, or None if it is unknown
    this: str = "self"  # the name of the object that a method belongs to
    owner: type | None = None
    names: dict[str, ast.expr] = field(default_factory=dict)
    attributes: dict[str, ast.expr] = field(default_factory=dict)
    sizes: dict[str, SizeSymbols] = field(default_factory=dict)
    result_names: dict[str, str] = field(default_factory=dict)  # the caller's names for returned variables
    inner: bool = False  # whether it is called by another function that is being read

    def display(self, name: str) -> str:
        """The name in LaTeX; the D of a gradient is set off if the name of its parameter is a word."""
        of_word = name[:1] == "D" and is_word(name) and name[1:] in getattr(self.owner, "parameters", ())
        return rf"\mathsf{{D}}{symbol(name[1:]).text}" if of_word else name

    def bases(self) -> list[type]:
        """The classes in which `super()` looks, in order."""
        classes = list(self.owner.__mro__) if self.owner else []
        found = [k for k, cls in enumerate(classes) if self.function and defines(cls, self.function)]
        return classes[found[0] + 1 :] if found else []

    def globals(self, name: str) -> object:
        """What a name stands for outside the function."""
        return self.function.__globals__.get(name) if self.function else None


class Resolver(ast.NodeTransformer):
    """Replaces names by what they stand for, ``self.x`` by x, and calls of methods by their notation."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """What the name stands for; a constant of the module is written out."""
        if len(node.id) > 1 and node.id.isupper() and self.frame.globals(node.id) is not None:
            return _constant(self.frame.globals("__name__"), node.id) or node
        return self.frame.names.get(node.id) or ast.Name(self.frame.display(node.id))

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        """What the object's attribute stands for."""
        if isinstance(node.value, ast.Name) and node.value.id == self.frame.this:
            return self.frame.attributes.get(node.attr) or ast.Name(self.frame.display(node.attr))
        return self.generic_visit(node)  # type: ignore[return-value]

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """The call with the notation of its method; switches and private functions are written out."""
        owner, this = self.frame.owner, self.frame.this
        match node.func:
            case ast.Name(id=name) if name == this:
                node.func = ast.Name(notation(owner, "__call__"))
            case ast.Attribute(value=ast.Name(id=name), attr=attr) if name == this and method_of(owner, attr):
                if expanded := self._written_out(method_of(owner, attr), node, switch=True):
                    return expanded
                node.func = ast.Name(notation(owner, attr))
            case ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr=attr):
                node.func = ast.Name(notation(next(iter(self.frame.bases()), None), attr))
            case ast.Name(id=name) if name.startswith("_") and name not in self.frame.names:
                if expanded := self._written_out(self.frame.globals(name), node, switch=False):
                    return expanded
        self.generic_visit(node)
        node.args = [x for x in node.args if not is_none(x)]
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        """Its value if the condition is decided; else the expression itself."""
        choice = decided(node.test, self.frame)
        if choice is not None:
            return self.visit(node.body if choice else node.orelse)
        return self.generic_visit(node)  # type: ignore[return-value]

    def _written_out(self, function: object, call: ast.Call, switch: bool) -> ast.expr | None:
        """What a one-line function returns; for a switch, such as `drop`, what it returns if nothing is None."""
        if not isinstance(function, FunctionType):
            return None
        resolver = Resolver(callee(function, call, self.frame))
        for statement in source_of(function).node.body:
            match statement:
                case ast.Expr(value=ast.Constant()):
                    continue
                case ast.Assign(targets=[target], value=value) if resolver.unpacks_sizes(target, value):
                    continue
                case ast.Return(value=ast.IfExp(test=ast.Compare(ops=[ast.Is() | ast.IsNot()]) as test) as value) if (
                    switch
                ):
                    choice = decided(test, resolver.frame)
                    choice = isinstance(test.ops[0], ast.IsNot) if choice is None else choice
                    return resolver.visit(deepcopy(value.body if choice else value.orelse))
                case ast.Return(value=ast.expr() as value) if not switch:
                    return resolver.visit(deepcopy(value))
            return None
        return None

    def elements(self, value: ast.expr) -> list[ast.expr]:
        """The elements of ``a, b`` or of ``(f(p) for p in (a, b))``; [] for anything else."""
        match value:
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                return [self.visit(deepcopy(element)) for element in elements]
            case (
                ast.GeneratorExp(elt=f, generators=[ast.comprehension(target=ast.Name(id=p), iter=values, ifs=[])])
                | ast.ListComp(elt=f, generators=[ast.comprehension(target=ast.Name(id=p), iter=values, ifs=[])])
            ):
                frames = (replace(self.frame, names=self.frame.names | {p: x}) for x in self.elements(values))
                return [Resolver(frame).visit(deepcopy(f)) for frame in frames]
        return []

    def unpacks_sizes(self, target: ast.expr, value: ast.expr) -> bool:
        """Whether it is ``N, K = X.shape`` or ``N = X.shape[0]``, after which N and K are known as sizes of X."""
        match target, value:
            case ast.Tuple(elts=[ast.Name(id=m), ast.Name(id=n)]), ast.Attribute(value=X, attr="shape"):
                names: tuple[str | None, str | None] = (m, n)
            case ast.Name(id=m), ast.Subscript(value=ast.Attribute(value=X, attr="shape"), slice=ast.Constant(value=k)):
                names = (m, None) if k == 0 else (None, m)
            case _:
                return False
        X = self.visit(deepcopy(X))
        size = Typesetter(self.frame.sizes).size(X)
        rows, columns = (name if name != "_" else None for name in names)
        for name, symbol_of in zip((rows, columns), size, strict=True):
            if name:
                self.frame.names[name] = ast.Name(symbol_of or name)
        if isinstance(X, ast.Name):
            self.frame.sizes[X.id] = known(size, (rows, columns))
        return True


def decided(test: ast.expr, frame: Frame) -> bool | None:
    """Whether a condition holds, if that follows from what is known to be None, True or False; else None."""
    match Resolver(frame).visit(deepcopy(test)):
        case ast.Constant(value=bool() as value):
            return value
        case ast.Compare(left=left, ops=[ast.Is() | ast.IsNot() as op], comparators=[right]) if is_none(right):
            return isinstance(op, ast.Is) if is_none(left) else None
    return None


def resolved(value: ast.expr) -> ast.expr:
    """An expression of a method whose class is unknown, with x for ``self.x``."""
    return Resolver(Frame()).visit(deepcopy(value))


def notation(owner: type | None, method: str) -> str:
    r"""How a method is written: \sigma and \sigma', \mathcal{L}_{\mathrm{SE}} and its \nabla_Y, or by its name."""
    if owner is None or method not in ("__call__", "gradient"):
        return function_symbol(method)
    if issubclass(owner, LossFunction):
        name = owner.__name__.removesuffix("Loss") or owner.__name__
        initials = "".join(re.findall("[A-Z]", name))
        index = initials if len(initials) > 1 else name
        return (r"\nabla_Y " if method == "gradient" else "") + rf"\mathcal{{L}}_{{\mathrm{{{index}}}}}"
    return function_symbol(words_of(owner)) + ("'" if method == "gradient" else "")


def words_of(activation: type) -> str:
    """The name of an activation function: ``hyperbolic_tangent`` for HyperbolicTangentActivation."""
    return re.sub(r"(?<=[a-z])(?=[A-Z][a-z])", "_", activation.__name__.removesuffix("Activation")).lower()


def method_of(owner: type | None, name: str) -> FunctionType | None:
    """The function of a method, unwrapped."""
    found = inspect.getattr_static(owner, name, None) if owner else None
    found = found.__func__ if isinstance(found, staticmethod) else found
    return inspect.unwrap(found) if isinstance(found, FunctionType) else None


def defines(cls: type, function: FunctionType) -> bool:
    """Whether the body of the class defines the function."""
    found = vars(cls).get(function.__name__)
    return isinstance(found, FunctionType) and inspect.unwrap(found) is function


def optional(function: FunctionType) -> dict[str, ast.expr]:
    """The parameters of a function that are None by default, such as the weights of a loss, each with its value."""
    parameters = inspect.signature(function).parameters.values()
    return {p.name: ast.Constant(None) for p in parameters if p.default is None}


def is_none(node: ast.AST | None) -> bool:
    """Whether an expression is None."""
    return isinstance(node, ast.Constant) and node.value is None


def _constant(module: object, name: str) -> ast.expr | None:
    """The expression that a module assigns to a constant."""
    for statement in ast.parse(inspect.getsource(sys.modules[str(module)])).body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=found)], value=value) if found == name:
                return value
    return None


def callee(function: FunctionType, call: ast.Call, frame: Frame) -> Frame:
    """The frame of a called function: its parameters stand for the arguments."""
    names = list(inspect.signature(function).parameters)
    is_method = any(defines(cls, function) for cls in (frame.owner.__mro__ if frame.owner else ()))
    this = names.pop(0) if is_method else ""
    given = dict(zip(names, call.args, strict=False)) | {k.arg: k.value for k in call.keywords if k.arg}
    values = {name: Resolver(frame).visit(deepcopy(value)) for name, value in given.items()}
    return Frame(function, this, frame.owner, values, frame.attributes, frame.sizes, inner=True)
