"""The list of operations: everything that runs programs knows exactly those, and the C++ core's shape rules are its."""

from __future__ import annotations

import itertools
import json

import pytest

from matgrad.engines.kernels import Kernels
from matgrad.engines.numpy_kernels import NumpyKernels
from matgrad.program import Program, Value
from matgrad.program.description import FORMAT, check_program
from matgrad.program.operations import OPERATIONS, Operation
from matgrad.program.shapes import Shape, ShapeRule
from matgrad.sparse.support import Support
from program_support import MEANING

native = pytest.importorskip("matgrad._native")

SHAPES: tuple[Shape, ...] = ((), (1, 1), (1, 2), (2, 1), (2, 2), (2, 3), (3, 2), (2, 3, 2), (1, 2, 3))
COMPUTED = [name for name, row in OPERATIONS.items() if row.kind not in ("source", "view", "collective")]


def kernels() -> list[type[Kernels]]:
    from matgrad.engines.torch_engine import TorchKernels

    return [NumpyKernels, TorchKernels]


@pytest.mark.parametrize("name", COMPUTED)
def test_every_operation_has_kernels(name: str):
    for cls in kernels():
        assert callable(getattr(cls, name, None)), f"{cls.__name__} has no {name}"


def test_every_operation_of_dense_matrices_has_a_meaning_in_the_tests():
    dense = {name for name, row in OPERATIONS.items() if row.kind not in ("source", "sparse", "collective")}
    assert set(MEANING) == dense


def test_the_core_knows_exactly_these_operations():
    assert set(native.operations()) == set(OPERATIONS)


# -- shapes in the core ------------------------------------------------------------------------


def description(operation: str, result: Shape, operands: tuple[Shape, ...]) -> str:
    """The smallest program with the operation, as JSON; a matrix is there in any case, so that it has a dtype."""
    row, values = OPERATIONS[operation], list[dict]()
    buffers: list[dict] = []

    def add(operation: str, shape: Shape, operands: list[int], dtype: str = "float64", **details: object) -> int:
        values.append({"operation": operation, "operands": operands, "shape": shape, "dtype": dtype, **details})
        if operation not in ("support", "number") and OPERATIONS[operation].kind != "view":
            values[-1]["buffer"] = len(buffers)
            buffers.append({"shape": shape[:2], "dtype": dtype, "name": details.get("name", "")})
        return len(values) - 1

    def add_operand(shape: Shape) -> int:
        name = f"x{len(values)}"
        dtype = "int64" if shape == () and row.dtypes == "counts" else "float64"
        place = add("support" if len(shape) == 3 else "input", shape, [], dtype, name=name)
        return add("copy", shape, [place]) if row.kind == "sparse" and len(shape) == 2 else place  # it reads no inputs

    add_operand((2, 2))
    places = [add_operand(shape) for shape in operands]
    details = {"number": {"number": 1}, "input": {"name": "y"}, "support": {"name": "S"}}.get(operation, {})
    add(operation, result, places, "float64", **details)
    if row.kind == "collective":  # it has named buffers, one if it works in place
        buffers[-1]["name"] = "y"
        values[-1]["buffer"] = values[places[0]].get("buffer") if row.in_place and places else len(buffers) - 1
    return json.dumps(
        {"format": FORMAT, "sizes": {}, "values": values, "buffers": buffers, "outputs": {}, "copies": []}
    )


def is_accepted(pool, operation: str, result: Shape, operands: tuple[Shape, ...]) -> bool:
    content = description(operation, result, operands)
    last = len(json.loads(content)["values"]) - 1
    try:
        native.Executor(content, pool)
    except ValueError as error:
        if str(error) != f"value {last}: {operation}: the shapes do not fit":
            raise
        return False
    return True


def calls(row: Operation) -> set[tuple[Shape, ...]]:
    """Shapes of results and operands: all for few operands; else those that fit, and others in one or two places."""
    arity = len(row.shapes.operands)
    if arity < 3:
        return {call for k in range(arity + 2) for call in itertools.product(SHAPES, repeat=k + 1) if k < 3}
    right = list(itertools.islice(fitting(row.shapes), 12))
    found = set(right)
    for call in right:
        for i, j in itertools.combinations(range(len(call)), 2):
            for x, y in itertools.product(SHAPES, (call[j], *SHAPES[:3])):
                found.add((*call[:i], x, *call[i + 1 : j], y, *call[j + 1 :]))
        found |= {call[:-1], (*call, ()), (*call, call[0])}
    return found


def fitting(rule: ShapeRule):
    """Calls that fit a rule, by putting sizes for its names."""
    *operands, result = rule.alternatives[0]
    names = sorted({name for pattern in (*operands, result) for name in pattern} - {"1", "*"})
    for numbers in itertools.product((3, 1, 2), repeat=len(names)):
        for any_shape in ((2, 3), ()) if ("*",) in operands else ((),):
            sizes = dict(zip(names, numbers, strict=True)) | {"1": 1}
            yield tuple(
                any_shape if pattern == ("*",) else tuple(sizes[name] for name in pattern)
                for pattern in (result, *operands)
            )


@pytest.mark.parametrize("name", OPERATIONS)
def test_the_core_accepts_exactly_the_shapes_that_fit(name: str):
    pool = native.ThreadPool(1)
    row = OPERATIONS[name]
    verdicts = set()
    for result, *operands in calls(row):
        expected = row.shapes.sizes(result, operands) is not None
        assert is_accepted(pool, name, result, tuple(operands)) == expected, f"{name} {operands} -> {result}"
        verdicts.add(expected)
    assert verdicts == {True, False}


def test_the_core_refuses_an_unknown_operation():
    content = description("exp", (2, 2), ((2, 2),)).replace('"exp"', '"sine"')
    with pytest.raises(ValueError, match="unknown operation 'sine'"):
        native.Executor(content, native.ThreadPool(1))


# -- shape rules -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "operands", "given", "expected"),
    [
        ("m k, k n -> m n", [(2, 3), (3, 4)], {}, (2, 4)),
        ("m k, k n -> m n", [(2, 3), (2, 4)], {}, None),
        ("m k, k n -> m n", [(2, 3)], {}, None),
        ("1 n -> m n", [(1, 3)], {"m": 5}, (5, 3)),
        ("1 n -> m n", [(2, 3)], {"m": 5}, None),
        ("(), * -> *", [(), (2, 3)], {}, (2, 3)),
        ("(), * -> *", [(), ()], {}, ()),
        ("(), * -> *", [(2, 3), (2, 3)], {}, None),
        ("*, * -> *", [(2, 3), (3, 2)], {}, None),
        ("* -> *", [(2, 3, 4)], {}, None),
        ("1 n -> n n or n 1 -> n n", [(4, 1)], {}, (4, 4)),
        ("K D nnz, 1 nnz, D N -> K N", [(2, 3, 5), (1, 5), (3, 7)], {}, (2, 7)),
        ("K D nnz, 1 nnz, D N -> K N", [(2, 3, 5), (1, 4), (3, 7)], {}, None),
        ("-> n n", [], {"n": 3}, (3, 3)),
    ],
)
def test_a_rule_gives_the_shape_of_the_result(rule: str, operands: list[Shape], given: dict, expected: Shape | None):
    assert ShapeRule(rule).result(operands, given) == expected
    if expected is not None:
        assert ShapeRule(rule).sizes(expected, operands) is not None
        assert ShapeRule(rule).sizes((*expected, 9), operands) is None


def test_the_core_refuses_a_support_of_another_size_than_the_program():
    core = native.Executor(description("sparse_product", (2, 1), ((2, 3, 3), (1, 3), (3, 1))), native.ThreadPool(1))
    right = Support((2, 3), [0, 2, 3], [0, 2, 0])
    fewer, more = Support((2, 3), [0, 1, 2], [0, 0]), Support((2, 3), [0, 2, 4], [0, 2, 0, 1])
    for wrong in (fewer, more, Support((3, 3), [0, 2, 3, 3], [0, 2, 0])):
        with pytest.raises(ValueError, match="has a different size from the program"):
            bind(core, wrong)
    bind(core, right)


def bind(core, S: Support) -> None:
    core.bind_support("x2", S.starts, S.columns, S.column_starts, S.rows, S.positions)


# -- programs ----------------------------------------------------------------------------------

X, N = Value("input", (), (3, 4), name="X"), Value("input", (), (), "int32", name="n")
ONE = Value("number", number=1)
INVALID = {
    "unknown operation 'sine'; known: ": Value("sine", (X,), (3, 4)),
    "add cannot give": Value("add", (X, X), (1, 4)),
    "exp cannot give float32 from operands of dtypes float64": Value("exp", (X,), (3, 4), "float32"),
    "input cannot give float16": Value(
        "negative", (Value("input", (), (3, 4), "float16", name="X"),), (3, 4), "float16"
    ),
    "add cannot give int32 from operands of dtypes int32, float64": Value("add", (N, ONE), (), "int32"),
    "reciprocal cannot give int32": Value("reciprocal", (N,), (), "int32"),
    "a number belongs to the operation 'number', found None": Value("number"),
    "a number belongs to the operation 'number', found 3": Value("exp", (X,), (3, 4), number=3),
    "a number belongs to the operation 'number', found 'N'": Value("number", number="N"),
    "'Y' is not among the inputs": Value("exp", (Value("input", (), (3, 4), name="Y"),), (3, 4)),
    "exp cannot give .*3, 4, 5": Value("exp", (Value("exp", (X,), (3, 4, 5)),), (3, 4, 5)),
}


@pytest.mark.parametrize("message", INVALID)
def test_invalid_programs_are_refused(message: str):
    with pytest.raises(ValueError, match=rf"value \d: {message}"):
        check_program(Program({"X": X, "n": N}, {"y": INVALID[message]}))


@pytest.mark.parametrize("shape", [(3,), (2, 3, 4)])
def test_everything_is_a_matrix_or_a_scalar(shape):
    with pytest.raises(ValueError, match="value 0: input cannot give"):
        check_program(Program({"Z": (Z := Value("input", (), shape, name="Z"))}, {"Z": Z}))


@pytest.mark.parametrize("value", [Value("columns_sum", (X,), (1, 4)), N])
def test_an_output_fits_the_input_it_replaces(value: Value):
    with pytest.raises(ValueError, match=r"output X: .* replaces"):
        check_program(Program({"X": X, "n": N}, {"X": value}))


def test_a_valid_program_passes():
    seed = Value("uniform", (N, ONE), (3, 4))
    check_program(Program({"X": X, "n": N}, {"X": Value("add", (X, seed), (3, 4)), "n": N, "y": ONE}))
