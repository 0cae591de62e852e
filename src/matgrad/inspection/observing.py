"""Watching or changing the values of equations while layers compute them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from copy import deepcopy
from functools import cache, partial, update_wrapper
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any, NamedTuple

from matgrad.inspection.equations import METHODS, Equation, Place, definers, executed, is_base_call, is_equation, read
from matgrad.layers.layer import Layer

Hook = Callable[[Layer, Equation, Any], Any]


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


@contextmanager
def replaced(thing: Any, method: str, call: Callable[..., Any]) -> Iterator[None]:
    """``thing.method(*arguments)`` is ``call(method, *arguments)`` while the context lasts, for one object."""
    own = vars(thing)
    before = {method: own[method]} if method in own else {}
    own[method] = partial(call, getattr(thing, method))
    try:
        yield
    finally:
        del own[method]
        own.update(before)


class _Observation(NamedTuple):
    """What a layer has while it is observed."""

    equations: dict[Place, Equation]  # of its class
    methods: dict[str, MethodType]  # that are added to the object
    hooks: list[Hook]


@contextmanager
def _observed(layer: Layer, hook: Hook) -> Iterator[None]:
    """Observe one layer: the first hook adds instrumented methods to the object, the last one removes them."""
    own, classes = vars(layer), type(layer).__mro__
    if "_observation" not in own:
        found = {method: executed(type(layer), method) for method in METHODS}
        names = [method for method in METHODS if found[method] and method not in own]
        methods = {method: _instrumented_method(layer, classes, method) for method in names}
        own.update(methods, _observation=_Observation(found["feedforward"] | found["backpropagate"], methods, []))
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
    cls, *_ = definers(classes, method)
    function = vars(cls)[method]
    return MethodType(_instrumented(cls, function, function.__code__), layer)


@cache
def _instrumented(cls: type, function: FunctionType, original: CodeType) -> FunctionType:
    """The function, a method of the class, in which every equation and every call of the base class's is redirected.

    ``name = expression`` becomes ``name = __observe__(self, k, expression)``, and ``super().method(X)`` becomes
    ``__base__(super())(X)``.
    """
    method = function.__name__

    def observe(layer: Layer, k: int, value: Any) -> Any:
        observation = vars(layer).get("_observation")
        equation = observation and observation.equations.get((cls, method, k))
        for hook in tuple(observation.hooks) if observation and equation else ():
            value = hook(layer, equation, value)
        return value

    def base(parent: Any) -> Callable[..., Any]:
        classes = parent.__self_class__.__mro__
        bases = classes[classes.index(parent.__thisclass__) + 1 :]
        has_equations = bool(definers(bases, method))
        return _instrumented_method(parent.__self__, bases, method) if has_equations else getattr(parent, method)

    cells = dict(zip(original.co_freevars, function.__closure__ or (), strict=True))
    cells |= {"__observe__": CellType(observe), "__base__": CellType(base)}
    code = _compiled(_redirected(function), original, f"__{cls.__name__}", cells)
    closure = tuple(cells[name] for name in code.co_freevars)
    replacement = FunctionType(code, function.__globals__, method, function.__defaults__, closure)
    replacement.__kwdefaults__ = function.__kwdefaults__
    return update_wrapper(replacement, function)  # type: ignore[return-value]


def _redirected(function: FunctionType) -> ast.FunctionDef:
    """The syntax tree of a method with calls of ``__observe__`` and ``__base__``."""
    source = deepcopy(read(function))
    assert isinstance(source.node, ast.FunctionDef)
    this = source.node.args.args[0].arg
    for k, statement in enumerate(source.statements):
        for node in ast.walk(statement):
            match node:
                case ast.Call(func=ast.Attribute(value=parent)) if is_base_call(node, function.__name__):
                    base = ast.Call(ast.Name("__base__", ast.Load()), [parent], [])
                    node.func = ast.copy_location(base, node.func)
        if isinstance(statement, ast.Assign) and is_equation(statement):
            arguments = [ast.Name(this, ast.Load()), ast.Constant(k), statement.value]
            call = ast.Call(ast.Name("__observe__", ast.Load()), arguments, [])
            statement.value = ast.copy_location(call, statement.value)
    return source.node


def _compiled(node: ast.FunctionDef, original: CodeType, class_name: str, variables: Iterable[str]) -> CodeType:
    """The code of a method with these free variables."""
    # inside a class because of names such as self.__x, and inside a function because of the free variables; the
    # underscores before the class name do not change self.__x, and keep it from hiding a name that the method uses
    tree = ast.parse(f"def outer({', '.join(variables)}):\n  class {class_name}: pass")
    tree.body[0].body[0].body = [node]  # type: ignore[attr-defined]
    code = compile(ast.fix_missing_locations(tree), original.co_filename, "exec")
    for name in ("outer", class_name, node.name):
        code = next(c for c in code.co_consts if isinstance(c, CodeType) and c.co_name == name)
    return code
