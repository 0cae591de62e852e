r"""The operations of a program: one row each, from which recording, checking, printing, costs and memory follow.

A template says how an operation is written: ``{0:sum} - {1:product}`` is the first operand, in parentheses if it
binds less tightly than a sum, minus the second, in parentheses if it binds less tightly than a product; ``{m}`` is a
size of the shape rule. The other marks are ``{1:signed}`` for ``+ c·`` or ``- c·`` before a term, ``{0:factor}`` for
``c·``, both without a factor of 1, ``{2:transposed}`` for Xᵀ, and ``{0:base}`` for the base of a power.
`matgrad.program.text` fills templates in.

An elementwise operation has one line for an element of the result, in the language of `matgrad.program.scalars`: x and
y are the elements of its matrices, c is a scalar. All kernels follow from it, and so does its index definition.

An index definition says what the entry of the result at i, j is: ``lambda i, j, X, Y: summed(lambda k: X[i, k] *
Y[k, j], X.columns)``; that of a scalar has no i, j, and that of an elementwise operation is a function of entries.

An adjoint gives the gradients of the operands from DY, the result Y and the operands, in operations of the table; it is
None for an operand that the result does not depend on smoothly.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from matgrad import matrix_operations as table
from matgrad.foundation.notation import FUNCTION_LETTERS, function_symbol
from matgrad.index_notation.conditions import step
from matgrad.index_notation.expressions import Expression, delta
from matgrad.index_notation.functions import erf, exp, log, maximum, raised, sqrt, tanh
from matgrad.index_notation.indices import FIRST
from matgrad.index_notation.sums import summed
from matgrad.matrix_operations import column_repeat, hadamard, reciprocal, row_repeat
from matgrad.program import blocks
from matgrad.program.scalars import as_function, letters
from matgrad.program.shapes import SCALAR, ShapeRule, quotient, size_name

if TYPE_CHECKING:
    from matgrad.program.program import Value

# how a value is produced: given, a view of an operand's memory, or computed, by all ranks together if a collective
Kind = Literal["source", "view", "elementwise", "reduction", "product", "sparse", "other", "collective"]
# operands and result: floats; floats or counters, which are integers; counters as operands of a float result
Dtypes = Literal["float", "any", "counts"]
Level = Literal["sum", "product", "scaled", "unary", "atom"]
LEVELS = ("sum", "product", "scaled", "unary", "atom")  # how tightly an expression binds
Style = Literal["text", "latex", "code"]
STACKS = ("stack", "unstack")  # views that have other rows than what they view
DENSE_PRODUCTS = ("matmul", "product_sum")  # A B, alone or in a sum


class Notation(NamedTuple):
    """A template, and how tightly the resulting expression binds."""

    template: str
    binds: Level = "atom"


Definition = Callable[..., Expression]  # of an entry of the result
Adjoint = Callable[..., tuple[Any, ...]]  # of DY, Y and the operands
Choice = Notation | Callable[["Value"], Notation]  # a notation, or one for each value


@dataclass(frozen=True)
class Operation:
    """All there is to know about an operation.

    `text`, `latex` and `code`, in Python, say how it is written: ``name(X, Y)`` if they are missing; the text is also
    the LaTeX if only `latex` is missing. Operations that equations are written in have an `index` and an `adjoint`.
    """

    name: str
    rule: str  # the shapes of its operands and its result, see `ShapeRule`
    kind: Kind
    text: Choice | None = None
    latex: Choice | None = None
    dtypes: Dtypes = "float"
    in_place: tuple[int, ...] = ()  # the positions of the operands whose memory the result may take over
    flops: str = ""  # a product takes 2 operations for every combination of indices over these sizes
    over: Literal["", "sum", "max"] = ""  # what it does over the sizes that its result lacks
    index: Definition | None = None
    adjoint: Adjoint | None = None
    code: Choice | None = None
    scalar: str = ""  # the line of an elementwise one

    @property
    def letters(self) -> list[str]:
        """What the operands are called in the line of an elementwise operation."""
        return letters(self.rule)

    @cached_property
    def shapes(self) -> ShapeRule:
        """The shape rule."""
        return ShapeRule(self.rule)

    @property
    def axes(self) -> tuple[int, ...]:
        """Those of its operand, a matrix, that a reduction goes over: it has no size there, or 1."""
        X, result = self.shapes.alternatives[0]
        return tuple(k for k, n in enumerate(X) if n not in result)

    @property
    def takes_numbers(self) -> bool:
        """Whether kernels get its scalar operands as plain numbers if these are known."""
        return self.kind != "view" and SCALAR in self.shapes.operands

    def notation(self, style: Style, value: Value) -> Notation:
        """How a value is written."""
        found = getattr(self, style) or (self.text if style == "latex" else None)
        if found is None:
            name = rf"\operatorname{{{{{self.name.replace('_', '-')}}}}}" if style == "latex" else self.name
            found = Notation(f"{name}({', '.join(f'{{{k}:sum}}' for k in range(len(value.operands)))})")
        return found(value) if callable(found) else found


# the functions of entries that lines may call; those of the kernels have the same names
FUNCTIONS: dict[str, Callable[..., Expression]] = {
    "exp": exp,
    "log": log,
    "log1p": lambda x: log(1 + x),
    "sqrt": sqrt,
    "tanh": tanh,
    "erf": erf,
    "step": step,
    "power": raised,
}


def _elementwise(name: str, rule: str, scalar: str, *written: Any, **details: Any) -> Operation:
    """An elementwise operation, which may overwrite any of its operands."""
    index, places = as_function(scalar, letters(rule), FUNCTIONS), tuple(range(len(letters(rule))))
    details |= {"in_place": places, "index": index, "scalar": scalar}
    return Operation(name, rule, "elementwise", *written, **details)


def _function(name: str, latex: Choice | None, adjoint: Callable[..., Any]) -> Operation:
    """A function of every element, and the gradient of X."""
    return _elementwise(name, "* -> *", f"{name}(x)", latex=latex, adjoint=lambda *matrices: (adjoint(*matrices),))


def _composed(
    name: str, rule: str, adjoint: Adjoint, latex: Choice | None = None, code: Choice | None = None,
    text: Choice | None = None,
) -> Operation:  # fmt: skip
    """An operation of the table that is several ones of a program, and stays one in derivations."""
    return Operation(name, rule, "other", adjoint=adjoint, latex=latex, code=code, text=text)


def _of_matrices(matrices: Notation, scalars: Notation) -> Choice:
    return lambda value: scalars if value.is_scalar else matrices


def _product_first(product_first: Notation, otherwise: Notation) -> Choice:  # if it has the factor 1
    return lambda value: product_first if value.operands[2].number == 1 else otherwise


def _with_epsilon(plain: Notation, template: str) -> Choice:
    return lambda value: plain if value.operands[1].number == 0 else plain._replace(template=template)


def _function_latex(name: str) -> str:
    """f(X), or f'(X) for f.gradient."""
    f, _, method = name.partition(".")
    tex = function_symbol(f).replace("{", "{{").replace("}", "}}")
    return f"{tex}{chr(39) * bool(method)}({{0:sum}})"


def _function_text(name: str) -> str:
    """f(X), or f'(X) for f.gradient."""
    f, _, method = name.partition(".")
    return f"{FUNCTION_LETTERS.get(f, f)}{chr(39) * bool(method)}({{0:sum}})"


def _halved(value: Value, write: Callable[[str], str], half: str) -> Notation:
    """f(X), and f(X) / 2 for half_f, which some functions have for the sake of rounding."""
    whole = value.function.removeprefix("half_")
    return Notation(write(whole)) if whole == value.function else Notation(half.format(write(whole)), "unary")


def _full(value: Value) -> Notation:
    c = value.operands[0].number
    if isinstance(c, int | float) and c in (0, 1):
        return Notation(f"{'ones' if c else 'zeros'}({{m}}, {{n}}, like={{like}})")
    return Notation("{0:unary} * ones({m}, {n}, like={like})", "product")


def _total(X: Any) -> Any:
    """The sum of all elements; a scalar is its own."""
    return table.elements_sum(X) if X.shape else X


def _shares(DY: Any, Y: Any, X: Any) -> Any:
    """M ⊙ ((DY / M 1_n) 1_nᵀ) with M = [X ≥ Y 1_nᵀ]: equal shares of dy_i for the greatest elements of a row"""
    M = table.step(X - column_repeat(Y, X.shape[1]))
    return hadamard(M, column_repeat(hadamard(DY, reciprocal(table.rows_sum(M))), X.shape[1]))


def _lower_power(X: Any, c: Any) -> Any:
    """X^(c - 1), for a number c"""
    n = c.value.number
    if not isinstance(n, int | float):
        raise ValueError("power: expected a number as exponent")
    return X if n == 2 else X ** (n - 1)


_ROWS = (
    # -- sources
    Operation("input", "-> *", "source", dtypes="any"),
    Operation("number", "-> ()", "source", dtypes="any"),
    Operation("support", "-> K D nnz", "source", dtypes="any"),
    # -- views
    Operation(
        "transpose", "m n -> n m", "view", Notation("{0:atom}ᵀ"), Notation(r"{0:atom}^\top", "unary"),
        index=lambda i, j, X: X[j, i],
        adjoint=lambda DY, Y, X: (DY.T,),
        code=Notation("{0:atom}.T"),
    ),
    Operation(
        "row_repeat", "1 n -> m n", "view",
        Notation("1_{m} {0:atom}", "unary"), Notation(r"1_{m} \cdot {0:scaled}", "scaled"),
        index=lambda i, j, x: x[FIRST, j],
        adjoint=lambda DY, Y, x: (table.columns_sum(DY),),
        code=Notation("row_repeat({0:sum}, {m})"),
    ),
    Operation(
        "column_repeat", "m 1 -> m n", "view",
        Notation("{0:atom} 1_{n}ᵀ", "unary"), Notation(r"{0:scaled} \cdot 1_{n}^\top", "scaled"),
        index=lambda i, j, x: x[i, FIRST],
        adjoint=lambda DY, Y, x: (table.rows_sum(DY),),
        code=Notation("column_repeat({0:sum}, {n})"),
    ),
    Operation(
        "full", "() -> m n", "view", Notation("{0:atom}"), Notation("{0:scaled}", "scaled"), index=lambda i, j, c: c,
        adjoint=lambda DY, Y, c: (table.elements_sum(DY),),
        code=_full,
    ),
    Operation(  # each row of X, cut into p rows
        "stack", "n p·q -> n·p q", "view", latex=Notation(r"\mathrm{{stack}}_{{{p}}}({0:sum})"), index=blocks.stacked,
        adjoint=lambda DY, Y, X: (table.unstack(DY, quotient(Y.shape[0], X.shape[0])),),
        text=Notation("stack({0:sum}, {p})"), code=Notation("stack({0:sum}, {p})"),
    ),
    Operation(
        "unstack", "n·p q -> n p·q", "view", latex=Notation(r"\mathrm{{stack}}_{{{p}}}^{{-1}}({0:sum})"),
        index=blocks.unstacked,
        adjoint=lambda DY, Y, U: (table.stack(DY, quotient(U.shape[0], Y.shape[0])),),
        text=Notation("unstack({0:sum}, {p})"), code=Notation("unstack({0:sum}, {p})"),
    ),
    # -- elementwise
    _elementwise(
        "add", "*, * -> *", "x + y",
        Notation("{0:sum} + {1:sum}", "sum"), Notation("{0:sum} + {1:product}", "sum"), "any",
        adjoint=lambda DY, Y, A, B: (DY, DY),
        code=Notation("{0:sum} + {1:sum}", "sum"),
    ),
    _elementwise(
        "subtract", "*, * -> *", "x - y",
        Notation("{0:sum} - {1:product}", "sum"), dtypes="any",
        adjoint=lambda DY, Y, A, B: (DY, -DY),
        code=Notation("{0:sum} - {1:product}", "sum"),
    ),
    _elementwise(
        "hadamard", "*, * -> *", "x * y",
        _of_matrices(Notation("{0:product} ⊙ {1:unary}", "product"), Notation("{0:scaled}·{1:unary}", "scaled")),
        _of_matrices(
            Notation(r"{0:unary} \odot {1:unary}", "product"), Notation(r"{0:scaled} \cdot {1:scaled}", "scaled")
        ),
        "any",
        adjoint=lambda DY, Y, A, B: (hadamard(DY, B), hadamard(DY, A)),
        code=_of_matrices(Notation("hadamard({0:sum}, {1:sum})"), Notation("{0:product} * {1:unary}", "product")),
    ),
    _elementwise(
        "negative", "* -> *", "-x",
        Notation("-{0:unary}", "scaled"), Notation("-{0:product}", "sum"), "any",
        adjoint=lambda DY, Y, X: (-DY,),
        code=Notation("-{0:unary}", "unary"),
    ),
    _elementwise(
        "copy", "* -> *", "x", Notation("{0:sum}", "sum"), dtypes="any",
        adjoint=lambda DY, Y, X: (DY,),
        code=Notation("{0:sum}", "sum"),
    ),
    _elementwise(
        "scale", "(), * -> *", "c * x",
        Notation("{0:atom}·{1:unary}", "scaled"), Notation(r"{0:scaled} \cdot {1:scaled}", "scaled"),
        adjoint=lambda DY, Y, c, X: (_total(hadamard(DY, X)), c * DY),
        code=Notation("{0:product} * {1:unary}", "product"),
    ),
    _elementwise(
        "divide", "*, () -> *", "x / c",
        Notation("{0:scaled} / {1:atom}", "product"), Notation(r"\frac{{{0:sum}}}{{{1:sum}}}", "unary"),
        adjoint=lambda DY, Y, X, c: (DY / c, -_total(hadamard(DY, Y)) / c),
        code=Notation("{0:product} / {1:unary}", "product"),
    ),
    _elementwise(
        "power", "*, () -> *", "x ** c",
        Notation("{0:base}^{1:atom}", "unary"), Notation("{0:atom}^{{{1:sum}}}", "unary"),
        adjoint=lambda DY, Y, X, c: (c * hadamard(DY, _lower_power(X, c)), None),
        code=_of_matrices(Notation("apply(lambda x: x**{1:unary}, {0:sum})"), Notation("{0:atom}**{1:unary}", "unary")),
    ),
    _function("exp", Notation("e^{{{0:sum}}}", "unary"), lambda DY, Y, X: hadamard(DY, Y)),
    _function("log", Notation(r"\log({0:sum})"), lambda DY, Y, X: hadamard(DY, reciprocal(X))),
    _function("log1p", Notation(r"\log(1 + {0:product})"), lambda DY, Y, X: hadamard(DY, reciprocal(1 + X))),
    _elementwise(
        "reciprocal", "* -> *", "1 / x",
        Notation("1/{0:atom}", "unary"), Notation(r"\frac{{1}}{{{0:sum}}}", "unary"),
        adjoint=lambda DY, Y, X: (-hadamard(DY, hadamard(Y, Y)),),
        code=_of_matrices(Notation("reciprocal({0:sum})"), Notation("1 / {0:unary}", "product")),
    ),
    _function("sqrt", Notation(r"\sqrt{{{0:sum}}}", "unary"), lambda DY, Y, X: hadamard(DY, reciprocal(Y)) / 2),
    _function("tanh", Notation(r"\tanh({0:sum})"), lambda DY, Y, X: hadamard(DY, 1 - hadamard(Y, Y))),
    _function("erf", None, lambda DY, Y, X: 2 / math.sqrt(math.pi) * hadamard(DY, table.exp(-hadamard(X, X)))),
    _elementwise(
        "step", "* -> *", "(x >= 0)", Notation("[{0:sum} ≥ 0]"), Notation(r"[{0:sum} \geq 0]"),
        adjoint=lambda DY, Y, X: (None,),
    ),
    _elementwise(
        "add_scaled", "*, (), * -> *", "x + c * y",
        Notation("{0:sum} {1:signed}{2:unary}", "sum"), Notation("{0:sum} {1:signed}{2:scaled}", "sum"),
    ),
    _elementwise(
        "gate", "*, * -> *", "x * (y >= 0)",
        Notation("{0:product} ⊙ [{1:sum} ≥ 0]", "product"), Notation(r"{0:unary} \odot [{1:sum} \geq 0]", "product"),
    ),
    # -- reductions
    Operation(
        "elements_sum", "m n -> ()", "reduction",
        latex=lambda value: Notation(
            r"1_{m}^\top \cdot {0:scaled}" + r" \cdot 1_{n}" * (size_name(value.operands[0].shape[1]) != 1), "scaled"
        ),
        over="sum",
        index=lambda X: summed(lambda i: summed(lambda j: X[i, j], X.columns), X.rows),
        adjoint=lambda DY, Y, X: (DY * table.ones(*X.shape, like=X),),
    ),
    Operation(
        "columns_sum", "m n -> 1 n", "reduction",
        latex=Notation(r"1_{m}^\top \cdot {0:scaled}", "scaled"), over="sum",
        index=lambda i, j, X: summed(lambda k: X[k, j], X.rows),
        adjoint=lambda DY, Y, X: (row_repeat(DY, X.shape[0]),),
    ),
    Operation(
        "rows_sum", "m n -> m 1", "reduction", latex=Notation(r"{0:scaled} \cdot 1_{n}", "scaled"), over="sum",
        index=lambda i, j, X: summed(lambda k: X[i, k], X.columns),
        adjoint=lambda DY, Y, X: (column_repeat(DY, X.shape[1]),),
    ),
    Operation(
        "columns_max", "m n -> 1 n", "reduction",
        latex=Notation(r"\max({0:sum})_{{\text{{col}}}}", "unary"), over="max",
        index=lambda i, j, X: maximum(lambda k: X[k, j], X.rows),
        adjoint=lambda DY, Y, X: (_shares(DY.T, Y.T, X.T).T,),
    ),
    Operation(
        "rows_max", "m n -> m 1", "reduction",
        latex=Notation(r"\max({0:sum})_{{\text{{row}}}}", "unary"), over="max",
        index=lambda i, j, X: maximum(lambda k: X[i, k], X.columns),
        adjoint=lambda DY, Y, X: (_shares(DY, Y, X),),
    ),
    # -- products
    Operation(
        "matmul", "m k, k n -> m n", "product",
        Notation("{0:unary} {1:atom}", "product"), Notation(r"{0:scaled} \cdot {1:scaled}", "scaled"),
        flops="m k n", over="sum",
        index=lambda i, j, X, Y: summed(lambda k: X[i, k] * Y[k, j], X.columns),
        adjoint=lambda DY, Y, A, B: (DY @ B.T, A.T @ DY),
        code=Notation("{0:product} @ {1:unary}", "product"),
    ),
    Operation(  # β·C + α·A B
        "product_sum", "(), m n, (), m k, k n -> m n", "product",
        _product_first(
            Notation("{3:unary} {4:atom} {0:signed}{1:unary}", "sum"),
            Notation("{0:factor}{1:unary} {2:signed}{3:unary} {4:atom}", "sum"),
        ),
        _product_first(
            Notation(r"{3:scaled} \cdot {4:scaled} {0:signed}{1:scaled}", "sum"),
            Notation(r"{0:factor}{1:scaled} {2:signed}{3:scaled} \cdot {4:scaled}", "sum"),
        ),
        in_place=(1,), flops="m k n",
        index=lambda i, j, b, C, a, A, B: b * C[i, j] + a * summed(lambda k: A[i, k] * B[k, j], A.columns),
    ),
    # -- products of blocks: Diag_p(A) has the b blocks of p rows of A on its diagonal, and diag_p(C) is the reverse
    Operation(
        "block_product", "b·p q, b·q k -> b·p k", "product",
        Notation("Diag({0:sum}, {p}) {1:atom}", "product"),
        Notation(r"\mathrm{{Diag}}_{{{p}}}({0:sum}) \cdot {1:scaled}", "scaled"),
        flops="b p q k", over="sum", index=blocks.block_product, adjoint=blocks.block_product_adjoint,
        code=Notation("Diag({0:sum}, {p}) @ {1:unary}", "product"),
    ),
    Operation(
        "block_transposed_product", "b·p q, b·p k -> b·q k", "product",
        Notation("Diag({0:sum}, {p})ᵀ {1:atom}", "product"),
        Notation(r"\mathrm{{Diag}}_{{{p}}}({0:sum})^\top \cdot {1:scaled}", "scaled"),
        flops="b p q k", over="sum",
        index=blocks.block_transposed_product, adjoint=blocks.block_transposed_product_adjoint,
        code=Notation("Diag({0:sum}, {p}).T @ {1:unary}", "product"),
    ),
    Operation(
        "diag_product", "b·p k, k b·r -> b·p r", "product",
        Notation("diag({0:unary} {1:atom}, {p})"),
        Notation(r"\mathrm{{diag}}_{{{p}}}({0:scaled} \cdot {1:scaled})"),
        flops="b p k r", over="sum", index=blocks.diag_product, adjoint=blocks.diag_product_adjoint,
        code=Notation("diag_product({0:sum}, {1:sum}, {p})"),
    ),
    # -- products with E = one_hot(x, n), and, for a support, with E = 1 there: of at most one element in each row
    Operation(
        "one_hot_product", "m 1, n d -> m d", "product",
        Notation("one_hot({0:sum}, {n}) {1:atom}", "product"),
        Notation(r"\mathrm{{one\_hot}}({0:sum}, {n}) \cdot {1:scaled}", "scaled"),
    ),
    Operation(
        "one_hot_transposed_product", "m 1, m d -> n d", "product",
        Notation("one_hot({0:sum}, {n})ᵀ {1:atom}", "product"),
        Notation(r"\mathrm{{one\_hot}}({0:sum}, {n})^\top \cdot {1:scaled}", "scaled"), over="sum",
    ),
    Operation(
        "gather", "K D nnz, N D -> N K", "sparse",
        Notation("{1:unary} [{0:atom}]ᵀ", "product"), Notation(r"{1:scaled} \cdot [{0:atom}]^\top", "scaled"),
    ),
    Operation(
        "scatter", "K D nnz, N K -> N D", "sparse",
        Notation("{1:unary} [{0:atom}]", "product"), Notation(r"{1:scaled} \cdot [{0:atom}]", "scaled"), over="sum",
    ),
    # -- sparse matrices: W has the values w (1×nnz) on the K×D support S
    Operation(
        "sparse_product", "K D nnz, 1 nnz, D N -> K N", "sparse",
        Notation("{1:atom} {2:atom}", "product"), Notation(r"{1:scaled} \cdot {2:scaled}", "scaled"),
        flops="nnz N", over="sum",
    ),
    Operation(
        "sparse_transposed_product", "K D nnz, 1 nnz, K N -> D N", "sparse",
        Notation("{1:atom}ᵀ {2:atom}", "product"), Notation(r"{1:atom}^\top \cdot {2:scaled}", "scaled"),
        flops="nnz N", over="sum",
    ),
    Operation(  # β·C + α·Wᵀ B
        "transposed_sum", "K D nnz, (), D N, (), 1 nnz, K N -> D N", "sparse",
        Notation("{1:factor}{2:unary} {3:signed}{4:atom}ᵀ {5:atom}", "sum"),
        Notation(r"{1:factor}{2:scaled} {3:signed}{4:atom}^\top \cdot {5:scaled}", "sum"),
        in_place=(2,), flops="nnz N",
    ),
    Operation("dense", "K D nnz, 1 nnz -> K D", "sparse", Notation("{1:atom}")),
    Operation(
        "sampled_product", "K D nnz, K N, D N -> 1 nnz", "sparse",
        Notation("({1:unary} {2:transposed})_{0:atom}", "product"),
        Notation(r"({1:scaled} \cdot {2:transposed})_{{{0:atom}}}", "unary"),
        flops="nnz N", over="sum",
    ),
    Operation(  # β·C + α·(A Bᵀ)_S
        "sampled_sum", "K D nnz, (), 1 nnz, (), K N, D N -> 1 nnz", "sparse",
        Notation("{1:factor}{2:unary} {3:signed}({4:unary} {5:transposed})_{0:atom}", "sum"),
        Notation(r"{1:factor}{2:scaled} {3:signed}({4:scaled} \cdot {5:transposed})_{{{0:atom}}}", "sum"),
        in_place=(2,), flops="nnz N",
    ),
    Operation(
        "uniform_on", "K D nnz, (), () -> 1 nnz", "sparse",
        latex=Notation(r"\operatorname{{uniform}}({1:sum}, {2:sum})_{{{0:atom}}}", "unary"), dtypes="counts",
    ),
    # -- others
    Operation(
        "identity", "-> n n", "other", Notation("I_{n}"), Notation(r"\mathbb{{I}}_{n}"), index=delta,
        code=Notation("identity({n}, like={like})"),
    ),
    Operation(
        "diag", "n n -> n 1", "other", latex=Notation(r"\mathrm{{diag}}({0:sum})"), index=lambda i, j, X: X[i, i],
        adjoint=lambda DY, Y, X: (table.Diag(DY),),
    ),
    Operation(
        "Diag", "1 n -> n n or n 1 -> n n", "other", latex=Notation(r"\mathrm{{Diag}}({0:sum})"),
        index=lambda i, j, x: delta(i, j) * (x[FIRST, i] if x.rows == FIRST.size else x[i, FIRST]),
        adjoint=lambda DY, Y, x: (table.diag(DY) if size_name(x.shape[1]) == 1 else table.diag(DY).T,),
    ),
    Operation("uniform", "(), () -> m n", "other", dtypes="counts"),
    # -- collectives: X is that of this rank; see `matgrad.program.sharding`
    Operation("all_reduce", "* -> *", "collective", latex=Notation(r"\sum_r {0:product}", "product"), in_place=(0,)),
    Operation("all_max", "* -> *", "collective", latex=Notation(r"\max_r {0:product}", "product"), in_place=(0,)),
    Operation("all_gather_rows", "m n -> p n", "collective"),
    Operation("all_gather_columns", "m n -> m p", "collective"),
    Operation("reduce_scatter_rows", "m n -> p n", "collective"),
    Operation("reduce_scatter_columns", "m n -> m p", "collective"),
    Operation("take_rows", "m n -> p n", "collective"),
    Operation("take_columns", "m n -> m p", "collective"),
    Operation("send", "* -> *", "collective", in_place=(0,)),  # all_reduce(X) = receive(send(X))
    Operation("receive", "* -> *", "collective", in_place=(0,)),
)  # fmt: skip
_COMPOSED_ROWS = (
    _composed(
        "rows_mean", "m n -> m 1", lambda DY, Y, X: (column_repeat(DY, X.shape[1]) / X.shape[1],),
        Notation(r"\frac{{{0:scaled} \cdot 1_{n}}}{{{n}}}", "unary"),
    ),
    _composed(
        "columns_mean", "m n -> 1 n", lambda DY, Y, X: (row_repeat(DY, X.shape[0]) / X.shape[0],),
        Notation(r"\frac{{1_{m}^\top \cdot {0:scaled}}}{{{m}}}", "unary"),
    ),
    _composed(
        "dot", "m n, m n -> ()", lambda DY, Y, x, y: (DY * y, DY * x), Notation(r"\langle {0:sum}, {1:sum} \rangle")
    ),
    _composed(
        "inv_sqrt", "m n, () -> m n", lambda DY, Y, X, epsilon: (-hadamard(DY, hadamard(Y, hadamard(Y, Y))) / 2, None),
        _with_epsilon(Notation(r"{0:atom}^{{-\frac12}}", "unary"), r"({0:sum} + {1:product})^{{-\frac12}}"),
        _with_epsilon(Notation("inv_sqrt({0:sum})"), "inv_sqrt({0:sum}, {1:sum})"),
    ),
    _composed(  # σ(-x) = 1 - σ(x)
        "log_sigmoid", "* -> *", lambda DY, Y, X: (hadamard(DY, 1 - table.exp(Y)),),
        Notation(r"\log(\sigma({0:sum}))"),
    ),
    _composed(
        "clip", "m n, () -> m n", lambda DY, Y, X, c: (hadamard(DY, 1 - table.step(X - c) - table.step(-X - c)), None)
    ),
    _composed("sign", "* -> *", lambda DY, Y, X: (None,), Notation(r"\mathrm{{sign}}({0:sum})")),
    _composed(  # of a function that is known by its name
        "call", "* -> *", lambda DY, Y, X: (hadamard(DY, X.call(f"{Y.value.function}.gradient")),),
        lambda value: _halved(value, _function_latex, r"\tfrac12 {}"),
        lambda value: Notation(f"{value.function}({{0:sum}})"), lambda value: _halved(value, _function_text, "½ {}"),
    ),
)  # fmt: skip
OPERATIONS: dict[str, Operation] = {operation.name: operation for operation in _ROWS}
COMPOSED: dict[str, Operation] = {operation.name: operation for operation in _COMPOSED_ROWS}
ROWS = OPERATIONS | COMPOSED
