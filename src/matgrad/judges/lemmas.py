"""The paper's product rules, chain rule and matrix properties, and the linear forms of the code.

In the rules, f and g are functions of a vector x of which nothing is known. In the properties, x_i and x^j are the i-th
row and the j-th column of X.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from matgrad.judges.algebra import Lemma, Step, SymbolicAlgebra, chain
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


def lemmas() -> list[Lemma]:
    """All lemmas and properties, in the order of the paper, then the linear forms."""
    return [
        Lemma.of(product_rule_1, "eq:product-rule1", n=4, p=5),
        Lemma.of(product_rule_2, "eq:product-rule2", n=4, p=5),
        Lemma.of(product_rule_3, "eq:product-rule3", m=3, n=4, p=5),
        Lemma.of(product_rule_4, "eq:product-rule4", m=3, n=4, p=5),
        Lemma.of(chain_rule, "eq:chain-rule", m=3, n=4, p=5),
        Lemma.of(matrix_property_1, "eq:matrix-property1", m=3, n=4),
        Lemma.of(matrix_property_2, "eq:matrix-property2", m=3, n=4),
        Lemma.of(matrix_property_3, "eq:matrix-property3", m=3, n=4),
        Lemma.of(matrix_property_5, "eq:matrix-property5", m=3, n=4),
        Lemma.of(matrix_property_6, "eq:matrix-property6", m=3, n=4),
        Lemma.of(matrix_property_7, "eq:matrix-property7", m=3, n=4),
        Lemma.of(linear_form_of_the_centering, "appendix:batch-normalization", N=3, D=4),
        Lemma.of(linear_form_of_the_variance, "appendix:batch-normalization", N=3, D=4),
        Lemma.of(linear_forms_of_batch_normalization, "eq:batch-normalization-backpropagation", N=3, D=4),
        Lemma.of(linear_form_of_the_softmax_layer, "eq:softmax-layer-backprop1", N=3, K=5),
    ]


# -- rules -------------------------------------------------------------------------------------


def product_rule_1(a: SymbolicAlgebra, n: Any, p: Any) -> Iterator[Step]:
    """∂(f g)/∂x = ∂f/∂x g + f ∂g/∂x, for f(x) of size n×1 and a scalar g(x)"""
    x = a.symbols("x", p, 1)
    f, g = a.functions("f", (n, 1), x), a.functions("g", (1, 1), x)
    yield Step(
        "∂h/∂x = ∂f/∂x g + f ∂g/∂x",
        a.jacobian(f @ g, x),
        a.scaled(a.jacobian(f, x), g) + f @ a.jacobian(g, x),
    )


def product_rule_2(a: SymbolicAlgebra, n: Any, p: Any) -> Iterator[Step]:
    """∂(f g)/∂x = ∂f/∂x g + fᵀ ∂g/∂x, for f(x) of size 1×n and a scalar g(x)"""
    x = a.symbols("x", p, 1)
    f, g = a.functions("f", (1, n), x), a.functions("g", (1, 1), x)
    yield Step(
        "∂h/∂x = ∂f/∂x g + fᵀ ∂g/∂x",
        a.jacobian(a.scaled(f, g), x),
        a.scaled(a.jacobian(f, x), g) + f.T @ a.jacobian(g, x),
    )


def product_rule_3(a: SymbolicAlgebra, m: Any, n: Any, p: Any) -> Iterator[Step]:
    """∂(A g)/∂x = A ∂g/∂x, for A of size m×n and g(x) of size n×1"""
    x = a.symbols("x", p, 1)
    A, g = a.symbols("A", m, n), a.functions("g", (n, 1), x)
    yield Step("∂h/∂x = A ∂g/∂x", a.jacobian(A @ g, x), A @ a.jacobian(g, x))


def product_rule_4(a: SymbolicAlgebra, m: Any, n: Any, p: Any) -> Iterator[Step]:
    """∂(f A)/∂x = Aᵀ ∂f/∂x, for f(x) of size 1×m and A of size m×n"""
    x = a.symbols("x", p, 1)
    A, f = a.symbols("A", m, n), a.functions("f", (1, m), x)
    yield Step("∂h/∂x = Aᵀ ∂f/∂x", a.jacobian(f @ A, x), A.T @ a.jacobian(f, x))


def chain_rule(a: SymbolicAlgebra, m: Any, n: Any, p: Any) -> Iterator[Step]:
    """∂g(f(x))/∂x = ∂g/∂y ∂f/∂x with y = f(x), for f: ℝⁿ → ℝᵐ and g: ℝᵐ → ℝᵖ

    g is an arbitrary polynomial of degree 2, which has arbitrary values and derivatives at y.
    """
    x = a.symbols("x", n, 1)
    for kind, shape in (("a column", (m, 1)), ("a row", (1, m))):
        y, f = a.symbols("y", *shape), a.functions("f", shape, x)
        g = a.polynomials(p, y)
        yield Step(
            f"∂h/∂x = ∂g/∂y ∂f/∂x, y is {kind}",
            a.jacobian(a.at(g, y, f), x),
            a.at(a.jacobian(g, y), y, f) @ a.jacobian(f, x),
        )


# -- properties --------------------------------------------------------------------------------


def matrix_property_1(a: SymbolicAlgebra, m: Any, n: Any) -> Iterator[Step]:
    """If z^j = x^j (x^j)ᵀ y^j for all j, then Z = X ⊙ (1_m diag(Xᵀ Y)ᵀ)"""
    X, Y = a.symbols("X", m, n), a.symbols("Y", m, n)
    Z = a.by_columns(lambda j: a.column(X, j) @ a.column(X, j).T @ a.column(Y, j), X.shape)
    yield Step("Z = X ⊙ (1_m diag(Xᵀ Y)ᵀ)", Z, hadamard(X, row_repeat(diag(X.T @ Y).T, m)))


def matrix_property_2(a: SymbolicAlgebra, m: Any, n: Any) -> Iterator[Step]:
    """If z^j = 1_m (x^j)ᵀ y^j for all j, then Z = 1_m diag(Xᵀ Y)ᵀ"""
    X, Y = a.symbols("X", m, n), a.symbols("Y", m, n)
    Z = a.by_columns(lambda j: ones(m, like=X) @ a.column(X, j).T @ a.column(Y, j), X.shape)
    yield Step("Z = 1_m diag(Xᵀ Y)ᵀ", Z, row_repeat(diag(X.T @ Y).T, m))


def matrix_property_3(a: SymbolicAlgebra, m: Any, n: Any) -> Iterator[Step]:
    """If z^j = x^j 1_mᵀ y^j for all j, then Z = X ⊙ (1_m 1_mᵀ Y)"""
    X, Y = a.symbols("X", m, n), a.symbols("Y", m, n)
    one = ones(m, like=X)
    yield from chain(
        a.by_columns(lambda j: a.column(X, j) @ one.T @ a.column(Y, j), X.shape),
        ("Z = X ⊙ (1_m 1_mᵀ Y)", hadamard(X, one @ one.T @ Y)),
        ("in the table's operations", hadamard(X, row_repeat(columns_sum(Y), m))),
    )


def matrix_property_5(a: SymbolicAlgebra, m: Any, n: Any) -> Iterator[Step]:
    """If z_i = x_i y_iᵀ y_i for all i, then Z = (diag(X Yᵀ) 1_nᵀ) ⊙ Y"""
    X, Y = a.symbols("X", m, n), a.symbols("Y", m, n)
    Z = a.by_rows(lambda i: a.row(X, i) @ a.row(Y, i).T @ a.row(Y, i), X.shape)
    yield Step("Z = (diag(X Yᵀ) 1_nᵀ) ⊙ Y", Z, hadamard(column_repeat(diag(X @ Y.T), n), Y))


def matrix_property_6(a: SymbolicAlgebra, m: Any, n: Any) -> Iterator[Step]:
    """If z_i = x_i y_iᵀ 1_nᵀ for all i, then Z = diag(X Yᵀ) 1_nᵀ"""
    X, Y = a.symbols("X", m, n), a.symbols("Y", m, n)
    Z = a.by_rows(lambda i: a.row(X, i) @ a.row(Y, i).T @ ones(n, like=X).T, X.shape)
    yield Step("Z = diag(X Yᵀ) 1_nᵀ", Z, column_repeat(diag(X @ Y.T), n))


def matrix_property_7(a: SymbolicAlgebra, m: Any, n: Any) -> Iterator[Step]:
    """If z_i = x_i 1_n y_i for all i, then Z = (X 1_n 1_nᵀ) ⊙ Y"""
    X, Y = a.symbols("X", m, n), a.symbols("Y", m, n)
    one = ones(n, like=X)
    yield from chain(
        a.by_rows(lambda i: a.row(X, i) @ one @ a.row(Y, i), X.shape),
        ("Z = (X 1_n 1_nᵀ) ⊙ Y", hadamard(X @ one @ one.T, Y)),
        ("in the table's operations", hadamard(column_repeat(rows_sum(X), n), Y)),
    )


# -- the literal forms of the paper and the linear forms of the code ---------------------------


def linear_form_of_the_centering(a: SymbolicAlgebra, N: Any, D: Any) -> Iterator[Step]:
    """X - (1_N 1_Nᵀ / N) X = X - 1_N μ, with μ the column means of X"""
    X = a.symbols("X", N, D)
    J = ones(N, like=X) @ ones(N, like=X).T / N
    yield Step("X - (1_N 1_Nᵀ / N) X = X - 1_N μ", X - J @ X, X - row_repeat(columns_mean(X), N))


def linear_form_of_the_variance(a: SymbolicAlgebra, N: Any, D: Any) -> Iterator[Step]:
    """diag(Rᵀ R)ᵀ / N = 1_Nᵀ (R ⊙ R) / N"""
    R = a.symbols("R", N, D)
    yield Step("diag(Rᵀ R)ᵀ / N = 1_Nᵀ (R ⊙ R) / N", diag(R.T @ R).T / N, columns_sum(hadamard(R, R)) / N)


def linear_forms_of_batch_normalization(a: SymbolicAlgebra, N: Any, D: Any) -> Iterator[Step]:
    """(N I_N - 1_N 1_Nᵀ) DZ = N DZ - 1_N (1_Nᵀ DZ), and diag(Zᵀ DZ)ᵀ = 1_Nᵀ (Z ⊙ DZ)"""
    Z, DZ = a.symbols("Z", N, D), a.symbols("DZ", N, D)
    literal = (N * identity(N, like=Z) - ones(N, N, like=Z)) @ DZ
    yield Step("1_N 1_Nᵀ = 1_NN", ones(N, like=Z) @ ones(N, like=Z).T, ones(N, N, like=Z))
    yield Step("(N I - 1 1ᵀ) DZ = N DZ - 1_N (1_Nᵀ DZ)", literal, N * DZ - row_repeat(columns_sum(DZ), N))
    yield Step("diag(Zᵀ DZ)ᵀ = 1_Nᵀ (Z ⊙ DZ)", diag(Z.T @ DZ).T, columns_sum(hadamard(Z, DZ)))


def linear_form_of_the_softmax_layer(a: SymbolicAlgebra, N: Any, K: Any) -> Iterator[Step]:
    """diag(DY Yᵀ) 1_Kᵀ = ((DY ⊙ Y) 1_K) 1_Kᵀ"""
    Y, DY = a.symbols("Y", N, K), a.symbols("DY", N, K)
    literal = diag(DY @ Y.T) @ ones(K, like=Y).T
    yield Step("diag(DY Yᵀ) 1ᵀ = ((DY ⊙ Y) 1) 1ᵀ", literal, column_repeat(rows_sum(hadamard(DY, Y)), K))
