"""Programs run by kernels: operations that a framework supplies, and that write to a given matrix."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from matgrad.backends.base import Array, Backend, Scalar
from matgrad.layers.state import State, matrices_of
from matgrad.program.buffers import Buffer, Plan
from matgrad.program.operations import OPERATIONS, STACKS, Operation
from matgrad.program.program import Program, Value
from matgrad.program.scalars import as_function, functions_in
from matgrad.program.shapes import Shape

if TYPE_CHECKING:
    from matgrad.engines.sharded import Exchange
    from matgrad.sparse.support import Support


Call = tuple[Callable[..., None], list[Any]]  # a kernel, and what it writes and reads


def into(function: Callable[..., Any], **options: Any) -> Callable[..., None]:
    """The kernel that calls a framework's function with ``out=``."""
    return staticmethod(lambda out, *operands: function(*operands, out=out, **options))


def by_table(name: str) -> Callable[..., None]:
    """The kernel that copies what the backend's operation of that name computes."""

    def kernel(self: Kernels, out: Array, *operands: Any) -> None:
        self.copy(out, getattr(self.backend, name)(*operands))

    return kernel


def sum_with(name: str) -> Callable[..., None]:
    """The kernel of β·C + α·P, where P is the sparse product of that name of the other operands."""

    def kernel(self: Kernels, out: Array, S: Support, beta: Scalar, C: Array, alpha: Scalar, *factors: Array) -> None:
        self.copy(out, beta * C + alpha * getattr(self.backend, name)(S, *factors))

    return kernel


def elementwise(row: Operation, framework: Callable[[str], Any]) -> Callable[..., None]:
    """The kernel of an elementwise operation, with a framework's functions: one of them, or what its line says."""
    name = SINGLE.get(row.scalar) or next((f for f in functions_in(row.scalar) if row.scalar == f"{f}(x)"), "")
    if name:
        return into(framework(name))
    names: dict[str, Callable[..., Any]] = {"step": lambda X: X >= 0, "power": lambda X, c: X**c}
    line = as_function(row.scalar, row.letters, names | {f: framework(f) for f in functions_in(row.scalar)})

    def kernel(self: Kernels, out: Array, *operands: Any) -> None:
        self.copy(out, line(*operands))

    return kernel


# lines that are one function, which frameworks call so
SINGLE = {"x + y": "add", "x - y": "subtract", "x * y": "multiply", "c * x": "multiply", "x / c": "divide"}
SINGLE |= {"-x": "negative", "1 / x": "reciprocal"}


class Kernels(ABC):
    """The operations of a backend that write to a given matrix: ``kernels.exp(out, X)``.

    Those that a class does not have are made: of elementwise operations from their rows, with the functions of its
    `framework`, of others by the table, except products.
    """

    framework: Callable[[str], Any]  # the function of a name

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name, row in OPERATIONS.items():
            if row.kind in ("elementwise", "reduction", "sparse", "other") and not hasattr(cls, name):
                setattr(cls, name, elementwise(row, cls.framework) if row.kind == "elementwise" else by_table(name))

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    @abstractmethod
    def empty(self, shape: Shape, dtype: str, like: Array) -> Array:
        """A matrix or scalar to write to."""

    def readable(self, X: Array) -> Array:
        """X as programs read it; a copy only if they cannot read X itself."""
        return X

    def copied(self, X: Array) -> Array:
        """X in memory of its own."""
        copy = self.empty(tuple(X.shape), self.backend.dtype(X), X)
        self.copy(copy, X)
        return copy

    def index(self, S: Support, like: Array, kept: Any = None) -> Any:
        """S as the kernels read it beside matrices such as `like`: in the memory of `kept`, if that has its size."""
        return S

    @abstractmethod
    def repeat(self, x: Array, shape: Shape) -> Array:
        """x repeated to that shape as a view, without a copy."""

    @abstractmethod
    def copy(self, out: Array, X: Array) -> None:
        """X"""

    def identity(self, out: Array) -> None:
        """I_n"""
        self.copy(out, self.backend.identity(out.shape[0], out))

    def uniform(self, out: Array, seed: Scalar, count: Scalar) -> None:
        """uniform(m, n, seed, count)"""
        m, n = out.shape
        self.copy(out, self.backend.uniform(m, n, seed, count, out))

    def block_product(self, out: Array, A: Array, B: Array) -> None:
        """Diag(A, p) B"""
        self.copy(out, self.backend.block_product(A, B, A.shape[0] * A.shape[1] // B.shape[0]))

    def block_transposed_product(self, out: Array, A: Array, B: Array) -> None:
        """Diag(A, p)ᵀ B"""
        self.copy(out, self.backend.block_transposed_product(A, B, A.shape[0] * A.shape[1] // out.shape[0]))

    def diag_product(self, out: Array, A: Array, B: Array) -> None:
        """diag(A B, p)"""
        self.copy(out, self.backend.diag_product(A, B, A.shape[0] * out.shape[1] // B.shape[1]))

    one_hot_product = by_table("one_hot_product")

    def one_hot_transposed_product(self, out: Array, x: Array, G: Array) -> None:
        """Eᵀ G, with E = one_hot(x, n)"""
        self.copy(out, self.backend.one_hot_transposed_product(x, G, out.shape[0]))

    transposed_sum, sampled_sum = sum_with("sparse_transposed_product"), sum_with("sampled_product")

    def uniform_on(self, out: Array, S: Support, seed: Scalar, count: Scalar) -> None:
        """uniform(m, n, seed, count)_S"""
        self.copy(out, self.backend.uniform_on(S, seed, count, out))

    def run(self, calls: Iterable[Call]) -> None:
        """Call the kernels."""
        for kernel, arguments in calls:
            kernel(*arguments)


# -- programs ----------------------------------------------------------------------------------------------

Key = Buffer | Value | float  # of an operand of a kernel: its buffer; a view, a support or a 0-d number; a plain number


class Executor:
    """A program with memory: ``execute(X=X, T=T, eta=eta)`` changes the matrices of `state` in place.

    If the examples are sparse, X has their values and ``X.support`` their support.
    The outputs that are not part of the state are returned, in memory that the next run overwrites.
    """

    def __init__(self, program: Program, kernels: Kernels, state: State, exchange: Exchange | None = None) -> None:
        self.program, self.kernels, self.exchange = program, kernels, exchange
        self.runs = 0
        self.seconds: dict[Value, float] = {}  # that each value took, if they are timed
        self._arrays: State = {} if exchange is None else exchange.arrays
        self._like: Any = next(iter(matrices_of(state).values()), None)
        self._memory: dict[Key, Array] = {}  # of its own
        self.plan = self._planned(state)
        self.code = [self._kernel_for(instruction) for instruction in self.plan.instructions]
        holder = {self.plan.buffers[value]: value for value in program.outputs.values()}
        self.code += [(kernels.copy, holder[source], [to, source]) for to, source in self.plan.copies]
        self.bind(state)

    def _planned(self, state: State) -> Plan:
        """What is computed at once, and in which memory."""
        return Plan(self.program)

    def _kernel_for(self, instruction: Any) -> tuple[Callable[..., None], Value, list[Key]]:
        """The kernel of an instruction, the value that it computes, and the keys of its arguments."""
        (value,) = instruction.written
        out = self._key(value)
        if value.kind != "collective":
            return getattr(self.kernels, value.operation), value, [out, *(self._key(x, value) for x in value.operands)]
        exchange = self.exchange
        if exchange is None:
            raise ValueError(f"{value.operation}: the program of a rank cannot run without other ranks")
        return lambda out: exchange.perform(value), value, [out]

    def _key(self, x: Value | Buffer, user: Value | None = None) -> Key:
        """The key of a buffer, or of an operand of a value."""
        if isinstance(x, Value) and x.number is not None and user and OPERATIONS[user.operation].takes_numbers:
            return int(x.number) if isinstance(x.number, int) else x.number  # NumPy does not take a size
        return self.plan.buffers.get(x, x) if isinstance(x, Value) else x

    def bind(self, state: State) -> None:
        """Go on with other matrices and supports of the same sizes."""
        self.state = state
        self.calls: list[Call] = []
        self.given: list[tuple[list[Any], int, Key]] = []  # arguments that are inputs or views of them, and which
        for kernel, _, keys in self.code:
            arguments = [self._found(key, {}) for key in keys]
            self.given += [(arguments, k, key) for k, key in enumerate(keys) if arguments[k] is None]
            self.calls.append((kernel, arguments))
        own = self.program.outputs.keys() - self.program.inputs.keys()
        self.outputs: State = {name: self._found(self.plan.homes[name], {}) for name in own}

    def _found(self, key: Key, inputs: State) -> Any:
        """What a key stands for; None if that is an input, or a view of one, which is not given."""
        if not isinstance(key, Buffer | Value):
            return key
        if isinstance(key, Value) and key.kind == "view":
            X = self._found(self._key(key.operands[0]), inputs)
            return None if X is None else self._view(key, X)
        if isinstance(key, Value) and key.support is not None:
            return key.support
        is_number = isinstance(key, Value) and key.operation == "number"  # whose name, if any, is not that of a matrix
        name = "" if is_number else key.name
        for given in (inputs, self.state, self._arrays):
            if name in given:
                return given[name]
        if name in self.program.inputs or (isinstance(key, Value) and not is_number):
            return None
        if key not in self._memory:
            self._memory[key] = self._empty(key)
            if isinstance(key, Value):
                self._memory[key][...] = key.number
        return self._memory[key]

    def _view(self, value: Value, X: Array) -> Array:
        """X as transposed, stacked or repeated by a view."""
        if value.operation in STACKS:
            return X.reshape(tuple(map(int, value.shape)))
        return X.T if value.operation == "transpose" else self.kernels.repeat(X, value.shape)

    def _empty(self, x: Buffer | Value) -> Array:
        return self.kernels.empty(x.shape, x.dtype, self._like)

    def _give(self, inputs: State) -> None:
        """Put the inputs and their views among the arguments."""
        for arguments, k, key in self.given:
            arguments[k] = self._found(key, inputs)

    def execute(self, **inputs: Any) -> State:
        """Run the program once."""
        self._give(inputs)
        if self.seconds:
            self._run_timed()
        else:
            self.kernels.run(self.calls)
        self.runs += 1
        return self.outputs

    def time(self) -> None:
        """Measure the seconds of every value from now on, with a clock that waits for results on a device."""
        self.seconds = {value: 0.0 for _, value, _ in self.code}

    def _run_timed(self) -> None:
        for call, (_, value, _) in zip(self.calls, self.code, strict=True):
            start = time.perf_counter()
            self.kernels.run([call])
            self.kernels.backend.wait(call[1][0])
            self.seconds[value] += time.perf_counter() - start
