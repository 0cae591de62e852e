"""What makes a program sound: known operations on the right number of operands, with shapes that fit."""

from __future__ import annotations

from matgrad.program.program import ELEMENTWISE, OPERATIONS, Program, Shape


def check_program(program: Program) -> None:
    """Raise ValueError where a program cannot be run."""
    for i, value in enumerate(program.values):
        if value.operation not in OPERATIONS:
            raise ValueError(f"value {i}: unknown operation {value.operation!r}; known: {', '.join(OPERATIONS)}")
        operands = tuple(x.shape for x in value.operands)
        if not fits(value.operation, value.shape, *operands):
            found = ", ".join(map(str, operands)) or "none"
            raise ValueError(f"value {i}: {value.operation} cannot give {value.shape} from operands of shapes {found}")
        if (value.operation == "number") != (value.number is not None):
            raise ValueError(f"value {i}: a number belongs to the operation 'number', found it in {value.operation!r}")
        if value.operation == "input" and program.inputs.get(value.name) is not value:
            raise ValueError(f"value {i}: {value.name!r} is not among the inputs of the program")


def fits(operation: str, result: Shape, *operands: Shape) -> bool:
    """Whether an operation on operands of these shapes has a result of that shape."""
    match operation:
        case "input":
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
