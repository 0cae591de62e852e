"""Terms: matrices of symbolic sizes that remember how they are computed, the table on them, and their code.

The code of a feedforward runs on terms, and leaves one for every equation. Terms that are computed in the same
way are one object. A scalar is a term of shape ().
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
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
        return CodePrinter({}, "X").piece(self)[0]

    def __repr__(self) -> str:
        return self.text

    @property
    def value(self) -> Term:
        """The term itself."""
        return self

    @property
    def number(self) -> Any:
        """The number that it is; None if it is none."""
        return self.label if self.operation == "number" else None

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

    def __mul__(self, other: Any) -> Any:
        return self._scalar() * other


class NamedFunction(ActivationFunction):
    """An activation function that is known by its name alone."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, X: Any) -> Any:
        """f(X)"""
        return apply("call", X, label=self.name)

    def gradient(self, X: Any) -> Any:
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


# -- terms as Python code ----------------------------------------------------------------------

SUM, PRODUCT, UNARY, POWER, ATOM = range(5)  # how tightly an expression binds
Piece = tuple[str, int]


class CodePrinter:
    """Writes terms as Python expressions; those in `names` as names. New matrices are made like `like`."""

    def __init__(self, names: Mapping[Term, str], like: str) -> None:
        self.names, self.like = names, like

    def operand(self, term: Term, level: int) -> str:
        """The code of an operand, in parentheses if it binds less tightly than `level`."""
        text, binds = self.piece(term)
        return text if binds >= level else f"({text})"

    def piece(self, term: Term) -> Piece:
        """The code of a term, and how tightly it binds."""
        if term in self.names:
            return self.names[term], ATOM
        if term.operation in _WRITTEN:
            return _WRITTEN[term.operation](self, term, *term.operands)
        name = term.label if term.operation == "call" else term.operation
        operands = [self.operand(x, SUM) for x in term.operands]
        return f"{name}({', '.join(operands)})", ATOM

    def repeat(self, term: Term, x: Term) -> Piece:
        """row_repeat(x, m) or column_repeat(x, n)"""
        n = term.shape[0 if term.operation == "row_repeat" else 1]
        return f"{term.operation}({self.operand(x, SUM)}, {size_name(n)})", ATOM

    def full(self, term: Term, c: Term) -> Piece:
        """c * ones(m, n)"""
        m, n = map(size_name, term.shape)
        if c.operation == "number" and c.label == 0:
            return f"zeros({m}, {n}, like={self.like})", ATOM
        ones = f"ones({m}, {n}, like={self.like})"
        is_one = c.operation == "number" and c.label == 1
        return (ones, ATOM) if is_one else (f"{self.operand(c, UNARY)} * {ones}", PRODUCT)

    def inv_sqrt(self, term: Term, X: Term, epsilon: Term) -> Piece:
        """inv_sqrt(X, epsilon), without an epsilon of 0"""
        is_zero = epsilon.operation == "number" and epsilon.label == 0
        return f"inv_sqrt({self.operand(X, SUM)}{'' if is_zero else f', {self.operand(epsilon, SUM)}'})", ATOM

    def power(self, term: Term, X: Term, p: Term) -> Piece:
        """X**p, which the table writes with `apply` for matrices"""
        exponent = self.operand(p, ATOM if p.operation == "number" and p.label >= 0 else SUM)
        if term.shape == ():
            return f"{self.operand(X, ATOM)}**{exponent}", POWER
        return f"apply(lambda x: x**{exponent}, {self.operand(X, SUM)})", ATOM

    def infix(self, symbol: str, binds: int, right: int) -> Callable[..., Piece]:
        """An operator between two operands, of which the right one has to bind as tightly as `right`."""
        return lambda A, B: (f"{self.operand(A, binds)} {symbol} {self.operand(B, right)}", binds)


def number_text(x: Any) -> Piece:
    """A number, which binds like a sign if it is negative."""
    if isinstance(x, Fraction):
        x = x.numerator if x.denominator == 1 else float(x)
    return repr(x), ATOM if x >= 0 else UNARY


def _hadamard(p: CodePrinter, term: Term, A: Term, B: Term) -> Piece:
    if term.shape == ():
        return p.infix("*", PRODUCT, UNARY)(A, B)
    return f"hadamard({p.operand(A, SUM)}, {p.operand(B, SUM)})", ATOM


_WRITTEN: dict[str, Callable[..., Piece]] = {
    "input": lambda p, t: (t.label, ATOM),
    "size": lambda p, t: (t.label, ATOM),
    "number": lambda p, t: number_text(t.label),
    "transpose": lambda p, t, X: (f"{p.operand(X, ATOM)}.T", ATOM),
    "row_repeat": CodePrinter.repeat,
    "column_repeat": CodePrinter.repeat,
    "full": CodePrinter.full,
    "add": lambda p, t, A, B: p.infix("+", SUM, SUM if B.operation != "subtract" else PRODUCT)(A, B),
    "subtract": lambda p, t, A, B: p.infix("-", SUM, PRODUCT)(A, B),
    "hadamard": _hadamard,
    "negative": lambda p, t, X: (f"-{p.operand(X, UNARY)}", UNARY),
    "copy": lambda p, t, X: p.piece(X),
    "scale": lambda p, t, c, X: p.infix("*", PRODUCT, UNARY)(c, X),
    "divide": lambda p, t, X, c: p.infix("/", PRODUCT, UNARY)(X, c),
    "reciprocal": lambda p, t, X: (
        (f"1 / {p.operand(X, UNARY)}", PRODUCT) if t.shape == () else (f"reciprocal({p.operand(X, SUM)})", ATOM)
    ),
    "power": CodePrinter.power,
    "inv_sqrt": CodePrinter.inv_sqrt,
    "matmul": lambda p, t, A, B: p.infix("@", PRODUCT, UNARY)(A, B),
    "identity": lambda p, t: (f"identity({size_name(t.shape[0])}, like={p.like})", ATOM),
}
