"""The paper's lemmas and derivations at fixed sizes: SymPy judges the statements that `matgrad.proofs` proves."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations_with_replacement
from typing import Any

import sympy as sp
from sympy.core.function import AppliedUndef

from matgrad.backends.sympy_backend import SympyMatrix
from matgrad.inspection.verdicts import Check
from matgrad.proofs.derivations import derivations
from matgrad.proofs.lemmas import lemmas
from matgrad.proofs.statements import Algebra, Lemma, Step, judge_lemma
from matgrad.symbolic.derivatives import derivative
from matgrad.symbolic.equality import compare, symbols

Shape = tuple[int, int]


def statements() -> list[Lemma]:
    """Every lemma, property and derivation of the paper."""
    return [*lemmas(), *derivations()]


def check_lemma(lemma: Lemma) -> Check:
    """The verdict on a lemma at its sizes."""
    sizes = " ".join(f"{name}={size}" for name, size in lemma.sizes.items())
    return judge_lemma(lemma, SymPyAlgebra(), sizes, "is wrong")


class SymPyAlgebra(Algebra):
    """Matrices of SymPy, with numbers for sizes."""

    gradient, jacobian = staticmethod(derivative), staticmethod(sp.Matrix.jacobian)
    row, column = staticmethod(sp.Matrix.row), staticmethod(sp.Matrix.col)

    def size(self, name: str, number: int) -> int:
        """The number."""
        return number

    def symbols(self, name: str, *shape: int, is_positive: bool = False) -> Any:
        """An m×n matrix of symbols; without sizes, a scalar."""
        if not shape:
            return sp.Symbol(name, real=True, positive=is_positive or None)
        return symbols(name, *shape, positive=is_positive or None)

    def functions(self, name: str, shape: Shape, x: sp.Matrix) -> sp.Matrix:
        """Matrix of undefined functions name_11(x), name_12(x), …"""
        return SympyMatrix(*shape, lambda i, j: sp.Function(f"{name}_{i + 1}{j + 1}")(*x))

    def polynomials(self, p: int, y: sp.Matrix) -> sp.Matrix:
        """A column of p polynomials of degree 2 in the elements of y, whose coefficients are all different symbols."""
        monomials = [a * b for a, b in combinations_with_replacement([sp.S.One, *y], 2)]
        return symbols("g", p, len(monomials)) @ sp.Matrix(monomials)

    def matrix(self, scalar: sp.Expr) -> sp.Matrix:
        """The 1×1 matrix of a scalar."""
        return sp.Matrix([[scalar]])

    def scaled(self, A: sp.Matrix, g: sp.Matrix) -> sp.Matrix:
        """A times the scalar in the 1×1 matrix g."""
        return A * g[0]

    def by_rows(self, f: Callable[[int], sp.Matrix], shape: Shape) -> sp.Matrix:
        """The matrix with the rows f(0), …, f(m - 1)."""
        return sp.Matrix.vstack(*map(f, range(shape[0])))

    def by_columns(self, f: Callable[[int], sp.Matrix], shape: Shape) -> sp.Matrix:
        """The matrix with the columns f(0), …, f(n - 1)."""
        return sp.Matrix.hstack(*map(f, range(shape[1])))

    def at(self, A: sp.Matrix, V: sp.Matrix, value: sp.Matrix) -> sp.Matrix:
        """A with a matrix for the symbols V in it."""
        return A.xreplace(dict(zip(V, value, strict=True)))

    def judge(self, step: Step) -> tuple[str, str]:
        """The method by which both sides were compared, and what is wrong; '' if nothing is."""
        result = compare(_independent(step.left), _independent(step.right))
        return result.method, "" if result.ok else str(result)


def _independent(A: sp.Matrix) -> sp.Matrix:
    """A with a symbol for every undefined function f and for every ∂f/∂x_j.

    The symbols are independent: a function can have any value and any first derivatives at a point.
    """
    derivatives = {d: sp.Symbol(f"∂{d.expr.func}/∂{d.variables[0]}", real=True) for d in A.atoms(sp.Derivative)}
    A = A.xreplace(derivatives)
    return A.xreplace({f: sp.Symbol(str(f.func), real=True) for f in A.atoms(AppliedUndef)})
