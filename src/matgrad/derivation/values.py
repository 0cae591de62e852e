"""The values that derivations work on: those of matrices of symbolic sizes."""

from __future__ import annotations

from collections.abc import Container
from functools import lru_cache
from itertools import chain, count
from typing import Any

from matgrad.index_notation.expressions import TooLongError
from matgrad.program.entries import SYMBOLIC, lifted, result, symbols
from matgrad.program.program import Value, in_order
from matgrad.program.shapes import Shape, size_name
from matgrad.program.text import CodePrinter, Piece

LONGEST = 20_000  # characters of a value as code


def apply(operation: str, *operands: Value, **sizes: Any) -> Value:
    """The value of an operation; `sizes` has those that its operands do not have."""
    return result(operation, *map(SYMBOLIC.matrix, operands), **sizes).value


def number(x: Any, shape: Shape = ()) -> Value:
    """A number or a size as a scalar or, if a shape is given, as a full matrix; a value of this shape as it is."""
    return lifted(SYMBOLIC.matrix(x) if isinstance(x, Value) else x, shape).value


def named(name: str, *shape: Any) -> Value:
    """The m×n matrix of this name; without sizes, a scalar."""
    return symbols(name, *shape).value


def with_operands(value: Value, operands: tuple[Value, ...]) -> Value:
    """The same operation on other operands."""
    if not operands:
        return value
    return SYMBOLIC.append(value.operation, operands, value.shape, name=value.name, function=value.function).value


def substituted(value: Value, known: dict[Value, Value]) -> Value:
    """The value with others for some that it is computed from."""
    for x in in_order([value]):
        if x not in known:
            known[x] = with_operands(x, tuple(known[operand] for operand in x.operands))
    return known[value]


def names_of(value: Value) -> set[str]:
    """The names of the inputs that it depends on."""
    return {x.name for x in in_order([value]) if x.operation == "input"}


def sizes_of(value: Value) -> tuple[Any, ...]:
    """The names of the sizes in its shape."""
    return tuple(map(size_name, value.shape))


def free_name(letter: str, taken: Container[str]) -> str:
    """The letter, with a number if it is taken."""
    return next(name for name in chain([letter], map(f"{letter}{{}}".format, count(1))) if name not in taken)


def is_one(n: Any) -> bool:
    """Whether a size is the number 1."""
    return isinstance(n, int) and n == 1


class _Texts(CodePrinter):
    """A printer that remembers what it has printed, and prints nothing that is too long."""

    @lru_cache(maxsize=10_000)  # noqa: B019 - there is one such printer
    def expression(self, value: Value) -> Piece:
        """The expression that gives a value, and how tightly it binds."""
        found = super().expression(value)
        if len(found[0]) > LONGEST:
            raise TooLongError(f"an expression of more than {LONGEST} characters")
        return found


_texts = _Texts({}, "X")


def text(value: Value) -> str:
    """The value as code, which is also the order of values."""
    return _texts.expression(value)[0]
