"""Programs as values that JSON can hold: what program files have in them and the C++ core reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matgrad.program.buffers import plan
from matgrad.program.checking import check_program
from matgrad.program.program import Program, Value
from matgrad.program.rules import apart
from matgrad.program.shapes import Size, size_name

FORMAT = 2  # 1 had supports without their number of elements


def as_dictionary(program: Program) -> dict[str, Any]:
    """The program as values that JSON can hold; operands are places in the list of values.

    Where the values live when the program runs in place stands there too, for the C++ core.
    """
    program = apart(program)
    values = [*(x for x in program.inputs.values() if x not in program.values), *program.values]
    place = {value: i for i, value in enumerate(values)}
    memory = plan(program)
    buffers = {buffer: i for i, buffer in enumerate(dict.fromkeys(memory.buffers.values()))}
    sizes = {n.name: int(n) for value in values for n in value.shape if isinstance(n, Size)}
    lines = [_value_as_dictionary(value, place) for value in values]
    for value, line in zip(values, lines, strict=True):
        line |= {"buffer": buffers[memory.buffers[value]]} if value in memory.buffers else {}
    return {
        "format": FORMAT,
        "sizes": sizes,
        "values": lines,
        "outputs": {name: place[value] for name, value in program.outputs.items()},
        "buffers": [{"shape": list(map(int, b.shape)), "dtype": b.dtype, "name": b.name} for b in buffers],
        "copies": [[buffers[to], buffers[source]] for to, source in memory.copies],
    }


def from_dictionary(content: Mapping[str, Any]) -> Program:
    """The program that `as_dictionary` described, after a check that it is sound; its supports are not bound."""
    if content["format"] != FORMAT:
        raise ValueError(f"format {content['format']}, expected {FORMAT}")
    sizes = {name: Size(_size(n), name) for name, n in content["sizes"].items()}
    values: list[Value] = []
    for i, line in enumerate(content["values"]):
        if not all(_is_place(k, i) for k in line["operands"]):
            raise ValueError(f"value {i}: expected operands before it, found {line['operands']}")
        operands = tuple(values[k] for k in line["operands"])
        shape = tuple(sizes[n] if isinstance(n, str) else _size(n) for n in line["shape"])
        number = sizes.get(line.get("number"), line.get("number"))
        name, equation = (_text(line.get(key, "")) for key in ("name", "equation"))
        value = Value(line["operation"], operands, shape, line["dtype"], number, name, equation, order=i)
        values.append(value)
    inputs = {value.name: value for value in values if value.operation == "input"}
    if not all(_is_place(k, len(values)) for k in content["outputs"].values()):
        raise ValueError(f"expected places of values as outputs, found {content['outputs']}")
    program = Program(inputs, {name: values[k] for name, k in content["outputs"].items()})
    check_program(program)
    return program


def _value_as_dictionary(value: Value, place: Mapping[Value, int]) -> dict[str, Any]:
    line: dict[str, Any] = {
        "operation": value.operation,
        "operands": [place[x] for x in value.operands],
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
    """A size, after a check that it is one."""
    if not isinstance(n, int) or isinstance(n, bool) or n < 1:
        raise ValueError(f"expected a size of 1 or more, found {n!r}")
    return n


def _is_place(k: Any, end: int) -> bool:
    """Whether k is the place of one of the first values."""
    return isinstance(k, int) and not isinstance(k, bool) and 0 <= k < end


def _text(x: Any) -> str:
    """A text, after a check that it is one."""
    if not isinstance(x, str):
        raise ValueError(f"expected a text, found {x!r}")
    return x
