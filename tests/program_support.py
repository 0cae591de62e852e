"""What the tests of programs share: a plain evaluator, executors whose memory starts as nan, and random programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from hypothesis import strategies as st

from matgrad.backends import get_backend
from matgrad.engines.kernels import Executor, Kernels
from matgrad.engines.numpy_kernels import NumpyKernels
from matgrad.program.operations import OPERATIONS
from matgrad.program.program import Program, Value
from matgrad.program.shapes import Shape
from matgrad.sparse.support import Support
from test_matrix_operations import TABLE

State = dict[str, np.ndarray]

# -- what a program means: every operation by its definition, and a fresh array for every result ---

FUNCTIONS = tuple(row.name for row in OPERATIONS.values() if row.rule == "* -> *" and row.name in TABLE)


def by_elements(definition: Callable[[np.ndarray], np.ndarray]) -> Callable[[Shape, Any], np.ndarray]:
    """A function of every element, by its definition for matrices."""
    return lambda shape, X: definition(np.reshape(X, (1, -1))).reshape(shape)


def block_diagonal(A: np.ndarray, blocks: int) -> np.ndarray:
    """The block-diagonal matrix of so many blocks of rows."""
    p, q = len(A) // blocks, len(A.T)
    D = np.zeros((len(A), blocks * q))
    for b in range(blocks):
        D[b * p : (b + 1) * p, b * q : (b + 1) * q] = A[b * p : (b + 1) * p]
    return D


def repeated(B: np.ndarray, shape: Shape) -> np.ndarray:
    """[I; I; …], by which a product adds up blocks of as many columns as a result has."""
    return np.tile(np.eye(shape[1]), (len(B.T) // shape[1], 1))


MEANING: dict[str, Callable[..., Any]] = {
    "transpose": lambda shape, X: X.T,
    "row_repeat": lambda shape, x: np.ones((shape[0], 1)) @ x,
    "column_repeat": lambda shape, x: x @ np.ones((1, shape[1])),
    "full": lambda shape, c: c * np.ones(shape),
    "add": lambda shape, X, Y: X + Y,
    "subtract": lambda shape, X, Y: X - Y,
    "hadamard": lambda shape, X, Y: X * Y,
    "negative": lambda shape, X: -X,
    "scale": lambda shape, c, X: c * X,
    "divide": lambda shape, X, c: X / c,
    "power": lambda shape, X, c: X**c,
    "copy": lambda shape, X: X,
    **{name: by_elements(TABLE[name].definition) for name in FUNCTIONS},
    "add_scaled": lambda shape, Y, c, X: Y + c * X,
    "gate": lambda shape, A, Z: A * (Z >= 0),
    "elements_sum": lambda shape, X: X.sum(),
    "columns_sum": lambda shape, X: X.sum(axis=0, keepdims=True),
    "rows_sum": lambda shape, X: X.sum(axis=1, keepdims=True),
    "columns_max": lambda shape, X: X.max(axis=0, keepdims=True),
    "rows_max": lambda shape, X: X.max(axis=1, keepdims=True),
    "matmul": lambda shape, A, B: A @ B,
    "product_sum": lambda shape, beta, C, alpha, A, B: beta * C + alpha * (A @ B),
    "stack": lambda shape, X: np.reshape(X, shape),
    "unstack": lambda shape, X: np.reshape(X, shape),
    "block_product": lambda shape, A, B: block_diagonal(A, len(B) // len(A.T)) @ B,
    "block_transposed_product": lambda shape, A, B: block_diagonal(A, shape[0] // len(A.T)).T @ B,
    "diag_product": lambda shape, A, B: (
        block_diagonal(np.ones(shape), len(B.T) // shape[1]) * (A @ B) @ repeated(B, shape)
    ),
    "one_hot_product": lambda shape, x, W: (x == np.arange(len(W))) @ W,
    "one_hot_transposed_product": lambda shape, x, G: (x == np.arange(shape[0])).T @ G,
    "identity": lambda shape: np.eye(shape[0]),
    "diag": lambda shape, X: np.diag(X).reshape(-1, 1),
    "Diag": lambda shape, x: np.diag(x.reshape(-1)),
    "uniform": lambda shape, seed, count: get_backend("numpy").uniform(*shape, seed, count, np.empty(0)),
}


def ones_on(S: Support) -> np.ndarray:
    """The matrix that is 1 on a support."""
    E = np.zeros(S.shape)
    E[S.row_indices(), S.columns] = 1
    return E


ONES = {"gather": lambda S, X: X @ ones_on(S).T, "scatter": lambda S, U: U @ ones_on(S)}


def evaluate(program: Program, inputs: Mapping[str, Any]) -> dict[Value, np.ndarray]:
    """Every value of the program, each in an array of its own."""
    known: dict[Value, Any] = {}
    for value in program.values:
        if value.operation == "input":
            result = inputs[value.name]
        elif value.operation == "number":
            result = value.number
        elif value.operation == "support":
            known[value] = value.support
            continue
        elif value.operation in ONES:
            result = ONES[value.operation](known[value.operands[0]], known[value.operands[1]])
        else:
            result = MEANING[value.operation](value.shape, *(known[x] for x in value.operands))
        known[value] = np.array(result, dtype=value.dtype)
        assert known[value].shape == tuple(value.shape), f"{value.operation}: {known[value].shape}, not {value.shape}"
    return known


def outputs(program: Program, inputs: Mapping[str, Any]) -> State:
    """The outputs of the program, by its meaning."""
    known = evaluate(program, inputs)
    return {name: known[value] for name, value in program.outputs.items()}


# -- how a program runs ------------------------------------------------------------------------


def poisoned(kernels: type[Kernels], backend: str) -> Kernels:
    """Kernels whose memory is nan until something is written to it."""

    class Poisoned(kernels):  # type: ignore[valid-type, misc]
        def empty(self, shape, dtype, like):
            X = super().empty(shape, dtype, like)
            X[...] = float("nan") if dtype.startswith("float") else -(2**31)
            return X

        def run(self, calls):
            for kernel, (out, *operands) in calls:
                check_overlap(out, operands)
                super().run([(kernel, [out, *operands])])

    return Poisoned(get_backend(backend))


def check_overlap(out: Any, operands: list[Any]) -> None:
    """An operand may be the matrix that is written, but no other view of its memory: NumPy would hide that."""
    for X in operands:
        if isinstance(X, np.ndarray) and np.shares_memory(X, out):
            same = (X.ctypes.data, X.shape, X.strides) == (out.ctypes.data, out.shape, out.strides)
            assert same, f"an operand of shape {X.shape} overlaps with the result of shape {out.shape}"


def kernels_of(backend: str) -> Kernels:
    """The poisoned kernels of a backend."""
    if backend == "numpy":
        return poisoned(NumpyKernels, backend)
    from matgrad.engines.torch_engine import TorchKernels

    return poisoned(TorchKernels, backend)


def executed(
    program: Program, state: Mapping[str, Any], given: Mapping[str, Any], *, backend: str = "numpy", times: int = 1
) -> State:
    """The state after the program has run in place, on copies of what it is given; `given` must stay as it is."""
    framework = get_backend(backend)
    matrices = {name: framework.from_numpy(np.array(A)) for name, A in state.items()}
    batch = {name: framework.from_numpy(np.array(A)) for name, A in given.items()}
    executor = Executor(program, kernels_of(backend), matrices)
    for _ in range(times):
        executor.execute(**batch)
    for name, A in given.items():
        np.testing.assert_array_equal(framework.to_numpy(batch[name]), A, err_msg=f"{name}, which is not in the state")
    return {name: np.array(framework.to_numpy(X)) for name, X in matrices.items()}


# -- random programs ---------------------------------------------------------------------------

STATE: dict[str, Shape] = {"a": (2, 2), "b": (2, 2), "c": (2, 2), "d": (2, 3), "e": (1, 2), "f": (2, 1), "s": ()}
GIVEN: dict[str, Shape] = {"X": (2, 2), "Y": (3, 2), "eta": ()}

EXACT = ("add", "subtract", "hadamard", "negative", "copy", "scale", "add_scaled", "elements_sum", "rows_sum", "diag")
EXACT += ("columns_sum", "matmul", "product_sum", "transpose", "row_repeat", "column_repeat", "Diag", "divide", "full")
EXACT += ("power", "identity", "stack", "unstack", "block_product", "block_transposed_product", "diag_product")
EXACT += ("one_hot_product", "one_hot_transposed_product")
JUMPS = ("step", "gate", "rows_max", "columns_max")  # where rounding could show, so only in exact arithmetic
SMOOTH = (*(name for name in FUNCTIONS if name not in JUMPS), "uniform")


def divisors(n: int) -> list[int]:
    return [p for p in range(1, n + 1) if n % p == 0]


class _Builder:
    """Draws a straight line of operations on values that fit."""

    def __init__(self, draw: Callable[[Any], Any]) -> None:
        self.draw = draw
        shapes = STATE | GIVEN
        self.inputs = {name: Value("input", (), shape, order=0, name=name) for name, shape in shapes.items()}
        self.values = list(self.inputs.values())

    def pick(self, fits: Callable[[Shape], bool]) -> Value:
        """A value whose shape fits; the later ones are as likely as all the others."""
        found = [x for x in self.values if fits(x.shape)]
        late = found[-4:] if self.draw(st.booleans()) else found
        return self.draw(st.sampled_from(late))

    def add(self, operation: str, shape: Shape, *operands: Value, number: float | None = None) -> Value:
        value = Value(operation, operands, shape, number=number, order=len(self.values))
        self.values.append(value)
        return value

    def number(self) -> Value:
        return self.add("number", (), number=self.draw(st.sampled_from([1, 2, -1, -2])))

    def scalar(self) -> Value:
        return self.number() if self.draw(st.booleans()) else self.pick(lambda shape: shape == ())

    def matrix(self, shape: Shape | None = None) -> Value:
        return self.pick(lambda found: found == shape if shape else len(found) == 2)

    def add_blocks(self, operation: str) -> None:
        """Add a product of blocks of a matrix with another one that fits, or with itself."""
        A = self.matrix()
        (m, q), b = A.shape, self.draw(st.sampled_from(divisors(A.shape[0])))
        rows = b * q if operation == "block_product" else m
        fitting = [x for x in self.values if len(x.shape) == 2 and x.shape[0] == rows]
        if not fitting:
            operation, rows, fitting = "block_transposed_product", m, [A]
        B = self.draw(st.sampled_from(fitting))
        if operation == "diag_product":
            self.add(operation, (m, m // b), A, self.add("transpose", (q, m), A))
        else:
            self.add(operation, (m if operation == "block_product" else b * q, B.shape[1]), A, B)

    def grow(self, operation: str) -> None:
        """Add a result of the operation, and what it needs."""
        match operation:
            case "add" | "subtract" | "hadamard" | "gate":
                X = self.matrix() if operation == "gate" else self.pick(lambda shape: True)
                self.add(operation, X.shape, X, self.pick(lambda shape: shape == X.shape))
            case "scale":
                c, X = self.scalar(), self.matrix()
                self.add(operation, X.shape, c, X)
            case "divide":
                X = self.matrix()
                self.add(operation, X.shape, X, self.number())
            case "power":
                X = self.matrix()
                self.add(operation, X.shape, X, self.add("number", (), number=2))
            case "add_scaled":
                Y, c = self.matrix(), self.scalar()
                self.add(operation, Y.shape, Y, c, self.matrix(Y.shape))
            case "matmul" | "product_sum":
                rows = {x.shape[0] for x in self.values if len(x.shape) == 2}
                A = self.pick(lambda shape: len(shape) == 2 and shape[1] in rows)
                B = self.pick(lambda shape: len(shape) == 2 and shape[0] == A.shape[1])
                result = A.shape[0], B.shape[1]
                if operation == "product_sum" and any(x.shape == result for x in self.values):
                    beta, C, alpha = self.scalar(), self.matrix(result), self.scalar()
                    self.add(operation, result, beta, C, alpha, A, B)
                else:
                    self.add("matmul", result, A, B)
            case "transpose":
                X = self.matrix()
                self.add(operation, X.shape[::-1], X)
            case "row_repeat":
                x = self.pick(lambda shape: shape[:1] == (1,))
                self.add(operation, (self.draw(st.integers(1, 3)), x.shape[1]), x)
            case "column_repeat":
                x = self.pick(lambda shape: shape[1:] == (1,))
                self.add(operation, (x.shape[0], self.draw(st.integers(1, 3))), x)
            case "full":
                self.add(operation, self.draw(st.sampled_from([(2, 2), (2, 3), (1, 2)])), self.scalar())
            case "stack" | "unstack":
                X = self.matrix()
                m, n = X.shape
                p = self.draw(st.sampled_from(divisors(n if operation == "stack" else m)))
                self.add(operation, (m * p, n // p) if operation == "stack" else (m // p, n * p), X)
            case "block_product" | "block_transposed_product" | "diag_product":
                self.add_blocks(operation)
            case "one_hot_product":
                x, W = self.pick(lambda shape: shape[1:] == (1,)), self.matrix()
                self.add(operation, (x.shape[0], W.shape[1]), x, W)
            case "one_hot_transposed_product":
                x = self.pick(lambda shape: shape[1:] == (1,))
                G = self.pick(lambda shape: len(shape) == 2 and shape[0] == x.shape[0])
                self.add(operation, (self.draw(st.integers(1, 3)), G.shape[1]), x, G)
            case "identity":
                self.add(operation, (2, 2))
            case "uniform":
                self.add(operation, self.draw(st.sampled_from([(2, 2), (2, 3)])), self.number(), self.number())
            case "elements_sum":
                self.add(operation, (), self.matrix())
            case "rows_sum" | "rows_max":
                X = self.matrix()
                self.add(operation, (X.shape[0], 1), X)
            case "columns_sum" | "columns_max":
                X = self.matrix()
                self.add(operation, (1, X.shape[1]), X)
            case "diag":
                X = self.pick(lambda shape: len(shape) == 2 and shape[0] == shape[1])
                self.add(operation, (X.shape[0], 1), X)
            case "Diag":
                x = self.pick(lambda shape: len(shape) == 2 and 1 in shape)
                self.add(operation, (max(x.shape),) * 2, x)
            case _:
                X = self.pick(lambda shape: True)
                if operation in SMOOTH:  # of numbers from 1/2 to 3/2
                    X = self.add("tanh", X.shape, X)
                    X = self.add("divide", X.shape, X, self.add("number", (), number=2)) if X.shape else X
                    one = self.add("number", (), number=1)
                    X = self.add("add", X.shape, X, self.add("full", X.shape, one) if X.shape else one)
                self.add(operation, X.shape, X)


@st.composite
def programs(draw, *, exact: bool, size: int = 14) -> Program:
    """A program that updates the matrices of STATE from themselves and those of GIVEN."""
    builder = _Builder(draw)
    for operation in draw(st.lists(st.sampled_from(EXACT + (JUMPS if exact else SMOOTH)), min_size=3, max_size=size)):
        builder.grow(operation)
    results = {name: builder.pick(lambda found, shape=shape: found == shape) for name, shape in STATE.items()}
    return Program(builder.inputs, results)


def numbers(seed: int, *, exact: bool) -> tuple[State, State]:
    """Numbers for STATE and for GIVEN: small whole ones, or any."""
    rng = np.random.default_rng(seed)

    def draw(shape: Shape) -> np.ndarray:
        return np.array(rng.integers(-2, 3, shape), dtype="float64") if exact else np.array(rng.normal(size=shape))

    return {name: draw(shape) for name, shape in STATE.items()}, {name: draw(shape) for name, shape in GIVEN.items()}
