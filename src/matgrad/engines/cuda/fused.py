"""Execution of programs by few kernels, which are generated from the program; those for sparse matrices are our own."""

from __future__ import annotations

import hashlib
import linecache
import math
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import Any

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

from matgrad.backends.base import Array
from matgrad.engines.cuda import functions, sparse
from matgrad.engines.cuda.graphs import Launch, run_side_by_side
from matgrad.engines.cuda.index import Index
from matgrad.engines.cuda.source import LIMITS, Source, method, product_tile, write
from matgrad.engines.kernels import Executor, Kernels, Key
from matgrad.engines.torch_engine import TorchKernels
from matgrad.layers.state import State
from matgrad.program.buffers import Buffer, Plan
from matgrad.program.grouping import Group, grouped, located
from matgrad.program.operations import OPERATIONS
from matgrad.program.program import Program, Value
from matgrad.program.scalars import functions_in


class CudaKernels(TorchKernels):
    """The instructions of a program on a GPU; the host waits for none, so that all can be captured in a graph."""

    sparse_product, sparse_gradients = staticmethod(sparse.sparse_product), staticmethod(sparse.sparse_gradients)
    transposed_sum = sparse_transposed_product = staticmethod(sparse.transposed_sum)
    sampled_sum = sampled_product = staticmethod(sparse.sampled_sum)
    dense, uniform_on = staticmethod(sparse.dense), staticmethod(sparse.uniform_on)

    def readable(self, X):
        return X.contiguous()

    def index(self, S, like, kept=None):
        if isinstance(kept, Index) and (kept.shape, kept.nnz, kept.device) == (S.shape, S.nnz, like.device):
            kept.update(S)
            return kept
        return Index(S, like.device)


class FusedExecutor(Executor):
    """A program with memory, whose values are computed in groups.

    Inputs that have the strides of their buffers are read where they are: so it can be captured in a CUDA graph.
    """

    def __init__(self, program: Program, kernels: Kernels, state: State, matmul: str = "float32") -> None:
        self.matmul = matmul
        super().__init__(program, kernels, state)
        self.inputs: State = {}  # copies of those with other strides, or on another device
        if self._like.is_cuda:
            self._compile()

    def _planned(self, state: State) -> Plan:
        self.groups = grouped(self.program, lambda product: method(product, self.matmul), LIMITS)
        self.parts: dict[Value, Buffer] = {}  # memory for the parts of a product
        for product in (group.values[0] for group in self.groups if group.kind == "parts"):
            tile = product_tile(product, self.matmul, "parts", False)
            self.parts[product] = Buffer((tile.parts * math.prod(product.shape),), product.dtype)
        return Plan(self.program, self.groups, self._flips(state))

    def _kernel_for(self, group: Group) -> tuple[Callable[..., None], Value, list[Key]]:
        value, *others = group.values
        if group.kind != "call":
            source = write(group, lambda x: self.plan.buffers[x].strides, self.matmul)
            read = [self._key(self.parts[x] if x is group.product else x) for x in source.read]
            written = [self._key(self.parts[value])] if group.kind == "parts" else map(self._key, group.written)
            return Kernel(source), value, [*written, *read]
        if not others:
            return super()._kernel_for(group)
        (DW,) = others  # both gradients of a sparse layer: Wᵀ A, and β·C + α·(A Bᵀ)_S
        operands = [self._key(x, value) for x in value.operands]
        _, *sums, _, B = (self._key(x, DW) for x in DW.operands)
        kernel = self.kernels.sparse_gradients  # type: ignore[attr-defined]
        return kernel, value, [self._key(value), self._key(DW), *operands, B, *sums]

    def _flips(self, state: State) -> set[Value]:
        """The values that are stored by columns: one of two factors that would both be read along the sum.

        The state is not: it is in memory of others, by rows.
        """
        fixed = {x for group in self.groups if group.kind == "call" for x in (*group.values, *group.operands)}
        fixed |= set(self.program.outputs.values())
        fixed |= {x for name, x in self.program.inputs.items() if name in self.program.outputs or name in state}
        flipped: set[Value] = set()
        for group in (g for g in self.groups if g.kind in ("product", "parts")):
            (a, a_turned), (b, b_turned) = map(located, group.factors)
            a_is_along, b_is_along = (a in flipped) == a_turned, (b in flipped) != b_turned
            if a_is_along and b_is_along:
                flipped |= {next((x for x in (a, b) if x not in fixed), a)} - fixed
        return flipped

    def _empty(self, x: Buffer | Value) -> Array:
        if not isinstance(x, Buffer) or not x.is_flipped:
            return super()._empty(x)
        return torch.empty_strided(x.shape, x.strides, dtype=getattr(torch, x.dtype), device=self._like.device)

    def _compile(self) -> None:
        """Compile all kernels at once: most of it is done outside of Python."""
        self._give({name: self._empty(self.plan.homes[name]) for name in self.program.inputs if name not in self.state})
        calls = [(kernel, arguments) for kernel, arguments in self.calls if isinstance(kernel, Kernel)]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(lambda call: call[0].compile(*call[1]), calls))

    def execute(self, **inputs: Any) -> State:
        with torch.no_grad(), torch.cuda.device_of(self._like):
            given = {name: self._readable(name, X) for name, X in inputs.items()}
            if not (self._like.is_cuda and torch.cuda.is_current_stream_capturing()):
                return super().execute(**given)
            self._give(given)
            run_side_by_side(self._launches())
        return self.outputs

    def _readable(self, name: str, X: Array) -> Array:
        """An input where kernels can read it, and as fast as what they were compiled for."""
        buffer = self.plan.homes[name]
        if X.device == self._like.device and X.stride() == buffer.strides and X.data_ptr() % 16 == 0:
            return X
        if name not in self.inputs:
            self.inputs[name] = self._empty(buffer)
        return self.inputs[name].copy_(X)

    def _launches(self) -> list[Launch]:
        """The calls of all kernels; those of libraries may use memory that belongs to the present stream."""
        counts = [max(1, len(group.written)) for group in self.groups] + [1] * len(self.plan.copies)
        return [
            Launch(partial(kernel, *x), _addresses(x[n:]), _addresses(x[:n]), may_move=isinstance(kernel, Kernel))
            for (kernel, x), n in zip(self.calls, counts, strict=True)
        ]


def _addresses(operands: Iterable[Any]) -> frozenset[int]:
    """The addresses of the memory of matrices; supports are only read."""
    return frozenset(x.untyped_storage().data_ptr() for x in operands if isinstance(x, torch.Tensor))


class Kernel:
    """A generated kernel: a function of what it writes, then of what it reads."""

    def __init__(self, source: Source) -> None:
        self.text, self.grid = source.text, (source.programs,)
        self.options = functions.OPTIONS | {"num_warps": source.tile.warps}

    def __call__(self, *arguments: Array) -> None:
        compiled(self.text)[self.grid](*arguments, **self.options)

    def compile(self, *arguments: Array) -> None:
        with torch.cuda.device_of(arguments[0]):
            compiled(self.text).warmup(*arguments, grid=self.grid, **self.options)


@cache
def compiled(text: str) -> Any:
    """A kernel from its source code, which Triton compiles when it is first launched, and keeps in its own cache."""
    name = f"<matgrad kernel {hashlib.sha256(text.encode()).hexdigest()[:16]}>"
    linecache.cache[name] = len(text), None, text.splitlines(keepends=True), name
    namespace = {"tl": tl, **_functions(), "__name__": __name__}
    exec(compile(text, name, "exec"), namespace)
    return triton.jit(namespace["kernel"])


@cache
def _functions() -> dict[str, Any]:
    """The functions that kernels call: those of elementwise operations, and others."""
    called = set().union(*(functions_in(row.scalar) for row in OPERATIONS.values() if row.scalar))
    others = (functions.divide, functions.larger, functions.power, functions.to_tf32, functions.uniform)
    return {name: getattr(libdevice, name) for name in called} | {f.__name__: f for f in others}
