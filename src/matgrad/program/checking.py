"""What makes a program sound: known operations on the right number of operands, with shapes and dtypes that fit."""

from __future__ import annotations

from matgrad.backends.base import DTYPES
from matgrad.program.program import ELEMENTWISE, INTEGER, OPERATIONS, SOURCES, SPARSE, Program, Shape, Value

COUNTERS = ("int32", "int64")  # dtypes of scalars that count something


def check_program(program: Program) -> None:
    """Raise ValueError where a program cannot be run."""
    for i, value in enumerate(program.values):
        if value.operation not in OPERATIONS:
            raise ValueError(f"value {i}: unknown operation {value.operation!r}; known: {', '.join(OPERATIONS)}")
        operands = tuple(x.shape for x in value.operands)
        if len(value.shape) not in (0, 2) or not fits(value.operation, value.shape, *operands):
            found = ", ".join(map(str, operands)) or "none"
            raise ValueError(f"value {i}: {value.operation} cannot give {value.shape} from operands of shapes {found}")
        if not fits_dtypes(value):
            found = ", ".join(str(x.dtype) for x in value.operands) or "none"
            raise ValueError(f"value {i}: {value.operation} cannot give {value.dtype} from operands of dtypes {found}")
        if isinstance(value.number, int | float) != (value.operation == "number"):
            raise ValueError(f"value {i}: a number belongs to the operation 'number', found {value.number!r}")
        if not fits_support(value):
            raise ValueError(f"value {i}: {value.operation} does not fit its support")
        if value.operation == "input" and program.inputs.get(value.name) is not value:
            raise ValueError(f"value {i}: {value.name!r} is not among the inputs of the program")
    for name, value in program.outputs.items():
        before = program.inputs.get(name, value)
        if (value.shape, value.dtype) != (before.shape, before.dtype):
            raise ValueError(f"output {name}: {value.shape} {value.dtype} replaces {before.shape} {before.dtype}")


def fits_dtypes(value: Value) -> bool:
    """Whether the dtype is known, that of the operands too, and one that the operation is for."""
    if value.operation in ("uniform", "uniform_on"):
        return value.dtype in DTYPES and all(x.dtype in (*DTYPES, *COUNTERS) for x in value.operands)
    known = (*DTYPES, *COUNTERS) if value.operation in (*SOURCES, *INTEGER) else DTYPES
    return value.dtype in known and all(x.dtype == value.dtype for x in value.operands if x.operation != "support")


def fits_support(value: Value) -> bool:
    """Whether the values of a sparse matrix are as many as its support has places."""
    if value.operation == "support":
        return value.support is not None and value.support.shape == value.shape
    if value.operation not in SPARSE:
        return all(x.operation != "support" for x in value.operands)
    S, *others = value.operands
    values = others[0] if value.operation in ("sparse_product", "sparse_transposed_product") else value
    return S.support is not None and values.shape == (1, S.support.nnz) and all(x.support is None for x in others)


def fits(operation: str, result: Shape, *operands: Shape) -> bool:
    """Whether an operation on operands of these shapes has a result of that shape."""
    match operation:
        case "input" | "support":
            return operands == ()
        case "number":
            return operands == () and result == ()
        case "identity":
            return operands == () and len(result) == 2 and result[0] == result[1]
        case "full":
            return operands == ((),) and len(result) == 2
        case "uniform":
            return operands == ((), ()) and len(result) == 2
        case "scale":
            return operands == ((), result)
        case "divide" | "power":
            return operands == (result, ())
        case "add_scaled":
            return operands == (result, (), result)
        case "add" | "subtract" | "hadamard" | "gate":
            return operands == (result, result)
    return operands == (result,) if operation in ELEMENTWISE else _fits_matrices(operation, result, *operands)


def _fits_matrices(operation: str, result: Shape, *operands: Shape) -> bool:
    """The same for operations whose result has another shape than their operands."""
    match operation, operands:
        case "matmul", ((m, k), (l, n)):
            return k == l and result == (m, n)
        case "product_sum", ((), C, (), (m, k), (l, n)):
            return k == l and C == result == (m, n)
        case "sparse_product", ((m, k), (1, _), (l, n)):
            return k == l and result == (m, n)
        case "sparse_transposed_product", ((m, k), (1, _), (l, n)):
            return m == l and result == (k, n)
        case "sampled_product", ((m, n), (k, a), (l, b)):
            return a == b and (k, l) == (m, n) and len(result) == 2 and result[0] == 1
        case "sampled_sum", ((m, n), (), C, (), (k, a), (l, b)):
            return a == b and (k, l) == (m, n) and C == result and len(result) == 2 and result[0] == 1
        case "uniform_on", ((_, _), (), ()):
            return len(result) == 2 and result[0] == 1
        case "transpose", ((m, n),):
            return result == (n, m)
        case "row_repeat", ((1, n),):
            return len(result) == 2 and result[1] == n
        case "column_repeat", ((m, 1),):
            return len(result) == 2 and result[0] == m
        case "elements_sum", ((_, _),):
            return result == ()
        case (("columns_sum" | "columns_max"), ((_, n),)):
            return result == (1, n)
        case (("rows_sum" | "rows_max"), ((m, _),)):
            return result == (m, 1)
        case "diag", ((m, n),):
            return m == n and result == (m, 1)
        case "Diag", ((m, n),):
            return 1 in (m, n) and result == (m * n, m * n)
    return False
