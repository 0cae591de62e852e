"""Kernels, which a framework supplies to run programs: operations that write to a given matrix."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from matgrad.backends.base import Array, Backend, Scalar
from matgrad.program.operations import OPERATIONS, Operation
from matgrad.program.scalars import as_function, functions_in
from matgrad.program.shapes import Shape

if TYPE_CHECKING:
    from matgrad.sparse.support import Support


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

    def run(self, code: list[tuple[Callable[..., None], int, tuple[int, ...]]], slots: list[Any]) -> None:
        """Execute the instructions (kernel, slot of the result, slots of the operands)."""
        for kernel, out, operands in code:
            kernel(slots[out], *[slots[i] for i in operands])
