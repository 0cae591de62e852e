"""What makes a program sound: known operations on the right number of operands, with shapes and dtypes that fit."""

from __future__ import annotations

from matgrad.backends.base import DTYPES
from matgrad.program.operations import OPERATIONS
from matgrad.program.program import Program, Value
from matgrad.program.shapes import Shape

COUNTERS = ("int32", "int64")  # the dtypes of scalars that count something


def check_program(program: Program) -> None:
    """Raise ValueError if the program cannot be run."""
    for i, value in enumerate(program.values):
        if value.operation not in list(OPERATIONS):  # from a file it may be unhashable
            raise ValueError(f"value {i}: unknown operation {value.operation!r}; known: {', '.join(OPERATIONS)}")
        operands = tuple(x.shape for x in value.operands)
        if not fits(value.operation, value.shape, *operands):
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


def fits(operation: str, result: Shape, *operands: Shape) -> bool:
    """Whether an operation on operands of these shapes gives a result of that shape."""
    return OPERATIONS[operation].shapes.sizes(result, operands) is not None


def fits_dtypes(value: Value) -> bool:
    """Whether the dtypes of the value and its operands are known, and allowed for the operation."""
    rule = OPERATIONS[value.operation].dtypes
    found = [x.dtype for x in value.operands if x.operation != "support"]
    if rule == "counts":
        return value.dtype in DTYPES and all(dtype in (*DTYPES, *COUNTERS) for dtype in found)
    known = (*DTYPES, *COUNTERS) if rule == "any" else DTYPES
    return value.dtype in known and all(dtype == value.dtype for dtype in found)


def fits_support(value: Value) -> bool:
    """Whether only a support has a `support`, one of its own size."""
    if value.support is None:
        return True
    return value.operation == "support" and (*value.support.shape, value.support.nnz) == value.shape
