"""The paper's product rules, chain rule and matrix properties, and the linear forms that the code uses.

In the rules, x is a vector of symbols, and f and g are undefined functions of it, so that nothing
is known about them. In the properties, x_i and x^j are the i-th row and the j-th column of X.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations_with_replacement

import sympy as sp
from sympy.core.function import AppliedUndef

from matgrad.matrix_operations import (
    column_repeat,
    columns_mean,
    columns_sum,
    diag,
    hadamard,
    identity,
    ones,
    row_repeat,
    rows_sum,
)
from matgrad.symbolic.checks.equality import symbols
from matgrad.symbolic.derivations.steps import Derivation, Step, at, by_columns, by_rows, chain


def lemmas() -> list[Derivation]:
    """All lemmas and properties, in the order of the paper, then the linear forms."""
    return [
        Derivation.of(product_rule_1, "eq:product-rule1", n=4, p=5),
        Derivation.of(product_rule_2, "eq:product-rule2", n=4, p=5),
        Derivation.of(product_rule_3, "eq:product-rule3", m=3, n=4, p=5),
        Derivation.of(product_rule_4, "eq:product-rule4", m=3, n=4, p=5),
        Derivation.of(chain_rule, "eq:chain-rule", m=3, n=4, p=5),
        Derivation.of(matrix_property_1, "eq:matrix-property1", m=3, n=4),
        Derivation.of(matrix_property_2, "eq:matrix-property2", m=3, n=4),
        Derivation.of(matrix_property_3, "eq:matrix-property3", m=3, n=4),
        Derivation.of(matrix_property_5, "eq:matrix-property5", m=3, n=4),
        Derivation.of(matrix_property_6, "eq:matrix-property6", m=3, n=4),
        Derivation.of(matrix_property_7, "eq:matrix-property7", m=3, n=4),
        Derivation.of(linear_form_of_the_centering, "appendix:batch-normalization", N=3, D=4),
        Derivation.of(linear_form_of_the_variance, "appendix:batch-normalization", N=3, D=4),
        Derivation.of(linear_forms_of_batch_normalization, "eq:batch-normalization-backpropagation", N=3, D=4),
        Derivation.of(linear_form_of_the_softmax_layer, "eq:softmax-layer-backprop1", N=3, K=5),
    ]


# -- rules -------------------------------------------------------------------------------------


def functions(name: str, rows: int, columns: int, x: sp.Matrix) -> sp.Matrix:
    """Matrix of undefined functions name_11(x), name_12(x), …"""
    return sp.Matrix(rows, columns, lambda i, j: sp.Function(f"{name}_{i + 1}{j + 1}")(*x))


def independent(A: sp.Matrix) -> sp.Matrix:
    """A with a symbol for every undefined function f and for every ∂f/∂x_j.

    The symbols are independent: a function can have any value and any first derivatives at a point.
    """
    derivatives = {d: sp.Symbol(f"∂{d.expr.func}/∂{d.variables[0]}", real=True) for d in A.atoms(sp.Derivative)}
    A = A.xreplace(derivatives)
    return A.xreplace({f: sp.Symbol(str(f.func), real=True) for f in A.atoms(AppliedUndef)})


def polynomials(name: str, rows: int, columns: int, y: sp.Matrix) -> sp.Matrix:
    """Matrix of polynomials of degree 2 in the elements of y, whose coefficients are all different symbols."""
    monomials = [a * b for a, b in combinations_with_replacement([sp.S.One, *y], 2)]
    return sp.Matrix(
        rows, columns, lambda i, j: symbols(f"{name}_{i + 1}{j + 1}", 1, len(monomials)).dot(sp.Matrix(monomials))
    )


def product_rule_1(n: int, p: int) -> Iterator[Step]:
    """∂(f g)/∂x = ∂f/∂x g + f ∂g/∂x, for f(x) of size n×1 and a scalar g(x)"""
    x, t = symbols("x", p, 1), symbols("t", 1, 1)
    u, v = functions("u", 1, 1, t), functions("v", 1, 1, t)
    yield _rule("(u·v)' = u'·v + u·v', for scalar functions", (u @ v).diff(t[0]), u.diff(t[0]) @ v + u @ v.diff(t[0]))
    f, g = functions("f", n, 1, x), functions("g", 1, 1, x)
    h = f @ g
    yield _rule("∂h/∂x = ∂f/∂x g + f ∂g/∂x", h.jacobian(x), f.jacobian(x) * g[0] + f @ g.jacobian(x))


def product_rule_2(n: int, p: int) -> Iterator[Step]:
    """∂(f g)/∂x = ∂f/∂x g + fᵀ ∂g/∂x, for f(x) of size 1×n and a scalar g(x)"""
    x = symbols("x", p, 1)
    f, g = functions("f", 1, n, x), functions("g", 1, 1, x)
    h = f * g[0]
    yield _rule("∂h/∂x = ∂f/∂x g + fᵀ ∂g/∂x", h.jacobian(x), f.jacobian(x) * g[0] + f.T @ g.jacobian(x))


def product_rule_3(m: int, n: int, p: int) -> Iterator[Step]:
    """∂(A g)/∂x = A ∂g/∂x, for A of size m×n and g(x) of size n×1"""
    x, A = symbols("x", p, 1), symbols("A", m, n)
    g = functions("g", n, 1, x)
    h = A @ g
    yield _rule("∂h/∂x = A ∂g/∂x", h.jacobian(x), A @ g.jacobian(x))


def product_rule_4(m: int, n: int, p: int) -> Iterator[Step]:
    """∂(f A)/∂x = Aᵀ ∂f/∂x, for f(x) of size 1×m and A of size m×n"""
    x, A = symbols("x", p, 1), symbols("A", m, n)
    f = functions("f", 1, m, x)
    h = f @ A
    yield _rule("∂h/∂x = Aᵀ ∂f/∂x", h.jacobian(x), A.T @ f.jacobian(x))


def chain_rule(m: int, n: int, p: int) -> Iterator[Step]:
    """∂g(f(x))/∂x = ∂g/∂y ∂f/∂x with y = f(x), for f: ℝⁿ → ℝᵐ and g: ℝᵐ → ℝᵖ

    g is an arbitrary polynomial of degree 2, which has arbitrary values and derivatives at y.
    """
    x = symbols("x", n, 1)
    for kind, rows, columns in (("a column", m, 1), ("a row", 1, m)):
        y, f = symbols("y", rows, columns), functions("f", rows, columns, x)
        g = polynomials("g", p, 1, y)
        h = at(g, y, f)
        yield _rule(f"∂h/∂x = ∂g/∂y ∂f/∂x, y is {kind}", h.jacobian(x), at(g.jacobian(y), y, f) @ f.jacobian(x))


def _rule(text: str, left: sp.Matrix, right: sp.Matrix) -> Step:
    return Step(text, independent(left), independent(right))


# -- properties --------------------------------------------------------------------------------


def matrix_property_1(m: int, n: int) -> Iterator[Step]:
    """If z^j = x^j (x^j)ᵀ y^j for all j, then Z = X ⊙ (1_m diag(Xᵀ Y)ᵀ)"""
    X, Y = symbols("x", m, n), symbols("y", m, n)
    Z = by_columns(lambda j: X.col(j) @ X.col(j).T @ Y.col(j), n)
    yield Step("Z = X ⊙ (1_m diag(Xᵀ Y)ᵀ)", Z, hadamard(X, row_repeat(diag(X.T @ Y).T, m)))


def matrix_property_2(m: int, n: int) -> Iterator[Step]:
    """If z^j = 1_m (x^j)ᵀ y^j for all j, then Z = 1_m diag(Xᵀ Y)ᵀ"""
    X, Y = symbols("x", m, n), symbols("y", m, n)
    Z = by_columns(lambda j: ones(m, like=X) @ X.col(j).T @ Y.col(j), n)
    yield Step("Z = 1_m diag(Xᵀ Y)ᵀ", Z, row_repeat(diag(X.T @ Y).T, m))


def matrix_property_3(m: int, n: int) -> Iterator[Step]:
    """If z^j = x^j 1_mᵀ y^j for all j, then Z = X ⊙ (1_m 1_mᵀ Y)"""
    X, Y = symbols("x", m, n), symbols("y", m, n)
    Z = by_columns(lambda j: X.col(j) @ ones(m, like=X).T @ Y.col(j), n)
    yield from chain(
        Z,
        ("Z = X ⊙ (1_m 1_mᵀ Y)", hadamard(X, ones(m, like=X) @ ones(m, like=X).T @ Y)),
        ("in the table's operations", hadamard(X, row_repeat(columns_sum(Y), m))),
    )


def matrix_property_5(m: int, n: int) -> Iterator[Step]:
    """If z_i = x_i y_iᵀ y_i for all i, then Z = (diag(X Yᵀ) 1_nᵀ) ⊙ Y

    The paper's proof: Z = R ⊙ Y, and all columns of R are diag(X Yᵀ).
    """
    X, Y = symbols("x", m, n), symbols("y", m, n)
    x, y = X.row, Y.row
    Z = by_rows(lambda i: x(i) @ y(i).T @ y(i), m)
    R = sp.Matrix(m, n, lambda i, j: x(i).dot(y(i)))
    yield Step("z_ij = (x_i y_iᵀ) y_ij", Z, sp.Matrix(m, n, lambda i, j: x(i).dot(y(i)) * Y[i, j]))
    yield Step("Z = R ⊙ Y with r_ij = x_i y_iᵀ", Z, hadamard(R, Y))
    yield Step("diag(X Yᵀ) = (x_1 y_1ᵀ, …, x_m y_mᵀ)ᵀ", diag(X @ Y.T), by_rows(lambda i: x(i) @ y(i).T, m))
    yield Step("R = diag(X Yᵀ) 1_nᵀ", R, column_repeat(diag(X @ Y.T), n))
    yield Step("Z = (diag(X Yᵀ) 1_nᵀ) ⊙ Y", Z, hadamard(column_repeat(diag(X @ Y.T), n), Y))


def matrix_property_6(m: int, n: int) -> Iterator[Step]:
    """If z_i = x_i y_iᵀ 1_nᵀ for all i, then Z = diag(X Yᵀ) 1_nᵀ"""
    X, Y = symbols("x", m, n), symbols("y", m, n)
    Z = by_rows(lambda i: X.row(i) @ Y.row(i).T @ ones(n, like=X).T, m)
    yield Step("Z = diag(X Yᵀ) 1_nᵀ", Z, column_repeat(diag(X @ Y.T), n))


def matrix_property_7(m: int, n: int) -> Iterator[Step]:
    """If z_i = x_i 1_n y_i for all i, then Z = (X 1_n 1_nᵀ) ⊙ Y"""
    X, Y = symbols("x", m, n), symbols("y", m, n)
    Z = by_rows(lambda i: X.row(i) @ ones(n, like=X) @ Y.row(i), m)
    yield from chain(
        Z,
        ("Z = (X 1_n 1_nᵀ) ⊙ Y", hadamard(X @ ones(n, like=X) @ ones(n, like=X).T, Y)),
        ("in the table's operations", hadamard(column_repeat(rows_sum(X), n), Y)),
    )


# -- the literal forms of the paper and the linear forms of the code ---------------------------


def linear_form_of_the_centering(N: int, D: int) -> Iterator[Step]:
    """X - (1_N 1_Nᵀ / N) X = X - 1_N μ, with μ the column means of X"""
    X = symbols("x", N, D)
    J = ones(N, like=X) @ ones(N, like=X).T / N
    yield Step("X - (1_N 1_Nᵀ / N) X = X - 1_N μ", X - J @ X, X - row_repeat(columns_mean(X), N))


def linear_form_of_the_variance(N: int, D: int) -> Iterator[Step]:
    """diag(Rᵀ R)ᵀ / N = 1_Nᵀ (R ⊙ R) / N"""
    R = symbols("r", N, D)
    yield Step("diag(Rᵀ R)ᵀ / N = 1_Nᵀ (R ⊙ R) / N", diag(R.T @ R).T / N, columns_sum(hadamard(R, R)) / N)


def linear_forms_of_batch_normalization(N: int, D: int) -> Iterator[Step]:
    """(N I_N - 1_N 1_Nᵀ) DZ = N DZ - 1_N (1_Nᵀ DZ), and diag(Zᵀ DZ)ᵀ = 1_Nᵀ (Z ⊙ DZ)"""
    Z, DZ = symbols("z", N, D), symbols("Dz", N, D)
    literal = (N * identity(N, like=Z) - ones(N, N, like=Z)) @ DZ
    yield Step("1_N 1_Nᵀ = 1_NN", ones(N, like=Z) @ ones(N, like=Z).T, ones(N, N, like=Z))
    yield Step("(N I - 1 1ᵀ) DZ = N DZ - 1_N (1_Nᵀ DZ)", literal, N * DZ - row_repeat(columns_sum(DZ), N))
    yield Step("diag(Zᵀ DZ)ᵀ = 1_Nᵀ (Z ⊙ DZ)", diag(Z.T @ DZ).T, columns_sum(hadamard(Z, DZ)))


def linear_form_of_the_softmax_layer(N: int, K: int) -> Iterator[Step]:
    """diag(DY Yᵀ) 1_Kᵀ = ((DY ⊙ Y) 1_K) 1_Kᵀ"""
    Y, DY = symbols("y", N, K), symbols("Dy", N, K)
    literal = diag(DY @ Y.T) @ ones(K, like=Y).T
    yield Step("diag(DY Yᵀ) 1ᵀ = ((DY ⊙ Y) 1) 1ᵀ", literal, column_repeat(rows_sum(hadamard(DY, Y)), K))
