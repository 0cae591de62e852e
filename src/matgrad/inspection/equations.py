"""The equations of a layer, read from its source, and a way to watch or change their values.

An equation is a plain assignment ``name = expression`` in `feedforward` or `backpropagate`. An assignment
that only unpacks (``act = self.act``, ``N, _ = X.shape``) or stores (``self.X = X``) is not an equation.
"""

from __future__ import annotations

import ast
import inspect
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass
from functools import cache, update_wrapper
from pathlib import Path
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any

from matgrad.inspection.sources import is_base_call, read, setting_statement
from matgrad.layers.layer import Layer

METHODS = ("feedforward", "backpropagate")
Hook = Callable[[Layer, "Equation", Any], Any]


@dataclass(frozen=True)
class Equation:
    """``name = expression``, as a layer class executes it.

    An inherited equation has the file, line and source of the base class. The equation of
    ``Z = super().feedforward(X)`` has the name Z and the source of what the base class returns.
    """

    layer: str  # the class that executes it
    method: str
    name: str
    line: int
    file: str
    source: str
    owner: str = ""  # the class in whose method it has this name: `layer` or one of its bases

    @property
    def location(self) -> str:
        """File and line relative to the current folder, such as ``src/matgrad/layers/linear.py:71``."""
        return f"{relative_path(self.file)}:{self.line}"

    @property
    def origin(self) -> tuple[str, str]:
        """The location and the source."""
        return self.location, self.source

    def __str__(self) -> str:
        return f"{self.layer}.{self.name}"


def full_name(path: str, owner: object, quantity: str) -> str:
    """The name of what a layer, loss, function or optimizer computes: ``layer 2 ActivationLayer.DW``.

    Without the path of a layer, as for a loss, it is ``SquaredErrorLoss.gradient``.
    """
    name = f"{type(owner).__name__}.{quantity}"
    return f"layer {path} {name}" if path else name


def relative_path(file: str) -> str:
    """The path of a file, relative to the current folder if it is inside; cells of a notebook have no path."""
    if re.search(r"\Wipykernel_\d+\W|ipython-input-", file):
        return "notebook cell"
    return os.path.relpath(file) if Path(file).is_relative_to(Path.cwd()) else file


def equations(layer_class: type[Layer], method: str) -> list[Equation]:
    """The equations of `method` in order of execution, with those of a base class where `super()` calls them."""
    if method not in METHODS:
        raise ValueError(f"method: expected one of {', '.join(METHODS)}, found {method!r}")
    return list(_execution(layer_class, method).values())


@contextmanager
def observed(layers: Iterable[Layer], hook: Hook) -> Iterator[None]:
    """Every equation of the layers becomes ``name = hook(layer, equation, expression)`` while the context lasts.

    The hook returns the value to continue with. In nested contexts, the outer hook is called first. Only the
    layer objects are changed, not their classes: other layers run as usual, also in other threads. A copy of
    an observed layer is not observed, nor is a method that was replaced in the object. Layers whose source cannot be
    read, such as those of an interactive session, run as usual.
    """
    with ExitStack() as stack:
        for layer in {id(layer): layer for layer in layers}.values():
            with suppress(ValueError):
                stack.enter_context(_observed(layer, hook))
        yield


def assignment(cls: type, method: str, name: str) -> Equation:
    """The last statement by which a class sets `name`, a variable or an attribute, in whatever form.

    It is looked for in the given method, then in the others, but in constructors only if that is the method. If none
    sets it, it is the last ``return`` of the method, or its first line; the file is '?' without source.
    """
    function = getattr(cls, method)
    members: dict[Any, Any] = {}
    for base in (base for base in cls.__mro__ if not issubclass(Layer, base)):
        for key, f in vars(base).items():
            is_called_by_super = key == method and "super" in _names_in(function)
            if callable(f) and (key != "__init__" or method == "__init__"):
                members.setdefault((base, key) if is_called_by_super else key, f)
    line, file, source = setting_statement(name, [function, *members.values()])
    return Equation(cls.__name__, method, name, line, file, source)


def last_line(function: Callable[..., Any]) -> tuple[str, str]:
    """The location and source of the last line of a function; '?' if there is no source."""
    try:
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError):
        return "?", f"{getattr(function, '__name__', function)}(…)"
    file = inspect.getsourcefile(function) or ""
    last = max(i for i, line in enumerate(lines) if line.strip())
    return f"{relative_path(file)}:{first + last}", lines[last].strip()


def _names_in(function: Any) -> tuple[str, ...]:
    """The global names that a function uses."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return code.co_names if code else ()


# -- what a class executes ---------------------------------------------------------------------

_StatementKey = tuple[type, str, int]  # a class, a method that it defines itself, and the number of a statement in it


def _execution(layer_class: type, method: str) -> dict[_StatementKey, Equation]:
    """The equations of a method in order of execution, by their statements."""
    return _equations_from(layer_class, method, _definers(layer_class.__mro__, method), None)


def _definers(classes: Iterable[type], method: str) -> list[type]:
    """The classes that define the method themselves, without `Layer`, whose methods have no equations."""
    return [cls for cls in classes if method in vars(cls) and cls is not Layer]


def _equations_from(
    layer: type, method: str, definers: list[type], result: tuple[str, str] | None
) -> dict[_StatementKey, Equation]:
    """The equations of the first of `definers`, and of the others as far as `super()` calls them.

    `result` is a name for what is returned, and the class whose method calls it that.
    """
    found: dict[_StatementKey, Equation] = {}
    if not definers:
        return found
    cls, *bases = definers
    source = read(vars(cls)[method])
    for k, s in enumerate(source.statements):
        if s.calls_base:
            known_as = (s.target, cls.__name__) if s.target else result if isinstance(s.node, ast.Return) else None
            base = _equations_from(layer, method, bases, known_as if is_base_call(s.value, method) else None)
            found |= base
            if any((e.name, e.owner) == known_as for e in base.values()):
                continue  # the value is that of an equation of the base class
        if s.target and s.is_equation:
            name, owner = result if result and s.target == source.result else (s.target, cls.__name__)
            found[cls, method, k] = Equation(layer.__name__, method, name, s.line, source.file, s.source, owner)
    return found


# -- watching ----------------------------------------------------------------------------------


class _Observation:
    """What a layer has while it is observed: hooks, the equations of its class, and the methods added to the object."""

    def __init__(self, layer: Layer) -> None:
        executed = {method: _execution(type(layer), method) for method in METHODS}
        self.equations = {key: equation for found in executed.values() for key, equation in found.items()}
        names = [method for method in METHODS if executed[method] and method not in vars(layer)]
        self.methods = {method: _instrumented_method(layer, type(layer).__mro__, method) for method in names}
        self.hooks: list[Hook] = []

    def __call__(self, layer: Layer, key: _StatementKey, value: Any) -> Any:
        equation = self.equations.get(key)
        if equation is not None:
            for hook in tuple(self.hooks):
                value = hook(layer, equation, value)
        return value


@contextmanager
def _observed(layer: Layer, hook: Hook) -> Iterator[None]:
    """Observe one layer: the first hook adds instrumented methods to the object, the last one removes them."""
    own = vars(layer)
    if "_observation" not in own:
        added = _Observation(layer)
        own.update(added.methods, _observation=added)
    observation = own["_observation"]
    observation.hooks.append(hook)
    try:
        yield
    finally:
        observation.hooks.remove(hook)
        if not observation.hooks:
            for name in ("_observation", *observation.methods):
                del own[name]


def _instrumented_method(layer: Layer, classes: Sequence[type], method: str) -> MethodType:
    """The method of the first class that defines it, instrumented and bound to the layer."""
    cls, *_ = _definers(classes, method)
    function = vars(cls)[method]
    return MethodType(_instrumented(cls, function, function.__code__), layer)


@cache
def _instrumented(cls: type, function: FunctionType, original: CodeType) -> FunctionType:
    """The function, a method of the class, with ``__observe__`` and ``__base__`` in it; see `_instrumented_code`."""
    method = function.__name__

    def observe(layer: Layer, k: int, value: Any) -> Any:
        observation = vars(layer).get("_observation")
        return value if observation is None else observation(layer, (cls, method, k), value)

    def base(parent: Any) -> Callable[..., Any]:
        classes = parent.__self_class__.__mro__
        bases = classes[classes.index(parent.__thisclass__) + 1 :]
        has_equations = bool(_definers(bases, method))
        return _instrumented_method(parent.__self__, bases, method) if has_equations else getattr(parent, method)

    code = _instrumented_code(function, cls.__name__)
    cells = dict(zip(original.co_freevars, function.__closure__ or (), strict=True))
    cells |= {"__observe__": CellType(observe), "__base__": CellType(base)}
    closure = tuple(cells[name] for name in code.co_freevars)
    replacement = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, closure)
    replacement.__kwdefaults__ = function.__kwdefaults__
    return update_wrapper(replacement, function)  # type: ignore[return-value]


def _instrumented_code(function: FunctionType, class_name: str) -> CodeType:
    """The code of a method in which every equation and every call of the base class's method is redirected.

    ``name = expression`` becomes ``name = __observe__(self, k, expression)``, and ``super().method(X)`` becomes
    ``__base__(super())(X)``. The free variables are those of `function`, ``__observe__`` and ``__base__``.
    """
    source = deepcopy(read(function))
    this = source.node.args.args[0].arg
    for k, s in enumerate(source.statements):
        for node in ast.walk(s.node):
            match node:
                case ast.Call(func=ast.Attribute(value=parent)) if is_base_call(node, function.__name__):
                    base = ast.Call(ast.Name("__base__", ast.Load()), [parent], [])
                    node.func = ast.copy_location(base, node.func)
        if s.is_equation and isinstance(s.node, ast.Assign):
            arguments = [ast.Name(this, ast.Load()), ast.Constant(k), s.node.value]
            call = ast.Call(ast.Name("__observe__", ast.Load()), arguments, [])
            s.node.value = ast.copy_location(call, s.node.value)
    return _compiled(source.node, function, class_name, "__observe__", "__base__")


def _compiled(node: ast.FunctionDef, function: FunctionType, class_name: str, *names: str) -> CodeType:
    """The code of a method whose free variables are those of `function`, and `names`."""
    # inside a class because of names such as self.__x, and inside a function because of the free variables; the
    # underscores before the class name do not change self.__x, and keep it from hiding a name that the method uses
    class_name = f"__{class_name}"
    tree = ast.parse(f"def outer({', '.join({*function.__code__.co_freevars, *names})}):\n  class {class_name}: pass")
    inner = next(n for n in ast.walk(tree) if isinstance(n, ast.ClassDef))
    inner.body = [node]
    code = compile(ast.fix_missing_locations(tree), function.__code__.co_filename, "exec")
    for name in ("outer", class_name, function.__name__):
        code = next(c for c in code.co_consts if isinstance(c, CodeType) and c.co_name == name)
    return code
