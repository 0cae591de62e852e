"""What is proved: code that computes outputs from its arguments, and gradients from those of its outputs."""

from __future__ import annotations

import contextlib
import copy
import inspect
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any, ClassVar, Self

MISSING = inspect.Parameter.empty


Uses = Mapping[str, Callable[[str, Any], bool]]  # of libraries, whether something there with a name may be used


class Code(ABC):
    """A function with its gradient, on symbols or on numbers."""

    name: str
    functions: list[Callable[..., Any]]  # those of the user, forward first
    sums_gradients = False  # whether gradients that have more dimensions than arguments are summed
    libraries: ClassVar[Uses]  # what the code may use
    refused: tuple[str, ...] = ()  # names of what it may not
    module: Any = None  # whose attributes it depends on
    backward_at: int | None = 1  # which of the functions returns the gradients; None if none does
    gradient_name = "g"  # of the gradient of an output
    keeps = "keepdim"  # what a sum is told to keep its dimensions
    edits = 800  # how many are tried of wrong lines, which takes a second at most

    @property
    def parameters(self) -> dict[str, Any]:
        """The arguments of forward, with their defaults."""
        return parameters(self.functions[0])

    def sizes(self, shapes: Mapping[str, Any]) -> dict[str, int]:
        """The sizes that are fixed, by the names in shapes of arguments."""
        return {}

    def with_functions(self, functions: list[Callable[..., Any]]) -> Self:
        """The same with other functions."""
        found = copy.copy(self)
        found.functions = functions
        return found

    @abstractmethod
    def run(self, arguments: Mapping[str, Any], numeric: bool) -> Run:
        """Forward, on arrays or on tensors of index notation."""


class Run(ABC):
    """A run of forward: its outputs, and what backward gives for gradients of them."""

    outputs: list[Any]
    names: Mapping[str, Any] = {}  # values of variables in forward, and of those that backward gets from it
    lines: Mapping[str, tuple[str, int]] = {}  # where gradients are computed
    remarks: Sequence[str] = ()
    values: Sequence[Any] = ()  # those that are symbols after a cut, with what they are

    def cut(self) -> Run:
        """Another run, in which values of forward are symbols with their names in the code, if they have some."""
        return self

    @abstractmethod
    def gradients(self, gs: Sequence[Any]) -> dict[str, Any]:
        """The gradient with respect to each argument, by its name; None where there is none."""


class RefutedError(Exception):
    """What is wrong whatever the numbers are."""


def parameters(f: Callable[..., Any]) -> dict[str, Any]:
    """The parameters of a function, with their defaults."""
    found = inspect.signature(f).parameters.values()
    if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in found):
        raise ValueError(f"{f.__qualname__} takes *arguments: wrap it in a function with names for them")
    return {p.name: p.default for p in found}


def without_gradient(x: Any) -> str:
    """What is wrong with something that has no backward."""
    kind = "class" if isinstance(x, type) else "function" if callable(x) else "thing"
    return (
        f"{getattr(x, '__name__', repr(x))} is a {kind} without a gradient of its own: expected an autograd.Function, "
        "a custom operator, a jax.custom_vjp or custom_jvp, or a function or module with --backward NAME (backward=)"
    )


@contextlib.contextmanager
def local_variables(f: Callable[..., Any], found: dict[str, Any]) -> Iterator[None]:
    """Put the variables that a function has at its end into `found`."""
    code, old = getattr(f, "__code__", None), sys.getprofile()

    def profile(frame: Any, event: str, arg: Any) -> None:
        if event == "return" and frame.f_code is code:
            found.update(frame.f_locals)

    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(old)


def by_name(f: Callable[..., Any], arguments: Mapping[str, Any], outputs: Sequence[Any], gs: Sequence[Any]) -> Any:
    """The gradients, by argument, of a function of arguments, of the output, as `output` or `y`, and of gradients."""
    given, known = iter(gs), {"output": outputs[0], "y": outputs[0], **arguments}
    result = f(**{n: known[n] if n in known else next(given) for n in parameters(f)})
    if isinstance(result, dict):
        return dict.fromkeys(arguments) | result
    found = list(result) if isinstance(result, tuple | list) else [result]
    return dict.fromkeys(arguments) | dict(zip(arguments, found, strict=False))


class Context:
    """What forward and backward get for ctx."""

    def __init__(self, needs: Sequence[bool]) -> None:
        self.needs_input_grad = tuple(needs)
        self.saved_tensors: tuple[Any, ...] = ()
        self.not_differentiable: tuple[Any, ...] = ()
        self.dirty: tuple[Any, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        """Keep tensors."""
        self.saved_tensors = tensors

    def mark_non_differentiable(self, *tensors: Any) -> None:
        """These outputs have no gradients."""
        self.not_differentiable = tensors

    def mark_dirty(self, *tensors: Any) -> None:
        """These inputs are changed in place."""
        self.dirty = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """All gradients are given here."""

    saved_variables = property(lambda self: self.saved_tensors)


def code_of(function: Any, backward: Callable[..., Any] | None) -> Code:
    """The code of an object, by the framework that it is of, which alone is imported."""
    if isinstance(function, str):
        from matgrad.writers.typed_code import TypedCode

        return TypedCode(function)
    cls = function if isinstance(function, type) else type(function)
    modules = {c.__module__.partition(".")[0] for c in cls.__mro__}
    space = getattr(function, "__globals__", {}).values()
    used = {getattr(x, "__name__", "").partition(".")[0] for x in space if isinstance(x, ModuleType)}
    if modules & {"jax", "jaxlib"} or (not modules & {"torch"} and "jax" in used and "torch" not in used):
        from matgrad.writers.jax_code import jax_code

        return jax_code(function, backward)
    from matgrad.writers.torch_code import torch_code

    return torch_code(function, backward)
