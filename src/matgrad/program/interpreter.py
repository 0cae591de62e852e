"""Runs a program in NumPy, value after value: the reference. docs/program-format.md says what a program is.

It needs nothing else of matgrad: copy this file to check your own reader of programs.

python -m matgrad.program.interpreter step.safetensors batch.safetensors new.safetensors
"""

from __future__ import annotations

import json
import sys
from typing import Any, NamedTuple

import numpy as np
from scipy.special import erf


class Support(NamedTuple):
    """Where a K×D matrix has elements, row after row."""

    rows: Any
    columns: Any
    shape: tuple[int, ...]


def matrix(x: Any, line: dict[str, Any], shape: tuple[int, ...]) -> Any:
    """The value of a line of a program."""
    return np.asarray(x).astype(line["dtype"]).reshape(shape)


def run(program: dict[str, Any], given: dict[str, Any], matrix: Any = matrix) -> list[Any]:
    """All values of a program, in order; `given` has its inputs, and the parts of its supports, by name."""
    sizes, values = program["sizes"], list[Any]()
    for line in program["values"]:
        shape = tuple(sizes.get(n, n) for n in line["shape"])
        match line["operation"]:
            case "support":
                starts, columns = (given[f"{line['name']}.{part}"] for part in ("starts", "columns"))
                values.append(Support(np.repeat(np.arange(shape[0]), np.diff(starts)), columns, shape[:2]))
                continue
            case "input":
                value = given[line["name"]]
            case "number":
                value = sizes.get(line["number"], line["number"])
            case operation:
                value = OPERATIONS[operation](shape, *(values[k] for k in line["operands"]))
        values.append(matrix(value, line, shape))
    return values


def outputs(program: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """The outputs by name, such as the new state after a step."""
    values = run(program, given)
    return {name: values[k] for name, k in program["outputs"].items()}


def dense(S: Support, w: Any) -> Any:
    """The matrix with the elements w on the support S."""
    W = np.zeros_like(w, shape=S.shape)
    W[S.rows, S.columns] = w[0]
    return W


def ones(S: Support) -> Any:
    """The matrix E that is 1 on S."""
    return dense(S, np.ones((1, len(S.rows)), "float32"))


def gathered(shape: tuple[int, ...], S: Support, X: Any) -> Any:
    """X Eᵀ: a row of E has at most one element."""
    U = np.zeros_like(X, shape=shape)
    U[:, S.rows] = X[:, S.columns]
    return U


def blocks(A: Any, b: int) -> Any:
    """The b blocks of rows of A."""
    return A.reshape((b, A.shape[0] // b, A.shape[1]))


def mix(x: Any) -> Any:
    """A permutation of the integers below 2^32."""
    x = (x ^ x >> 16) * np.uint32(0x7FEB352D)
    x = (x ^ x >> 15) * np.uint32(0x846CA68B)
    return x ^ x >> 16


def uniform(position: Any, seed: Any, count: Any) -> Any:
    """Numbers from [0, 1), scattered by a hash."""
    seed, count = (np.full((1, 1), x).astype(np.uint32) for x in (seed, count))
    return (mix(mix(position.astype(np.uint32)) ^ mix(mix(count) ^ seed)) >> 8) / 2**24


exp, log, log1p, sqrt, tanh = np.exp, np.log, np.log1p, np.sqrt, np.tanh
# of the shape of the result, and the operands; those that work element by element are called x, y and c
OPERATIONS: dict[str, Any] = {
    "transpose": lambda shape, X: X.T,
    "row_repeat": lambda shape, x: np.broadcast_to(x, shape),
    "column_repeat": lambda shape, x: np.broadcast_to(x, shape),
    "full": lambda shape, c: np.broadcast_to(c, shape),
    "stack": lambda shape, X: X.reshape(shape),
    "unstack": lambda shape, X: X.reshape(shape),
    "add": lambda shape, x, y: x + y,
    "subtract": lambda shape, x, y: x - y,
    "hadamard": lambda shape, x, y: x * y,
    "negative": lambda shape, x: -x,
    "copy": lambda shape, x: x,
    "scale": lambda shape, c, x: c * x,
    "divide": lambda shape, x, c: x / c,
    "power": lambda shape, x, c: x**c,
    "exp": lambda shape, x: exp(x),
    "log": lambda shape, x: log(x),
    "log1p": lambda shape, x: log1p(x),
    "reciprocal": lambda shape, x: 1 / x,
    "sqrt": lambda shape, x: sqrt(x),
    "tanh": lambda shape, x: tanh(x),
    "erf": lambda shape, x: erf(x),
    "step": lambda shape, x: x >= 0,
    "add_scaled": lambda shape, x, c, y: x + c * y,
    "gate": lambda shape, x, y: x * (y >= 0),
    "elements_sum": lambda shape, X: X.sum(),
    "columns_sum": lambda shape, X: X.sum(axis=0),
    "rows_sum": lambda shape, X: X.sum(axis=1),
    "columns_max": lambda shape, X: X.max(axis=0),
    "rows_max": lambda shape, X: X.max(axis=1),
    "matmul": lambda shape, A, B: A @ B,
    "product_sum": lambda shape, beta, C, alpha, A, B: beta * C + alpha * (A @ B),
    "block_product": lambda shape, A, B: blocks(A, B.shape[0] // A.shape[1]) @ blocks(B, B.shape[0] // A.shape[1]),
    "block_transposed_product": lambda shape, A, B: (
        blocks(A, shape[0] // A.shape[1]).swapaxes(1, 2) @ blocks(B, shape[0] // A.shape[1])
    ),
    "diag_product": lambda shape, A, B: (
        blocks(A, B.shape[1] // shape[1]) @ blocks(B.T, B.shape[1] // shape[1]).swapaxes(1, 2)
    ),
    "one_hot_product": lambda shape, x, W: (x == np.arange(W.shape[0])) @ W,
    "one_hot_transposed_product": lambda shape, x, G: (x == np.arange(shape[0])).T @ G,
    "gather": lambda shape, S, X: gathered(shape, S, X),
    "scatter": lambda shape, S, U: U @ ones(S),
    "sparse_product": lambda shape, S, w, B: dense(S, w) @ B,
    "sparse_transposed_product": lambda shape, S, w, B: dense(S, w).T @ B,
    "transposed_sum": lambda shape, S, beta, C, alpha, w, B: beta * C + alpha * (dense(S, w).T @ B),
    "dense": lambda shape, S, w: dense(S, w),
    "sampled_product": lambda shape, S, A, B: (A @ B.T)[S.rows, S.columns],
    "sampled_sum": lambda shape, S, beta, C, alpha, A, B: beta * C + alpha * (A @ B.T)[S.rows, S.columns],
    "uniform_on": lambda shape, S, seed, count: uniform(S.rows * S.shape[1] + S.columns, seed, count),
    "identity": lambda shape: np.eye(shape[0]),
    "diag": lambda shape, X: np.diag(X),
    "Diag": lambda shape, x: np.diag(x.reshape(-1)),
    "uniform": lambda shape, seed, count: uniform(np.arange(shape[0] * shape[1]).reshape(shape), seed, count),
}


if __name__ == "__main__":
    from safetensors import safe_open
    from safetensors.numpy import load_file, save_file

    step, batch, new = sys.argv[1:]
    with safe_open(step, "np") as file:
        program = json.loads(file.metadata()["matgrad"])
    save_file(outputs(program, load_file(step) | load_file(batch)), new)
