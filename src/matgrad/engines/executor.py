"""Running a program: every instruction is one call of a framework's kernel, in place."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from matgrad.backends.base import Matrix
from matgrad.engines.kernels import Kernels
from matgrad.layers.state import State
from matgrad.program.buffers import Buffer, base, plan
from matgrad.program.operations import OPERATIONS
from matgrad.program.program import Program, Value
from matgrad.sparse.support import Support


class Executor:
    """A program with memory: ``execute(X=X, T=T, eta=eta)`` changes the matrices of `state` in place.

    What else it computes are its outputs, in memory that the next run writes to again.
    """

    def __init__(self, program: Program, kernels: Kernels, state: State) -> None:
        self.program, self.kernels, self.state = program, kernels, state
        self.runs = 0
        self.seconds: dict[Value, float] = {}  # that its values took, where they are timed
        self.slots: list[Any] = []
        self.given: dict[str, int] = {}  # where the inputs of a run go
        self.views: list[tuple[int, Value, int]] = []  # views of those: place, view, place of its operand
        self.code: list[tuple[Callable[..., None], int, tuple[int, ...]]] = []
        self.computed: list[Value] = []  # by each instruction
        self._like = next(iter(state.values()))
        self._places: dict[Any, int] = {}  # of buffers, views and numbers
        self._plan = plan(program)
        self.outputs: dict[str, int] = {}  # where the outputs that are not part of the state are
        for value in program.values:
            if value.kind != "source":
                self._add(value)
        self.code += [(kernels.copy, self._place(to), (self._place(source),)) for to, source in self._plan.copies]
        holder = {self._plan.buffers[value]: value for value in program.outputs.values()}
        self.computed += [holder[source] for _, source in self._plan.copies]

    def execute(self, **inputs: Any) -> State:
        """Run the program once."""
        slots = self.slots
        for name, place in self.given.items():
            slots[place] = inputs[name]
        for place, view, operand in self.views:
            slots[place] = self._view(view, slots[operand])
        self.kernels.run(self.code, slots)
        self.runs += 1
        return {name: slots[place] for name, place in self.outputs.items()}

    def bind_support(self, name: str, S: Support) -> None:
        """Let another support of the same size take the place of the one called `name`."""
        for value in self._places.keys() & {self.program.supports[name]}:
            self.slots[self._places[value]] = S

    def time(self) -> None:
        """From now on, count the seconds of every value."""
        for i, (kernel, out, operands) in enumerate(self.code):
            self.code[i] = self._timed(kernel, self.computed[i]), out, operands

    def _timed(self, kernel: Callable[..., None], value: Value) -> Callable[..., None]:
        """The kernel with a clock, which on a device waits for the result."""
        wait, seconds = self.kernels.backend.wait, self.seconds
        seconds[value] = 0.0

        def timed(out: Matrix, *operands: Any) -> None:
            start = time.perf_counter()
            kernel(out, *operands)
            wait(out)
            seconds[value] += time.perf_counter() - start

        return timed

    def _add(self, value: Value) -> None:
        """Give a view its place, or append an instruction."""
        operands = tuple(self._operand(x, value) for x in value.operands)
        if value.kind != "view":
            place = self._place(self._plan.buffers[value])
            self.code.append((getattr(self.kernels, value.operation), place, operands))
            self.computed.append(value)
        elif base(value).name in self.given:
            self.views.append((self._new(value, None), value, operands[0]))
        else:
            self._new(value, self._view(value, self.slots[operands[0]]))

    def _operand(self, x: Value, user: Value) -> int:
        """The place of an operand: a view, a matrix in a buffer, or a number."""
        if x.kind == "view":
            return self._places[x]
        if x.operation == "support":
            return self._new(x, x.support or self.state[x.name])
        if x.operation != "number":
            return self._place(self._plan.buffers[x])
        if OPERATIONS[user.operation].takes_numbers:
            return self._new(("number", x.number), x.number)
        constant = self.kernels.empty((), x.dtype, self._like)
        constant[...] = x.number
        return self._new(x, constant)

    def _place(self, buffer: Buffer) -> int:
        """The place of a buffer, whose memory is made at its first use."""
        if buffer in self._places:
            return self._places[buffer]
        if buffer.name in self.state:
            return self._new(buffer, self.state[buffer.name])
        if buffer.name in self.program.inputs:
            self.given[buffer.name] = self._new(buffer, None)
            return self.given[buffer.name]
        place = self._new(buffer, self.kernels.empty(buffer.shape, buffer.dtype, self._like))
        if buffer.name:
            self.outputs[buffer.name] = place
        return place

    def _new(self, key: Any, content: Any) -> int:
        """A place with that content."""
        if key not in self._places:
            self._places[key] = len(self.slots)
            self.slots.append(content)
        return self._places[key]

    def _view(self, value: Value, X: Any) -> Any:
        """X seen as transposed or repeated."""
        return X.T if value.operation == "transpose" else self.kernels.repeat(X, value.shape)
