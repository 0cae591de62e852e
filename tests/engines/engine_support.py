"""What the tests of single operations share: programs with one operation, and everything that runs them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from matgrad import _native
from matgrad.backends import get_backend
from matgrad.backends.base import Backend
from matgrad.engines.kernels import Executor
from matgrad.engines.numpy_kernels import NumpyKernels
from matgrad.engines.torch_engine import TorchKernels
from matgrad.program.description import as_dictionary
from matgrad.program.operations import OPERATIONS
from matgrad.program.program import Program, Value
from matgrad.program.rules import optimized
from matgrad.program.shapes import Shape
from matgrad.sparse.support import Support

ENGINES = ("numpy", "torch", *(f"native {name}" for name in _native.instruction_sets()))
POOL = _native.ThreadPool(2)
KERNELS = {"numpy": NumpyKernels, "torch": TorchKernels}
Inputs = Mapping[str, np.ndarray]

# -- what is not called like a method of a backend: (backend, shape of the result, like, operands) ------

EAGER: dict[str, Callable[..., Any]] = {
    "transpose": lambda b, shape, like, X: X.T,
    "row_repeat": lambda b, shape, like, x: b.row_repeat(x, shape[0]),
    "column_repeat": lambda b, shape, like, x: b.column_repeat(x, shape[1]),
    "full": lambda b, shape, like, c: c * b.full(1, *shape, like),
    "add": lambda b, shape, like, X, Y: X + Y,
    "subtract": lambda b, shape, like, X, Y: X - Y,
    "negative": lambda b, shape, like, X: -X,
    "copy": lambda b, shape, like, X: X,
    "scale": lambda b, shape, like, c, X: c * X,
    "divide": lambda b, shape, like, X, c: X / c,
    "power": lambda b, shape, like, X, c: X**c,
    "add_scaled": lambda b, shape, like, Y, c, X: Y + c * X,
    "gate": lambda b, shape, like, A, Z: b.hadamard(A, b.step(Z)),
    "matmul": lambda b, shape, like, A, B: A @ B,
    "product_sum": lambda b, shape, like, beta, C, alpha, A, B: beta * C + alpha * (A @ B),
    "transposed_sum": lambda b, shape, like, S, beta, C, alpha, w, B: (
        beta * C + alpha * b.sparse_transposed_product(S, w, B)
    ),
    "sampled_sum": lambda b, shape, like, S, beta, C, alpha, A, B: beta * C + alpha * b.sampled_product(S, A, B),
    "identity": lambda b, shape, like: b.identity(shape[0], like),
    "uniform": lambda b, shape, like, seed, count: b.uniform(*shape, seed, count, like),
    "uniform_on": lambda b, shape, like, S, seed, count: b.uniform_on(S, seed, count, like),
}


def eager(name: str, backend: Backend, shape: Shape, like: Any, operands: Sequence[Any]) -> Any:
    """The result of the operation on matrices of a backend, by the table or its operators."""
    if name in EAGER:
        return EAGER[name](backend, shape, like, *operands)
    if name in GIVEN_SIZES:
        return getattr(backend, name)(*operands, GIVEN_SIZES[name](shape, *(x.shape for x in operands)))
    return getattr(backend, name)(*operands)


# the sizes that do not follow from the operands: rows of a stack or a block, or of the result
GIVEN_SIZES: dict[str, Callable[..., int]] = {
    "stack": lambda shape, x: shape[0] // x[0],
    "unstack": lambda shape, x: x[0] // shape[0],
    "block_product": lambda shape, a, b: a[0] * a[1] // b[0],
    "block_transposed_product": lambda shape, a, b: a[0] * a[1] // shape[0],
    "diag_product": lambda shape, a, b: a[0] * shape[1] // b[1],
    "one_hot_transposed_product": lambda shape, x, g: shape[0],
}

# -- programs ----------------------------------------------------------------------------------


def program_of(name: str, shapes: Sequence[Shape], result: Shape, operands: Sequence[Any], dtype: str) -> Program:
    """The operation on inputs x0, x1, …; an operand that is a support or a number is fixed in the program."""
    arrays = [x for x in operands if isinstance(x, np.ndarray)]
    out = arrays[0].dtype.name if arrays and OPERATIONS[name].dtypes == "any" else dtype
    values = []
    for i, (shape, x) in enumerate(zip(shapes, operands, strict=True)):
        if isinstance(x, Support):
            values.append(Value("support", (), shape, "int32", name="S", support=x))
        elif isinstance(x, np.ndarray):
            values.append(Value("input", (), shape, x.dtype.name, name=f"x{i}"))
        else:
            values.append(Value("number", (), (), out, number=x))
    inputs = {x.name: x for x in values if x.operation == "input"}
    inputs["like"] = Value("input", (), (1, 1), dtype, name="like")  # the core wants a matrix for the dtype
    return optimized(Program(inputs, {"out": Value(name, tuple(values), result, out, order=1)}))


def runner(engine: str, program: Program) -> Callable[[Inputs], np.ndarray]:
    """A function from the inputs of the program to its output."""
    kind, _, instruction_set = engine.partition(" ")
    return _native_runner(program, instruction_set) if kind == "native" else _framework_runner(program, kind)


def _framework_runner(program: Program, name: str) -> Callable[[Inputs], np.ndarray]:
    backend = get_backend(name)
    like = backend.from_numpy(np.zeros((1, 1), program.inputs["like"].dtype))
    executor = Executor(program, KERNELS[name](backend), {"like": like})

    def run(inputs: Inputs) -> np.ndarray:
        matrices = {key: backend.from_numpy(A) for key, A in inputs.items()}
        return np.array(backend.to_numpy(executor.execute(**matrices)["out"]))

    return run


def _native_runner(program: Program, instruction_set: str) -> Callable[[Inputs], np.ndarray]:
    core = _native.Executor(json.dumps(as_dictionary(program)), POOL, instruction_set)
    for name, value in program.supports.items():
        S = value.support
        core.bind_support(name, S.starts, S.columns, S.column_starts, S.rows, S.positions)
    like, value = np.zeros((1, 1), program.inputs["like"].dtype), program.outputs["out"]

    def run(inputs: Inputs) -> np.ndarray:
        out = np.zeros(value.shape, value.dtype)
        matrices = {key: np.ascontiguousarray(A).reshape(A.shape) for key, A in inputs.items()}
        core.run({"like": like} | matrices, {"out": out})
        return out

    return run
