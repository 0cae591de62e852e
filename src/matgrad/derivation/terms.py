"""Terms: matrices of symbolic sizes that remember how they are computed, and the table of operations on them.

The code of a feedforward runs on terms, and leaves one for every equation. Terms that are computed in the same
way are one object. A scalar is a term of shape ().
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any
from weakref import WeakValueDictionary

from matgrad.activation_functions import ActivationFunction
from matgrad.backends import register_matrix_type
from matgrad.program.operations import OPERATIONS
from matgrad.program.shapes import ShapeRule, size_name
from matgrad.proofs.matrices import Size
from matgrad.proofs.operators import Shape, SymbolicBackend, SymbolicMatrix, method, result_shape, with_operations

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


class Term(SymbolicMatrix):
    """An operation on other terms. `label` is the name of an input, a size or a function, or a number."""

    operation: str
    operands: tuple[Term, ...]
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

    # -- operations -----------------------------------------------------------------------------
    @classmethod
    def result(cls, operation: str, *operands: Term, label: Any = None, **given: Any) -> Term:
        """The term of an operation; `given` has the sizes that its operands do not have."""
        for n in given.values():
            if not isinstance(n, Size) and not is_one(n):
                raise ValueError(f"{operation}: expected a size, 1 or a name such as N, found {n}")
        rule = _RULES[operation] if operation in _RULES else OPERATIONS[operation].shapes
        return Term(operation, operands, result_shape(operation, rule, operands, given), label)

    @classmethod
    def scalar(cls, x: Any) -> Term:
        """A size or a number as a scalar."""
        if isinstance(x, NamedSize):
            return x._scalar()
        if isinstance(x, bool) or not isinstance(x, int | float):
            raise TypeError(f"expected a matrix, a size or a number, found {type(x).__name__}")
        return Term("number", (), (), x)

    @property
    def T(self) -> Term:
        """Xᵀ"""
        return self.operands[0] if self.operation == "transpose" else apply("transpose", self)

    def __neg__(self) -> Term:
        return self.operands[0] if self.operation == "negative" else apply("negative", self)

    def __bool__(self) -> bool:
        """Whether a scalar is not 0: the numbers of a layer are symbols only if they are not 0."""
        return self.shape == () or self._no_numbers()

    __getitem__ = SymbolicMatrix._no_numbers


apply, lifted = Term.result, Term.lifted


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


# -- the table ---------------------------------------------------------------------------------


@with_operations
class TermBackend(SymbolicBackend):
    """The table on terms."""

    name, matrix_type = "terms", Term
    rows_mean, columns_mean, inv_sqrt, log_sigmoid, clip, sign, dot = map(
        method, ("rows_mean", "columns_mean", "inv_sqrt", "log_sigmoid", "clip", "sign", "dot")
    )

    def uniform(self, m, n, seed, count, like):
        return named(DRAWN, m, n)  # a given matrix: nothing depends on how it is drawn


register_matrix_type(Term, TermBackend())  # type: ignore[abstract]
