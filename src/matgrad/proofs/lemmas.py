"""The paper's product rules, chain rule and matrix properties, and the linear forms of the code, for all sizes.

In the rules, f and g are functions of a vector x of which nothing is known. In the properties, x_i and x^j are the i-th
row and the j-th column of X.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from matgrad.index_notation.entries import FIRST, DependentEntry, Entry
from matgrad.index_notation.expressions import Expression, Index, of
from matgrad.index_notation.sums import summed
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
from matgrad.proofs.calculus import at, jacobian
from matgrad.proofs.matrices import IndexMatrix, Shape, column, indices_of, matrix, row, symbols
from matgrad.proofs.sizes import sizes
from matgrad.proofs.statements import Lemma, Step, chain

m, n, p, N, D, K = sizes("m n p N D K")


def lemmas() -> list[Lemma]:
    """All lemmas and properties, in the order of the paper, then the linear forms."""
    return [
        Lemma.of(product_rule_1, "eq:product-rule1"),
        Lemma.of(product_rule_2, "eq:product-rule2"),
        Lemma.of(product_rule_3, "eq:product-rule3"),
        Lemma.of(product_rule_4, "eq:product-rule4"),
        Lemma.of(chain_rule, "eq:chain-rule"),
        Lemma.of(matrix_property_1, "eq:matrix-property1"),
        Lemma.of(matrix_property_2, "eq:matrix-property2"),
        Lemma.of(matrix_property_3, "eq:matrix-property3"),
        Lemma.of(matrix_property_5, "eq:matrix-property5"),
        Lemma.of(matrix_property_6, "eq:matrix-property6"),
        Lemma.of(matrix_property_7, "eq:matrix-property7"),
        Lemma.of(linear_form_of_the_centering, "appendix:batch-normalization"),
        Lemma.of(linear_form_of_the_variance, "appendix:batch-normalization"),
        Lemma.of(linear_forms_of_batch_normalization, "eq:batch-normalization-backpropagation"),
        Lemma.of(linear_form_of_the_softmax_layer, "eq:softmax-layer-backprop1"),
    ]


# -- rules -------------------------------------------------------------------------------------


def functions(name: str, shape: Shape) -> IndexMatrix:
    """The matrix of the values of unknown functions of x."""
    return IndexMatrix(shape, of(DependentEntry(name, indices_of(shape), "x")))


def scaled(A: IndexMatrix, g: IndexMatrix) -> IndexMatrix:
    """A times the scalar in the 1×1 matrix g."""
    return IndexMatrix((), g.entry) * A


def product_rule_1() -> Iterator[Step]:
    """∂(f g)/∂x = ∂f/∂x g + f ∂g/∂x, for f(x) of size n×1 and a scalar g(x)"""
    x, f, g = symbols("x", p, 1), functions("f", (n, 1)), functions("g", (1, 1))
    yield Step(
        "∂h/∂x = ∂f/∂x g + f ∂g/∂x",
        jacobian(f @ g, x),
        scaled(jacobian(f, x), g) + f @ jacobian(g, x),
    )


def product_rule_2() -> Iterator[Step]:
    """∂(f g)/∂x = ∂f/∂x g + fᵀ ∂g/∂x, for f(x) of size 1×n and a scalar g(x)"""
    x, f, g = symbols("x", p, 1), functions("f", (1, n)), functions("g", (1, 1))
    yield Step(
        "∂h/∂x = ∂f/∂x g + fᵀ ∂g/∂x",
        jacobian(scaled(f, g), x),
        scaled(jacobian(f, x), g) + f.T @ jacobian(g, x),
    )


def product_rule_3() -> Iterator[Step]:
    """∂(A g)/∂x = A ∂g/∂x, for A of size m×n and g(x) of size n×1"""
    x, A, g = symbols("x", p, 1), symbols("A", m, n), functions("g", (n, 1))
    yield Step("∂h/∂x = A ∂g/∂x", jacobian(A @ g, x), A @ jacobian(g, x))


def product_rule_4() -> Iterator[Step]:
    """∂(f A)/∂x = Aᵀ ∂f/∂x, for f(x) of size 1×m and A of size m×n"""
    x, A, f = symbols("x", p, 1), symbols("A", m, n), functions("f", (1, m))
    yield Step("∂h/∂x = Aᵀ ∂f/∂x", jacobian(f @ A, x), A.T @ jacobian(f, x))


def chain_rule() -> Iterator[Step]:
    """∂g(f(x))/∂x = ∂g/∂y ∂f/∂x with y = f(x), for f: ℝⁿ → ℝᵐ and g: ℝᵐ → ℝᵖ

    g is an arbitrary polynomial of degree 2, which has arbitrary values and derivatives at y.
    """
    x = symbols("x", n, 1)
    for kind, shape in (("a column", (m, 1)), ("a row", (1, m))):
        y, f = symbols("y", *shape), functions("f", shape)
        yield Step(
            f"∂h/∂x = ∂g/∂y ∂f/∂x, y is {kind}",
            jacobian(_polynomials(f), x),
            at(jacobian(_polynomials(y), y), y, f) @ jacobian(f, x),
        )


def _polynomials(y: IndexMatrix) -> IndexMatrix:
    """g_i(y) = a_i + Σ_j b_ij·y_j + Σ_jk c_ijk·y_j·y_k, a column of p polynomials of the m elements of a vector y"""

    def element(j: Index) -> Expression:
        return y[j, FIRST] if y.columns == FIRST.size else y[FIRST, j]

    def entry(i: Index, _: Index) -> Expression:
        linear = summed(lambda j: of(Entry("b", (i, j))) * element(j), "m")
        square = summed(
            lambda j: summed(lambda k: of(Entry("c", (i, j, k))) * element(j) * element(k), "m"),
            "m",
        )
        return of(Entry("a", (i,))) + linear + square

    return matrix((p, 1), entry)


# -- properties --------------------------------------------------------------------------------


def by_rows(f: Callable[[Index], IndexMatrix], shape: Shape) -> IndexMatrix:
    """The matrix with the rows f(i)."""
    return matrix(shape, lambda i, j: f(i)[FIRST, j])


def by_columns(f: Callable[[Index], IndexMatrix], shape: Shape) -> IndexMatrix:
    """The matrix with the columns f(j)."""
    return matrix(shape, lambda i, j: f(j)[i, FIRST])


def _XY() -> tuple[IndexMatrix, IndexMatrix]:
    return symbols("X", m, n), symbols("Y", m, n)


def matrix_property_1() -> Iterator[Step]:
    """If z^j = x^j (x^j)ᵀ y^j for all j, then Z = X ⊙ (1_m diag(Xᵀ Y)ᵀ)"""
    X, Y = _XY()
    Z = by_columns(lambda j: column(X, j) @ column(X, j).T @ column(Y, j), X.shape)
    yield Step("Z = X ⊙ (1_m diag(Xᵀ Y)ᵀ)", Z, hadamard(X, row_repeat(diag(X.T @ Y).T, m)))


def matrix_property_2() -> Iterator[Step]:
    """If z^j = 1_m (x^j)ᵀ y^j for all j, then Z = 1_m diag(Xᵀ Y)ᵀ"""
    X, Y = _XY()
    Z = by_columns(lambda j: ones(m, like=X) @ column(X, j).T @ column(Y, j), X.shape)
    yield Step("Z = 1_m diag(Xᵀ Y)ᵀ", Z, row_repeat(diag(X.T @ Y).T, m))


def matrix_property_3() -> Iterator[Step]:
    """If z^j = x^j 1_mᵀ y^j for all j, then Z = X ⊙ (1_m 1_mᵀ Y)"""
    X, Y = _XY()
    one = ones(m, like=X)
    yield from chain(
        by_columns(lambda j: column(X, j) @ one.T @ column(Y, j), X.shape),
        ("Z = X ⊙ (1_m 1_mᵀ Y)", hadamard(X, one @ one.T @ Y)),
        ("in the table's operations", hadamard(X, row_repeat(columns_sum(Y), m))),
    )


def matrix_property_5() -> Iterator[Step]:
    """If z_i = x_i y_iᵀ y_i for all i, then Z = (diag(X Yᵀ) 1_nᵀ) ⊙ Y"""
    X, Y = _XY()
    Z = by_rows(lambda i: row(X, i) @ row(Y, i).T @ row(Y, i), X.shape)
    yield Step("Z = (diag(X Yᵀ) 1_nᵀ) ⊙ Y", Z, hadamard(column_repeat(diag(X @ Y.T), n), Y))


def matrix_property_6() -> Iterator[Step]:
    """If z_i = x_i y_iᵀ 1_nᵀ for all i, then Z = diag(X Yᵀ) 1_nᵀ"""
    X, Y = _XY()
    Z = by_rows(lambda i: row(X, i) @ row(Y, i).T @ ones(n, like=X).T, X.shape)
    yield Step("Z = diag(X Yᵀ) 1_nᵀ", Z, column_repeat(diag(X @ Y.T), n))


def matrix_property_7() -> Iterator[Step]:
    """If z_i = x_i 1_n y_i for all i, then Z = (X 1_n 1_nᵀ) ⊙ Y"""
    X, Y = _XY()
    one = ones(n, like=X)
    yield from chain(
        by_rows(lambda i: row(X, i) @ one @ row(Y, i), X.shape),
        ("Z = (X 1_n 1_nᵀ) ⊙ Y", hadamard(X @ one @ one.T, Y)),
        ("in the table's operations", hadamard(column_repeat(rows_sum(X), n), Y)),
    )


# -- the literal forms of the paper and the linear forms of the code ---------------------------


def linear_form_of_the_centering() -> Iterator[Step]:
    """X - (1_N 1_Nᵀ / N) X = X - 1_N μ, with μ the column means of X"""
    X = symbols("X", N, D)
    J = ones(N, like=X) @ ones(N, like=X).T / N
    yield Step("X - (1_N 1_Nᵀ / N) X = X - 1_N μ", X - J @ X, X - row_repeat(columns_mean(X), N))


def linear_form_of_the_variance() -> Iterator[Step]:
    """diag(Rᵀ R)ᵀ / N = 1_Nᵀ (R ⊙ R) / N"""
    R = symbols("R", N, D)
    yield Step("diag(Rᵀ R)ᵀ / N = 1_Nᵀ (R ⊙ R) / N", diag(R.T @ R).T / N, columns_sum(hadamard(R, R)) / N)


def linear_forms_of_batch_normalization() -> Iterator[Step]:
    """(N I_N - 1_N 1_Nᵀ) DZ = N DZ - 1_N (1_Nᵀ DZ), and diag(Zᵀ DZ)ᵀ = 1_Nᵀ (Z ⊙ DZ)"""
    Z, DZ = symbols("Z", N, D), symbols("DZ", N, D)
    literal = (N * identity(N, like=Z) - ones(N, N, like=Z)) @ DZ
    yield Step("1_N 1_Nᵀ = 1_NN", ones(N, like=Z) @ ones(N, like=Z).T, ones(N, N, like=Z))
    yield Step("(N I - 1 1ᵀ) DZ = N DZ - 1_N (1_Nᵀ DZ)", literal, N * DZ - row_repeat(columns_sum(DZ), N))
    yield Step("diag(Zᵀ DZ)ᵀ = 1_Nᵀ (Z ⊙ DZ)", diag(Z.T @ DZ).T, columns_sum(hadamard(Z, DZ)))


def linear_form_of_the_softmax_layer() -> Iterator[Step]:
    """diag(DY Yᵀ) 1_Kᵀ = ((DY ⊙ Y) 1_K) 1_Kᵀ"""
    Y, DY = symbols("Y", N, K), symbols("DY", N, K)
    literal = diag(DY @ Y.T) @ ones(K, like=Y).T
    yield Step("diag(DY Yᵀ) 1ᵀ = ((DY ⊙ Y) 1) 1ᵀ", literal, column_repeat(rows_sum(hadamard(DY, Y)), K))
