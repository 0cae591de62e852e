"""Code of PyTorch with a gradient of its own: autograd functions, custom operators, functions with a backward."""

from __future__ import annotations

import contextlib
import copy
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch

from matgrad.index_notation.expressions import Entry, of
from matgrad.writers.explaining import Named
from matgrad.writers.subjects import (
    MISSING,
    Code,
    Context,
    RefutedError,
    Run,
    Uses,
    by_name,
    local_variables,
    parameters,
    without_gradient,
)
from matgrad.writers.tensors import Tensor, lift, symbols
from matgrad.writers.texts import is_name
from matgrad.writers.torch_running import LAUNCHING, RANDOM, InDoublePrecision, is_followed, symbolic_code
from matgrad.writers.torch_tensors import MADE, SymbolicTensor, unwrapped

Arguments = Mapping[str, Any]
Gradients = dict[str, Any]


class TorchRun(Run):
    """A run of forward on symbols, or in double precision."""

    def __init__(
        self, code: TorchCode, arguments: Mapping[str, Any], numeric: bool, cuts: Mapping[int, str] | None = None
    ) -> None:
        self.code, self.numeric, self.cuts = code, numeric, cuts or {}
        self.made: list[SymbolicTensor] = []
        self.values: list[Named] = []
        self.arguments = {name: to_torch(x) for name, x in arguments.items()}
        self.context = Context([needs_gradient(x) for x in self.arguments.values()])
        found: dict[str, Any] = {}
        token = MADE.set(self._note)
        try:
            with self._running(), contextlib.nullcontext() if numeric else local_variables(code.functions[0], found):
                result = code.forward(self.context, self.arguments)
        finally:
            MADE.reset(token)
        self.results = list(result) if isinstance(result, tuple | list) else [result]
        fixed = self.context.not_differentiable
        self.has_gradient = [needs_gradient(x) and not any(x is y for y in fixed) for x in self.results]
        self.outputs = [self.plain(x) for x, has in zip(self.results, self.has_gradient, strict=True) if has]
        self.variables = {n: x for n, x in found.items() if isinstance(x, SymbolicTensor)}
        self.names: dict[str, Any] = {n: x.value for n, x in self.variables.items()}
        changed = [(n, x) for n, x in self.arguments.items() if isinstance(x, SymbolicTensor) and x.versions]
        self.remarks = [f"forward changes {n} in place" for n, x in changed if x not in self.context.dirty]

    def _note(self, x: SymbolicTensor) -> None:
        """A new tensor, for which symbols are put if it is cut."""
        if name := self.cuts.get(len(self.made)):
            self.values.append(Named(name, symbols(name, x.own.dims), x.own))
            x.own = self.values[-1].symbols
        self.made.append(x)

    def cut(self) -> TorchRun:
        """Another run, in which `values` are symbols: those that variables of forward have at its end."""
        numbers = {id(x): i for i, x in enumerate(self.made)}
        found = {
            numbers[id(x)]: n
            for n, x in self.variables.items()
            if id(x) in numbers and n not in self.arguments and not x.versions and is_cut(n, x.own)
        }
        return TorchRun(self.code, {n: unwrapped(x) for n, x in self.arguments.items()}, False, found)

    def gradients(self, gs: Sequence[Any]) -> dict[str, Any]:
        """What backward returns."""
        given, own = iter(gs), list[Any]()
        for x, has in zip(self.results, self.has_gradient, strict=True):
            is_tensor = isinstance(x, SymbolicTensor | torch.Tensor)
            own.append(to_torch(next(given)) if has else torch.zeros(()) if is_tensor else None)
        found: dict[str, Any] = {}
        with self._running(), local_variables(self.code.functions[1], found):
            returned = self.code.backward(self.context, self.arguments, self.results, own)
        saved = {id(x) for x in self.context.saved_tensors}
        self.names |= {n: x.value for n, x in found.items() if isinstance(x, SymbolicTensor) and id(x) in saved}
        if any(isinstance(g, SymbolicTensor) and g.versions for g in own):
            self.remarks = [*self.remarks, "backward changes the incoming gradient in place"]
        self.lines = {n: d.line for n, d in returned.items() if isinstance(d, SymbolicTensor)}
        return {n: None if d is None else self.plain(d) for n, d in returned.items()}

    def plain(self, x: Any) -> Any:
        """A tensor in index notation, or an array."""
        return (
            x.detach().numpy() if isinstance(x, torch.Tensor) else np.asarray(x) if self.numeric else lift(unwrapped(x))
        )

    @contextlib.contextmanager
    def _running(self) -> Iterator[None]:
        with torch.no_grad(), InDoublePrecision() if self.numeric else symbolic_code(self.code.functions):
            yield


def is_cut(name: str, x: Tensor) -> bool:
    """Whether there can be symbols for a value, which is more than one entry."""
    if not is_name(name) or x.is_bool or x.is_index:
        return False
    return not all(isinstance(f, Entry) and e == of(f) for e in x.data.values() for f in [next(e.factors(), None)])


def needs_gradient(x: Any) -> bool:
    """Whether an argument is a tensor of numbers."""
    return isinstance(x, SymbolicTensor | torch.Tensor) and x.dtype.is_floating_point


def to_torch(x: Any) -> Any:
    """What code gets for an argument."""
    if isinstance(x, Tensor):
        return SymbolicTensor(x)
    if isinstance(x, np.ndarray):
        return copy.deepcopy(torch.from_numpy(x))  # its order in memory is kept
    return torch.tensor(x) if isinstance(x, np.generic) else x


class TorchCode(Code):
    """Code with forward(ctx, arguments) and backward(ctx, arguments, outputs, gradients)."""

    sums_gradients = True
    libraries: ClassVar[Uses] = {
        "torch": is_followed,
        "triton": lambda name, x: name.rpartition(".")[2] in ("triton", *LAUNCHING),
    }
    refused = ("type", "__class__", *RANDOM)

    def run(self, arguments: Mapping[str, Any], numeric: bool) -> TorchRun:
        """Forward."""
        return TorchRun(self, arguments, numeric)

    def forward(self, ctx: Context, arguments: Arguments) -> Any:
        """The outputs."""
        raise NotImplementedError

    def backward(
        self, ctx: Context, arguments: Mapping[str, Any], outputs: Sequence[Any], gs: Sequence[Any]
    ) -> dict[str, Any]:
        """The gradients, by argument."""
        raise NotImplementedError

    def named(self, gradients: Any, names: Sequence[str]) -> Gradients:
        """Gradients in the order of arguments, by name."""
        found = list(gradients) if isinstance(gradients, tuple | list) else [gradients]
        if len(found) < len(names) or any(x is not None for x in found[len(names) :]):
            raise RefutedError(f"backward returns {len(found)} gradients for {len(names)} arguments")
        return dict(zip(names, found, strict=False))


class AutogradFunction(TorchCode):
    """A subclass of torch.autograd.Function, in both styles."""

    def __init__(self, cls: type[torch.autograd.Function]) -> None:
        self.name = cls.__name__
        if cls.backward is torch.autograd.Function.backward:
            raise ValueError(f"{self.name} has no backward: expected a static method of this name")
        self.has_setup = cls.setup_context is not torch.autograd.Function.setup_context
        names = ["forward", "backward", *(["setup_context"] if self.has_setup else [])]
        self.functions = [inspect.unwrap(getattr(cls, name)) for name in names]

    @property
    def parameters(self) -> dict[str, Any]:
        """The arguments of forward, without ctx."""
        items = list(parameters(self.functions[0]).items())
        return dict(items if self.has_setup else items[1:])

    def forward(self, ctx: Context, arguments: Arguments) -> Any:
        """The outputs; then, in the newer style, setup_context."""
        values = tuple(arguments.values())
        if not self.has_setup:
            return self.functions[0](ctx, *values)
        result = self.functions[0](*values)
        self.functions[2](ctx, values, result)
        return result

    def backward(
        self, ctx: Context, arguments: Mapping[str, Any], outputs: Sequence[Any], gs: Sequence[Any]
    ) -> dict[str, Any]:
        """The gradients."""
        return self.named(self.functions[1](ctx, *gs), list(arguments))


class CustomOperator(TorchCode):
    """An operator of torch.library.custom_op, with register_autograd."""

    def __init__(self, operator: Any) -> None:
        self.name, self.setup = operator._qualname, operator._setup_context_fn
        if operator._backward_fn is None:
            raise ValueError(f"{self.name} has no backward: expected an operator with register_autograd")
        self.functions = [inspect.unwrap(f) for f in (operator._init_fn, operator._backward_fn)]

    def forward(self, ctx: Context, arguments: Arguments) -> Any:
        """The outputs, and setup_context."""
        result = self.functions[0](**arguments)
        if self.setup is not None:
            own = inspect.signature(self.functions[0]).parameters.values()
            by_name = {p.name: arguments[p.name] for p in own if p.kind is p.KEYWORD_ONLY}
            inputs = tuple(x for name, x in arguments.items() if name not in by_name)
            more = {"keyword_only_inputs": by_name} if by_name else {}
            self.setup(ctx, inputs=inputs, output=result, **more)
        return result

    def backward(
        self, ctx: Context, arguments: Mapping[str, Any], outputs: Sequence[Any], gs: Sequence[Any]
    ) -> dict[str, Any]:
        """The gradients."""
        return self.named(self.functions[1](ctx, *gs), list(arguments))


class WithBackward(TorchCode):
    """A function or module, and a function of arguments, outputs (`output` or `y`) and gradients of them, by name."""

    def __init__(self, function: Any, backward: Callable[..., Any]) -> None:
        self.module = function if isinstance(function, torch.nn.Module) else None
        self.name = type(function).__name__ if self.module is not None else function.__name__
        self.functions = [function.forward if self.module is not None else function, inspect.unwrap(backward)]

    @property
    def parameters(self) -> dict[str, Any]:
        """The arguments of forward, and the parameters of a module, of which dots are underscores."""
        own = [] if self.module is None else [name.replace(".", "_") for name, _ in self.module.named_parameters()]
        return parameters(self.functions[0]) | dict.fromkeys(own, MISSING)

    def sizes(self, shapes: Mapping[str, Any]) -> dict[str, int]:
        """Those of the parameters of a module."""
        own = [] if self.module is None else self.module.named_parameters()
        pairs = [(shapes.get(name.replace(".", "_"), ()), x.shape) for name, x in own]
        found = (pair for dims, shape in pairs if len(dims) == len(shape) for pair in zip(dims, shape, strict=True))
        return {d[0]: n for d, n in found if len(d) == 1 and isinstance(d[0], str)}

    def forward(self, ctx: Context, arguments: Arguments) -> Any:
        """The outputs."""
        if self.module is None:
            return self.functions[0](**arguments)
        module, values = copy.deepcopy(self.module).double(), dict(arguments)
        for name, _ in list(module.named_parameters()):
            owner, _, attribute = name.rpartition(".")
            part = module.get_submodule(owner)
            del part._parameters[attribute]
            part.__dict__[attribute] = values.pop(name.replace(".", "_"))
        return module(**values)

    def backward(
        self, ctx: Context, arguments: Mapping[str, Any], outputs: Sequence[Any], gs: Sequence[Any]
    ) -> dict[str, Any]:
        """The gradients, in the order of the arguments; those that backward does not return are None."""
        return by_name(self.functions[1], arguments, outputs, gs)


def torch_code(x: Any, backward: Callable[..., Any] | None) -> TorchCode:
    """The code that an object of PyTorch is."""
    if backward is not None:
        return WithBackward(x, backward)
    if isinstance(x, type) and issubclass(x, torch.autograd.Function):
        return AutogradFunction(x)
    if hasattr(x, "_backward_fn") and hasattr(x, "_init_fn"):
        return CustomOperator(x)
    raise ValueError(without_gradient(x))
