"""When the ranks send what they add up, what they send together, and when they wait for it."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import replace
from itertools import count
from typing import NamedTuple

from matgrad.program.program import Program, Value
from matgrad.program.rules import optimized, with_separate_exchange

MESSAGE = 4 << 20  # bytes from which on sums are sent without waiting for more of them


def executable(program: Program) -> Program:
    """The program of a rank as it is run: optimized, with memory for what is exchanged, and in order."""
    return scheduled(with_separate_exchange(optimized(program)))


def scheduled(program: Program) -> Program:
    """The program in which ``all_reduce(X)`` is ``receive(send(X))``, in an order that waits as late as it can.

    What needs nothing that is under way comes first. When all that is left waits for something, the oldest message is
    waited for, and those who read it come next: so sums are sent during backpropagation, and the last layer is updated
    while the gradient of the first one is under way.
    """

    def lowered(value: Value, x: Value) -> Value:
        sent = replace(x, operation="send", name="", composed=None)
        return x.derived("receive", sent) if x.operation == "all_reduce" else x

    program = program.mapped(lowered)
    left = program.values
    order: dict[Value, None] = {}
    for arrived in count():  # messages
        for value in left:
            if value.operation != "receive" and _is_ready(value, order):
                order |= dict.fromkeys([*_sent_with(value, left, order), value])
        left = [value for value in left if value not in order]
        if not left:
            break
        message = messages(order)[arrived]
        order |= {value: None for value in left if value.operation == "receive" and value.operands[0] in message}
    places = {value: i for i, value in enumerate(dict.fromkeys(_beside_readers(program, order)))}
    return program.mapped(lambda value, x: replace(x, order=places[value]) if value in places else x)


def messages(values: Iterable[Value]) -> list[list[Value]]:
    """The sums that are sent together, of values in the order in which they are computed.

    A message is sent when it is large enough, or when the next sum is waited for.
    """
    found: list[list[Value]] = []
    is_open = False
    for value in values:
        if value.operation == "send":
            if not is_open or found[-1][0].dtype != value.dtype:
                found.append([])
            found[-1].append(value)
            is_open = sum(x.nbytes for x in found[-1]) < MESSAGE
        elif value.operation == "receive":
            is_open = False
    return found


class Message(NamedTuple):
    """What the ranks exchange at once: matrices that are added up or gathered, and their bytes when they are whole."""

    operation: str
    matrices: list[Value]
    nbytes: int


def traffic(program: Program) -> list[Message]:
    """What a rank exchanges with the others in a scheduled program, in its order."""
    found = []
    by_last = {message[-1]: message for message in messages(program.values)}
    for value in program.values:
        if value in by_last:
            sums = [x.operands[0] for x in by_last[value]]
            found.append(Message("all_reduce", sums, sum(x.nbytes for x in sums)))
        elif value.operation.startswith(("all_", "reduce_scatter")):
            (X,) = value.operands
            found.append(Message(value.operation, [X], max(X.nbytes, value.nbytes)))
    return found


def _is_ready(value: Value, order: Container[Value]) -> bool:
    """Whether it can be computed after those."""
    return all(x in order for x in value.operands)


def _sent_with(value: Value, left: list[Value], order: Container[Value]) -> Iterator[Value]:
    """The smaller sums that can be computed before a sum is sent, and that they are sent: one message is enough."""
    if value.operation == "send":
        for other in left:
            if other.operation == "send" and other.nbytes < value.nbytes and _is_ready(other.operands[0], order):
                yield from other.operands
                yield other


def _beside_readers(program: Program, order: Iterable[Value]) -> Iterator[Value]:
    """The values in this order, but μ·Δ right before μ·Δ - η·Σ DW: an engine can then compute both in one pass.

    That is so for all that is computed element by element, waits for nothing, and is read only by those who wait.
    """
    waiting: set[Value] = set()
    early = set(program.outputs.values())  # and what is read by those who do not wait
    for value in program.values:
        if value.operation == "receive" or any(x in waiting for x in value.operands):
            waiting.add(value)
        else:
            early.update(value.operands)
    postponed = {x for x in program.values if x.kind == "elementwise" and not x.is_scalar} - waiting - early
    for value in order:
        if value not in postponed:
            yield from (x for x in value.operands if x in postponed)
            yield value
