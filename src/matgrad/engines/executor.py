"""Execution of programs: every instruction is one call of a framework's kernel, in place."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from matgrad.backends.base import Array
from matgrad.engines.kernels import Kernels
from matgrad.layers.state import State, matrices_of
from matgrad.program.buffers import Buffer, Plan
from matgrad.program.operations import OPERATIONS, STACKS
from matgrad.program.program import Program, Value

if TYPE_CHECKING:
    from matgrad.engines.sharded import Exchange

Key = Buffer | Value | float  # of an operand of a kernel: its buffer; a view, a support or a 0-d number; a plain number


class Executor:
    """A program with memory: ``execute(X=X, T=T, eta=eta)`` changes the matrices of `state` in place.

    If the examples are sparse, X has their values and ``X.support`` their support.
    The outputs that are not part of the state are returned, in memory that the next run overwrites.
    """

    def __init__(self, program: Program, kernels: Kernels, state: State, exchange: Exchange | None = None) -> None:
        self.program, self.kernels, self.exchange = program, kernels, exchange
        self.runs = 0
        self.seconds: dict[Value, float] = {}  # that each value took, if they are timed
        self._arrays: State = {} if exchange is None else exchange.arrays
        self._like: Any = next(iter(matrices_of(state).values()), None)
        self._memory: dict[Key, Array] = {}  # of its own
        self._slots: dict[Key, int] = {}  # where `slots` has what belongs to a key
        self.plan = self._planned(state)
        self.code: list[tuple[Callable[..., None], int, tuple[int, ...]]] = []
        self.computed: list[Value] = []  # the value that each instruction computes
        for instruction in self.plan.instructions:
            kernel, value, (out, *operands) = self._kernel_for(instruction)
            self.code.append((kernel, out, tuple(operands)))
            self.computed.append(value)
        holder = {self.plan.buffers[value]: value for value in program.outputs.values()}
        for to, source in self.plan.copies:
            self.code.append((kernels.copy, self._slot(to), (self._slot(source),)))
            self.computed.append(holder[source])
        self.bind(state)

    def _planned(self, state: State) -> Plan:
        """What is computed at once, and in which memory."""
        return Plan(self.program)

    def _kernel_for(self, instruction: Any) -> tuple[Callable[..., None], Value, list[int]]:
        """The kernel of an instruction, the value that it computes, and the slots of its arguments."""
        (value,) = instruction.written
        out = self._slot(value)
        if value.kind != "collective":
            return getattr(self.kernels, value.operation), value, [out, *(self._slot(x, value) for x in value.operands)]
        exchange = self.exchange
        if exchange is None:
            raise ValueError(f"{value.operation}: the program of a rank cannot run without other ranks")
        return lambda out: exchange.perform(value), value, [out]

    def _slot(self, x: Value | Buffer, user: Value | None = None) -> int:
        """The slot of a buffer, or of an operand of a value."""
        key: Key = self.plan.buffers.get(x, x) if isinstance(x, Value) else x
        if isinstance(key, Value) and key.kind == "view":
            self._slot(key.operands[0], key)  # which is bound first
        if isinstance(key, Value) and key.number is not None and user and OPERATIONS[user.operation].takes_numbers:
            key = key.number
        return self._slots.setdefault(key, len(self._slots))

    def bind(self, state: State) -> None:
        """Go on with other matrices and supports of the same sizes."""
        self.state = state
        self.slots: list[Any] = []  # the operands of the kernels: matrices, views, supports and numbers
        self.views: list[tuple[int, Value, int]] = []  # of inputs: slot, view, slot of its operand
        self.input_slots: dict[str, int] = {}  # of what is not part of the state
        self.output_slots: dict[str, int] = {}
        for slot, key in enumerate(self._slots):
            self.slots.append(self._content(slot, key))

    def _content(self, slot: int, key: Key) -> Any:
        """What is in a slot; nothing yet if it belongs to an input."""
        if not isinstance(key, Buffer | Value):
            return key
        if isinstance(key, Value) and key.kind == "view":
            operand = self._slot(key.operands[0], key)
            if self.slots[operand] is not None:
                return self._view(key, self.slots[operand])
            self.views.append((slot, key, operand))
            return None
        if isinstance(key, Value) and key.support is not None:
            return key.support
        is_number = isinstance(key, Value) and key.operation == "number"  # whose name, if any, is not that of a matrix
        name = "" if is_number else key.name
        for given in (self.state, self._arrays):
            if name in given:
                return given[name]
        if name in self.program.inputs or (isinstance(key, Value) and not is_number):
            self.input_slots[name] = slot
            return None
        if name:
            self.output_slots[name] = slot
        if key not in self._memory:
            self._memory[key] = self._empty(key)
            if isinstance(key, Value):
                self._memory[key][...] = key.number
        return self._memory[key]

    def _empty(self, x: Buffer | Value) -> Array:
        return self.kernels.empty(x.shape, x.dtype, self._like)

    def _view(self, value: Value, X: Any) -> Any:
        """X as transposed, stacked or repeated by a view."""
        if value.operation in STACKS:
            return X.reshape(tuple(map(int, value.shape)))
        return X.T if value.operation == "transpose" else self.kernels.repeat(X, value.shape)

    def _give(self, inputs: State) -> None:
        """Put the inputs and their views into their slots."""
        for name, slot in self.input_slots.items():
            self.slots[slot] = inputs[name]
        for slot, view, operand in self.views:
            self.slots[slot] = self._view(view, self.slots[operand])

    def execute(self, **inputs: Any) -> State:
        """Run the program once."""
        self._give(inputs)
        self.kernels.run(self.code, self.slots)
        self.runs += 1
        return {name: self.slots[slot] for name, slot in self.output_slots.items()}

    def time(self) -> None:
        """Measure the seconds of every value from now on, with a clock that waits for results on a device."""
        wait, seconds = self.kernels.backend.wait, self.seconds

        def timed(kernel: Callable[..., None], value: Value) -> Callable[..., None]:
            def timed_kernel(out: Array, *operands: Any) -> None:
                start = time.perf_counter()
                kernel(out, *operands)
                wait(out)
                seconds[value] += time.perf_counter() - start

            seconds[value] = 0.0
            return timed_kernel

        pairs = zip(self.code, self.computed, strict=True)
        self.code = [(timed(kernel, value), out, operands) for (kernel, out, operands), value in pairs]
