"""Programs as values that JSON can hold: what program files contain and the C++ core reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matgrad.backends.base import DTYPES
from matgrad.program.deferral import plan
from matgrad.program.operations import OPERATIONS
from matgrad.program.program import Program, Value
from matgrad.program.rules import with_separate_outputs
from matgrad.program.shapes import BoundSize, Size, size_name

FORMAT = 2  # 1 had supports without their number of elements
LARGEST = 2**31 - 1  # size: the indices of sparse matrices have 32 bits
MOST = 100_000  # values
DEEPEST = 100  # views of one another
COUNTERS = ("int32", "int64")  # the dtypes of scalars that count something


def as_dictionary(program: Program) -> dict[str, Any]:
    """The program as values that JSON can hold; operands are indices into the list of values.

    It includes, for the C++ core, the buffers of the values when the program runs in place. A value that is not a view
    and has none is deferred: it is computed where it is read.
    """
    program = with_separate_outputs(program)
    values = program.all_values
    indices = {value: i for i, value in enumerate(values)}
    memory = plan(program)
    buffers = {buffer: i for i, buffer in enumerate(dict.fromkeys(memory.buffers.values()))}
    sizes = {n.name: int(n) for value in values for n in value.shape if isinstance(n, Size)}
    places = {value: {"buffer": buffers[buffer]} for value, buffer in memory.buffers.items()}
    return {
        "format": FORMAT,
        "sizes": sizes,
        "values": [value_as_dictionary(value, indices) | places.get(value, {}) for value in values],
        "outputs": {name: indices[value] for name, value in program.outputs.items()},
        "buffers": [{"shape": list(map(int, b.shape)), "dtype": b.dtype, "name": b.name} for b in buffers],
        "copies": [[buffers[to], buffers[source]] for to, source in memory.copies],
    }


def from_dictionary(content: Mapping[str, Any]) -> Program:
    """The program that `as_dictionary` described, checked to be valid; its supports are not bound."""
    if content["format"] != FORMAT:
        raise ValueError(f"format {content['format']}, expected {FORMAT}")
    sizes = {name: BoundSize(_size(n), name) for name, n in content["sizes"].items()}
    values: list[Value] = []
    if len(content["values"]) > MOST:
        raise ValueError(f"expected at most {MOST} values, found {len(content['values'])}")
    for i, line in enumerate(content["values"]):
        if not all(_is_index(k, i) for k in line["operands"]):
            raise ValueError(f"value {i}: expected operands before it, found {line['operands']}")
        operands = tuple(values[k] for k in line["operands"])
        shape = tuple(sizes[n] if isinstance(n, str) else _size(n) for n in line["shape"])
        number = sizes.get(line.get("number"), line.get("number"))
        name, equation = line.get("name", ""), line.get("equation", "")
        if wrong := [x for x in (name, equation) if not isinstance(x, str)]:
            raise ValueError(f"expected a string, found {wrong[0]!r}")
        values.append(Value(line["operation"], operands, shape, line["dtype"], number, name, equation, order=i))
    inputs = {value.name: value for value in values if value.operation == "input"}
    if not all(_is_index(k, len(values)) for k in content["outputs"].values()):
        raise ValueError(f"expected indices of values as outputs, found {content['outputs']}")
    program = Program(inputs, {name: values[k] for name, k in content["outputs"].items()})
    check_program(program)
    return program


def value_as_dictionary(value: Value, indices: Mapping[Value, int]) -> dict[str, Any]:
    """What a value is, with its operands as indices."""
    line: dict[str, Any] = {
        "operation": value.operation,
        "operands": [indices[x] for x in value.operands],
        "shape": [size_name(n) for n in value.shape],
        "dtype": value.dtype,
    }
    optional = {"number": size_name(value.number), "name": value.name, "equation": value.equation}
    return line | {key: x for key, x in optional.items() if x not in (None, "")}


def _size(n: Any) -> int:
    """n, checked to be a size."""
    if not _is_index(n, LARGEST + 1) or n == 0:
        raise ValueError(f"expected a size from 1 to {LARGEST}, found {n!r}")
    return n


def _is_index(k: Any, end: int) -> bool:
    """Whether k is an index below `end`."""
    return isinstance(k, int) and not isinstance(k, bool) and 0 <= k < end


def check_program(program: Program) -> None:
    """Raise ValueError if the program cannot be run."""
    depths: dict[Value, int] = {}
    for i, value in enumerate(program.all_values):
        if problem := _problem(value):
            raise ValueError(f"value {i}: {problem}")
        depths[value] = 1 + depths[value.operands[0]] if value.kind == "view" else 0
        if depths[value] > DEEPEST:
            raise ValueError(f"value {i}: expected at most {DEEPEST} views of one another")
        if value.operation == "input" and (not value.name or program.inputs.get(value.name) is not value):
            raise ValueError(f"value {i}: {value.name!r} is not among the inputs of the program")
    for name, value in program.outputs.items():
        before = program.inputs.get(name, value)
        if (value.shape, value.dtype) != (before.shape, before.dtype):
            raise ValueError(f"output {name}: {value.shape} {value.dtype} replaces {before.shape} {before.dtype}")


def _problem(value: Value) -> str:
    """Why a value cannot be computed; '' if it can."""
    operation, operands, support = value.operation, value.operands, value.support
    if operation not in list(OPERATIONS):  # from a file it may be unhashable
        return f"unknown operation {operation!r}; known: {', '.join(OPERATIONS)}"
    shapes = [x.shape for x in operands]
    if OPERATIONS[operation].shapes.sizes(value.shape, shapes) is None:
        return f"{operation} cannot give {value.shape} from operands of shapes {', '.join(map(str, shapes)) or 'none'}"
    if not _fits_dtypes(value):
        found = ", ".join(str(x.dtype) for x in operands) or "none"
        return f"{operation} cannot give {value.dtype} from operands of dtypes {found}"
    if isinstance(value.number, int | float) != (operation == "number"):
        return f"a number belongs to the operation 'number', found {value.number!r}"
    if operation == "number" and value.dtype in COUNTERS and not _is_whole(value):
        return f"expected an integer below 2⁶³, found {value.number!r}"
    if support is not None and (operation != "support" or (*support.shape, support.nnz) != value.shape):
        return f"{operation} does not fit its support"
    return ""


def _fits_dtypes(value: Value) -> bool:
    """Whether the dtypes of the value and its operands are known, and allowed for the operation."""
    rule = OPERATIONS[value.operation].dtypes
    found = [x for x in value.operands if x.operation != "support"]
    if rule == "counts":
        return value.dtype in DTYPES and all(map(_is_whole, found))
    known = (*DTYPES, *COUNTERS) if rule == "any" and len(value.shape) != 2 else DTYPES
    return value.dtype in known and all(x.dtype == value.dtype for x in found)


def _is_whole(value: Value) -> bool:
    """Whether it is a counter, or a number that can be one."""
    if value.operation == "number":
        return isinstance(value.number, int) and abs(value.number) < 2**63
    return value.dtype in COUNTERS
