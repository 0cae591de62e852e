"""The table on PyTorch."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import cache, partial
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from matgrad.backends.base import ELEMENTWISE, MATMULS, Array, Scalar
from matgrad.backends.numpy_backend import ArrayBackend, times_64, uniform
from matgrad.foundation.writing import visible

if TYPE_CHECKING:
    from matgrad.sparse.support import Support


class TorchBackend(ArrayBackend):
    """PyTorch tensors on any device."""

    name = "torch"
    xp = torch

    def full(self, value: float, m: int, n: int, like: Array) -> Array:
        return torch.full((m, n), value, dtype=like.dtype, device=like.device)

    def identity(self, n: int, like: Array) -> Array:
        return torch.eye(n, dtype=like.dtype, device=like.device)

    log_sigmoid: Any = staticmethod(torch.nn.functional.logsigmoid)
    elements_sum: Any = staticmethod(torch.sum)
    columns_sum, rows_sum = (staticmethod(partial(torch.sum, dim=k, keepdim=True)) for k in (0, 1))
    locals().update({name: staticmethod(getattr(torch, name)) for name in ELEMENTWISE})

    def step(self, X: Array) -> Array:
        return (X >= 0).to(X.dtype)

    def uniform(self, m: int, n: int, seed: Scalar, count: Scalar, like: Array) -> Array:
        position = torch.arange(m * n, dtype=torch.int64, device=like.device).reshape(m, n)
        return _hashed(position, seed, count, like)

    def places(self, x: Array, n: int) -> Array:
        x = x.reshape(-1)
        is_place = (x >= 0) & (x < n) & (x == x.floor())
        return torch.where(is_place, x, n).long()

    def index(self, S: Support, key: Any, index: np.ndarray, like: Array) -> Array:
        device = like.device
        return S.cached((key, device), lambda: torch.tensor(index, dtype=torch.int64, device=device))

    def taken(self, X: Array, index: Array, axis: int) -> Array:
        return torch.index_select(torch.nn.functional.pad(X, (0, 1) if axis else (0, 0, 0, 1)), axis, index)

    def one_hot_transposed_product(self, x: Array, G: Array, n: int) -> Array:
        sums = G.new_zeros((n + 1, G.shape[1]))
        if G.is_cuda:  # which adds in the same order every time
            return sums.index_put_((self.places(x, n),), G, accumulate=True)[:n]
        return sums.index_add_(0, self.places(x, n), G)[:n]

    # -- sparse matrices ----------------------------------------------------------------------
    has_sparse = True

    def sparse_product(self, S: Support, w: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        if kernels := _kernels(w.device):
            return _written(kernels.sparse_product, (S.shape[0], B.shape[1]), S, w, B)
        starts, columns = _indices(S, w.device, "starts", "columns")
        return _csr_matrix(starts, columns, w[0], S.shape) @ B

    def sparse_transposed_product(self, S: Support, w: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        if kernels := _kernels(w.device):
            return _written(kernels.sparse_transposed_product, (S.shape[1], B.shape[1]), S, w, B)
        starts, rows, positions = _indices(S, w.device, "column_starts", "rows", "positions")
        return _csr_matrix(starts, rows, torch.index_select(w[0], 0, positions), S.shape[::-1]) @ B

    def sampled_product(self, S: Support, A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        if kernels := _kernels(A.device):
            return _written(kernels.sampled_product, (1, S.nnz), S, A, B)
        rows, columns = _indices(S, A.device, "row_indices", "columns")
        A, B = A.contiguous(), B.contiguous()
        w = torch.empty((1, S.nnz), dtype=A.dtype, device=A.device)
        for k in S.chunks(A.shape[1]):
            left, right = torch.index_select(A, 0, rows[k]), torch.index_select(B, 0, columns[k])
            torch.sum(left * right, dim=1, out=w[0, k])
        return w

    def uniform_on(self, S: Support, seed: Scalar, count: Scalar, like: torch.Tensor) -> torch.Tensor:
        device = like.device
        position = S.cached(("torch positions", device), lambda: torch.tensor(S.flat()[None] % 2**32, device=device))
        return _hashed(position, seed, count, like)

    # -- in and out ---------------------------------------------------------------------------
    def from_numpy(self, A: np.ndarray, device: str | None = None) -> Array:
        return torch.tensor(np.asarray(A), device=device)

    def scalar(self, value: float, like: Array) -> Scalar:
        return torch.full((), value, dtype=like.dtype, device=like.device)  # the host does not wait for the device

    def shown(self, A: np.ndarray, device: str | None = None) -> Array:
        is_here = A.flags.writeable and device in (None, "cpu")  # torch warns of memory that cannot be written
        return torch.from_numpy(A) if is_here else self.from_numpy(A, device)

    def to_numpy(self, X: Array) -> np.ndarray:
        return X.detach().cpu().numpy()

    def take_rows(self, X: Array, indices: np.ndarray) -> Array:
        return X[torch.as_tensor(indices, device=X.device)]

    def wait(self, X: Array) -> None:
        if isinstance(X, torch.Tensor) and X.is_cuda:
            torch.cuda.synchronize(X.device)

    def dtype(self, X: Array) -> str:
        return str(X.dtype).removeprefix("torch.")

    def shares_memory(self, X: Array, Y: Array) -> bool:
        if X.untyped_storage().data_ptr() != Y.untyped_storage().data_ptr():
            return False
        starts = X.storage_offset(), Y.storage_offset()
        ends = (A.storage_offset() + sum((n - 1) * s for n, s in zip(A.shape, A.stride(), strict=True)) for A in (X, Y))
        return max(starts) <= min(ends)

    def device(self, X: Array) -> str | None:
        return str(X.device)

    def find_device(self, name: str | None) -> str | None:
        if name == "auto":
            name = "cuda" if torch.cuda.is_available() else "cpu"
        if name is not None and name.partition(":")[0] == "cuda":
            _check_gpu(name)
        try:
            X = torch.zeros(1, device=name)
            X.cpu()
        except (RuntimeError, AssertionError) as error:  # NotImplementedError, of meta, is a RuntimeError
            raise ValueError(f"device {name!r}: {visible(str(error).splitlines()[0])}") from None
        return str(X.device)

    def free_memory(self, device: str | None) -> int | None:
        if torch.device(device or "cpu").type != "cuda":
            return None
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # of what PyTorch has
        return torch.cuda.mem_get_info(device)[0] + unused

    # -- how products are computed --------------------------------------------------------------
    def matmuls(self, device: str | None) -> tuple[str, ...]:
        is_new = torch.device(device or "cpu").type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)
        return MATMULS if is_new else MATMULS[:1]

    @contextmanager
    def products(self, matmul: str) -> Iterator[None]:
        precision = "tf32" if matmul == "tf32" else "ieee"
        with _RoundedProducts() if matmul == "bf16" else nullcontext(), ExitStack() as at_end:
            for switch in _SWITCHES:
                _set(switch, precision, at_end)
            if not _SWITCHES:
                at_end.callback(torch.set_float32_matmul_precision, torch.get_float32_matmul_precision())
                torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
            yield


def _check_gpu(name: str) -> None:
    """Raise ValueError if there is no such GPU."""
    count, index = torch.cuda.device_count(), name.partition(":")[2] or "0"
    if not count:
        build = "is a build without CUDA" if torch.version.cuda is None else "finds none"
        raise ValueError(f"device {name!r}: PyTorch sees no GPU (torch {torch.__version__} {build}); expected cpu")
    if index.isdigit() and int(index) >= count:
        known = " or ".join(["cpu", *(f"cuda:{i}" for i in range(count))])
        raise ValueError(f"device {name!r}: PyTorch sees {count} GPU{'s' if count > 1 else ''}; expected {known}")


def _hashed(position: torch.Tensor, seed: object, count: object, like: torch.Tensor) -> torch.Tensor:
    """Numbers from [0, 1) of `like`'s dtype, one per position below 2^32."""
    seed, count = (_integer(x, like.device) for x in (seed, count))
    return uniform(position, seed, count, times_64).to(like.dtype) / 2**24


def _integer(x: Any, device: torch.device) -> torch.Tensor:
    """An integer on a device, without waiting for it: so it can be captured in a CUDA graph."""
    is_tensor = isinstance(x, torch.Tensor)
    return x.to(device, torch.int64) if is_tensor else torch.full((), int(x), dtype=torch.int64, device=device)


@cache
def _kernels(device: torch.device) -> ModuleType | None:
    """The module with kernels for sparse matrices on a GPU, if Triton is installed."""
    if device.type != "cuda" or find_spec("triton") is None:
        return None
    import matgrad.engines.cuda.sparse as kernels  # which imports Triton

    return kernels


def _written(kernel: Callable[..., None], shape: tuple[int, int], S: Support, *matrices: torch.Tensor) -> torch.Tensor:
    """The matrix of this shape that a kernel writes."""
    out = matrices[0].new_empty(shape)
    kernel(out, S, *matrices)
    return out


def _indices(S: Support, device: torch.device, *names: str) -> list[torch.Tensor]:
    """Arrays of S as 32-bit tensors on a device, to which they are copied once."""

    def copied(name: str) -> torch.Tensor:
        array = getattr(S, name)
        return torch.tensor(array() if callable(array) else array, dtype=torch.int32, device=device)

    return [S.cached((name, device), partial(copied, name)) for name in names]


def _csr_matrix(
    starts: torch.Tensor, columns: torch.Tensor, values: torch.Tensor, shape: tuple[int, ...]
) -> torch.Tensor:
    """A sparse tensor in CSR format."""
    _silence_beta_warning()
    return torch.sparse_csr_tensor(starts, columns, values, shape, check_invariants=False)


@cache
def _silence_beta_warning() -> None:
    """Let PyTorch give its only warning about the state of its CSR matrices now, unheard."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.sparse_csr_tensor([0, 0], [], [], (1, 1), check_invariants=False)


# -- how products are computed: switches, set for a while, and factors that are rounded to bfloat16 ----------

_PLACES = (torch.backends.cuda, torch.backends.mkldnn)  # of GPUs and processors
# from PyTorch 2.9 on each has a switch; before it there is one for all
_SWITCHES = [switch for place in _PLACES if hasattr(switch := getattr(place, "matmul", None), "fp32_precision")]
_FACTORS = {torch.ops.aten.mm: (0, 1), torch.ops.aten.addmm: (1, 2)}  # of products: their places among the arguments


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
