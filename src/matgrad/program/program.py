"""Programs: a training step or another computation as a straight-line sequence of table operations."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from matgrad.foundation.imports import deferred
from matgrad.program.operations import ROWS, Kind
from matgrad.program.shapes import Shape, size_name
from matgrad.sparse.support import Support

EXAMPLES = "X.support"  # the support of sparse examples, whose number of elements differs from batch to batch


@dataclass(eq=False)
class Value:
    """The result of an operation on earlier values: a matrix, or a scalar, whose shape is ().

    An ``input`` has a `name`, and a ``number`` has its `number`. A ``support``, whose shape is (K, D, nnz), has a
    `name` and, unless it is bound like an input, its `support`. Everything else follows from the operands and
    the shape. `equation` says which equation of which layer it belongs to. `composed` is for people: the value is
    softmax(Y), say, where programs have the steps.
    """

    operation: str
    operands: tuple[Value, ...] = ()
    shape: Shape = ()
    dtype: str = "float64"
    number: float | None = None
    name: str = ""
    equation: str = ""
    function: str = ""  # that a ``call`` applies
    composed: Value | None = None  # the same as one composed operation, of which this is the last step
    support: Support | None = None
    order: int = 0  # values are executed in this order, after their operands

    @property
    def kind(self) -> Kind:
        """The kind of its operation."""
        return ROWS[self.operation].kind

    @property
    def is_scalar(self) -> bool:
        """Whether it is a scalar."""
        return self.shape == ()

    @property
    def is_free(self) -> bool:
        """Whether it is a scalar made of given scalars, such as -η: it waits for nothing."""
        is_made = self.is_scalar and self.kind == "elementwise"
        return is_made and all(x.kind == "source" or x.is_free for x in self.operands)

    @property
    def nbytes(self) -> int:
        """The bytes of its elements."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    def derived(self, operation: str, *operands: Value) -> Value:
        """A value equal to this one that is computed in another way."""
        return replace(self, operation=operation, operands=operands, number=None)

    def reading(self, new: Mapping[Value, Value]) -> Value:
        """The value with new operands in place of its own."""
        operands = tuple(map(new.__getitem__, self.operands))
        if operands == self.operands:
            return self
        composed = self.composed
        if composed is not None and all(x in new or x.operation == "number" for x in composed.operands):
            composed = replace(composed, operands=tuple(new.get(x, x) for x in composed.operands))
        else:
            composed = None
        return replace(self, operands=operands, composed=composed)

    def key(self, of: Callable[[Value], int] = id) -> tuple[Any, ...]:
        """What is equal for values that are computed in the same way; `of` gives that of an operand.

        In a number, N is not the number that it stands for, NaN is equal to itself, and 0.0 is not -0.0.
        """
        name = self.function or (self.name if self.operation in ("input", "support") else "")
        n = self.number
        number = None if n is None else (type(n).__name__, repr(n), str(size_name(n)))
        sizes = map(size_name, self.shape)
        return (self.operation, *map(of, self.operands), *sizes, number, self.dtype, name, id(self.support))


class Program:
    """Named inputs, named outputs, and the values that lead from inputs to outputs."""

    def __init__(self, inputs: Mapping[str, Value], outputs: Mapping[str, Value]) -> None:
        self.inputs = dict(inputs)
        self.outputs = dict(outputs)

    @cached_property
    def values(self) -> list[Value]:
        """The values that the outputs need, in order of execution, without dead ones."""
        needed: dict[Value, None] = {}
        pending = list(self.outputs.values())
        while pending:
            value = pending.pop()
            if value not in needed:
                needed[value] = None
                pending += value.operands
        backwards = sorted(needed, key=lambda value: value.order, reverse=True)  # as they were found
        return in_order(backwards[::-1])

    @property
    def all_values(self) -> list[Value]:
        """The values, after the inputs that are not read."""
        read = set(self.values)
        return [*(x for x in self.inputs.values() if x not in read), *self.values]

    @property
    def supports(self) -> dict[str, Value]:
        """The supports of the sparse matrices in the program, by name."""
        return {value.name: value for value in self.values if value.operation == "support"}

    def mapped(self, change: Callable[[Value, Value], Value]) -> Program:
        """The program with change(x, y) in place of each value x, where y is x with operands that are changed."""
        new: dict[Value, Value] = {}
        for value in self.all_values:
            new[value] = change(value, value.reading(new))
        return Program(*({name: new[value] for name, value in x.items()} for x in (self.inputs, self.outputs)))

    @property
    def instructions(self) -> list[Value]:
        """The values that are computed or are views: neither inputs nor numbers nor supports."""
        return [value for value in self.values if value.kind != "source"]

    def uses(self) -> Counter[Value]:
        """How often every value is an operand or an output."""
        return Counter([*(x for value in self.values for x in value.operands), *self.outputs.values()])

    def text(self, *, is_opened: bool = False) -> str:
        """The program as equations: with names such as softmax(Y), or, if opened, with the steps that are executed."""
        from matgrad.program.text import Printer

        return Printer(self, is_opened=is_opened).text()

    def __str__(self) -> str:
        return self.text()

    __repr__ = __str__
    _repr_html_ = deferred("matgrad.explanation.notebook", "program_html")


def in_order(values: Iterable[Value]) -> list[Value]:
    """The values and all that they are computed from, each once, after its operands."""
    found: dict[Value, None] = {}

    def append(value: Value) -> None:
        if value not in found:
            for operand in value.operands:
                append(operand)
            found[value] = None

    for value in values:
        append(value)
    return list(found)


def number(x: float, like: Value) -> Value:
    """The number x as a value with the dtype of `like`."""
    return Value("number", dtype=like.dtype, number=x, order=like.order)
