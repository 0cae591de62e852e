"""How code of PyTorch runs on symbols, or in double precision: what is replaced while it does."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any
from unittest import mock

import torch

from matgrad.writers.sizes import SCALAR, Size, UnsupportedError
from matgrad.writers.tensors import Tensor, lift, positions
from matgrad.writers.torch_tensors import SymbolicTensor, call, filled, is_known, unwrapped, wrapped


def arange(*numbers: Any, **options: Any) -> SymbolicTensor:
    """0, …, n - 1"""
    if len(numbers) > 2 or numbers[0] != 0 != len(numbers) - 1:
        raise UnsupportedError("torch.arange with a first number or a step")
    return SymbolicTensor(positions(numbers[-1]))


def length(x: Any) -> Any:
    """len, which may be a symbolic size"""
    return x.shape[0] if isinstance(x, SymbolicTensor) else len(x)


def of_number(name: str) -> Callable[..., Any]:
    """math.sqrt(D) and so on."""
    return lambda x: call(name, wrapped(lift(unwrapped(x))))


class Blocks:
    """How many blocks of a kernel there are, or how large they are, which a reference does not need."""

    def __getattr__(self, name: str) -> Any:
        raise UnsupportedError(f"{name} of a number of blocks")


LAUNCHING = ("cdiv", "next_power_of_2")  # of Triton
REPLACED: dict[Any, dict[str, Callable[..., Any]]] = {  # by what is called with symbols or symbolic sizes
    math: {name: of_number(name) for name in ("sqrt", "log", "exp", "tanh")},
    torch: {
        **{name: filled(value) for name, value in {"zeros": 0, "ones": 1, "empty": 0, "full": None}.items()},
        **{"arange": arange, "eye": lambda n, *m, **options: call("eq", arange(n).unsqueeze(1), arange(n))},
        **{name: partial(call, name) for name in ("reshape", "split", "broadcast_to", "tril", "triu", "unflatten")},
        **{name: partial(call, name) for name in ("rms_norm", "layer_norm", "is_tensor", "chunk", "full_like")},
    },
    torch.nn.functional: {
        name: partial(call, name)
        for name in ("one_hot", "layer_norm", "rms_norm", "pad", "conv1d", "conv2d", "conv_transpose1d")
    },
}


def on_symbols(new: Callable[..., Any], old: Callable[..., Any]) -> Callable[..., Any]:
    """The new function, if it gets symbols or symbolic sizes; otherwise the old one."""

    def f(*args: Any, **options: Any) -> Any:
        nested = (y for x in (*args, *options.values()) for y in (x if isinstance(x, tuple | list) else [x]))
        return (new if any(isinstance(x, Size | SymbolicTensor) for x in nested) else old)(*args, **options)

    return f


@contextlib.contextmanager
def symbolic_code(functions: Sequence[Callable[..., Any]] = ()) -> Iterator[None]:
    """While functions run on symbols, what they call takes symbolic sizes that does not do so by itself."""
    token = SCALAR.set(lambda e: SymbolicTensor(Tensor((), {(): e})))
    with contextlib.ExitStack() as stack:
        for space in (f.__globals__ for f in functions if hasattr(f, "__globals__")):
            stack.enter_context(mock.patch.dict(space, {"len": length}))
        known = {**REPLACED}
        if (triton := sys.modules.get("triton")) is not None:
            known[triton] = {name: lambda *sizes: Blocks() for name in LAUNCHING}
        for module, replaced in known.items():
            for name, new in replaced.items():
                f = on_symbols(new, getattr(module, name))
                stack.enter_context(mock.patch.object(module, name, f))
        try:
            yield
        finally:
            SCALAR.reset(token)


class InDoublePrecision(torch.overrides.TorchFunctionMode):
    """Code as if every floating-point type were double precision."""

    def __enter__(self) -> Any:
        self.default, self.threads = torch.get_default_dtype(), torch.get_num_threads()
        torch.set_default_dtype(torch.float64)
        torch.set_num_threads(1)  # of a few numbers; others wait for each other
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        torch.set_default_dtype(self.default)
        torch.set_num_threads(self.threads)

    def __torch_function__(self, f: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        if getattr(f, "__name__", "") in ("float", "half", "bfloat16"):
            f = torch.Tensor.double

        def double(x: Any) -> Any:
            return torch.float64 if isinstance(x, torch.dtype) and x.is_floating_point else x

        return f(*map(double, args), **{key: double(x) for key, x in (kwargs or {}).items()})


RANDOM = ("normal_", "uniform_", "bernoulli", "bernoulli_", "random_", "exponential_", "cauchy_", "log_normal_")
PLAIN = ("tensor", "as_tensor", "no_grad", "Function", "Module", "pi", "inf", "nan")


def is_followed(name: str, x: Any) -> bool:
    """Whether something of PyTorch does the same to symbols as to numbers, and depends on nothing else."""
    own = name.rpartition(".")[2]
    is_replaced = any(own in functions for module, functions in REPLACED.items() if module is not math)
    return own in PLAIN or is_replaced or is_known(own) or isinstance(x, torch.dtype | type | type(torch))
