"""Execution of programs: every instruction is one call of a framework's kernel, in place."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from matgrad.backends.base import Array
from matgrad.engines.kernels import Kernels
from matgrad.layers.state import State
from matgrad.program.buffers import Buffer, base, plan
from matgrad.program.operations import OPERATIONS
from matgrad.program.program import Program, Value

if TYPE_CHECKING:
    from matgrad.engines.sharded import Exchange


class Executor:
    """A program with memory: ``execute(X=X, T=T, eta=eta)`` changes the matrices of `state` in place.

    If the examples are sparse, X has their values and ``X.support`` their support.
    The outputs that are not part of the state are returned, in memory that the next run overwrites.
    """

    def __init__(self, program: Program, kernels: Kernels, state: State, exchange: Exchange | None = None) -> None:
        self.program, self.kernels, self.state, self.exchange = program, kernels, state, exchange
        self.runs = 0
        self.seconds: dict[Value, float] = {}  # that each value took, if they are timed
        self.slots: list[Any] = []  # matrices, views, supports and numbers: the operands of the kernels
        self.input_slots: dict[str, int] = {}  # of the inputs that are not part of the state
        self.views: list[tuple[int, Value, int]] = []  # of those inputs: slot, view, slot of its operand
        self.state_slots: dict[str, int] = {}  # of the matrices and supports of the state
        self.state_views: list[tuple[int, Value, int]] = []
        self.code: list[tuple[Callable[..., None], int, tuple[int, ...]]] = []
        self.computed: list[Value] = []  # the value that each instruction computes
        self._like = next(iter(state.values()))
        self._slot_of: dict[Any, int] = {}  # by buffer, view, support or number
        self._plan = plan(program)
        self.output_slots: dict[str, int] = {}  # of the outputs that are not part of the state
        for value in program.values:
            if value.kind != "source":
                self._add(value)
        self.code += [
            (kernels.copy, self._buffer_slot(to), (self._buffer_slot(source),)) for to, source in self._plan.copies
        ]
        holder = {self._plan.buffers[value]: value for value in program.outputs.values()}
        self.computed += [holder[source] for _, source in self._plan.copies]

    def execute(self, **inputs: Any) -> State:
        """Run the program once."""
        slots = self.slots
        for name, slot in self.input_slots.items():
            slots[slot] = inputs[name]
        for slot, view, operand in self.views:
            slots[slot] = self._view(view, slots[operand])
        self.kernels.run(self.code, slots)
        self.runs += 1
        return {name: slots[slot] for name, slot in self.output_slots.items()}

    def input_strides(self, name: str) -> tuple[int, ...]:
        """The strides of an input of `execute_on`."""
        shape = self.program.inputs[name].shape
        return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))

    def execute_on(self, inputs: State) -> State:
        """Run the program once on inputs that have these strides, and stay where they are."""
        return self.execute(**inputs)

    def bind(self, state: State) -> None:
        """Go on with other matrices and supports of the same sizes."""
        self.state = state
        for name, slot in self.state_slots.items():
            self.slots[slot] = state[name]
        for slot, view, operand in self.state_views:
            self.slots[slot] = self._view(view, self.slots[operand])

    def time(self) -> None:
        """Measure the seconds of every value from now on."""
        for i, (kernel, out, operands) in enumerate(self.code):
            self.code[i] = self._timed(kernel, self.computed[i]), out, operands

    def _timed(self, kernel: Callable[..., None], value: Value) -> Callable[..., None]:
        """The kernel with a clock, which waits for a result on a device."""
        wait, seconds = self.kernels.backend.wait, self.seconds
        seconds[value] = 0.0

        def timed(out: Array, *operands: Any) -> None:
            start = time.perf_counter()
            kernel(out, *operands)
            wait(out)
            seconds[value] += time.perf_counter() - start

        return timed

    def _add(self, value: Value) -> None:
        """Give a view its slot, or append an instruction."""
        operands = tuple(self._operand(x, value) for x in value.operands)
        if value.kind == "collective":
            self.code.append((self._collective(value), self._buffer_slot(self._plan.buffers[value]), ()))
            self.computed.append(value)
        elif value.kind != "view":
            slot = self._buffer_slot(self._plan.buffers[value])
            self.code.append((getattr(self.kernels, value.operation), slot, operands))
            self.computed.append(value)
        elif base(value).name in self.input_slots:
            self.views.append((self._slot(value, None), value, operands[0]))
        else:
            slot = self._slot(value, self._view(value, self.slots[operands[0]]))
            if base(value).name in self.state:
                self.state_views.append((slot, value, operands[0]))

    def _collective(self, value: Value) -> Callable[..., None]:
        """The kernel of a collective, which works in the memory of the exchange."""
        if self.exchange is None:
            raise ValueError(f"{value.operation}: the program of a rank cannot run without other ranks")
        perform = self.exchange.perform
        return lambda out: perform(value)

    def _operand(self, x: Value, user: Value) -> int:
        """The slot of an operand: a view, a support, a matrix in a buffer, or a number."""
        if x.kind == "view":
            return self._slot_of[x]
        if x.operation == "support":
            if x.support:
                return self._slot(x, x.support)
            if x.name in self.state:
                return self._state_slot(x, x.name)
            self.input_slots[x.name] = self._slot(x, None)
            return self.input_slots[x.name]
        if x.operation != "number":
            return self._buffer_slot(self._plan.buffers[x])
        if OPERATIONS[user.operation].takes_numbers:
            return self._slot(("number", x.number), x.number)
        constant = self.kernels.empty((), x.dtype, self._like)
        constant[...] = x.number
        return self._slot(x, constant)

    def _buffer_slot(self, buffer: Buffer) -> int:
        """The slot of a buffer, whose memory is allocated when it is first used."""
        if buffer in self._slot_of:
            return self._slot_of[buffer]
        if buffer.name in self.state:
            return self._state_slot(buffer, buffer.name)
        if buffer.name in self.program.inputs:
            self.input_slots[buffer.name] = self._slot(buffer, None)
            return self.input_slots[buffer.name]
        if self.exchange is not None and buffer.name in self.exchange.arrays:
            return self._slot(buffer, self.exchange.arrays[buffer.name])
        slot = self._slot(buffer, self.kernels.empty(buffer.shape, buffer.dtype, self._like))
        if buffer.name:
            self.output_slots[buffer.name] = slot
        return slot

    def _state_slot(self, key: Any, name: str) -> int:
        """The slot of a matrix or support of the state."""
        self.state_slots[name] = self._slot(key, self.state[name])
        return self.state_slots[name]

    def _slot(self, key: Any, content: Any) -> int:
        """The slot of a key; a new one gets this content."""
        if key not in self._slot_of:
            self._slot_of[key] = len(self.slots)
            self.slots.append(content)
        return self._slot_of[key]

    def _view(self, value: Value, X: Any) -> Any:
        """X as transposed or repeated by a view."""
        return X.T if value.operation == "transpose" else self.kernels.repeat(X, value.shape)
