"""Matrices of symbolic sizes, whatever stands for their entries: operators and the table, by one function for all."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, ClassVar, NoReturn, Self

from matgrad.backends import backend_of
from matgrad.backends.base import Backend
from matgrad.foundation.numbers import as_number
from matgrad.program.operations import OPERATIONS
from matgrad.program.shapes import ShapeRule, size_name

Shape = tuple[Any, ...]  # (m, n), of which each is a size or the number 1, or () of a scalar


class SymbolicMatrix:
    """A matrix with a shape of symbolic sizes; a scalar has the shape ().

    A subclass has `result`, what an operation gives, and `scalar`, what a number or a size is.
    """

    __array_ufunc__ = None
    shape: Shape

    @classmethod
    def result(cls, operation: str, *operands: Self, **given: Any) -> Self:
        """The result of an operation; `given` has the sizes that its operands do not have."""
        raise NotImplementedError

    @classmethod
    def scalar(cls, x: Any) -> Self:
        """A number or a size as a scalar; raises TypeError if x is neither."""
        raise NotImplementedError

    @classmethod
    def lifted(cls, x: Any, shape: Shape = ()) -> Self:
        """x itself if it is such a matrix; a number or a size becomes a scalar or a full matrix."""
        if not isinstance(x, cls):
            x = cls.scalar(as_number(x))
        return cls.result("full", x, m=shape[0], n=shape[1]) if shape and not x.shape else x

    # -- operators ------------------------------------------------------------------------------
    @property
    def T(self) -> Self:
        """Xᵀ"""
        return self.result("transpose", self)

    @property
    def ndim(self) -> int:
        """2, or 0 for a scalar."""
        return len(self.shape)

    def __add__(self, other: Any) -> Self:
        return self._elementwise("add", self, other)

    def __radd__(self, other: Any) -> Self:
        return self._elementwise("add", other, self)

    def __sub__(self, other: Any) -> Self:
        return self._elementwise("subtract", self, other)

    def __rsub__(self, other: Any) -> Self:
        return self._elementwise("subtract", other, self)

    def _elementwise(self, operation: str, x: Any, y: Any) -> Self:
        """The result of an operation on two matrices of equal size; a scalar stands for a full matrix."""
        X, Y = self.lifted(x), self.lifted(y)
        return self.result(operation, self.lifted(X, Y.shape), self.lifted(Y, X.shape))

    def __neg__(self) -> Self:
        return self.result("negative", self)

    def __mul__(self, other: Any) -> Self:
        other = self.lifted(other)
        if self.shape and not other.shape:
            return self.result("scale", other, self)
        if other.shape and not self.shape:
            return self.result("scale", self, other)
        return self.result("hadamard", self, other)

    def __rmul__(self, other: Any) -> Self:
        return self.lifted(other) * self

    def __truediv__(self, other: Any) -> Self:
        return self.result("divide", self, self.lifted(other))

    def __rtruediv__(self, other: Any) -> Self:
        return self.lifted(other) * self.result("reciprocal", self)

    def __pow__(self, exponent: Any) -> Self:
        return self.result("power", self, self.lifted(exponent))

    def __matmul__(self, other: Any) -> Self:
        backend_of(self, other)
        return self.result("matmul", self, other)

    # -- what needs numbers ---------------------------------------------------------------------
    def _no_numbers(self, *others: Any) -> NoReturn:
        raise TypeError("a proof cannot depend on the numbers in a matrix: write it with the operations of the table")

    __int__ = __float__ = __index__ = __len__ = __iter__ = __contains__ = __array__ = __abs__ = _no_numbers
    __lt__ = __le__ = __gt__ = __ge__ = _no_numbers

    def _not_in_place(self, *others: Any) -> NoReturn:
        raise TypeError("a matrix is changed in place, which may change others: write X = X + Y instead")

    __iadd__ = __isub__ = __imul__ = __itruediv__ = __ipow__ = __imatmul__ = __setitem__ = _not_in_place


def result_shape(operation: str, rule: ShapeRule, operands: tuple[SymbolicMatrix, ...], given: dict[str, Any]) -> Shape:
    """The shape of the result of an operation; `given` has the sizes that its operands do not have."""
    shapes = [tuple(map(size_name, X.shape)) for X in operands]
    names = rule.result(shapes, {name: size_name(n) for name, n in given.items()})
    if names is None:
        found = ", ".join(" × ".join(map(str, shape)) or "a scalar" for shape in shapes)
        raise ValueError(f"{operation}: expected shapes {rule.rule}, found {found}: nothing broadcasts")
    sizes = {size_name(n): n for n in (1, *given.values(), *(n for X in operands for n in X.shape))}
    return tuple(sizes[name] for name in names)


# -- the table ---------------------------------------------------------------------------------


def method(operation: str) -> Callable[..., Any]:
    """The method of a backend for an operation on matrices."""
    return lambda self, *operands: self.matrix_type.result(operation, *map(self.matrix_type.lifted, operands))


def with_operations(cls: type[SymbolicBackend]) -> type[SymbolicBackend]:
    """The backend, with a method for every operation in the list that it does not define."""
    for name in cls.__abstractmethods__ & OPERATIONS.keys():
        setattr(cls, name, method(name))
    return abc.update_abstractmethods(cls)


class SymbolicBackend(Backend):
    """The table on symbolic matrices; the methods below take more than matrices, the others are generated."""

    matrix_type: ClassVar[type[SymbolicMatrix]]

    def full(self, value, m, n, like):
        return self.matrix_type.lifted(value, (m, n))

    def identity(self, n, like):
        return self.matrix_type.result("identity", n=n)

    def column_repeat(self, x, n):
        return self.matrix_type.result("column_repeat", x, n=n)

    def row_repeat(self, x, m):
        return self.matrix_type.result("row_repeat", x, m=m)

    def from_numpy(self, A, device=None):
        raise TypeError("the numbers of an array have no place in a proof: name it in `parameters` or `buffers`")

    def to_numpy(self, X):
        return X._no_numbers()

    def take_rows(self, X, indices):
        return X._no_numbers()

    def dtype(self, X):
        return "exact"

    def tiny(self, X):
        return 0

    def scalar(self, value, like):
        return self.matrix_type.lifted(value)
