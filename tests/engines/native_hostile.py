"""Hostile programs for the C++ core: each is small, and was or could be read as something that breaks it."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

LARGEST = 2**31 - 1
DTYPES = {"F32": np.float32, "F64": np.float64, "I32": np.int32, "I64": np.int64}


class Program:
    """A training step on batches of two examples, in float32, to which a case adds what is wrong."""

    def __init__(self) -> None:
        self.values: list[dict[str, Any]] = []
        self.buffers: list[dict[str, Any]] = []
        self.copies: list[list[int]] = []
        self.outputs: dict[str, int] = {}
        self.tensors: dict[str, tuple[str, np.ndarray]] = {}
        self.X = self.add("input", [2, 3], name="X")
        self.T = self.add("input", [2, 3], name="T")
        self.eta = self.add("input", [], name="eta")

    def buffer(self, shape: list[int], dtype: str = "float32", name: str = "") -> int:
        self.buffers.append({"shape": shape, "dtype": dtype, "name": name})
        return len(self.buffers) - 1

    def add(self, operation: str, shape: list, *operands: int, dtype: str = "float32", **details: Any) -> int:
        """Append a value, with a buffer of its own unless it needs none, or has one already."""
        line = {"operation": operation, "operands": list(operands), "shape": shape, "dtype": dtype, **details}
        views = ("transpose", "row_repeat", "column_repeat", "full")
        if "buffer" not in line and operation not in ("number", "support", *views):
            line["buffer"] = self.buffer(shape, dtype, details.get("name", ""))
        self.values.append(line)
        return len(self.values) - 1

    def number(self, x: Any, dtype: str = "float32") -> int:
        return self.add("number", [], dtype=dtype, number=x)

    def full(self, *shape: int) -> int:
        return self.add("full", list(shape), self.number(1))

    def copied(self, *shape: int) -> int:
        """A matrix of ones in memory."""
        return self.add("copy", list(shape), self.full(*shape))

    def support(self, K: int, D: int, starts: Any, columns: Any, nnz: int | None = None, name: str = "S") -> int:
        self.tensors[f"{name}.starts"] = "I64", np.array(starts, np.int64)
        self.tensors[f"{name}.columns"] = "I32", np.array(columns, np.int32)
        return self.add("support", [K, D, nnz or max(len(columns), 1)], dtype="int32", name=name)

    def sparse(self, S: int, K: int, D: int, nnz: int, N: int = 4) -> int:
        """A product with a sparse matrix, so that the support is read."""
        return self.add("sparse_product", [K, N], S, self.copied(1, nnz), self.copied(D, N))

    def content(self) -> dict[str, Any]:
        return {
            "format": 2,
            "sizes": {},
            "buffers": self.buffers,
            "values": self.values,
            "outputs": self.outputs,
            "copies": self.copies,
        }


def packed(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    """A safetensors file with this header, a JSON value or bytes, and possibly a wrong length."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(kind: str, shape: list, first: int, last: int) -> dict[str, Any]:
    return {"dtype": kind, "shape": shape, "data_offsets": [first, last]}


def saved(description: str, tensors: dict[str, tuple[str, np.ndarray]]) -> bytes:
    """A file with a program and tensors."""
    header: dict[str, Any] = {"__metadata__": {"matgrad": description}}
    data = b""
    for name, (kind, A) in tensors.items():
        header[name] = entry(kind, list(A.shape), len(data), len(data) + A.nbytes)
        data += A.tobytes()
    return packed(header, data)


CASES: dict[str, Callable[[Program], Any]] = {}


def case(function: Callable[[Program], Any]) -> Callable[[Program], Any]:
    CASES[function.__name__.replace("_", " ")] = function
    return function


def write_case(name: str, path: Path, *, output: bool = False) -> None:
    """Write a case to a file, with its last value as an output where that is wanted."""
    program = Program()
    text = CASES[name](program)
    if output:
        program.outputs.setdefault("out", len(program.values) - 1)
    path.write_bytes(saved(text if isinstance(text, str) else json.dumps(program.content()), program.tensors))


def changed(line: int, **changes: Any) -> Callable[[Program], Any]:
    """The case in which an input and its buffer are something else."""
    return lambda p: (p.buffers[line].update(changes), p.values[line].update(changes))


# -- sizes whose product is too large ------------------------------------------------------------

for n in (2**16, LARGEST, 2**32, 2**63 - 1, 2**64, -1, 0):
    CASES[f"identity of {n}"] = lambda p, n=n: p.add("identity", [n, n])
    CASES[f"T with {n} columns"] = changed(1, shape=[2, n])
    CASES[f"sum of {n} equal rows"] = lambda p, n=n: p.add(
        "columns_sum", [1, 3], p.add("row_repeat", [n, 3], p.add("columns_sum", [1, 3], p.X))
    )
for n in (2**16, LARGEST, 2**39):
    CASES[f"product of {n}³"] = lambda p, n=n: p.add(
        "elements_sum", [], p.add("matmul", [n, n], p.full(n, n), p.full(n, n))
    )
    CASES[f"product with {n} inner elements"] = lambda p, n=n: p.add("matmul", [1, 1], p.full(1, n), p.full(n, 1))
    CASES[f"sparse product with {n} examples"] = lambda p, n=n: p.sparse(p.support(2, 2, [0, 1, 2], [0, 1]), 2, 2, 2, n)
    CASES[f"{n} uniform rows"] = lambda p, n=n: p.add("uniform", [n, n], p.number(1), p.number(1))
CASES |= {
    "buffer of 8 GB": lambda p: p.copied(40000, 50000),
    "many buffers": lambda p: [p.buffer([1000, 1000]) for _ in range(1000)],
    "wide support": lambda p: p.sparse(p.support(1, 10**9, [0, 1], [0]), 1, 10**9, 1),
    "high support": lambda p: p.sparse(p.support(LARGEST, 1, [0, 1], [0]), LARGEST, 1, 1),
    "many classes": changed(1, shape=[2, 100_000]),  # the targets of all classes would be a square matrix
}


@case
def thin_buffers_that_are_padded(p):
    S = p.support(1, 4_000_000, [0, 1], [0])
    p.add("sparse_product", [1, 1], S, p.copied(1, 1), p.copied(4_000_000, 1))
    for _ in range(3):
        S = p.support(4_000_000, 1, [0, 1], [0], name="R")


# -- types ---------------------------------------------------------------------------------------

for name, line in (("X", 0), ("T", 1), ("eta", 2)):
    for dtype in ("float64", "int64", "bool", ""):
        CASES[f"{name} of {dtype or 'no dtype'}"] = changed(line, dtype=dtype)
        CASES[f"{name} of {dtype or 'no dtype'}, unread"] = lambda p, line=line, dtype=dtype: (
            p.buffers[line].update(dtype=dtype),
            p.values.pop(line),
        )
    for shape in ([], [2, 3], [3, 3], [3], [2, 3, 1], "X", None):
        CASES[f"{name} of shape {shape}"] = changed(line, shape=shape)
for x in (1.5, 1e30, float("nan"), -(2**63), 2**63, None, True, "N", []):
    CASES[f"seed {x}"] = lambda p, x=x: p.add("uniform", [2, 3], p.number(x), p.number(1))
    CASES[f"counter {x}"] = lambda p, x=x: p.add("add", [], p.number(x, "int32"), p.number(1, "int32"), dtype="int32")
    CASES[f"number {x}"] = lambda p, x=x: p.add("scale", [2, 3], p.number(x), p.X)
CASES |= {
    "copy from integers": lambda p: p.copies.append([p.buffer([100, 100]), p.buffer([100, 100], "int32")]),
    "copy between sizes": lambda p: p.copies.append([p.buffer([2, 2]), 0]),
    "copy of three buffers": lambda p: p.copies.append([0, 0, 0]),
    "exp of integers": lambda p: p.add("exp", [], p.number(1, "int64"), dtype="int64"),
    "number without a number": lambda p: p.add("number", []),
    "number of another operation": lambda p: p.add("exp", [2, 3], p.X, number=1),
}


@case
def seed_that_is_not_a_number(p):
    infinite = p.add("reciprocal", [], p.number(0))
    p.add("uniform", [2, 3], infinite, infinite)


# -- memory that is read or written at the wrong time ----------------------------------------------


@case
def product_in_place(p):
    A = p.copied(64, 64)
    p.add("matmul", [64, 64], A, A, buffer=p.values[A]["buffer"])


@case
def product_sum_into_a_factor(p):
    A, C = p.copied(64, 64), p.copied(64, 64)
    p.add("product_sum", [64, 64], p.number(1), C, p.number(1), A, A, buffer=p.values[A]["buffer"])


@case
def value_that_has_been_overwritten(p):
    A = p.copied(2, 3)
    p.add("exp", [2, 3], p.X, buffer=p.values[A]["buffer"])
    p.add("add", [2, 3], A, A)


@case
def view_that_has_been_overwritten(p):
    A = p.copied(3, 3)
    B = p.add("transpose", [3, 3], A)
    p.add("negative", [3, 3], A, buffer=p.values[A]["buffer"])
    p.add("copy", [3, 3], B)


@case
def input_that_has_been_overwritten(p):
    p.add("exp", [2, 3], p.T, buffer=p.buffer([2, 3], name="Z"))
    p.add("input", [2, 3], name="Z", buffer=len(p.buffers) - 1)


CASES |= {
    "copy of nothing": lambda p: p.copies.append([p.buffer([2, 3]), p.buffer([2, 3])]),
    "output that is not there": lambda p: p.outputs.update(X=p.add("exp", [2, 3], p.X)),
    "output without a buffer": lambda p: p.outputs.update(Y=p.add("exp", [2, 3], p.X)),
    "input in a buffer of another name": lambda p: p.values[1].update(buffer=0),
    "two buffers of one name": lambda p: p.buffer([2, 3], name="X"),
    "the same input twice": lambda p: p.values.append(p.values[0]),
    "program that changes X": lambda p: p.add("exp", [2, 3], p.X, buffer=0),
}
for k in (-1, 3, 2**31, 2**63, 1.5, None):
    CASES[f"operand {k}"] = lambda p, k=k: p.add("exp", [2, 3], k)
    CASES[f"buffer {k}"] = lambda p, k=k: p.add("exp", [2, 3], p.X, buffer=k)
    CASES[f"copy from {k}"] = lambda p, k=k: p.copies.append([0, k])
    CASES[f"output {k}"] = lambda p, k=k: p.outputs.update(X=k)


# -- collectives, for which there are no other ranks ---------------------------------------------------


@case
def collective_of_X(p):
    p.add("all_reduce", [2, 3], p.X, buffer=0)


@case
def gathered_rows_of_8_GB(p):
    p.outputs["Y"] = p.add("all_gather_rows", [700_000_000, 3], p.X, buffer=p.buffer([700_000_000, 3], name="Y"))


# -- supports ----------------------------------------------------------------------------------------


for starts, columns in (
    ([0, 1], [0, 1]),
    ([1, 1, 2], [0, 1]),
    ([0, 3, 2], [0, 1]),
    ([0, -1, 2], [0, 1]),
    ([0, 1, 2**62], [0, 1]),
    ([0, 1, 2], [0, 2]),
    ([0, 1, 2], [-1, 1]),
    ([0, 2, 2], [1, 0]),
    ([], []),
    ([[0, 1, 2]], [0, 1]),
):
    CASES[f"support with starts {starts} and columns {columns}"] = lambda p, s=starts, c=columns: p.sparse(
        p.support(2, 2, s, c, nnz=2), 2, 2, 2
    )
CASES |= {
    "support of more elements": lambda p: p.sparse(p.support(2, 2, [0, 1, 2], [0, 1], nnz=3), 2, 2, 3),
    "support as a matrix": lambda p: p.add("exp", [2, 3], p.support(2, 3, [0, 1, 2], [0, 1])),
}


@case
def two_supports_of_one_name(p):
    p.sparse(p.support(2, 2, [0, 1, 2], [0, 1]), 2, 2, 2)
    p.sparse(p.support(3, 2, [0, 1, 2, 2], [0, 1]), 3, 2, 2)


@case
def support_with_other_dtypes(p):
    S = p.support(2, 2, [0, 1, 2], [0, 1])
    p.tensors["S.starts"] = "I32", np.array([0, 1, 2], np.int32)
    p.sparse(S, 2, 2, 2)


@case
def support_without_columns(p):
    p.sparse(p.support(2, 2, [0, 1, 2], [0, 1]), 2, 2, 2)
    p.tensors.pop("S.columns")


# -- descriptions ------------------------------------------------------------------------------------


TEXTS = {
    "nothing": "",
    "100,000 brackets": "[" * 100_000,
    "a million values": "[" + "0," * 1_100_000 + "0]",
    "an array": "[]",
    "no members": "{}",
    "a key twice": '{"format": 2, "format": 2}',
    "something after the end": "{} {}",
    "half of a character": '{"\\ud800": 1}',
    "a long name": json.dumps({"format": 2, "sizes": {"\n" * 100_000: 0}}),
    "values of strings": '{"format": 2, "sizes": {}, "buffers": ["x"], "values": ["x"], "copies": [], "outputs": {}}',
    "no values": '{"format": 2, "sizes": {}, "buffers": [], "values": [], "copies": [], "outputs": {}}',
    **{f"the number {x}": f'{{"format": {x}}}' for x in ("01", "+1", "1.", "-", "0x10", "nan", "١")},
}
CASES |= {name: lambda p, text=text: text for name, text in TEXTS.items()}


@case
def nested_views(p):
    """More than a stack can take, if each asked the one below it."""
    last = p.X
    for i in range(99_000):
        last = p.add("transpose", [3, 2] if i % 2 == 0 else [2, 3], last)
    p.add("exp", [2, 3], last)


@case
def many_tasks(p):
    """Of which each would be compared with all before it."""
    Z = p.sparse(p.support(2, 3, [0, 1, 2], [0, 1]), 2, 3, 2, N := 64)
    Y = p.copied(3, N)
    for _ in range(15_000):
        Z, Y = p.add("negative", [2, N], Z), p.add("negative", [3, N], Y)


@case
def more_values_than_any_program(p):
    p.values += [{"operation": "number", "operands": [], "shape": [], "dtype": "float32", "number": 1}] * 100_000


@case
def name_in_two_lines(p):
    p.add("input", [2, 3], name="two\nlines.b")
