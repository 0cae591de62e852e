"""The adjoint reader: the gradients of a program as a program, by the adjoints in the rows of operations."""

from __future__ import annotations

from matgrad.program.operations import ROWS, Adjoint
from matgrad.program.program import Program, Value, in_order
from matgrad.program.recorder import Recording

ADJOINTS: dict[str, Adjoint] = {name: row.adjoint for name, row in ROWS.items() if row.adjoint}


def gradients(Y: Value, DY: Value, recording: Recording) -> dict[Value, Value]:
    """The gradients of the inputs of Y from DY, by the adjoints of its operations from the last to the first."""
    found = {Y: recording.matrix(DY)}
    for x in reversed(in_order([Y])):
        if x.operands and x in found:
            parts = ADJOINTS[x.operation](found.pop(x), *map(recording.matrix, (x, *x.operands)))
            for operand, D in zip(x.operands, parts, strict=True):
                if D is not None and operand.operation != "number":
                    found[operand] = found[operand] + D if operand in found else D
    return {x: D.value for x, D in found.items() if x.operation == "input"}


def adjoint(program: Program, output: str = "Y") -> Program:
    """The program from the inputs and DY to DX for every input X that Y depends on: the gradients of ⟨DY, Y⟩."""
    Y, recording = program.outputs[output], Recording()
    recording.count = max(value.order for value in program.values)
    DY = recording.append("input", (), Y.shape, Y.dtype, name=f"D{output}").value
    found = gradients(Y, DY, recording)
    outputs = {f"D{name}": found[x] for name, x in program.inputs.items() if x in found}
    return Program({**program.inputs, DY.name: DY}, outputs)
