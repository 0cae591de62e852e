"""What a backend provides: the primitives of the table, and conversion from and to NumPy.

The operations are documented where users meet them, in `matgrad.matrix_operations`. Those in the
section "derived" are written once, in terms of the primitives; a backend overrides them only for
speed or stability, and a test compares every override with the definition here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

import numpy as np

from matgrad.foundation.limits import in_words
from matgrad.foundation.numbers import size_text

if TYPE_CHECKING:
    from matgrad.sparse.support import Support


class Scalar(Protocol):
    """A number, or a 0-d array of the backend's framework."""

    def __add__(self, other: Any, /) -> Any: ...
    def __radd__(self, other: Any, /) -> Any: ...
    def __sub__(self, other: Any, /) -> Any: ...
    def __rsub__(self, other: Any, /) -> Any: ...
    def __mul__(self, other: Any, /) -> Any: ...
    def __rmul__(self, other: Any, /) -> Any: ...
    def __truediv__(self, other: Any, /) -> Any: ...
    def __neg__(self) -> Any: ...
    def __float__(self) -> float: ...


class Matrix(Protocol):
    """A 2-D array of the backend's framework."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def T(self) -> Self: ...
    def __matmul__(self, other: Any, /) -> Self: ...
    def __add__(self, other: Any, /) -> Self: ...
    def __radd__(self, other: Any, /) -> Self: ...
    def __sub__(self, other: Any, /) -> Self: ...
    def __rsub__(self, other: Any, /) -> Self: ...
    def __mul__(self, other: Any, /) -> Self: ...
    def __rmul__(self, other: Any, /) -> Self: ...
    def __truediv__(self, other: Any, /) -> Self: ...
    def __neg__(self) -> Self: ...


Kind = TypeVar("Kind", bound=Matrix)  # of matrix: a result is of the same kind as the operands
Array = Any  # an array of one framework: what a backend's own methods and engines work on

DTYPES = ("float32", "float64")
ELEMENTWISE = ("exp", "log", "log1p", "reciprocal", "sqrt", "tanh", "erf")  # which frameworks have by these names
MATMULS = ("float32", "tf32", "bf16")  # how products of float32 matrices are computed; sums are always in float32


def size_of(X: Array) -> str:
    """The size of a matrix in words."""
    return size_text(X.shape)


class RecordingError(TypeError):
    """Something that a recorded matrix cannot do, because it has no numbers."""


BLOCK = 32  # rows of a long sum that are added up one after another


def sum_in_blocks(X: Array, add: Callable[[Array], Array], concatenate: Callable[[list[Array]], Array]) -> Array:
    """1_mᵀ X as a sum of blocks of rows, then of their sums: if rows are added one by one, so are their errors.

    `add` sums over the last axis but one, which it drops.
    """
    m, n = X.shape
    if m <= 4 * BLOCK:
        return add(X)[None]
    end = m // BLOCK * BLOCK
    return sum_in_blocks(concatenate([add(X[:end].reshape(-1, BLOCK, n)), X[end:]]), add, concatenate)


class Backend(ABC):
    """One framework's implementation of the table of matrix operations."""

    name: str
    has_sparse = False  # whether it has the operations in the section "sparse matrices"

    # -- primitives ---------------------------------------------------------------------------
    @abstractmethod
    def exp(self, X: Array) -> Array: ...

    log = reciprocal = sqrt = tanh = erf = step = exp  # which have one matrix too
    diag = Diag = columns_sum = rows_sum = columns_max = rows_max = elements_sum = exp

    @abstractmethod
    def full(self, value: float, m: int, n: int, like: Array) -> Array: ...
    @abstractmethod
    def identity(self, n: int, like: Array) -> Array: ...
    @abstractmethod
    def hadamard(self, X: Array, Y: Array) -> Array: ...
    @abstractmethod
    def column_repeat(self, x: Array, n: int) -> Array: ...

    row_repeat = column_repeat

    @abstractmethod
    def stack(self, X: Array, P: int) -> Array: ...

    unstack = stack

    @abstractmethod
    def block_product(self, A: Array, B: Array, p: int) -> Array: ...  # Diag(A, p) B

    block_transposed_product = diag_product = block_product  # Diag(A, p)ᵀ B, diag(A B, p)

    @abstractmethod
    def one_hot_product(self, x: Array, W: Array) -> Array: ...  # E W, with E = one_hot(x, n)
    @abstractmethod
    def one_hot_transposed_product(self, x: Array, G: Array, n: int) -> Array: ...  # Eᵀ G
    @abstractmethod
    def gather(self, S: Support, X: Array) -> Array: ...  # X Eᵀ, with E = 1 on S and 0 elsewhere
    @abstractmethod
    def scatter(self, S: Support, U: Array) -> Array: ...  # U E
    @abstractmethod
    def uniform(self, m: int, n: int, seed: Scalar, count: Scalar, like: Array) -> Array: ...

    # -- derived ------------------------------------------------------------------------------
    def log1p(self, X: Array) -> Array:
        return self.log(1 + X)  # that of a framework is accurate near 0

    def dot(self, x: Array, y: Array) -> Scalar:
        return self.elements_sum(self.hadamard(x, y))

    def columns_mean(self, X: Array) -> Array:
        return self.columns_sum(X) / X.shape[0]

    def rows_mean(self, X: Array) -> Array:
        return self.rows_sum(X) / X.shape[1]

    def apply(self, f: Callable[[Any], Any], X: Array) -> Array:
        return f(X)

    def inv_sqrt(self, X: Array, epsilon: float) -> Array:
        m, n = X.shape
        return self.reciprocal(self.sqrt(X + self.full(epsilon, m, n, like=X)))

    def log_sigmoid(self, X: Array) -> Array:
        # min(x, 0) - log1p(e^-|x|): the exponent is never positive, so nothing overflows
        positive = self.step(X)
        minimum = self.hadamard(X, 1 - positive)
        absolute = self.hadamard(X, positive) - minimum
        return minimum - self.log1p(self.exp(-absolute))

    def sign(self, X: Array) -> Array:
        return self.step(X) - self.step(-X)

    def clip(self, X: Array, c: float) -> Array:
        # not x - relu(x - c) + relu(-x - c), which is 0 instead of c where x - c is x up to rounding
        m, n = X.shape
        C = self.full(c, m, n, like=X)
        above, below = self.step(X - C), self.step(-X - C)
        return self.hadamard(X, 1 - above - below) + c * (above - below)

    def product_on(self, W: Array, A: Array, B: Array) -> Array:
        return A @ B

    # -- sparse matrices: W has the values w (1×nnz) on the K×D support S -----------------------
    def no_sparse(self, *operands: Any, **options: Any) -> Any:
        """Raise TypeError: this backend has no sparse matrices."""
        raise TypeError(f"the backend {self.name} has no sparse matrices; numpy, torch and native have them")

    sparse_product = no_sparse  # (S, w, B): W B, K×N, for a dense D×N matrix B
    sparse_transposed_product = no_sparse  # (S, w, B): Wᵀ B, D×N, for a dense K×N matrix B
    sampled_product = no_sparse  # (S, A, B): the 1×nnz values of A Bᵀ on S, for dense matrices A (K×N) and B (D×N)
    uniform_on = no_sparse  # (S, seed, count, like): the 1×nnz values on S of the K×D matrix that `uniform` gives

    def dense(self, S: Support, w: Array) -> Array:
        """W as a dense matrix."""
        values = self.to_numpy(w)
        A = np.zeros(S.shape, values.dtype)
        A[S.row_indices(), S.columns] = values[0]
        return self.from_numpy(A, self.device(w))

    def check_sparse(self) -> None:
        """Raise TypeError if this backend has no sparse matrices."""
        if not self.has_sparse:
            self.no_sparse()

    # -- in and out ---------------------------------------------------------------------------
    @abstractmethod
    def from_numpy(self, A: np.ndarray, device: str | None = None) -> Array:
        """The NumPy array A as an array of this backend, of the same dtype, never sharing memory."""

    def shown(self, A: np.ndarray, device: str | None = None) -> Array:
        """The NumPy array A as an array that is only read, without a copy if the framework allows it."""
        return self.from_numpy(A, device)

    @abstractmethod
    def to_numpy(self, X: Array) -> np.ndarray:
        """The array X as a NumPy array of the same dtype."""

    @abstractmethod
    def take_rows(self, X: Array, indices: np.ndarray) -> Array:
        """Array whose i-th row is row indices[i] of X."""

    def rows(self, X: Array, start: int, stop: int) -> Array:
        """Rows start, …, stop - 1 of X, without a copy if the framework allows it."""
        return X[start:stop]

    def wait(self, X: Array) -> None:  # noqa: B027 (most have nothing to wait for)
        """Wait until X is computed, on a device that works asynchronously."""

    @abstractmethod
    def dtype(self, X: Array) -> str:
        """The name of X's element type, such as 'float32'."""

    def shares_memory(self, X: Array, Y: Array) -> bool:
        """Whether X and Y are one matrix, or views with elements in common."""
        return X is Y

    def tiny(self, X: Array) -> float:
        """The smallest positive normal number of X's element type."""
        return float(np.finfo(self.dtype(X)).tiny)

    def device(self, X: Array) -> str | None:
        """The device of X, as the framework names it; None if there is no choice."""
        return None

    def check_dtype(self, dtype: str) -> None:
        """Raise ValueError if this backend, as configured, cannot compute in `dtype`."""
        if dtype not in DTYPES:
            raise ValueError(f"dtype: expected one of {', '.join(DTYPES)}, found {dtype!r}")

    def find_device(self, name: str | None) -> str | None:
        """The device that a user calls `name`, as `device` names it; ``auto`` is a GPU, or cpu if there is none.

        Without a name it is the framework's default; None if there is no choice. ValueError if there is no such device.
        """
        if name not in (None, "cpu", "auto"):
            raise ValueError(f"device {name!r}: expected cpu; only torch, jax and tensorflow can have other devices")
        return None

    def free_memory(self, device: str | None) -> int | None:
        """The bytes that are left on a device; None if that is not known."""
        return None

    def check_memory(self, wanted: int, device: str | None, what: str) -> None:
        """Raise MemoryError if this many bytes cannot fit on a device; `what` begins the message."""
        free = self.free_memory(device)
        if free is not None and wanted > free:
            raise MemoryError(f"{what}: needs {in_words(wanted)} on {device}, found {in_words(free)} free")

    # -- how products are computed --------------------------------------------------------------
    def matmuls(self, device: str | None) -> tuple[str, ...]:
        """Those of `MATMULS` that there are on a device."""
        return MATMULS[:1]

    def check_matmul(self, matmul: str, dtype: str, device: str | None) -> None:
        """Raise ValueError if products of matrices of this type cannot be computed so on a device."""
        if matmul not in MATMULS:
            raise ValueError(f"matmul: expected one of {', '.join(MATMULS)}, found {matmul!r}")
        if matmul != "float32" and dtype != "float32":
            raise ValueError(f"matmul {matmul!r}: expected a model in float32, found {dtype}")
        if matmul not in self.matmuls(device):
            where = f"{self.name} on {device or 'cpu'}"
            raise ValueError(f"matmul {matmul!r}: {where} has float32 alone; torch and jax have tf32 and bf16 on GPUs")

    def products(self, matmul: str) -> AbstractContextManager[Any]:
        """Within it, products are computed as `matmul` says, whatever the settings of the framework."""
        return nullcontext()

    def scalar(self, value: float, like: Array) -> Scalar:
        """The number `value` as a 0-d array of the dtype and device of `like`."""
        return self.from_numpy(np.asarray(value, dtype=self.dtype(like)), self.device(like))
