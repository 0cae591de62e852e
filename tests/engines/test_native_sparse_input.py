"""Sparse examples in the C++ core: arrays that are no sparse matrix, and programs that misuse one, are refused."""

from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import matgrad as mg
from matgrad.layers.state import flattened
from matgrad.program.description import as_dictionary

native = pytest.importorskip("matgrad._native")
N, D, K = 12, 9, 3


def setting() -> tuple[Any, mg.DataLoader]:
    """The compiled step of a model for batches of 4, and a loader of sparse examples."""
    rng = np.random.default_rng(0)
    X = sp.random_array((N, D), density=0.3, rng=rng, format="csr", dtype=np.float32)
    loader = mg.DataLoader(X, rng.integers(0, K, N), 4)
    M = mg.create_model("ReLU;Linear", f"{D};5;{K}").to("native")
    step = mg.compile_step(M, mg.SoftmaxCrossEntropyLoss())
    step.load(M.state())
    return step.prepare(*loader.batch(0)), loader


def arguments(loader: mg.DataLoader) -> dict[str, Any]:
    """Arguments of `train` for the epoch."""
    return {
        "X": loader.X.values,
        "T": loader.T,
        "rates": np.full(3, 0.1, np.float32),
        "order": np.arange(N)[::-1].copy(),
        "labels": loader.labels,
        "starts": loader.X.support.starts,
        "columns": loader.X.support.columns,
    }


def changed(A: np.ndarray, i: int, x: int) -> np.ndarray:
    B = np.array(A)
    B[i] = x
    return B


BAD = {
    "a column after the last": (
        lambda a: {"columns": changed(a["columns"], 3, D)},
        f"columns from 0 to {D - 1}, found {D}",
    ),
    "a negative column": (lambda a: {"columns": changed(a["columns"], 3, -1)}, "found -1"),
    "a row that ends before it begins": (
        lambda a: {"starts": changed(a["starts"], 2, 30)},
        "row 2 ends before it begins",
    ),
    "rows that start late": (lambda a: {"starts": changed(a["starts"], 0, 1)}, "start with element 0"),
    "rows that end late": (lambda a: {"starts": changed(a["starts"], -1, 10**6)}, "end with the last one"),
    "no rows": (lambda a: {"starts": np.zeros(1, np.int64), "columns": a["columns"][:0]}, "start with element 0"),
    "columns without starts": (lambda a: {"starts": None}, "X starts: expected a vector of int64"),
    "fewer values": (lambda a: {"X": a["X"][:, 1:].copy()}, "one value of float32 for each element"),
    "a dense X": (lambda a: {"X": np.ones((N, D), np.float32), "starts": None, "columns": None}, "X: "),
    "an index after the last row": (lambda a: {"order": changed(a["order"], 5, N)}, f"X has no row {N}"),
}


@pytest.mark.parametrize("case", BAD)
def test_arrays_that_are_no_sparse_matrix_are_refused(case: str):
    change, message = BAD[case]
    executor, loader = setting()
    right = arguments(loader)
    with pytest.raises(ValueError, match=message):
        executor.core.train(**(right | change(right)))
    executor.core.train(**right)


def test_a_batch_is_checked_too():
    executor, loader = setting()
    (X, T), eta = loader.batch(0), np.float32(0.1).reshape(())
    inputs = {"X": X.values, "T": T, "eta": np.asarray(eta)}
    starts, columns = X.support.starts, X.support.columns
    outputs: dict[str, np.ndarray] = {}
    executor.core.run(inputs, outputs, starts, columns)
    for wrong, message in (
        ((starts, changed(columns, 0, D)), "expected columns from 0"),
        ((starts[:-1], columns[: starts[-2]]), "one value of float32 for each element|expected 4 rows"),
        ((changed(starts, 1, 10**9), columns), "ends before it begins"),
        ((), "X: expected sparse examples|different shape"),
    ):
        with pytest.raises(ValueError, match=message):
            executor.core.run(inputs, outputs, *wrong)
    with pytest.raises(ValueError, match="expected the values of the examples"):
        executor.core.run({"T": T, "eta": np.asarray(eta)}, outputs, starts, columns)
    S = loader.X.support
    with pytest.raises(ValueError, match=r"X\.support"):
        executor.core.bind_support("X.support", S.starts, S.columns, S.column_starts, S.rows, S.positions)


def test_a_dense_program_refuses_sparse_examples():
    _, loader = setting()
    M = mg.create_model("ReLU;Linear", f"{D};5;{K}").to("native")
    step = mg.compile_step(M, mg.SoftmaxCrossEntropyLoss())
    step.load(M.state())
    dense = mg.DataLoader(loader.X.to_dense(), loader.labels, 4)
    executor = step.prepare(*dense.batch(0))
    with pytest.raises(ValueError, match="expected dense examples"):
        executor.core.train(**arguments(loader))
    inputs = flattened({"X": loader.batch(0)[0], "T": dense.batch(0)[1], "eta": np.array(0.1, np.float32)})
    S = inputs.pop("X.support")
    with pytest.raises(ValueError, match="expected a program and a batch with sparse examples"):
        executor.core.run(inputs, {}, S.starts, S.columns)


# -- programs -----------------------------------------------------------------------------------------


def description() -> dict[str, Any]:
    """The program of the step; value X is the input of its name."""
    return copy.deepcopy(as_dictionary(setting()[0].program))


def place(content: dict[str, Any], operation: str, name: str = "") -> int:
    return next(
        i
        for i, line in enumerate(content["values"])
        if line["operation"] == operation and (not name or line.get("name") == name)
    )


def add(content: dict[str, Any], operation: str, shape: list, *operands: int) -> None:
    content["buffers"].append({"shape": [content["sizes"].get(n, n) for n in shape], "dtype": "float32", "name": ""})
    content["values"].append(
        {
            "operation": operation,
            "operands": list(operands),
            "shape": shape,
            "dtype": "float32",
            "buffer": len(content["buffers"]) - 1,
        }
    )


def place_of_shape(content: dict[str, Any], m: int, n: int) -> int:
    content["values"].append({"operation": "number", "operands": [], "shape": [], "dtype": "float32", "number": 1})
    content["values"].append(
        {"operation": "full", "operands": [len(content["values"]) - 1], "shape": [m, n], "dtype": "float32"}
    )
    return len(content["values"]) - 1


def other_values_on_the_support(content: dict[str, Any]) -> None:
    """Values of which there are fewer than a batch may have elements."""
    n = content["sizes"]["nnz(X)"]
    add(content, "copy", [1, n], place_of_shape(content, 1, n))
    w = len(content["values"]) - 1
    add(content, "dense", [4, D], place(content, "support", "X.support"), w)


def elements_of_a_product_on_the_support(content: dict[str, Any]) -> None:
    add(content, "copy", [4, 2], place_of_shape(content, 4, 2))
    A = len(content["values"]) - 1
    add(content, "copy", [D, 2], place_of_shape(content, D, 2))
    B = len(content["values"]) - 1
    add(content, "sampled_product", [1, "nnz(X)"], place(content, "support", "X.support"), A, B)


def copy_of_X(content: dict[str, Any]) -> None:
    content["buffers"].append({"shape": [1, content["sizes"]["nnz(X)"]], "dtype": "float32", "name": ""})
    X = content["values"][place(content, "input", "X")]["buffer"]
    content["copies"].append([len(content["buffers"]) - 1, X])


@pytest.mark.parametrize(
    "misuse",
    [
        other_values_on_the_support,
        elements_of_a_product_on_the_support,
        copy_of_X,
    ],
)
def test_programs_that_misuse_sparse_examples_are_refused(misuse):
    pool = native.ThreadPool(1)
    content = description()
    native.Executor(json.dumps(content), pool)
    misuse(content)
    with pytest.raises(ValueError, match=r"cannot read the elements of a sparse X|X cannot be copied"):
        native.Executor(json.dumps(content), pool)
