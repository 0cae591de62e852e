"""How PyTorch computes products: its switches, set for a while, and factors that are rounded to bfloat16."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_PLACES = (torch.backends.cuda, torch.backends.mkldnn)  # of GPUs and processors
# from PyTorch 2.9 on each has a switch; before it there is one for all
_SWITCHES = [switch for place in _PLACES if hasattr(switch := getattr(place, "matmul", None), "fp32_precision")]
_FACTORS = {torch.ops.aten.mm: (0, 1), torch.ops.aten.addmm: (1, 2)}  # of products: their places among the arguments


@contextmanager
def products(matmul: str) -> Iterator[None]:
    """Within it, products of float32 matrices are computed as `matmul` says, whatever the switches say."""
    precision = "tf32" if matmul == "tf32" else "ieee"
    with _RoundedProducts() if matmul == "bf16" else nullcontext(), ExitStack() as at_end:
        for switch in _SWITCHES:
            _set(switch, precision, at_end)
        if not _SWITCHES:
            at_end.callback(torch.set_float32_matmul_precision, torch.get_float32_matmul_precision())
            torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
        yield


def _set(switch: Any, precision: str, at_end: ExitStack) -> None:
    """Set a switch, and let it be set back."""
    before = switch.fp32_precision
    if before == precision or (before, precision) == ("none", "ieee"):  # if none is set anywhere, it is ieee
        return
    switch.fp32_precision = "none"  # then it follows a more general one
    is_inherited = switch.fp32_precision == before
    at_end.callback(setattr, switch, "fp32_precision", "none" if is_inherited else before)
    switch.fp32_precision = precision


class _RoundedProducts(TorchDispatchMode):
    """Within it, dense products round their factors to bfloat16, and sum up in float32."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, operation = kwargs or {}, function.overloadpacket
        factors = [args[i] for i in _FACTORS.get(operation, ())]
        if not factors or any(A.layout is not torch.strided or A.dtype != torch.float32 for A in factors):
            return function(*args, **kwargs)
        product = _rounded_product(*factors)
        if operation is torch.ops.aten.addmm:
            product = kwargs.get("beta", 1) * args[0] + kwargs.get("alpha", 1) * product
        return kwargs["out"].copy_(product) if "out" in kwargs else product


def _rounded_product(A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
    """A B in float32, with A and B rounded to bfloat16."""
    A, B = A.to(torch.bfloat16), B.to(torch.bfloat16)
    if A.is_cuda and "dtype" in torch.ops.aten.mm.overloads():  # from PyTorch 2.8 on
        return torch.mm(A, B, out_dtype=torch.float32)
    return A.float() @ B.float()
