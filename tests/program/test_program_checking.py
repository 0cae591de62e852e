"""Which shapes and dtypes fit an operation."""

from __future__ import annotations

import pytest

from matgrad.program import Program, Value
from matgrad.program.description import check_program, fits
from matgrad.program.operations import OPERATIONS

A, ROW, COLUMN, SQUARE, S = (3, 4), (1, 4), (3, 1), (4, 4), ()
W = (3, 4, 5)  # a support with 5 places
VALUES = (1, 5)

# operation: calls that fit, and calls that do not, each the result's shape and those of the operands
CASES = {
    "input": ([(A,), (S,)], [(A, A)]),
    "support": ([(W,)], [(A,), (W, W)]),
    "sparse_product": (
        [((3, 7), W, VALUES, (4, 7))],
        [((4, 7), W, VALUES, (3, 7)), ((3, 7), W, (4, 7)), ((3, 7), W, ROW, (4, 7)), ((3, 7), A, VALUES, (4, 7))],
    ),
    "sparse_transposed_product": (
        [((4, 7), W, VALUES, (3, 7))],
        [((3, 7), W, VALUES, (4, 7)), ((4, 7), W, (3, 7)), ((4, 7), W, ROW, (3, 7))],
    ),
    "transposed_sum": (
        [((4, 7), W, S, (4, 7), S, VALUES, (3, 7))],
        [((4, 7), W, S, (3, 7), S, VALUES, (3, 7)), ((4, 7), W, S, (4, 7), S, VALUES, (4, 7)),
         ((4, 7), W, (4, 7), VALUES, (3, 7)), ((4, 7), W, S, (4, 7), S, ROW, (3, 7))],
    ),
    "dense": ([(A, W, VALUES)], [((4, 3), W, VALUES), (A, W, ROW), (A, VALUES)]),
    "sampled_product": (
        [(VALUES, W, (3, 7), (4, 7))],
        [(VALUES, W, (4, 7), (3, 7)), ((5, 1), W, (3, 7), (4, 7)), (ROW, W, (3, 7), (4, 7))],
    ),
    "sampled_sum": (
        [(VALUES, W, S, VALUES, S, (3, 7), (4, 7))],
        [(VALUES, W, S, A, S, (3, 7), (4, 7)), (VALUES, W, S, VALUES, S, (3, 7), (4, 6)),
         (VALUES, W, VALUES, S, (3, 7), (4, 7)), (ROW, W, S, ROW, S, (3, 7), (4, 7))],
    ),
    "uniform_on": ([(VALUES, W, S, S)], [(A, W, S, S), (ROW, W, S, S), (VALUES, S, S), (VALUES, W, S)]),
    "number": ([(S,)], [(A,), (S, S)]),
    "transpose": ([((4, 3), A), (COLUMN[::-1], COLUMN)], [(A, A), ((4, 3),), ((4, 3), A, A), (S, S)]),
    "row_repeat": ([((9, 4), ROW), (ROW, ROW)], [((9, 3), ROW), ((9, 4), (2, 4)), (S, ROW), ((9, 4), COLUMN)]),
    "column_repeat": ([((3, 9), COLUMN), (COLUMN, COLUMN)], [((4, 9), COLUMN), ((3, 9), (3, 2)), (S, COLUMN)]),
    "full": ([(A, S)], [(S, S), (A, A), (A,), (A, (1, 1))]),
    "elements_sum": ([(S, A)], [((1, 1), A), (S, S), (S,)]),
    "columns_sum": ([(ROW, A)], [(COLUMN, A), (A, A), (S, A)]),
    "rows_sum": ([(COLUMN, A)], [(ROW, A), (A, A), (S, A)]),
    "columns_max": ([(ROW, A)], [(COLUMN, A), ((1, 3), A)]),
    "rows_max": ([(COLUMN, A)], [(ROW, A), ((4, 1), A)]),
    "matmul": ([((3, 4), A, SQUARE)], [((3, 4), A, A), ((4, 3), A, SQUARE), (A, A), (A, S, A)]),
    "product_sum": (
        [(A, S, A, S, A, SQUARE)],
        [(A, S, ROW, S, A, SQUARE), (A, S, A, A, SQUARE), (A, A, S, S, A, SQUARE), (SQUARE, S, A, S, A, SQUARE)],
    ),
    "identity": ([(SQUARE,)], [(A,), (S,), (SQUARE, SQUARE)]),
    "diag": ([((4, 1), SQUARE)], [(COLUMN, A), ((1, 4), SQUARE)]),
    "Diag": ([(SQUARE, ROW), ((3, 3), COLUMN)], [((3, 3), ROW), (SQUARE, SQUARE), (SQUARE, S)]),
    "uniform": ([(A, S, S)], [(A, S), (S, S, S), (A, A, S)]),
    "scale": ([(A, S, A), (S, S, S)], [(A, A, S), (A, A, A), (A, S, ROW)]),
    "divide": ([(A, A, S), (S, S, S)], [(A, S, A), (A, A, A), (A, ROW, S)]),
    "power": ([(A, A, S)], [(A, A, A), (A, S, A)]),
    **dict.fromkeys(
        ("all_gather_rows", "reduce_scatter_rows", "take_rows"),
        ([((9, 4), A), (A, A), ((1, 4), A)], [((3, 9), A), (A, S), (S, A), (S, S), (A,), (A, A, A), (W, W)]),
    ),
    **dict.fromkeys(
        ("all_gather_columns", "reduce_scatter_columns", "take_columns"),
        ([((3, 9), A), (A, A), ((3, 1), A)], [((9, 4), A), (A, S), (S, A), (S, S), (A,), (A, A, A), (W, W)]),
    ),
    "add_scaled": ([(A, A, S, A)], [(A, A, A, S), (A, A, S, ROW), (A, A, A)]),
}  # fmt: skip
SAME = {  # shapes of operands and result
    "* -> *": ([(A, A), (S, S)], [(A, ROW), (A,), (A, A, A), ((4, 3), A), (W, W)]),
    "*, * -> *": ([(A, A, A), (S, S, S)], [(A, A, ROW), (A, A, S), (A, A), (ROW, A, A), (W, W, W)]),
}
CASES |= {row.name: SAME[row.rule] for row in OPERATIONS.values() if row.rule in SAME}


def test_every_operation_is_there():
    assert set(CASES) == set(OPERATIONS)


@pytest.mark.parametrize("operation", CASES)
def test_shapes(operation: str):
    right, wrong = CASES[operation]
    for shapes in right:
        assert fits(operation, *shapes), f"{operation} {shapes}"
    for shapes in wrong:
        assert not fits(operation, *shapes), f"{operation} {shapes}"


X, N = Value("input", (), A, name="X"), Value("input", (), (), "int32", name="n")
ONE = Value("number", number=1)
UNSOUND = {
    "unknown operation 'sine'; known: ": Value("sine", (X,), A),
    "add cannot give": Value("add", (X, X), ROW),
    "exp cannot give float32 from operands of dtypes float64": Value("exp", (X,), A, "float32"),
    "input cannot give float16": Value("negative", (Value("input", (), A, "float16", name="X"),), A, "float16"),
    "add cannot give int32 from operands of dtypes int32, float64": Value("add", (N, ONE), (), "int32"),
    "reciprocal cannot give int32": Value("reciprocal", (N,), (), "int32"),
    "a number belongs to the operation 'number', found None": Value("number"),
    "a number belongs to the operation 'number', found 3": Value("exp", (X,), A, number=3),
    "a number belongs to the operation 'number', found 'N'": Value("number", number="N"),
    "'Y' is not among the inputs": Value("exp", (Value("input", (), A, name="Y"),), A),
    "exp cannot give .*3, 4, 5": Value("exp", (Value("exp", (X,), (3, 4, 5)),), (3, 4, 5)),
}


@pytest.mark.parametrize("message", UNSOUND)
def test_unsound_programs_are_refused(message: str):
    with pytest.raises(ValueError, match=rf"value \d: {message}"):
        check_program(Program({"X": X, "n": N}, {"y": UNSOUND[message]}))


@pytest.mark.parametrize("shape", [(3,), (2, 3, 4)])
def test_everything_is_a_matrix_or_a_scalar(shape):
    with pytest.raises(ValueError, match="value 0: input cannot give"):
        check_program(Program({"Z": (Z := Value("input", (), shape, name="Z"))}, {"Z": Z}))


@pytest.mark.parametrize("value", [Value("columns_sum", (X,), ROW), N])
def test_an_output_fits_the_input_it_replaces(value: Value):
    with pytest.raises(ValueError, match=r"output X: .* replaces"):
        check_program(Program({"X": X, "n": N}, {"X": value}))


def test_a_sound_program_passes():
    seed = Value("uniform", (N, ONE), A)
    check_program(Program({"X": X, "n": N}, {"X": Value("add", (X, seed), A), "n": N, "y": ONE}))
