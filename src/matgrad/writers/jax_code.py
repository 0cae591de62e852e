"""Code of JAX with a gradient of its own: custom_vjp, custom_jvp, functions with a backward, by their jaxprs."""

from __future__ import annotations

import contextlib
import math
import operator
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import FrameType
from typing import Any, ClassVar, Self
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import CustomVJPPrimal

from matgrad.foundation.callers import PACKAGE, is_of_user
from matgrad.index_notation.expressions import is_equal
from matgrad.inspection.settings import UnfollowedError
from matgrad.writers.jax_primitives import interpreted
from matgrad.writers.sizes import DivisionError, Question, Size, UnsupportedError, asked, number
from matgrad.writers.slots import keys
from matgrad.writers.subjects import Code, RefutedError, Run, Uses, by_name, parameters, without_gradient
from matgrad.writers.tensors import Tensor, gradient, symbols

PURE = """numpy nn lax scipy tree tree_util typing vmap jit grad value_and_grad vjp jvp checkpoint remat custom_vjp
custom_jvp Array"""  # of JAX


def is_followed(name: str, x: Any) -> bool:
    """Whether something of JAX does the same to symbols as to numbers, and depends on nothing else."""
    return name == "jax" or "_src" in name or name.split(".")[1] in PURE.split()


class JaxCode(Code):
    """Code whose gradients are a function of arguments and of gradients of outputs."""

    libraries: ClassVar[Uses] = {"jax": is_followed}
    refused = ("type", "__class__", "isinstance", "issubclass")  # symbolic sizes are no numbers
    keeps, edits = "keepdims", 40
    is_compiled = True

    def __init__(self, name: str, functions: Sequence[Callable[..., Any]]) -> None:
        self.name, self.functions = name, list(functions)
        self.compiled: dict[str, Callable[..., Any]] = {}

    def with_functions(self, functions: list[Callable[..., Any]]) -> Self:
        """The same with other functions."""
        found = super().with_functions(functions)
        found.compiled, found.is_compiled = {}, False  # as they run a few times only
        return found

    def run(self, arguments: Mapping[str, Any], numeric: bool) -> JaxRun:
        """Forward."""
        return JaxRun(self, arguments, numeric)

    def pulled(self, arguments: Mapping[str, Any], outputs: Sequence[Any], gs: Sequence[Any]) -> tuple[Any, Any]:
        """The outputs that go with the gradients, if there are any, and the gradients by argument."""
        raise NotImplementedError


class JaxRun(Run):
    """A run of forward."""

    def __init__(self, code: JaxCode, arguments: Mapping[str, Any], numeric: bool) -> None:
        self.code, self.arguments, self.numeric = code, dict(arguments), numeric
        self.lines = dict.fromkeys(arguments, _line(code.functions[-1]))
        self.outputs = self._run(lambda own, gs: self._forward(own), [])

    def _forward(self, own: Mapping[str, Any]) -> list[Any]:
        return list(jax.tree.leaves(self.code.functions[0](*own.values())))

    def gradients(self, gs: Sequence[Any]) -> dict[str, Any]:
        """What backward returns."""

        def pull(own: Mapping[str, Any], given: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
            outputs, found = self.code.pulled(own, self._forward(own), given)
            return list(jax.tree.leaves(outputs)), dict(found)

        again, gradients = self._run(pull, gs)
        self._compare(again)
        return dict.fromkeys(self.arguments) | gradients

    def _compare(self, again: Sequence[Any]) -> None:
        """Whether what goes with the gradients, if anything, is what the function returns."""
        for y, z in zip(self.outputs, again, strict=False):
            if not np.allclose(y, z) if self.numeric else self._differs(y, z):
                found = "the output that goes with the gradient is another one than that of the function"
                raise RefutedError(found) if self.numeric else UnfollowedError(f"{found}, or has another form")

    def _differs(self, y: Tensor, z: Tensor) -> bool:
        return y.dims != z.dims or not all(is_equal(y.data[k], z.data[k]) for k in keys(y.dims))

    def _run(self, f: Callable[[Mapping[str, Any], Sequence[Any]], Any], gs: Sequence[Any]) -> Any:
        """f on arrays; or its jaxpr for symbolic sizes, on symbols."""
        with jax.enable_x64(True), _symbolic_sizes(self.code.functions):
            if self.numeric:
                return jax.tree.map(np.asarray, self._compiled(f)(self._arrays(), [jnp.asarray(g) for g in gs]))
            symbolic = {n: x for n, x in self.arguments.items() if isinstance(x, Tensor)}
            known = self._sizes()

            def traced(own: Sequence[Any], given: Sequence[Any]) -> Any:
                values = dict(zip(symbolic, own, strict=True))
                fixed = {n: _size(x, known) if isinstance(x, Size) else x for n, x in self.arguments.items()}
                return f({n: values.get(n, x) for n, x in fixed.items()}, given)

            structures = [[_structure(x, known) for x in group] for group in (symbolic.values(), gs)]
            jaxpr, shape = jax.make_jaxpr(traced, return_shape=True)(*structures)
            return jax.tree.unflatten(jax.tree.structure(shape), interpreted(jaxpr, [*symbolic.values(), *gs]))

    def _arrays(self) -> dict[str, Any]:
        return {n: jnp.asarray(x) for n, x in self.arguments.items() if isinstance(x, np.ndarray)}

    def _compiled(self, f: Callable[..., Any]) -> Callable[..., Any]:
        """f of arrays, compiled once for each of the functions in here and each of the other arguments."""
        fixed = {n: x for n, x in self.arguments.items() if not isinstance(x, np.ndarray)}
        key = f"{f.__qualname__} {fixed}"

        def of_arrays(own: Mapping[str, Any], given: Sequence[Any]) -> Any:
            return f({n: own.get(n, fixed.get(n)) for n in self.arguments}, given)

        return self.code.compiled.setdefault(key, jax.jit(of_arrays) if self.code.is_compiled else of_arrays)

    def _sizes(self) -> dict[str, Any]:
        found = {a for x in self.arguments.values() for n in _sizes_of(x) for a in n.names}
        found |= {x.data[()].size for x in self.arguments.values() if isinstance(x, Tensor) and x.is_index}
        names = sorted(found)
        return dict(zip(names, jax.export.symbolic_shape(", ".join(names)), strict=True)) if names else {}


def _sizes_of(x: Any) -> list[Size]:
    return x.sizes if isinstance(x, Tensor) else [x] if isinstance(x, Size) else []


def _size(n: Size, known: Mapping[str, Any]) -> Any:
    return math.prod(number(a, known) for a in n.atoms)


def _structure(x: Tensor, known: Mapping[str, Any]) -> Any:
    kind = jnp.bool_ if x.is_bool else jnp.int64 if x.is_index else jnp.float64
    return jax.ShapeDtypeStruct(tuple(_size(n, known) for n in x.sizes), kind)


def _line(f: Callable[..., Any]) -> tuple[str, int]:
    code = getattr(f, "__code__", None)
    return (code.co_filename, code.co_firstlineno) if code else ("", 0)


@contextlib.contextmanager
def _symbolic_sizes(functions: Sequence[Callable[..., Any]]) -> Iterator[None]:
    """While functions run, math.sqrt and len take symbolic sizes; one that is divided has to be a product."""
    root, dimension = math.sqrt, type(jax.export.symbolic_shape("N")[0])

    def sqrt(x: Any) -> Any:
        return root(x) if isinstance(x, int | float | np.number) else jnp.sqrt(x)

    def length(x: Any) -> Any:
        return x.shape[0] if isinstance(x, jax.Array) else len(x)

    with contextlib.ExitStack() as stack:
        for space in (f.__globals__ for f in functions if hasattr(f, "__globals__")):
            stack.enter_context(mock.patch.dict(space, {"len": length}))
        stack.enter_context(mock.patch.object(math, "sqrt", sqrt))
        for name, answered in ANSWERED.items():
            own = partial(_answered, getattr(dimension, name, lambda n: True), answered)
            stack.enter_context(mock.patch.object(dimension, name, lambda *x, f=own: f(*x), create=True))
        try:
            yield
        except Exception as error:
            if found := re.search(r"(?:floordiv|mod)\((\w+), (\d+)\)", str(error)):
                raise DivisionError(found[0], found[1], int(found[2])) from error
            if "dimension" in type(error).__name__.lower():  # of JAX's, for questions about symbolic sizes
                raise UnsupportedError(str(error).splitlines()[0]).with_traceback(error.__traceback__) from error
            raise


def _answered(old: Callable[..., Any], answered: Callable[..., Any], *x: Any) -> Any:
    """What a method of a symbolic size answers: to users, whose questions are recorded, and to JAX."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and not is_of_user(frame.f_code):
        if frame.f_code.co_filename.startswith(PACKAGE) or "jax" in frame.f_code.co_filename:
            return old(*x)
        frame = frame.f_back
    return answered(*x)


def _is_equal(n: Any, other: Any) -> bool:
    """Whether a symbolic size is a number or another size: no, which is recorded, if it is not known."""
    if not isinstance(other, int | np.integer | type(n)):
        return False
    text = str(n - other).replace("^", "**")
    if text.lstrip("-").isdigit():
        return int(text) == 0

    def differs(sizes: Mapping[str, int]) -> bool:
        return bool(eval(text, {"floordiv": operator.floordiv, "mod": operator.mod, "max": max, "min": min}, {**sizes}))

    return asked(Question(f"{n} = {other}", False, differs))


def _unknown(n: Any, *_: Any) -> Any:
    raise UnsupportedError("the text or the hash of a size")


ANSWERED: dict[str, Callable[..., Any]] = {
    "__eq__": _is_equal,
    "__ne__": lambda n, other: not _is_equal(n, other),
    "__bool__": lambda n: not _is_equal(n, 0),
    **dict.fromkeys(("__str__", "__repr__", "__format__", "__hash__"), _unknown),
}


class CustomVJP(JaxCode):
    """jax.custom_vjp, with fwd and bwd."""

    backward_at = 2

    def __init__(self, f: Any) -> None:
        super().__init__(f.fun.__name__, [f.fun, f.fwd, f.bwd])
        self.has_symbolic_zeros = f.symbolic_zeros
        self.fixed = [n for i, n in enumerate(parameters(f.fun)) if i in f.nondiff_argnums]

    def pulled(self, arguments: Mapping[str, Any], outputs: Sequence[Any], gs: Sequence[Any]) -> tuple[Any, Any]:
        """The output of fwd, and the gradients of bwd."""
        plain = {n for n in arguments if n in self.fixed or not self.has_symbolic_zeros}
        given = [x if n in plain else CustomVJPPrimal(x, perturbed=True) for n, x in arguments.items()]
        y, kept = self.functions[1](*given)
        g = jax.tree.unflatten(jax.tree.structure(y), list(gs))
        found = self.functions[2](*(arguments[n] for n in self.fixed), kept, g)
        names = [n for n in arguments if n not in self.fixed]
        if len(found) != len(names):
            raise RefutedError(f"bwd returns {len(found)} gradients for {len(names)} arguments")
        return y, dict(zip(names, found, strict=True))


class CustomJVP(JaxCode):
    """jax.custom_jvp: the tangent of the output is linear in those of the arguments, with the gradients in it."""

    backward_at = None

    def __init__(self, f: Any) -> None:
        super().__init__(f.fun.__name__, [f.fun, f.jvp])

    def run(self, arguments: Mapping[str, Any], numeric: bool) -> JaxRun:
        """Forward."""
        return TangentRun(self, arguments, numeric)


class TangentRun(JaxRun):
    """A run whose gradients are those of Σ g·dy with respect to dx."""

    def gradients(self, gs: Sequence[Any]) -> dict[str, Any]:
        """The gradients in the rule for tangents."""
        jvp, names = self.code.functions[1], [n for n, x in self.arguments.items() if is_differentiable(x)]

        def rule(own: Mapping[str, Any], tangents: Sequence[Any]) -> tuple[list[Any], list[Any]]:
            given = dict(zip(names, tangents, strict=True))
            found = jvp(tuple(own.values()), tuple(given.get(n, 0.0) for n in own))
            return jax.tree.leaves(found[0]), jax.tree.leaves(found[1])

        if self.numeric:

            def pull(own: Mapping[str, Any], given: Sequence[Any]) -> list[Any]:
                zeros = [jnp.zeros_like(own[n]) for n in names]
                found = jax.vjp(lambda *tangents: rule(own, tangents)[1], *zeros)[1](list(given))
                return [*rule(own, zeros)[0], *found]

            again = self._run(pull, gs)
            self._compare(again)
            return dict.fromkeys(self.arguments) | dict(zip(names, again[len(self.outputs) :], strict=True))
        tangents = [symbols(f"d.{n}", self.arguments[n].dims) for n in names]
        found = self._run(lambda own, given: [y for part in rule(own, given) for y in part], tangents)
        self._compare(found)
        slopes = found[len(self.outputs) :]
        return dict.fromkeys(self.arguments) | {
            n: gradient(t, slopes, gs) for n, t in zip(names, tangents, strict=True)
        }


def is_differentiable(x: Any) -> bool:
    """Whether an argument is a tensor of numbers."""
    if isinstance(x, Tensor):
        return not x.is_bool and not x.is_index
    return isinstance(x, np.ndarray) and x.dtype.kind == "f"


class WithBackward(JaxCode):
    """A function, and a function of arguments, outputs (`output` or `y`) and gradients of them, by name."""

    def pulled(self, arguments: Mapping[str, Any], outputs: Sequence[Any], gs: Sequence[Any]) -> tuple[Any, Any]:
        """The gradients."""
        return [], by_name(self.functions[1], arguments, outputs, gs)


def jax_code(x: Any, backward: Callable[..., Any] | None) -> JaxCode:
    """The code that an object of JAX is."""
    if backward is not None:
        return WithBackward(x.__name__, [x, backward])
    for name, make in (("bwd", CustomVJP), ("jvp", CustomJVP)):
        if getattr(x, name, None) is not None:
            return make(x)
    raise ValueError(without_gradient(x))
