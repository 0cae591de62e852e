"""Where the values of a program live: every result gets a buffer, and buffers are reused."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from itertools import count

from matgrad.program.operations import OPERATIONS, STACKS
from matgrad.program.program import Program, Value
from matgrad.program.shapes import Shape

ALIGNED = 4  # elements: the columns of a matrix that is stored by columns begin at multiples of it


@dataclass(eq=False)
class Buffer:
    """Memory for one matrix or scalar; `name` is that of the input, output or exchange it belongs to, if any."""

    shape: Shape
    dtype: str
    name: str = ""
    is_flipped: bool = False  # whether it is stored by columns
    is_stacked: bool = False  # whether its rows follow each other also where the C++ core pads those of sparse products

    @property
    def kind(self) -> tuple[Shape, str, bool, bool]:
        """What values have in common that can be in it one after the other."""
        return self.shape, self.dtype, self.is_flipped, self.is_stacked

    @property
    def strides(self) -> tuple[int, ...]:
        """Those of its elements."""
        if self.is_flipped:
            return 1, -(-self.shape[0] // ALIGNED) * ALIGNED
        return tuple(math.prod(self.shape[i + 1 :]) for i in range(len(self.shape)))


@dataclass(eq=False, kw_only=True)
class Instruction:
    """What is computed at once, by default one value: the values that get memory, and those whose memory is read."""

    written: list[Value] = field(default_factory=list)
    operands: Collection[Value] = ()

    def may_overwrite(self, old: Value, new: Value) -> bool:
        """Whether `new` can be computed in the memory of `old`, whose elements are read before."""
        return old not in self.operands or old in in_place_operands(new)


def exchanged(program: Program) -> dict[Value, str]:
    """The operands and results of collectives, with the names of their buffers: "exchange 0", "exchange 1", …

    A collective that works in place has the buffer of its operand. `rules.with_separate_exchange` ensures that all
    operands can have such buffers.
    """
    names: dict[Value, str] = {}
    new_names = map("exchange {}".format, count())
    for value in program.values:
        if value.kind != "collective":
            continue
        (X,) = value.operands
        if X.kind in ("source", "view"):
            raise ValueError(f"{value.operation} needs memory of its own, and so a copy of {X.name or X.operation}")
        if X not in names:
            names[X] = next(new_names)
        names[value] = names[X] if OPERATIONS[value.operation].in_place else next(new_names)
    return names


class Plan:
    """The buffer of every input and result, and the copies that move outputs to their own buffers at the end.

    The outputs of the program replace the inputs of the same names; other outputs have buffers of their own.
    A result takes over the buffer of the input it replaces, or of an operand, if nothing reads that buffer
    any more and the instruction can work in place; otherwise it gets a free buffer of its kind. No output may
    be a view, another input or another output: `rules.with_separate_outputs` ensures that. What collectives read
    and write has the buffers that `exchanged` names, alone. Values that are `flipped` are stored by columns.
    """

    def __init__(
        self, program: Program, instructions: Iterable[Instruction] = (), flipped: Collection[Value] = ()
    ) -> None:
        self.program, self.flipped = program, flipped
        self.stacked = {base(value) for value in program.values if value.operation in STACKS}
        computed = (value for value in program.values if value.kind not in ("source", "view"))
        self.instructions = list(instructions) or [
            Instruction(written=[value], operands=list(map(base, value.operands))) for value in computed
        ]
        self.buffers: dict[Value, Buffer] = {}
        self.free: dict[tuple[Shape, str, bool, bool], list[Buffer]] = defaultdict(list)
        # the last instruction that reads the memory of each value; that of an output is read at the end
        self.last_use = dict.fromkeys(program.inputs.values(), -1)  # an input may be replaced without being read
        for i, instruction in enumerate(self.instructions):
            self.last_use |= dict.fromkeys((*instruction.written, *instruction.operands), i)
        self.last_use |= {base(value): len(self.instructions) for value in program.outputs.values()}
        self.exchanged = exchanged(program)
        self.homes: dict[str, Buffer] = {}  # where an input starts, an output ends and a collective works, by name
        self.holder: dict[Buffer, Value] = {}  # the value that is in a buffer now
        for name, value in program.inputs.items():
            self.homes[name] = self.buffers[value] = self._buffer(value, name)
            self.holder[self.homes[name]] = value
        for name, value in (*program.outputs.items(), *((name, value) for value, name in self.exchanged.items())):
            self.homes.setdefault(name, self._buffer(value, name))
        self.replaces = {value: name for name, value in program.outputs.items()}
        for i, instruction in enumerate(self.instructions):
            for value in instruction.written:
                self._choose_buffer(i, instruction, value)
            self._release(i, instruction)
        self.copies = [  # (to, from)
            (self.homes[name], self.buffers[value])
            for value, name in self.replaces.items()
            if self.buffers[value] is not self.homes[name]
        ]

    def _buffer(self, value: Value, name: str = "") -> Buffer:
        """New memory for a value; what has a name is never padded."""
        return Buffer(value.shape, value.dtype, name, value in self.flipped, not name and value in self.stacked)

    def _choose_buffer(self, i: int, instruction: Instruction, value: Value) -> None:
        """Choose a buffer for a result of instruction i."""
        if value in self.exchanged:
            buffer = self.homes[self.exchanged[value]]
            if not self._is_free(buffer, i, instruction, value):
                raise ValueError(f"{value.operation} overwrites what is read later: expected a copy of it")
        else:  # the home of an output, the buffer of an operand, a free one, or a new one
            found = [self.homes[self.replaces[value]]] if value in self.replaces else []
            found += [self.buffers[x] for x in in_place_operands(value) if x in self.buffers]
            # the buffer of an input holds that input or its new value only: also after an interrupt, a matrix of the
            # state is either the old or the new one
            names = "", self.replaces.get(value, "")
            found = [b for b in found if b.name in names and self._is_free(b, i, instruction, value)]
            new = self._buffer(value)
            free = self.free[new.kind]
            buffer = found[0] if found else free.pop() if free else new
        self.buffers[value], self.holder[buffer] = buffer, value

    def _is_free(self, buffer: Buffer, i: int, instruction: Instruction, value: Value) -> bool:
        """Whether instruction i may write to the buffer: nothing reads it later, and i reads it only in place."""
        held = self.holder.get(buffer)  # None for the home of an output that replaces no input
        if buffer.kind != self._buffer(value, buffer.name).kind or (held and self.last_use[held] > i):
            return False
        return held is None or instruction.may_overwrite(held, value)

    def _release(self, i: int, instruction: Instruction) -> None:
        """Free the buffers that nothing reads after instruction i."""
        for x in dict.fromkeys((*instruction.operands, *instruction.written)):
            buffer = self.buffers.get(x)
            if buffer and not buffer.name and self.last_use[x] <= i and self.holder[buffer] is x:
                self.free[buffer.kind].append(buffer)


def base(value: Value) -> Value:
    """The value whose memory this one refers to: itself, unless it is a view."""
    while value.kind == "view":
        value = value.operands[0]
    return value


def in_place_operands(value: Value) -> list[Value]:
    """The operands whose buffers the result may overwrite while it is computed."""
    positions = OPERATIONS[value.operation].in_place
    read_otherwise = {base(x) for k, x in enumerate(value.operands) if k not in positions or x.kind == "view"}
    direct = [x for x in (value.operands[k] for k in positions) if x.kind != "view" and x.shape == value.shape]
    return [x for x in direct if x not in read_otherwise and x.operation != "number"]
