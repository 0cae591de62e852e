"""Checks of gradients of layers, losses, activation and softmax functions, and of the paper's derivations.

SymPy matrices run through the very classes that train, and what they compute is compared with SymPy's
own differentiation. No check is vacuous: the batch has at least 3 examples, all sizes differ, and the
upstream gradient G is an arbitrary matrix of symbols. A gradient is what is in the layer after `backpropagate`,
however it was set; one that is missing or no matrix is wrong, and so is a class that raises an error.

    from matgrad.symbolic import check_layer
    for check in check_layer(MyLayer(4, 5)):
        assert check.ok, check.message
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
import sympy as sp
from sympy.core.function import AppliedUndef

from matgrad import softmax_functions
from matgrad.activation_functions import ActivationFunction
from matgrad.backends.sympy_backend import SympyMatrix
from matgrad.inspection.equations import last_line
from matgrad.inspection.gradients import gradient_checks
from matgrad.inspection.verdicts import Check, crash, judged
from matgrad.layers.checks import check_layers
from matgrad.layers.layer import Layer
from matgrad.layers.linear import ActivationLayer
from matgrad.loss_functions import LossFunction, takes_weights
from matgrad.proofs.derivations import derivations
from matgrad.proofs.lemmas import lemmas
from matgrad.proofs.statements import Algebra, Lemma, Step, judge_lemma
from matgrad.symbolic.equality import compare, exact, numbers_as_symbols, problem_of, symbolic_layer, symbols, verdict

# where activation functions are looked at besides random points: no threshold that anybody would choose
POSITIVE = "0.11 0.53 1.3 3.1 5.7 8.9 12.3 16.1 21.3 27.1 36.7 47.3 66.1 430.3"
GRID = tuple(sign * sp.Rational(x) for x in POSITIVE.split() for sign in (1, -1))


def check_layer(layer: Layer, *, N: int = 3) -> list[Check]:
    """Every gradient of a layer, in its present mode, against SymPy's derivatives of ⟨G, Y⟩.

    These are the gradients of all parameters, also of the parts, and of the input, and those of the values of
    feedforward that have an equation ``DV = …``. The parameters, and the numbers in the layer such as ε or α, are
    replaced by symbols. A layer with dropout drops three tenths.
    """
    check_layers([layer])
    sizes = f"N={N} D={layer.input_size} K={layer.output_size}"
    if isinstance(layer, ActivationLayer):
        sizes += f" {type(layer.act).__name__.removesuffix('Activation')}"
    sizes += "" if layer.training else " evaluation"
    name = type(layer).__name__
    checks = attempt(lambda numbers: _check_layer(symbolic_layer(layer, numbers=numbers), N, sizes), name, sizes)
    if all(check.ok for check in checks):
        return checks
    causes = [check for check in _check_activations(layer) if not check.ok]
    return [*causes, *(check for check in checks if check.name not in {cause.name for cause in causes})]


def check_loss(loss: LossFunction, *, N: int = 3, K: int = 4, one_hot: bool = False) -> list[Check]:
    """The gradient of a loss, and of its mean, against SymPy's derivatives, for arbitrary or one-hot targets.

    Whether the value is a mean is checked as well: that of a batch and the same batch again is the same, or twice it.
    With weights, which are symbols too, value and mean gradient are those of Σ sᵢ·ℒ(yᵢ, tᵢ), for each row alone.
    """
    sizes = f"N={N} K={K}" + (" one-hot" if one_hot else "")
    is_probability = "real" not in loss.accepts and "probability" in loss.accepts
    Y = symbols("Y", N, K, positive=is_probability or None)
    T = SympyMatrix(N, K, lambda i, j: int(j == (2 * i + 1) % K)) if one_hot else symbols("T", N, K)
    name = type(loss).__name__
    return attempt(lambda numbers: _check_loss(loss if numbers else numbers_as_symbols(loss), Y, T, sizes), name, sizes)


def check_activation(act: ActivationFunction, *, m: int = 2, n: int = 3) -> list[Check]:
    """f' of an activation function against SymPy's derivative of f, at every element of a matrix."""
    name = type(act).__name__
    return attempt(
        lambda numbers: _check_activation(act if numbers else numbers_as_symbols(act), m, n), name, f"{m}×{n}"
    )


def check_softmax(name: str, *, N: int = 3, D: int = 4) -> list[Check]:
    """A softmax function against its definition for each row, and its Jacobian against SymPy's."""
    f = getattr(softmax_functions, name)
    jacobian = getattr(softmax_functions, f"{name}_jacobian")
    X, x = symbols("X", N, D), symbols("x", 1, D)
    plain = sp.Matrix(N, D, lambda i, j: sp.exp(X[i, j]) / sum(sp.exp(X[i, k]) for k in range(D)))
    expected = plain.applyfunc(sp.log) if "log" in name else plain
    by_rows = verdict(f, "", last_line(f), f"N={N} D={D}", f(X), expected)
    by_sympy = verdict(jacobian, "", last_line(jacobian), f"D={D}", jacobian(x), f(x).jacobian(x))
    return [by_rows, by_sympy]


def derivative(value: sp.Expr, V: sp.Matrix) -> sp.Matrix:
    """∇_V of a scalar: the matrix of its derivatives with respect to the elements of V."""
    return sp.Matrix(*V.shape, lambda i, j: sp.diff(value, V[i, j]))


def attempt(check: Callable[[bool], list[Check]], name: str, sizes: str) -> list[Check]:
    """check(False), with symbols for the numbers of a class, or check(True), with the numbers themselves.

    The latter is for a class that decides something by its numbers, which is an error with symbols. If it raises
    one too, the verdict on the class of this name says where.
    """
    try:
        return check(False)
    except Exception:
        try:
            return check(True)
        except Exception as error:
            return [crash(error, sizes, name)]


# -- losses and activation functions -----------------------------------------------------------


def _check_loss(loss: LossFunction, Y: sp.Matrix, T: sp.Matrix, sizes: str) -> list[Check]:
    checks, N = [], Y.rows
    for name, scale in (("gradient", 1), ("mean_gradient", 1 if loss.is_mean else sp.Rational(1, N))):
        found = getattr(loss, name)(Y, T)
        expected = scale * derivative(exact(loss(Y, T)), Y)
        checks.append(verdict(type(loss), name, last_line(getattr(type(loss), name)), sizes, found, expected))
    twice = sp.Matrix([[loss(Y.col_join(Y), T.col_join(T))]])
    expected = sp.Matrix([[(1 if loss.is_mean else 2) * loss(Y, T)]])
    checks.append(verdict(type(loss), "is_mean", last_line(type(loss).__call__), sizes, twice, expected))
    return [*checks, *_check_weighted_loss(loss, Y, T, f"{sizes} weighted")]


def _check_weighted_loss(loss: LossFunction, Y: sp.Matrix, T: sp.Matrix, sizes: str) -> list[Check]:
    """Both sides by the losses of the rows alone; a loss that takes no weights has no value with them."""
    checks, N = [], Y.rows
    s = symbols("s", N, 1)
    total = sum(s[i] * exact(loss(Y.row(i), T.row(i))) for i in range(N))
    if takes_weights(loss):
        found, expected = sp.Matrix([[loss(Y, T, s)]]), sp.Matrix([[total / (N if loss.is_mean else 1)]])
        checks.append(verdict(type(loss), "value", last_line(type(loss).__call__), sizes, found, expected))
    name = "mean_gradient"
    found, expected = loss.mean_gradient(Y, T, s), derivative(total, Y) / N
    return [*checks, verdict(type(loss), name, last_line(type(loss).mean_gradient), sizes, found, expected)]


def _check_activation(act: ActivationFunction, m: int, n: int) -> list[Check]:
    """f' at symbols, and at the numbers of the grid."""
    X = symbols("X", m, n)
    Y, found = exact(act(X)), act.gradient(X)
    origin = last_line(type(act).gradient)
    if problem := problem_of(Y, X):
        return [judged(type(act), "value", last_line(type(act).__call__), f"{m}×{n}", f"is wrong: {problem}")]
    expected = sp.Matrix(m, n, lambda i, j: sp.diff(Y[i, j], X[i, j]))
    checks = [verdict(type(act), "gradient", origin, f"{m}×{n}", found, expected)]
    if all(expected[i].free_symbols & set(X) <= {X[i]} for i in range(m * n)):
        grid = SympyMatrix(len(GRID), n, lambda i, j: GRID[i])
        slopes = sp.Matrix(len(GRID), n, lambda i, j: expected[0, j].subs(X[0, j], GRID[i]))
        checks.append(verdict(type(act), "gradient", origin, "-430 … 430", act.gradient(grid), slopes))
    return checks


def _check_activations(layer: Layer) -> list[Check]:
    """The activation functions that a layer and its parts have, without those whose parameters are matrices."""
    found = [x for _, part in layer.walk() for x in vars(part).values() if isinstance(x, ActivationFunction)]
    return [c for act in found if not any(np.ndim(x) for x in vars(act).values()) for c in check_activation(act)]


# -- layers ------------------------------------------------------------------------------------


def _check_layer(layer: Layer, N: int, sizes: str) -> list[Check]:
    """The gradients of a layer with symbols in it, and of its parts, in order of backpropagation."""
    return gradient_checks(layer, symbols("X", N, layer.input_size), SymPyAlgebra(), sizes, verdict)


# -- lemmas and derivations of the paper -------------------------------------------------------


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
    problem_of, is_same = staticmethod(problem_of), staticmethod(sp.Matrix.__eq__)

    def size(self, name: str, number: int) -> int:
        """The number."""
        return number

    def symbols(self, name: str, *shape: int, is_positive: bool = False) -> Any:
        """An m×n matrix of symbols; without sizes, a scalar."""
        if not shape:
            return sp.Symbol(name, real=True, positive=is_positive or None)
        return symbols(name, *shape, positive=is_positive or None)

    def functions(self, name: str, shape: tuple[int, int], x: sp.Matrix) -> sp.Matrix:
        """Matrix of undefined functions name_11(x), name_12(x), …"""
        return SympyMatrix(*shape, lambda i, j: sp.Function(f"{name}_{i + 1}{j + 1}")(*x))

    def polynomials(self, p: int, y: sp.Matrix) -> sp.Matrix:
        """A column of p polynomials of degree 2 in the elements of y, whose coefficients are all different symbols."""
        monomials = [a * b for a, b in combinations_with_replacement([sp.S.One, *y], 2)]
        return symbols("g", p, len(monomials)) @ sp.Matrix(monomials)

    def pairing(self, G: sp.Matrix, Y: sp.Matrix) -> sp.Expr:
        """⟨G, Y⟩, with exact numbers"""
        return sum(g * y for g, y in zip(G, exact(Y), strict=True))

    def matrix(self, scalar: sp.Expr) -> sp.Matrix:
        """The 1×1 matrix of a scalar."""
        return sp.Matrix([[scalar]])

    def scaled(self, A: sp.Matrix, g: sp.Matrix) -> sp.Matrix:
        """A times the scalar in the 1×1 matrix g."""
        return A * g[0]

    def by_rows(self, f: Callable[[int], sp.Matrix], shape: tuple[int, int]) -> sp.Matrix:
        """The matrix with the rows f(0), …, f(m - 1)."""
        return sp.Matrix.vstack(*map(f, range(shape[0])))

    def by_columns(self, f: Callable[[int], sp.Matrix], shape: tuple[int, int]) -> sp.Matrix:
        """The matrix with the columns f(0), …, f(n - 1)."""
        return sp.Matrix.hstack(*map(f, range(shape[1])))

    def at(self, A: sp.Matrix, V: sp.Matrix, value: sp.Matrix) -> sp.Matrix:
        """A with a matrix for the symbols V in it."""
        return A.xreplace(dict(zip(V, value, strict=True)))

    def judge(self, step: Step) -> tuple[str, str]:
        """The method by which both sides were compared, and what is wrong; '' if nothing is."""
        result = compare(_independent(step.left), _independent(step.right))
        return result.method, result.problem


def _independent(A: sp.Matrix) -> sp.Matrix:
    """A with a symbol for every undefined function f and for every ∂f/∂x_j.

    The symbols are independent: a function can have any value and any first derivatives at a point.
    """
    derivatives = {d: sp.Symbol(f"∂{d.expr.func}/∂{d.variables[0]}", real=True) for d in A.atoms(sp.Derivative)}
    A = A.xreplace(derivatives)
    return A.xreplace({f: sp.Symbol(str(f.func), real=True) for f in A.atoms(AppliedUndef)})
