"""A program: a training step, or another computation, as a straight line of table operations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matgrad.sparse.support import Support

# what the operands of an operation may share with its result, and what it costs, goes by its kind
SOURCES = ("input", "number", "support")
VIEWS = ("transpose", "row_repeat", "column_repeat", "full")
ELEMENTWISE = (
    *("add", "subtract", "hadamard", "negative", "scale", "divide", "power", "copy"),
    *("exp", "log", "log1p", "reciprocal", "sqrt", "tanh", "erf", "step"),
    *("add_scaled", "gate"),
)
REDUCTIONS = ("elements_sum", "columns_sum", "rows_sum", "columns_max", "rows_max")
PRODUCTS = ("matmul", "product_sum")
SPARSE = ("sparse_product", "sparse_transposed_product", "sampled_product", "sampled_sum", "uniform_on")
OTHERS = ("identity", "diag", "Diag", "uniform")
INTEGER = ("add", "subtract", "hadamard", "negative", "copy")  # and of whole numbers, which count something
OPERATIONS = (*SOURCES, *VIEWS, *ELEMENTWISE, *REDUCTIONS, *PRODUCTS, *SPARSE, *OTHERS)

Shape = tuple[int, ...]


class Size(int):
    """A size with a name, such as N, which it is printed with."""

    name: str

    def __new__(cls, value: int, name: str) -> Size:
        """The size `value` called `name`."""
        size = super().__new__(cls, value)
        size.name = name
        return size


def size_name(n: Any) -> Any:
    """The name of a size that has one, and anything else as it is."""
    return getattr(n, "name", n)


@dataclass(eq=False)
class Value:
    """The result of an operation on earlier values: a matrix, or a scalar, whose shape is ().

    An ``input`` has a `name`, a ``number`` its `number`, a ``support``, whose shape is that of its sparse
    matrix, its `support`; everything else follows from the operands and the shape. `equation` says
    which equation of which layer it belongs to.
    """

    operation: str
    operands: tuple[Value, ...] = ()
    shape: Shape = ()
    dtype: str = "float64"
    number: float | None = None
    name: str = ""
    equation: str = ""
    support: Support | None = None
    order: int = 0  # values are executed in this order, after their operands

    @property
    def is_scalar(self) -> bool:
        """Whether it is a scalar."""
        return self.shape == ()

    def derived(self, operation: str, *operands: Value) -> Value:
        """A value that is equal to this one, computed in another way."""
        return replace(self, operation=operation, operands=operands, number=None)

    def key(self) -> tuple:
        """Equal for values that are computed in the same way."""
        name = self.name if self.operation == "input" else ""
        sizes = tuple(map(size_name, (*self.shape, self.number)))  # N is not the number that it stands for
        return (self.operation, *map(id, self.operands), *sizes, self.dtype, name, id(self.support))


class Program:
    """Named inputs, named outputs, and the values that lead from one to the other."""

    def __init__(self, inputs: Mapping[str, Value], outputs: Mapping[str, Value]) -> None:
        self.inputs = dict(inputs)
        self.outputs = dict(outputs)

    @cached_property
    def values(self) -> list[Value]:
        """The values that the outputs need, in order of execution: what is dead is not there."""
        needed: set[Value] = set()
        waiting = list(self.outputs.values())
        while waiting:
            value = waiting.pop()
            if value not in needed:
                needed.add(value)
                waiting += value.operands
        ordered: dict[Value, None] = {}
        for value in sorted(needed, key=lambda value: value.order):
            _append(value, ordered)
        return list(ordered)

    @property
    def supports(self) -> dict[str, Support]:
        """The supports of the sparse matrices in the program, by name."""
        return {value.name: value.support for value in self.values if value.support is not None}

    @property
    def instructions(self) -> list[Value]:
        """The values that take work: neither inputs nor numbers."""
        return [value for value in self.values if value.operation not in SOURCES]

    def uses(self) -> Counter[Value]:
        """How often every value is an operand or an output."""
        return Counter([*(x for value in self.values for x in value.operands), *self.outputs.values()])

    def __str__(self) -> str:
        from matgrad.program.text import program_text

        return program_text(self)


def _append(value: Value, ordered: dict[Value, None]) -> None:
    """Add a value after its operands."""
    if value not in ordered:
        for operand in value.operands:
            _append(operand, ordered)
        ordered[value] = None


def number(x: float, like: Value) -> Value:
    """The number x, to compute with in the dtype of `like`."""
    return Value("number", dtype=like.dtype, number=x, order=like.order)
