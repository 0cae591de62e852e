"""The rules of deferral, each alone: which values need no memory, and which keep it."""

from __future__ import annotations

import numpy as np

from matgrad.program.deferral import deferred, plan
from matgrad.program.program import Program, Value
from matgrad.program.rules import optimized
from matgrad.sparse.support import Support

N, D, P, Q, K = 2, 6, 3, 4, 5
E = Value(
    "support", (), (P * Q, D, P * Q), "int32", name="E", support=Support.from_mask(np.eye(D)[np.arange(12) % D] > 0)
)


def of(operation: str, shape: tuple[int, ...], *operands: Value, order: int = 1) -> Value:
    return Value(operation, operands, shape, order=order)


def given(name: str, *shape: int) -> Value:
    return Value("input", (), shape, name=name)


def operations(outputs: dict[str, Value], *inputs: Value) -> list[str]:
    """The operations of a program whose results need no memory."""
    program = optimized(Program({x.name: x for x in inputs}, outputs))
    memory = plan(program).buffers
    found = deferred(program)
    assert not found & memory.keys()
    assert all(x in found or x in memory for x in program.values if x.kind not in ("source", "view"))
    return sorted(x.operation for x in found)


X, W, G, d = given("X", N, D), given("W", Q, K), given("G", N * P, K), given("d", N * P, 1)
U = of("gather", (N, P * Q), E, X)
S = of("stack", (N * P, Q), U)
Z = of("matmul", (N * P, K), S, W, order=2)
DW = of("matmul", (K, Q), of("transpose", (K, N * P), G), S, order=2)


def test_windows_of_products_need_no_memory():
    assert operations({"Z": Z}, X, W) == ["gather"]
    assert operations({"Z": Z, "DW": DW}, X, W, G) == ["gather"]
    assert operations({"Y": of("rows_max", (N * P, 1), S, order=2)}, X) == ["gather"]


def test_windows_that_are_read_otherwise_are_written():
    assert operations({"Z": Z, "U": U}, X, W) == [], "an output"
    assert operations({"Z": Z, "Y": of("exp", (N * P, Q), S, order=2)}, X, W) == [], "element by element"
    turned = of("matmul", (K, N * P), of("transpose", (K, Q), W), of("transpose", (Q, N * P), S), order=2)
    assert operations({"Z": turned}, X, W) == [], "transposed"


def test_maxima_with_zeros_are_of_windows_that_are_written():
    some = Support.from_mask(np.eye(D)[np.arange(12) % D] * (np.arange(12) > 0)[:, None] > 0)
    E = Value("support", (), (P * Q, D, P * Q - 1), "int32", name="E", support=some)
    S = of("stack", (N * P, Q), of("gather", (N, P * Q), E, X))
    assert operations({"Y": of("rows_max", (N * P, 1), S, order=2)}, X) == []


def test_products_that_are_added_to_windows_need_no_memory():
    V = given("V", K, Q)
    product = of("matmul", (N * P, Q), G, V)
    DX = of("scatter", (N, D), E, of("unstack", (N, P * Q), product), order=2)
    assert operations({"DX": DX}, G, V) == ["matmul"]
    assert operations({"DX": DX, "DU": product}, G, V) == []


def shares() -> dict[str, Value]:
    """The maxima of windows, and the gradient of X from D."""
    Y = of("rows_max", (N * P, 1), S, order=2)
    R = of("subtract", (N * P, Q), S, of("column_repeat", (N * P, Q), Y), order=3)
    M = of("step", (N * P, Q), R, order=4)
    h = of(
        "hadamard",
        (N * P, 1),
        d,
        of("reciprocal", (N * P, 1), of("rows_sum", (N * P, 1), M, order=5), order=6),
        order=7,
    )
    A = of("gate", (N * P, Q), of("column_repeat", (N * P, Q), h), R, order=8)
    return {"M": M, "Y": Y, "DX": of("scatter", (N, D), E, of("unstack", (N, P * Q), A), order=9)}


def test_gradients_of_maxima_are_shared_without_memory():
    inner = ["gate", "gather", "hadamard", "reciprocal", "rows_sum", "step", "subtract"]
    assert operations({name: x for name, x in shares().items() if name != "M"}, X, d) == inner
    assert operations(shares(), X, d) == [], "where a part of it is an output"


def test_what_is_read_by_windows_keeps_its_memory():
    """X is read when DW is computed, so that nothing may be in its place before."""
    A = of("exp", (N, D), X)
    S = of("stack", (N * P, Q), of("gather", (N, P * Q), E, A, order=2), order=2)
    Z = of("matmul", (N * P, K), S, W, order=3)
    B = of("exp", (N, D), A, order=4)
    DW = of("matmul", (K, Q), of("transpose", (K, N * P), of("exp", (N * P, K), Z, order=5)), S, order=6)
    program = optimized(Program({"X": X, "W": W}, {"Z": Z, "B": B, "DW": DW}))
    buffers = plan(program).buffers
    (first, second) = (x for x in program.values if x.operation == "exp" and x.shape == (N, D))
    assert buffers[first] is not buffers[second]
