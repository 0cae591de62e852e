"""Programs as values that JSON can hold: what program files contain and the C++ core reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matgrad.program.buffers import plan
from matgrad.program.checking import check_program
from matgrad.program.program import Program, Value
from matgrad.program.rules import with_separate_outputs
from matgrad.program.shapes import Size, size_name

FORMAT = 2  # 1 had supports without their number of elements
LARGEST = 2**31 - 1  # size: the indices of sparse matrices have 32 bits
MOST = 100_000  # values


def as_dictionary(program: Program) -> dict[str, Any]:
    """The program as values that JSON can hold; operands are indices into the list of values.

    It includes, for the C++ core, the buffers of the values when the program runs in place.
    """
    program = with_separate_outputs(program)
    values = all_values(program)
    indices = {value: i for i, value in enumerate(values)}
    memory = plan(program)
    buffers = {buffer: i for i, buffer in enumerate(dict.fromkeys(memory.buffers.values()))}
    sizes = {n.name: int(n) for value in values for n in value.shape if isinstance(n, Size)}
    lines = [value_as_dictionary(value, indices) for value in values]
    for value, line in zip(values, lines, strict=True):
        line |= {"buffer": buffers[memory.buffers[value]]} if value in memory.buffers else {}
    return {
        "format": FORMAT,
        "sizes": sizes,
        "values": lines,
        "outputs": {name: indices[value] for name, value in program.outputs.items()},
        "buffers": [{"shape": list(map(int, b.shape)), "dtype": b.dtype, "name": b.name} for b in buffers],
        "copies": [[buffers[to], buffers[source]] for to, source in memory.copies],
    }


def all_values(program: Program) -> list[Value]:
    """The values of a program, after the inputs that it does not read."""
    read = set(program.values)
    return [*(x for x in program.inputs.values() if x not in read), *program.values]


def from_dictionary(content: Mapping[str, Any]) -> Program:
    """The program that `as_dictionary` described, checked to be sound; its supports are not bound."""
    if content["format"] != FORMAT:
        raise ValueError(f"format {content['format']}, expected {FORMAT}")
    sizes = {name: Size(_size(n), name) for name, n in content["sizes"].items()}
    values: list[Value] = []
    if len(content["values"]) > MOST:
        raise ValueError(f"expected at most {MOST} values, found {len(content['values'])}")
    for i, line in enumerate(content["values"]):
        if not all(_is_index(k, i) for k in line["operands"]):
            raise ValueError(f"value {i}: expected operands before it, found {line['operands']}")
        operands = tuple(values[k] for k in line["operands"])
        shape = tuple(sizes[n] if isinstance(n, str) else _size(n) for n in line["shape"])
        number = sizes.get(line.get("number"), line.get("number"))
        name, equation = (_string(line.get(key, "")) for key in ("name", "equation"))
        value = Value(line["operation"], operands, shape, line["dtype"], number, name, equation, order=i)
        values.append(value)
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
    optional = {
        "number": size_name(value.number),
        "name": value.name or None,
        "equation": value.equation or None,
    }
    return line | {key: x for key, x in optional.items() if x is not None}


def _size(n: Any) -> int:
    """n, checked to be a size."""
    if not isinstance(n, int) or isinstance(n, bool) or not 1 <= n <= LARGEST:
        raise ValueError(f"expected a size from 1 to {LARGEST}, found {n!r}")
    return n


def _is_index(k: Any, end: int) -> bool:
    """Whether k is an index below `end`."""
    return isinstance(k, int) and not isinstance(k, bool) and 0 <= k < end


def _string(x: Any) -> str:
    """x, checked to be a string."""
    if not isinstance(x, str):
        raise ValueError(f"expected a string, found {x!r}")
    return x
