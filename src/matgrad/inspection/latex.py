r"""LaTeX of the equations that run, generated from the source of layers, losses and other classes.

Nothing is typed twice: a method is read statement by statement. ``super().backpropagate(Z, DZ)`` continues in the base
class with DZ as its DY, ``N, K = Z.shape`` gives sizes their symbols, a variable that is updated from itself gets a
prime, and what only unpacks or stores is left out, as is a parameter that is None by default, such as the weights of a
loss. `matgrad.inspection.typesetter` has the notation of the paper's table.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import FunctionType, MappingProxyType, MethodType
from typing import Any

from matgrad.activation_functions import ActivationFunction
from matgrad.foundation.notation import document, escape, function_symbol, is_word, number, symbol
from matgrad.inspection.equations import METHODS, Equation, executed, source_of
from matgrad.inspection.typesetter import UNKNOWN, SizeSymbols, Term, Typesetter, known
from matgrad.layers.dropout import LayerWithDropout
from matgrad.layers.layer import Layer
from matgrad.loss_functions import LossFunction
from matgrad.optimizers import Optimizer

NONE = Term(number(None), value=None)


def latex_equation(equation: Equation, of: Layer | None = None) -> str:
    r"""``name = expression`` in the paper's notation, such as \mathsf{D}Z = \mathsf{D}Y \odot \mathrm{act}'(Z).

    The names are those of the layer that executes it, even if a base class uses other names. An equation
    inside an ``if`` is followed by its condition. A size that the layer does not name is left out. For a layer `of`
    this class, what is switched off in it, such as dropout, is left out, and its activation function is named.
    """
    fixed: dict[str, Term] = {"R": NONE} if isinstance(of, LayerWithDropout) and not of.dropout else {}
    for name, value in vars(of).items() if of else ():
        if isinstance(value, bool):
            fixed[name] = Term(number(value), value=value)
        elif isinstance(value, ActivationFunction):
            fixed[name] = Typesetter({}).variable(_words_of(type(value)))
    reader = Reader(equation.layer, fixed)
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
    defined_in = plain.__globals__.get(plain.__qualname__.partition(".")[0])
    owner = owner or (type(function.__self__) if isinstance(function, MethodType) else defined_in)
    reader = Reader(owner if isinstance(owner, type) else None)
    reader.read(plain)
    if not reader.lines:
        raise ValueError(f"{plain.__qualname__} has no equation: expected an assignment or a returned value")
    this = reader.this(plain)
    parameters = [x for x in inspect.signature(plain).parameters if x != this and x not in _optional(plain)]
    name = notation(reader.owner, plain.__name__) if this else plain.__name__
    head = Typesetter({})(ast.Call(ast.Name(name), [ast.Name(x) for x in parameters], [])).text
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


# -- names -------------------------------------------------------------------------------------


def notation(owner: type | None, method: str) -> str:
    r"""How a method is written: \sigma and \sigma', \mathcal{L}_{\mathrm{SE}} and its \nabla_Y, or by its name."""
    if owner is None or method not in ("__call__", "gradient"):
        return function_symbol(method)
    if issubclass(owner, LossFunction):
        name = owner.__name__.removesuffix("Loss") or owner.__name__
        initials = "".join(re.findall("[A-Z]", name))
        index = initials if len(initials) > 1 else name
        return (r"\nabla_Y " if method == "gradient" else "") + rf"\mathcal{{L}}_{{\mathrm{{{index}}}}}"
    return function_symbol(_words_of(owner)) + ("'" if method == "gradient" else "")


def _words_of(activation: type) -> str:
    """The name of an activation function: ``hyperbolic_tangent`` for HyperbolicTangentActivation."""
    return re.sub(r"(?<=[a-z])(?=[A-Z][a-z])", "_", activation.__name__.removesuffix("Activation")).lower()


def method_of(owner: type | None, name: str) -> FunctionType | None:
    """The function of a method, unwrapped."""
    found = inspect.getattr_static(owner, name, None) if owner else None
    found = found.__func__ if isinstance(found, staticmethod) else found
    return inspect.unwrap(found) if isinstance(found, FunctionType) else None


def _optional(function: FunctionType) -> dict[str, Term]:
    """The parameters of a function that are None by default, each with its value."""
    return {p.name: NONE for p in inspect.signature(function).parameters.values() if p.default is None}


def _defines(cls: type, function: FunctionType) -> bool:
    """Whether the body of the class defines the function."""
    found = vars(cls).get(function.__name__)
    return isinstance(found, FunctionType) and inspect.unwrap(found) is function


# -- reading -----------------------------------------------------------------------------------


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

    def __init__(self, owner: type | None, fixed: Mapping[str, Term] = MappingProxyType({})) -> None:
        self.owner, self.fixed, self.attributes = owner, fixed, dict(fixed)
        self.classes = owner.__mro__ if owner else ()
        self.lines: list[Line] = []
        self.sizes: dict[str, SizeSymbols] = {}
        self.called: dict[tuple[str, int], str] = {}  # what the value of a line is called by who calls a base class

    def this(self, function: FunctionType) -> str:
        """The name of the object that a method belongs to, such as 'self'; '' for a plain function."""
        is_method = any(_defines(cls, function) for cls in self.classes)
        return next(iter(inspect.signature(function).parameters), "") if is_method else ""

    def read(self, function: FunctionType) -> None:
        """Read a function that is called from outside."""
        if {"Y", "T"} <= inspect.signature(function).parameters.keys():
            self.sizes |= {"Y": ("N", "K"), "T": ("N", "K")}  # an output and its targets
        with suppress(ValueError):
            found = executed(self.owner, function.__name__) if self.owner else {}
            self.called |= {(e.file, e.line): e.name for e in found.values()}
        _Frame(self, function, _optional(function)).run()


class _Frame(Typesetter):
    """A function that is being read, and what its names stand for.

    In its expressions names become what they stand for, ``self.x`` becomes x, and calls of methods become their
    notation.
    """

    def __init__(
        self, reader: Reader, function: FunctionType, names: dict[str, Term], caller: _Frame | None = None
    ) -> None:
        super().__init__(reader.sizes)
        self.reader, self.function, self.names, self.caller = reader, function, names, caller
        self.is_inner, self.this = caller is not None, reader.this(function)
        self.conditions: tuple[str, ...] = ()
        self.source, self.line = source_of(function), 0  # the line that is being read

    # -- statements ---------------------------------------------------------------------------
    def run(self) -> Term | None:
        """Read the function, and return what it returns."""
        return self._block(self.source.node.body)

    def _block(self, body: Iterable[ast.stmt], *conditions: str) -> Term | None:
        returned, outer = None, self.conditions
        self.conditions = (*outer, *conditions)
        for statement in body:
            self.line = statement.lineno
            match statement:
                case ast.If(test=test, body=[ast.Return(value=None | ast.Constant(value=None))], orelse=[]):
                    self.conditions = (*self.conditions, rf"\text{{unless }} {self.condition(test)}")
                case ast.If(test=test, body=inner, orelse=other) if isinstance(choice := self(test).value, bool):
                    returned = self._block(inner if choice else other) or returned
                case ast.If(test=test, body=inner, orelse=other):
                    returned = self._block(inner, rf"\text{{if }} {self.condition(test)}")
                    returned = self._block(other, r"\text{otherwise}") or returned
                case ast.For(target=target, iter=values, body=inner):
                    returned = self._block(inner, rf"\text{{for }} {self(target).text} \in {self(values).text}")
                case ast.While(body=inner) | ast.With(body=inner) | ast.Try(body=inner):
                    returned = self._block(inner)
                case ast.Return(value=ast.Call() as call) if base := self._called(call, of_base=True):
                    frame = self._callee(base, call)
                    frame.is_inner = self.is_inner
                    returned = frame.run()
                case ast.Return(value=ast.expr() as value):
                    returned = self(value)
                    if not self.is_inner and returned.value is not None:
                        self._add_line("", "", returned)
                case ast.Expr(value=ast.Call() as call) if method := self._called(call):
                    self._callee(method, call).run()
                case ast.Assign([target], value) | ast.AnnAssign(target, _, ast.expr() as value):
                    self._assign(target, value)
                case ast.AugAssign(target=target, op=op, value=value):
                    self._assign(target, ast.BinOp(target, op, value))
        self.conditions = outer
        return returned

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        """``target = value``: sizes, a call of the base class, or one equation per name in the target."""
        if self._unpacks_sizes(target, value):
            return
        if isinstance(target, ast.Name) and isinstance(value, ast.Call) and (base := self._called(value, of_base=True)):
            found = self._callee(base, value).run()
            if found is not None:
                return self._bind(target, found)
        if not isinstance(target, ast.Tuple | ast.List):
            return self._bind(target, self(value))
        for item, element in zip(target.elts, self._elements(value), strict=False):
            if self.function.__name__ in METHODS and isinstance(item, ast.Name):
                self.names[item.id] = element  # it has no equation, so it is written out where it is used
            else:
                self._bind(item, element)

    def _bind(self, target: ast.expr, value: Term) -> None:
        """Give a name or an attribute its value."""
        reader, table = self.reader, self.names
        match target:
            case ast.Name(id=key):
                pass
            case ast.Attribute(value=ast.Name(id=this), attr=key) if this == self.this and key not in reader.fixed:
                table = reader.attributes
            case _:
                return
        variable, before = reader.called.get((self.source.file, self.line), key), table.get(key)
        plain = self._display(variable)
        name = before.name if before and before.name else plain
        stores = table is reader.attributes and (value.name or value.value is not ...)
        if stores or value in reader.fixed.values() or value.name == plain:
            table[key] = value
            return
        shown = name + "'" if name in value.names else plain
        self._add_line(variable, shown, value)
        self.sizes[shown] = known(value.size, self.sizes.get(shown, UNKNOWN))
        table[key] = self.variable(shown)

    def _add_line(self, variable: str, name: str, value: Term) -> None:
        self.reader.lines.append(Line(variable, name, value.text, self.conditions, self.source.file, self.line))

    def _called(self, call: ast.Call, of_base: bool = False) -> FunctionType | None:
        """The method that ``super().name(...)`` or ``self.name(...)`` calls, unless it is being read already."""
        function: FunctionType | None = None
        match call.func:
            case ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr=name):
                function = next((f for cls in self._bases() if name in vars(cls) and (f := method_of(cls, name))), None)
            case ast.Attribute(value=ast.Name(id=this), attr=name) if this == self.this and not of_base:
                function = method_of(self.reader.owner, name)
        frame: _Frame | None = self
        while frame is not None and frame.function is not function:
            frame = frame.caller
        return function if frame is None else None

    def _bases(self) -> tuple[type, ...]:
        """The classes in which `super()` looks, in order."""
        classes = self.reader.classes
        return next((classes[k + 1 :] for k, cls in enumerate(classes) if _defines(cls, self.function)), ())

    def _callee(self, function: FunctionType, call: ast.Call) -> _Frame:
        """The frame of a called function: its parameters stand for the arguments."""
        names = list(inspect.signature(function).parameters)[1 if self.reader.this(function) else 0 :]
        given = dict(zip(names, call.args, strict=False)) | {k.arg: k.value for k in call.keywords if k.arg}
        values = {name: self(value) for name, value in given.items()}
        return _Frame(self.reader, function, values, self)

    # -- expressions --------------------------------------------------------------------------
    def __call__(self, node: ast.expr) -> Term:
        """The expression with what its names and the object's attributes stand for."""
        match node:
            case ast.Name(id=name):
                found = self.names.get(name)
            case ast.Attribute(value=ast.Name(id=this), attr=name) if this == self.this:
                found = self.reader.attributes.get(name)
            case _:
                return super().__call__(node)
        if found is None or found.name:  # with a size that may be known by now
            return self.variable(found.name if found else self._display(name))
        return found

    def _display(self, name: str) -> str:
        """The name in LaTeX; the D of a gradient is set off if the name of its parameter is a word."""
        of_word = name[:1] == "D" and is_word(name) and name[1:] in getattr(self.reader.owner, "parameters", ())
        return rf"\mathsf{{D}}{symbol(name[1:]).text}" if of_word else name

    def call(self, func: ast.expr, node: ast.Call) -> Term:
        """The call with the notation of its method; switches and private functions are written out."""
        owner, expanded = self.reader.owner, None
        match func:
            case ast.Name(id=name) if name == self.this:
                func = ast.Name(notation(owner, "__call__"))
            case ast.Attribute(value=ast.Name(id=this), attr=x) if this == self.this and (f := method_of(owner, x)):
                expanded, func = self._written_out(f, node, switch=True), ast.Name(notation(owner, x))
            case ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr=attr):
                func = ast.Name(notation(next(iter(self._bases()), None), attr))
            case ast.Name(id=name) if name.startswith("_") and name not in self.names:
                expanded = self._written_out(self.function.__globals__.get(name), node, switch=False)
        return expanded or super().call(func, node)

    def _written_out(self, function: object, call: ast.Call, switch: bool) -> Term | None:
        """What a one-line function returns; for a switch, such as `drop`, what it returns if nothing is None."""
        if not isinstance(function, FunctionType):
            return None
        frame = self._callee(function, call)
        *before, last = [x for x in frame.source.node.body if not isinstance(x, ast.Expr)]
        if not all(isinstance(x, ast.Assign) and frame._unpacks_sizes(x.targets[0], x.value) for x in before):
            return None
        match last:
            case ast.Return(value=ast.expr() as returned) if not switch:
                return frame(returned)
            case ast.Return(value=ast.IfExp(test=ast.Compare(ops=[ast.Is() | ast.IsNot() as op]) as test) as value):
                choice = frame(test).value
                choice = choice if isinstance(choice, bool) else isinstance(op, ast.IsNot)
                return frame(value.body if choice else value.orelse)
        return None

    def _elements(self, value: ast.expr) -> list[Term]:
        """The elements of ``a, b`` or of ``(f(p) for p in (a, b))``; [] for anything else."""
        match value:
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                return [self(element) for element in elements]
            case ast.GeneratorExp(f, [loop]) | ast.ListComp(f, [loop]) if isinstance(loop.target, ast.Name):
                found, names = [], self.names
                for element in self._elements(loop.iter) if not loop.ifs else ():
                    self.names = names | {loop.target.id: element}
                    found.append(self(f))
                self.names = names
                return found
        return []

    def _unpacks_sizes(self, target: ast.expr, value: ast.expr) -> bool:
        """Whether it is ``N, K = X.shape`` or ``N = X.shape[0]``, after which N and K are known as sizes of X."""
        match target, value:
            case ast.Tuple(elts=[ast.Name(id=m), ast.Name(id=n)]), ast.Attribute(value=X, attr="shape"):
                names = m, n
            case ast.Name(id=m), ast.Subscript(value=ast.Attribute(value=X, attr="shape"), slice=ast.Constant(value=k)):
                names = (m, "_") if k == 0 else ("_", m)
            case _:
                return False
        operand = self(X)
        sizes = zip(names, operand.size, strict=True)
        self.names |= {x: self.variable(n or x) for x, n in sizes if x != "_"}
        if operand.name:
            rows, columns = (x if x != "_" else None for x in names)
            self.sizes[operand.name] = known(operand.size, (rows, columns))
        return True
