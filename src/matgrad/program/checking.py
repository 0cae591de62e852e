"""What makes a program sound: known operations on the right number of operands, with shapes and dtypes that fit."""

from __future__ import annotations

from matgrad.backends.base import DTYPES
from matgrad.program.operations import OPERATIONS
from matgrad.program.program import Program, Value
from matgrad.program.shapes import Shape

COUNTERS = ("int32", "int64")  # the dtypes of scalars that count something
DEEPEST = 100  # views of views: whoever reads one follows them all


def check_program(program: Program) -> None:
    """Raise ValueError if the program cannot be run."""
    depths: dict[Value, int] = {}
    read = set(program.values)
    values = [*(x for x in program.inputs.values() if x not in read), *program.values]
    for i, value in enumerate(values):
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
        if value.operation == "number" and value.dtype in COUNTERS and not is_whole(value):
            raise ValueError(f"value {i}: expected a whole number below 2⁶³, found {value.number!r}")
        depths[value] = 1 + depths[value.operands[0]] if value.kind == "view" else 0
        if depths[value] > DEEPEST:
            raise ValueError(f"value {i}: expected at most {DEEPEST} views of one another")
        if not fits_support(value):
            raise ValueError(f"value {i}: {value.operation} does not fit its support")
        if value.operation == "input" and (not value.name or program.inputs.get(value.name) is not value):
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
    found = [x for x in value.operands if x.operation != "support"]
    if rule == "counts":
        return value.dtype in DTYPES and all(map(is_whole, found))
    known = (*DTYPES, *COUNTERS) if rule == "any" and len(value.shape) != 2 else DTYPES
    return value.dtype in known and all(x.dtype == value.dtype for x in found)


def is_whole(value: Value) -> bool:
    """Whether it is a counter, or a number that can be one."""
    if value.operation == "number":
        return isinstance(value.number, int) and abs(value.number) < 2**63
    return value.dtype in COUNTERS


def fits_support(value: Value) -> bool:
    """Whether only a support has a `support`, one of its own size."""
    if value.support is None:
        return True
    return value.operation == "support" and (*value.support.shape, value.support.nnz) == value.shape
