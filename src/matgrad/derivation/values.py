"""The values that derivations work on: those of matrices of symbolic sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

from matgrad.activation_functions import ActivationFunction
from matgrad.program.code import CodePrinter
from matgrad.program.entries import SYMBOLIC, lifted, result, symbols
from matgrad.program.program import Value, in_order
from matgrad.program.shapes import Shape, Size, size_name
from matgrad.program.text import Piece


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
    return SYMBOLIC.append(value.operation, operands, value.shape, name=value.name).value


def substituted(value: Value, known: dict[Value, Value], functions: Mapping[str, Any] | None = None) -> Value:
    """The value with others for some that it is computed from, and with functions for their names."""
    for x in in_order([value]):
        if x not in known:
            operands = tuple(known[operand] for operand in x.operands)
            if x.operation == "call" and functions is not None:
                known[x] = function_of(functions, x.name)(SYMBOLIC.matrix(*operands)).value
            else:
                known[x] = with_operands(x, operands)
    return known[value]


def names_of(value: Value) -> set[str]:
    """The names of the inputs that it depends on."""
    return {x.name for x in in_order([value]) if x.operation == "input"}


def sizes_of(value: Value) -> tuple[Any, ...]:
    """The names of the sizes in its shape."""
    return tuple(map(size_name, value.shape))


def is_one(n: Any) -> bool:
    """Whether a size is the number 1."""
    return isinstance(n, int) and n == 1


def is_number(value: Value, x: int) -> bool:
    """Whether it is this number."""
    return value.operation == "number" and not isinstance(value.number, Size) and value.number == x


# -- functions ---------------------------------------------------------------------------------


class NamedFunction(ActivationFunction):
    """An activation function that is known by its name alone."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, X: Any) -> Any:
        """f(X)"""
        return X.call(self.name)

    def gradient(self, X: Any) -> Any:
        """f'(X)"""
        return X.call(f"{self.name}.gradient")


def function_of(functions: Mapping[str, Any], name: str) -> Callable[[Any], Any]:
    """The function called f or f.gradient."""
    function, _, method = name.partition(".")
    return getattr(functions[function], method or "__call__")


# -- text --------------------------------------------------------------------------------------


class _Texts(CodePrinter):
    """A printer that remembers what it has printed."""

    def __init__(self) -> None:
        super().__init__({}, "X")
        self.known: WeakKeyDictionary[Value, Piece] = WeakKeyDictionary()

    def expression(self, value: Value) -> Piece:
        """The code of a value, and how tightly it binds."""
        if value not in self.known:
            self.known[value] = super().expression(value)
        return self.known[value]


_texts = _Texts()


def text(value: Value) -> str:
    """The value as code, which is also the order of values."""
    return _texts.expression(value)[0]
