"""Terms: matrices of symbolic sizes that remember how they are computed, and the table of operations on them.

The code of a feedforward runs on terms, and leaves one for every equation. Terms that are computed in the same
way are one object. A scalar is a term of shape ().
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, NoReturn
from weakref import WeakValueDictionary

from matgrad.activation_functions import ActivationFunction
from matgrad.backends import backend_of, register_matrix_type
from matgrad.backends.base import Backend
from matgrad.foundation.numbers import as_number
from matgrad.program.operations import OPERATIONS
from matgrad.program.shapes import ShapeRule, size_name
from matgrad.proofs.sizes import Size

Shape = tuple[Any, ...]  # (m, n), of which each is a size or the number 1, or () of a scalar

# operations of the table that are more than one operation of a program, by their shapes
COMPOSED = {
    "rows_mean": "m n -> m 1",
    "columns_mean": "m n -> 1 n",
    "inv_sqrt": "m n, () -> m n",
    "log_sigmoid": "m n -> m n",
    "clip": "m n, () -> m n",
    "sign": "m n -> m n",
    "dot": "m n, m n -> ()",
    "call": "* -> *",  # f(X), for a function f that is known by its name
}
DRAWN = "U"  # a matrix of random numbers
_RULES = {name: ShapeRule(rule) for name, rule in COMPOSED.items()}
_terms: WeakValueDictionary[tuple, Term] = WeakValueDictionary()


class Term:
    """An operation on other terms. `label` is the name of an input, a size or a function, or a number."""

    __array_ufunc__ = None
    operation: str
    operands: tuple[Term, ...]
    shape: Shape
    label: Any

    def __new__(cls, operation: str, operands: tuple[Term, ...], shape: Shape, label: Any = None) -> Term:
        """The only term of its kind."""
        kind = type(label).__name__
        key = (operation, tuple(map(id, operands)), tuple(map(size_name, shape)), kind, label)
        found = _terms.get(key)
        if found is None:
            found = _terms[key] = super().__new__(cls)
            found.operation, found.operands, found.shape, found.label = operation, operands, shape, label
        return found

    @cached_property
    def text(self) -> str:
        """The term as code, which is also the order of terms."""
        from matgrad.derivation.code import code  # which is about terms

        return code(self)

    def __repr__(self) -> str:
        return self.text

    @property
    def sizes(self) -> tuple[Any, ...]:
        """The names of the sizes in its shape."""
        return tuple(map(size_name, self.shape))

    def walk(self) -> Iterator[Term]:
        """The term and all terms that it is computed from, each once, operands first."""
        seen: set[Term] = set()

        def visit(x: Term) -> Iterator[Term]:
            if x not in seen:
                seen.add(x)
                for operand in x.operands:
                    yield from visit(operand)
                yield x

        return visit(self)

    @property
    def names(self) -> set[str]:
        """The names of the inputs that it depends on."""
        return {x.label for x in self.walk() if x.operation == "input"}

    # -- operators ------------------------------------------------------------------------------
    @property
    def T(self) -> Term:
        """Xᵀ"""
        return self.operands[0] if self.operation == "transpose" else apply("transpose", self)

    @property
    def ndim(self) -> int:
        """2, or 0 for a scalar."""
        return len(self.shape)

    def __add__(self, other: Any) -> Term:
        return apply("add", self, lifted(other, self.shape))

    def __radd__(self, other: Any) -> Term:
        return apply("add", lifted(other, self.shape), self)

    def __sub__(self, other: Any) -> Term:
        return apply("subtract", self, lifted(other, self.shape))

    def __rsub__(self, other: Any) -> Term:
        return apply("subtract", lifted(other, self.shape), self)

    def __neg__(self) -> Term:
        return self.operands[0] if self.operation == "negative" else apply("negative", self)

    def __mul__(self, other: Any) -> Term:
        other = lifted(other)
        if self.shape and not other.shape:
            return apply("scale", other, self)
        if other.shape and not self.shape:
            return apply("scale", self, other)
        return apply("hadamard", self, other)

    def __rmul__(self, other: Any) -> Term:
        return lifted(other) * self

    def __truediv__(self, other: Any) -> Term:
        return apply("divide", self, lifted(other))

    def __rtruediv__(self, other: Any) -> Term:
        return lifted(other) * apply("reciprocal", self)

    def __pow__(self, exponent: Any) -> Term:
        return apply("power", self, lifted(exponent))

    def __matmul__(self, other: Any) -> Term:
        backend_of(self, other)
        return apply("matmul", self, other)

    # -- what needs numbers ---------------------------------------------------------------------
    def __bool__(self) -> bool:
        """Whether a scalar is not 0: the numbers of a layer are symbols only if they are not 0."""
        return self.shape == () or self._no_numbers()

    def _no_numbers(self, *others: Any) -> NoReturn:
        raise TypeError("a feedforward cannot depend on the numbers in a matrix: write it with operations of the table")

    __int__ = __float__ = __index__ = __len__ = __iter__ = __contains__ = __array__ = __abs__ = _no_numbers
    __lt__ = __le__ = __gt__ = __ge__ = __getitem__ = __setitem__ = _no_numbers

    def _not_in_place(self, other: Any) -> NoReturn:
        raise TypeError("a matrix is changed in place, which may change others: write X = X + Y instead")

    __iadd__ = __isub__ = __imul__ = __itruediv__ = __ipow__ = __imatmul__ = _not_in_place


class NamedSize(Size):
    """A size of 1 or more, with a name instead of a number; as a number it is a term."""

    def _scalar(self) -> Term:
        return Term("size", (), (), self.name)


class NamedFunction(ActivationFunction):
    """An activation function that is known by its name alone."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, X: Term) -> Term:
        """f(X)"""
        return apply("call", X, label=self.name)

    def gradient(self, X: Term) -> Term:
        """f'(X)"""
        return apply("call", X, label=f"{self.name}.gradient")


def named(name: str, *shape: Any) -> Term:
    """The m×n matrix of this name; without sizes, a scalar."""
    return Term("input", (), shape, name)


def size_term(n: Any) -> Term:
    """A size as a scalar."""
    return lifted(n)


def is_one(n: Any) -> bool:
    """Whether a size is the number 1."""
    return isinstance(n, int) and n == 1


def lifted(x: Any, shape: Shape = ()) -> Term:
    """x itself if it is a term; a number or a size becomes a scalar or a full matrix."""
    if isinstance(x, Term):
        return apply("full", x, m=shape[0], n=shape[1]) if shape and not x.shape else x
    x = as_number(x)
    if isinstance(x, NamedSize):
        return lifted(x._scalar(), shape)
    if isinstance(x, bool) or not isinstance(x, int | float):
        raise TypeError(f"expected a matrix, a size or a number, found {type(x).__name__}")
    return lifted(Term("number", (), (), x), shape)


def apply(operation: str, *operands: Term, label: Any = None, **given: Any) -> Term:
    """The result of an operation; `given` has the sizes that its operands do not have."""
    for n in given.values():
        if not isinstance(n, Size) and not is_one(n):
            raise ValueError(f"{operation}: expected a size, 1 or a name such as N, found {n}")
    rule = _RULES[operation] if operation in _RULES else OPERATIONS[operation].shapes
    shapes = [x.sizes for x in operands]
    names = rule.result(shapes, {name: size_name(n) for name, n in given.items()})
    if names is None:
        found = ", ".join(" × ".join(map(str, shape)) or "a scalar" for shape in shapes)
        raise ValueError(f"{operation}: expected shapes {rule.rule}, found {found}: nothing broadcasts")
    sizes = {size_name(n): n for n in (1, *given.values(), *(n for x in operands for n in x.shape))}
    return Term(operation, operands, tuple(sizes[name] for name in names), label)


# -- the table ---------------------------------------------------------------------------------


def _with_operations(cls: type[Backend]) -> type[Backend]:
    """The backend, with a method for every operation in the list that it does not define."""
    for name in cls.__abstractmethods__ & OPERATIONS.keys():
        setattr(cls, name, _method(name))
    return abc.update_abstractmethods(cls)


def _method(operation: str) -> Callable[..., Term]:
    return lambda self, *operands: apply(operation, *map(lifted, operands))


@_with_operations
class TermBackend(Backend):
    """The table on terms; the methods below take more than matrices, the others are generated."""

    name = "terms"
    rows_mean, columns_mean, inv_sqrt, log_sigmoid, clip, sign, dot = (
        _method(name) for name in ("rows_mean", "columns_mean", "inv_sqrt", "log_sigmoid", "clip", "sign", "dot")
    )

    def full(self, value, m, n, like):
        return lifted(value, (m, n))

    def identity(self, n, like):
        return apply("identity", n=n)

    def column_repeat(self, x, n):
        return apply("column_repeat", x, n=n)

    def row_repeat(self, x, m):
        return apply("row_repeat", x, m=m)

    def uniform(self, m, n, seed, count, like):
        return named(DRAWN, m, n)  # a given matrix: nothing depends on how it is drawn

    def from_numpy(self, A, device=None):
        raise TypeError("the numbers of an array have no place in equations: name it in `parameters` or `buffers`")

    def to_numpy(self, X):
        return X._no_numbers()

    def take_rows(self, X, indices):
        return X._no_numbers()

    def dtype(self, X):
        return "exact"

    def tiny(self, X):
        return 0

    def scalar(self, value, like):
        return lifted(value)


register_matrix_type(Term, TermBackend())  # type: ignore[abstract]
