"""Memory of programs: what runs in place in few buffers gives what fresh arrays for everything give."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from matgrad.engines import numpy_kernels
from matgrad.program import Program, Value, optimized
from matgrad.program.buffers import Plan, in_place_operands
from matgrad.program.rules import with_separate_outputs
from program_support import executed, numbers, outputs, programs

SETTINGS = settings(
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
FORMS = {"as recorded": with_separate_outputs, "optimized": optimized}
LIMIT = 2.0**48  # below it, whole numbers are exact in float64


def check(program: Program, seed: int, *, exact: bool, backend: str) -> None:
    """Run a program twice in place and by its meaning, and compare."""
    state, given = numbers(seed, exact=exact)
    expected = state
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        for _ in range(2):
            expected = expected | outputs(program, {**expected, **given})
    assume(all(np.abs(A).max() < LIMIT for A in expected.values()))
    for name, form in FORMS.items():
        actual = executed(form(program), state, given, backend=backend, times=2)
        for key, A in expected.items():
            context = f"{name} on {backend}, {key}, numbers {seed}:\n{program}"
            if exact:
                np.testing.assert_array_equal(actual[key], A, err_msg=context)
            else:
                tolerance = 1e-9 * max(1.0, np.abs(A).max())
                np.testing.assert_allclose(actual[key], A, rtol=1e-7, atol=tolerance, err_msg=context)


@settings(SETTINGS, max_examples=200)
@given(program=programs(exact=True), seed=st.integers(0, 99), blas_adds=st.booleans())
def test_random_programs_in_place_equal_fresh_arrays(program: Program, seed: int, blas_adds: bool):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(numpy_kernels, "LARGE", 0 if blas_adds else 10_000)
        check(program, seed, exact=True, backend="numpy")


@settings(SETTINGS, max_examples=60)
@given(program=programs(exact=True), seed=st.integers(0, 99))
def test_random_programs_in_place_equal_fresh_arrays_on_torch(program: Program, seed: int):
    check(program, seed, exact=True, backend="torch")


@pytest.mark.parametrize("backend_name", ["numpy", "torch"])
@settings(SETTINGS, max_examples=40)
@given(program=programs(exact=False, size=8), seed=st.integers(0, 99))
def test_random_programs_with_functions(program: Program, seed: int, backend_name: str):
    check(program, seed, exact=False, backend=backend_name)


# -- cases with a name -------------------------------------------------------------------------

A, B, E = (Value("input", (), shape, name=name) for name, shape in (("a", (2, 2)), ("b", (2, 2)), ("e", (1, 2))))
STEP = Value("input", (), (), name="eta")


def of(operation: str, *operands: Value, shape=(2, 2), order: int = 1) -> Value:
    return Value(operation, operands, shape, order=order)


AT = of("transpose", A)
SUM = of("add", A, B)
CASES = {
    "swapped": {"a": B, "b": A},
    "one input twice": {"a": B, "b": B},
    "one result twice": {"a": SUM, "b": SUM},
    "transposed": {"a": AT},
    "transposed and kept": {"a": AT, "b": A},
    "X + Xᵀ": {"a": of("add", A, AT)},
    "Xᵀ X": {"a": of("matmul", AT, A)},
    "X + X Xᵀ": {"a": of("add", A, of("matmul", A, AT), order=2)},
    "a row, repeated": {"a": of("row_repeat", E)},
    "the row itself, repeated once": {"e": of("row_repeat", E, shape=(1, 2))},
    "e + 1_1 e": {"e": of("add", E, of("row_repeat", E, shape=(1, 2)), shape=(1, 2), order=2)},
    "the old value is read after the new one is there": {"a": SUM, "b": of("subtract", SUM, A, order=2)},
    "a chain in place": {"a": of("negative", of("negative", of("negative", A), order=2), order=3), "b": A},
    "C - η·C C": {"a": of("subtract", A, of("scale", STEP, of("matmul", A, A, order=2), order=3), order=4)},
}


@pytest.mark.parametrize("backend_name", ["numpy", "torch"])
@pytest.mark.parametrize("case", CASES)
def test_outputs_that_read_what_they_replace(case: str, backend_name: str):
    inputs = {"a": A, "b": B, "e": E, "eta": STEP}
    program = Program(inputs, {"a": A, "b": B, "e": E} | CASES[case])
    rng = np.random.default_rng(0)
    state = {name: rng.normal(size=inputs[name].shape) for name in ("a", "b", "e")}
    expected = outputs(program, {**state, "eta": np.array(0.5)})
    for form in FORMS.values():
        actual = executed(form(program), state, {"eta": np.array(0.5)}, backend=backend_name)
        for name, X in expected.items():
            np.testing.assert_allclose(actual[name], X, rtol=1e-13, err_msg=f"{case}, {name} on {backend_name}")


def test_an_update_works_in_place_and_needs_no_memory():
    """W' = W - η·DW, where DW is given."""
    D = Value("input", (), (2, 2), name="D")
    program = optimized(Program({"a": A, "D": D, "eta": STEP}, {"a": of("subtract", A, of("scale", STEP, D), order=2)}))
    result = Plan(program)

    assert {buffer.name for buffer in result.buffers.values()} - {""} == {"a", "D", "eta"}
    assert result.buffers[program.outputs["a"]].name == "a"
    assert result.copies == []


def test_memory_is_used_again():
    """Ten products one after the other need two buffers."""
    X = Value("input", (), (2, 2), name="X")
    value = X
    for i in range(10):
        value = of("matmul", value, X, order=i + 1)
    program = Program({"a": A, "X": X}, {"a": value})
    temporary = {buffer for buffer in Plan(program).buffers.values() if not buffer.name}
    assert len(temporary) <= 2


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (of("add", A, B), [A, B]),
        (of("add", A, AT), []),
        (of("add", B, AT), [B]),
        (of("matmul", A, B), []),
        (of("product_sum", STEP, A, STEP, B, B), [A]),
        (of("product_sum", STEP, A, STEP, AT, B), []),
        (of("product_sum", STEP, AT, STEP, B, B), []),
        (of("columns_sum", E, shape=(1, 2)), []),
        (of("Diag", E), []),
    ],
)
def test_what_may_be_overwritten(value: Value, expected: list[Value]):
    assert in_place_operands(value) == expected
