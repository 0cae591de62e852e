"""Execution of programs by few kernels, which are generated from the program; those for sparse matrices are our own."""

from __future__ import annotations

import hashlib
import linecache
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import Any

import torch
import triton
import triton.language as tl

from matgrad.backends.base import Array
from matgrad.engines.cuda import functions, sparse
from matgrad.engines.cuda.fusion import Group, grouped, located
from matgrad.engines.cuda.graphs import Launch, run_side_by_side
from matgrad.engines.cuda.index import Index
from matgrad.engines.cuda.source import ALIGNED, Source, write
from matgrad.engines.cuda.tiles import method, product_tile
from matgrad.engines.kernels import Kernels
from matgrad.engines.torch_engine import TorchKernels
from matgrad.layers.state import State, matrices_of
from matgrad.program.buffers import Buffer, Plan
from matgrad.program.operations import OPERATIONS
from matgrad.program.program import Program, Value
from matgrad.program.scalars import functions_in


class CudaKernels(TorchKernels):
    """The instructions of a program on a GPU; the host waits for none, so that all can be captured in a graph."""

    sparse_product = staticmethod(sparse.sparse_product)
    sparse_transposed_product = staticmethod(sparse.sparse_transposed_product)
    transposed_sum = staticmethod(sparse.transposed_sum)
    dense = staticmethod(sparse.dense)
    sampled_product = staticmethod(sparse.sampled_product)
    sampled_sum = staticmethod(sparse.sampled_sum)
    sparse_gradients = staticmethod(sparse.sparse_gradients)
    uniform_on = staticmethod(sparse.uniform_on)

    def readable(self, X):
        return X.contiguous()

    def index(self, S, like, kept=None):
        if isinstance(kept, Index) and (kept.shape, kept.nnz, kept.device) == (S.shape, S.nnz, like.device):
            kept.update(S)
            return kept
        return Index(S, like.device)


class FusedExecutor:
    """A program with memory, as `matgrad.engines.executor.Executor`: its values are computed in groups.

    Its inputs have fixed memory, `inputs`, of which X may be stored by columns; so it can be captured in a CUDA graph.
    """

    def __init__(self, program: Program, kernels: Kernels, state: State, matmul: str = "float32") -> None:
        self.program, self.kernels, self.matmul = program, kernels, matmul
        joins = hasattr(kernels, "sparse_gradients")
        self.groups = grouped(program, lambda product: method(product, matmul), joins_gradients=joins)
        self.plan = Plan(program, self.groups, self._flips(state))
        self.sources = {g: write(g, g.written, self.strides, matmul) for g in self.groups if g.kind != "call"}
        self._like = next(x for x in state.values() if isinstance(x, torch.Tensor))
        self.inputs = {name: self._empty(self.plan.homes[name]) for name in program.inputs.keys() - state.keys()}
        own = dict.fromkeys(buffer for buffer in self.plan.buffers.values() if buffer.name not in program.inputs)
        self.memory = {buffer: self._empty(buffer) for buffer in own}
        self.constants: dict[Value, Array] = {}
        self.parts = {g.values[0]: self._empty_parts(g.values[0]) for g in self.groups if g.kind == "parts"}
        self.bind(state)
        if self._like.is_cuda:
            self._compile()

    # -- what is computed where ----------------------------------------------------------------
    def _flips(self, state: State) -> set[Value]:
        """The values that are stored by columns: one of two factors that would both be read along the sum.

        The state is not: it is in memory of others, by rows.
        """
        fixed = {x for group in self.groups if group.kind == "call" for x in (*group.values, *group.operands)}
        fixed |= set(self.program.outputs.values())
        fixed |= {x for name, x in self.program.inputs.items() if name in self.program.outputs or name in state}
        flipped: set[Value] = set()
        for group in self.groups:
            if group.kind not in ("product", "parts"):
                continue
            (a, a_turned), (b, b_turned) = map(located, group.factors)
            a_is_along, b_is_along = (a in flipped) == a_turned, (b in flipped) != b_turned
            if a_is_along and b_is_along:
                flipped |= {next((x for x in (a, b) if x not in fixed), a)} - fixed
        return flipped

    def strides(self, value: Value) -> tuple[int, int]:
        """The strides of a matrix."""
        return _strides(self.plan.buffers[value])

    # -- memory --------------------------------------------------------------------------------
    def _empty(self, buffer: Buffer) -> Array:
        """Memory for a buffer."""
        strides, dtype = _strides(buffer) if buffer.shape else (), getattr(torch, buffer.dtype)
        return torch.empty_strided(buffer.shape, strides, dtype=dtype, device=self._like.device)

    def _empty_parts(self, product: Value) -> Array:
        """Memory for the parts of a product."""
        parts = product_tile(product, self.matmul, "parts", False).parts
        return self.kernels.empty((parts * product.shape[0] * product.shape[1],), product.dtype, self._like)

    def bind(self, state: State) -> None:
        """Go on with other matrices and supports of the same sizes."""
        for name, X in matrices_of(state).items():
            if not X.is_contiguous():
                raise ValueError(f"{name}: expected rows that follow each other in memory, found strides {X.stride()}")
        self.state = state
        self.launches = [self._launch(group) for group in self.groups]
        self.launches += [self._call("copy", [self._memory_of(to)], [self._memory_of(x)]) for to, x in self.plan.copies]

    def _tensor(self, x: Value, user: Value | None = None) -> Any:
        """What a kernel gets for an operand: a matrix, a view of one, a support, or a number.

        A call gets a plain number if it takes one.
        """
        if x.kind == "view":
            X = self._tensor(x.operands[0])
            return X.T if x.operation == "transpose" else self.kernels.repeat(X, x.shape)
        if x.operation == "support":
            return x.support or self.state[x.name]
        if x.operation == "number":
            if user is not None and OPERATIONS[user.operation].takes_numbers:
                return x.number
            if x not in self.constants:
                self.constants[x] = self.kernels.empty((), x.dtype, self._like)
                self.constants[x][...] = x.number
            return self.constants[x]
        return self._memory_of(self.plan.buffers[x])

    def _memory_of(self, buffer: Buffer) -> Array:
        """The matrix of a buffer: of the state, an input, or the executor's own."""
        for given in (self.state, self.inputs):
            if buffer.name in given:
                return given[buffer.name]
        return self.memory[buffer]

    # -- launches ------------------------------------------------------------------------------
    def _launch(self, group: Group) -> Launch:
        """The call that computes a group."""
        if group.kind != "call":
            read, written = self._arguments(group)
            run = partial(_launch, self.sources[group], read + written)
            return Launch(run, _addresses(read), _addresses(written), may_move=True)
        value, *others = group.values
        operands = [self._tensor(x, value) for x in value.operands]
        if not others:
            return self._call(value.operation, [self._tensor(value)], operands)
        (DW,) = others  # both gradients of a sparse layer: Wᵀ A, and β·C + α·(A Bᵀ)_S
        _, *sums, _, B = (self._tensor(x, DW) for x in DW.operands)
        return self._call("sparse_gradients", [self._tensor(value), self._tensor(DW)], [*operands, B, *sums])

    def _call(self, operation: str, written: list[Array], read: list[Any]) -> Launch:
        """A call of one of the kernels, which may use memory and libraries that belong to the present stream."""
        run = partial(getattr(self.kernels, operation), *written, *read)
        return Launch(run, _addresses(read), _addresses(written), may_move=False)

    def _arguments(self, group: Group) -> tuple[list[Array], list[Array]]:
        """What a generated kernel reads, and what it writes."""
        source = self.sources[group]
        read = [self.parts[x] if x is group.product else self._tensor(x) for x in source.read]
        return read, [self.parts[x] if group.kind == "parts" else self._tensor(x) for x in source.written]

    def _compile(self) -> None:
        """Compile all kernels at once: most of it is done outside of Python."""

        def compile_one(group: Group) -> None:
            source, (read, written) = self.sources[group], self._arguments(group)
            with torch.cuda.device_of(self._like):
                compiled(source.text).warmup(*read, *written, grid=(source.programs,), **_options(source))

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(compile_one, self.sources))

    # -- running -------------------------------------------------------------------------------
    def execute(self, **inputs: Any) -> State:
        """Run the program once, with these inputs or those that are in its memory; returns outputs beside the state."""
        for name, X in inputs.items():
            if X is not self.inputs[name]:
                self.inputs[name].copy_(X)
        with torch.no_grad(), torch.cuda.device_of(self._like):
            if self._like.is_cuda and torch.cuda.is_current_stream_capturing():
                run_side_by_side(self.launches)
            else:
                for launch in self.launches:
                    launch.run()
        return {name: self._tensor(x) for name, x in self.program.outputs.items() if name not in self.program.inputs}

    def input_strides(self, name: str) -> tuple[int, ...]:
        """The strides of an input of `execute_on`."""
        return self.inputs[name].stride()

    def execute_on(self, inputs: State) -> State:
        """Run the program once on inputs that have these strides, and stay where they are: for a graph."""
        self.inputs = inputs
        self.bind(self.state)
        return self.execute()


def _strides(buffer: Buffer) -> tuple[int, int]:
    """The strides of a matrix in a buffer."""
    m, n = buffer.shape
    return (1, -(-m // ALIGNED) * ALIGNED) if buffer.is_flipped else (n, 1)


def _addresses(operands: Iterable[Any]) -> frozenset[int]:
    """The addresses of the memory of matrices; supports are only read."""
    return frozenset(x.untyped_storage().data_ptr() for x in operands if isinstance(x, torch.Tensor))


def _launch(source: Source, arguments: list[Array]) -> None:
    """Launch a kernel."""
    compiled(source.text)[source.programs,](*arguments, **_options(source))


def _options(source: Source) -> dict[str, Any]:
    """How a kernel is compiled."""
    return functions.OPTIONS | {"num_warps": source.tile.warps}


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
    return {name: functions.function(name) for name in called} | {f.__name__: f for f in others}
