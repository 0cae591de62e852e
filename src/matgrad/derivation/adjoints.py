"""Adjoints: for every operation Y = f(X_1, X_2, …) of the table, the gradients of its operands from that of its result.

With ⟨G, Y⟩ = Σ_ij g_ij·y_ij, they are the DX_k with ⟨DY, dY⟩ = Σ_k ⟨DX_k, dX_k⟩; they are written in the
table. None stands for an operand on which the result does not depend, except where a condition changes.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from matgrad.derivation.terms import Term, apply
from matgrad.matrix_operations import (
    Diag,
    column_repeat,
    columns_sum,
    diag,
    elements_sum,
    exp,
    hadamard,
    ones,
    row_repeat,
    rows_sum,
    step,
)

Adjoint = Callable[..., tuple["Term | None", ...]]  # of DY, Y and the operands


def times(X: Term, Y: Term) -> Term:
    """X ⊙ Y, or the product of two scalars"""
    return X * Y if X.shape == () else hadamard(X, Y)


def total(X: Term) -> Term:
    """The sum of all elements; a scalar is its own."""
    return X if X.shape == () else elements_sum(X)


def _inverse(X: Term) -> Term:
    return apply("reciprocal", X)


def _one_like(X: Term) -> Term | int:
    return 1 if X.shape == () else ones(*X.shape, like=X)


def _power(DY: Term, Y: Term, X: Term, p: Term) -> tuple[Term | None, ...]:
    if p.operation != "number":
        raise ValueError("power: expected a number as exponent")
    return p * times(DY, X if p.label == 2 else X ** (p.label - 1)), None


ADJOINTS: dict[str, Adjoint] = {
    # -- views
    "transpose": lambda DY, Y, X: (DY.T,),
    "row_repeat": lambda DY, Y, x: (columns_sum(DY),),
    "column_repeat": lambda DY, Y, x: (rows_sum(DY),),
    "full": lambda DY, Y, c: (elements_sum(DY),),
    # -- elementwise
    "add": lambda DY, Y, A, B: (DY, DY),
    "subtract": lambda DY, Y, A, B: (DY, -DY),
    "hadamard": lambda DY, Y, A, B: (times(DY, B), times(DY, A)),
    "negative": lambda DY, Y, X: (-DY,),
    "copy": lambda DY, Y, X: (DY,),
    "scale": lambda DY, Y, c, X: (total(times(DY, X)), c * DY),
    "divide": lambda DY, Y, X, c: (DY / c, -total(times(DY, Y)) / c),
    "power": _power,
    "exp": lambda DY, Y, X: (times(DY, Y),),
    "log": lambda DY, Y, X: (times(DY, _inverse(X)),),
    "log1p": lambda DY, Y, X: (times(DY, _inverse(_one_like(X) + X)),),
    "reciprocal": lambda DY, Y, X: (-times(DY, times(Y, Y)),),
    "sqrt": lambda DY, Y, X: (times(DY, _inverse(Y)) / 2,),
    "inv_sqrt": lambda DY, Y, X, epsilon: (-times(DY, times(Y, times(Y, Y))) / 2, None),
    "tanh": lambda DY, Y, X: (times(DY, _one_like(X) - times(Y, Y)),),
    "erf": lambda DY, Y, X: ((2 / math.sqrt(math.pi)) * times(DY, exp(-times(X, X))),),
    "log_sigmoid": lambda DY, Y, X: (times(DY, _one_like(X) - exp(Y)),),  # σ(-x) = 1 - σ(x)
    "clip": lambda DY, Y, X, c: (times(DY, _one_like(X) - step(X - c) - step(-X - c)), None),
    "call": lambda DY, Y, X: (times(DY, apply("call", X, label=f"{Y.label}.gradient")),),
    "step": lambda DY, Y, X: (None,),
    "sign": lambda DY, Y, X: (None,),
    # -- reductions
    "elements_sum": lambda DY, Y, X: (DY * ones(*X.shape, like=X),),
    "dot": lambda DY, Y, x, y: (DY * y, DY * x),
    "columns_sum": lambda DY, Y, X: (row_repeat(DY, X.shape[0]),),
    "rows_sum": lambda DY, Y, X: (column_repeat(DY, X.shape[1]),),
    "columns_mean": lambda DY, Y, X: (row_repeat(DY, X.shape[0]) / X.shape[0],),
    "rows_mean": lambda DY, Y, X: (column_repeat(DY, X.shape[1]) / X.shape[1],),
    # the greatest element of a column is where x ≥ max, except where two are the greatest
    "columns_max": lambda DY, Y, X: (hadamard(row_repeat(DY, X.shape[0]), step(X - row_repeat(Y, X.shape[0]))),),
    "rows_max": lambda DY, Y, X: (hadamard(column_repeat(DY, X.shape[1]), step(X - column_repeat(Y, X.shape[1]))),),
    # -- products and others
    "matmul": lambda DY, Y, A, B: (DY @ B.T, A.T @ DY),
    "diag": lambda DY, Y, X: (Diag(DY),),
    "Diag": lambda DY, Y, x: (diag(DY) if x.sizes[1] == 1 else diag(DY).T,),
}


def gradients_of(Y: Term, DY: Term) -> dict[Term, Term]:
    """The gradients of the inputs of Y from DY, by the adjoints of its operations from the last to the first."""
    found: dict[Term, Term] = {Y: DY}
    for x in reversed(list(Y.walk())):
        if x.operands and x in found:
            for operand, D in zip(x.operands, ADJOINTS[x.operation](found.pop(x), x, *x.operands), strict=True):
                if D is not None and operand.operation not in ("number", "size"):
                    found[operand] = found[operand] + D if operand in found else D
    return {x: D for x, D in found.items() if x.operation == "input"}


__all__ = ["ADJOINTS", "gradients_of"]
