"""The paper's product rules, chain rule and matrix properties, the linear forms of the code, and derivations.

In the rules, f and g are functions of a vector x of which nothing is known. In the properties, x_i and x^j are the i-th
row and the j-th column of X.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from matgrad.activation_functions import sigmoid
from matgrad.judges.algebra import Lemma, Sides, Step, Steps, SymbolicAlgebra, chain
from matgrad.loss_functions import CrossEntropyLoss, LogisticCrossEntropyLoss, LossFunction, SoftmaxCrossEntropyLoss
from matgrad.matrix_operations import (
    Diag,
    column_repeat,
    columns_mean,
    columns_sum,
    diag,
    dot,
    elements_sum,
    exp,
    hadamard,
    identity,
    inv_sqrt,
    log,
    log_sigmoid,
    ones,
    reciprocal,
    row_repeat,
    rows_max,
    rows_sum,
    zeros,
)
from matgrad.softmax_functions import (
    log_softmax,
    log_softmax_jacobian,
    softmax,
    softmax_jacobian,
    stable_log_softmax,
    stable_softmax,
)

LEMMAS: list[Lemma] = []  # in the order of the paper: lemmas, properties and linear forms, then derivations


def lemma(label: str, **given: Any) -> Callable[[Steps], Steps]:
    """A function whose steps, or two sides, are a lemma with its name, given matrices by their sizes."""

    def added(steps: Steps) -> Steps:
        LEMMAS.append(Lemma(steps.__name__.replace("_", " "), label, steps, given))
        return steps

    return added


def scaled(A: Any, g: Any) -> Any:
    """A times the scalar in the 1×1 matrix g"""
    return A * elements_sum(g)


def of_rows(a: SymbolicAlgebra, f: Callable[[Any, Any], Any], X: Any, Y: Any) -> Any:
    """The matrix with the rows f(x_i, y_i)"""
    return a.by_rows(lambda i: f(a.row(X, i), a.row(Y, i)), X.shape)


def of_columns(a: SymbolicAlgebra, f: Callable[[Any, Any], Any], X: Any, Y: Any) -> Any:
    """The matrix with the columns f(x^j, y^j)"""
    return of_rows(a, lambda x, y: f(x.T, y.T).T, X.T, Y.T).T


# -- rules -------------------------------------------------------------------------------------


@lemma("eq:product-rule1", x="p 1", f="n 1 of x", g="1 1 of x", n=4, p=5)
def product_rule_1(a: SymbolicAlgebra, x: Any, f: Any, g: Any) -> Sides:
    """∂(f g)/∂x = ∂f/∂x g + f ∂g/∂x, for f(x) of size n×1 and a scalar g(x)"""
    return a.jacobian(f @ g, x), scaled(a.jacobian(f, x), g) + f @ a.jacobian(g, x)


@lemma("eq:product-rule2", x="p 1", f="1 n of x", g="1 1 of x", n=4, p=5)
def product_rule_2(a: SymbolicAlgebra, x: Any, f: Any, g: Any) -> Sides:
    """∂(f g)/∂x = ∂f/∂x g + fᵀ ∂g/∂x, for f(x) of size 1×n and a scalar g(x)"""
    return a.jacobian(scaled(f, g), x), scaled(a.jacobian(f, x), g) + f.T @ a.jacobian(g, x)


@lemma("eq:product-rule3", x="p 1", A="m n", g="n 1 of x", m=3, n=4, p=5)
def product_rule_3(a: SymbolicAlgebra, x: Any, A: Any, g: Any) -> Sides:
    """∂(A g)/∂x = A ∂g/∂x, for A of size m×n and g(x) of size n×1"""
    return a.jacobian(A @ g, x), A @ a.jacobian(g, x)


@lemma("eq:product-rule4", x="p 1", A="m n", f="1 m of x", m=3, n=4, p=5)
def product_rule_4(a: SymbolicAlgebra, x: Any, A: Any, f: Any) -> Sides:
    """∂(f A)/∂x = Aᵀ ∂f/∂x, for f(x) of size 1×m and A of size m×n"""
    return a.jacobian(f @ A, x), A.T @ a.jacobian(f, x)


@lemma("eq:chain-rule", x="n 1", m=3, n=4, p=5)
def chain_rule(a: SymbolicAlgebra, x: Any, m: Any, p: Any) -> Iterator[Step]:
    """∂g(f(x))/∂x = ∂g/∂y ∂f/∂x with y = f(x), for f: ℝⁿ → ℝᵐ and g: ℝᵐ → ℝᵖ

    g is a polynomial of degree 2, a + B y + (C y) ⊙ (H y), which has arbitrary values and derivatives at y.
    """
    B, C, H = (a.symbols(name, p, m) for name in "BCH")
    for kind, shape in (("a column", (m, 1)), ("a row", (1, m))):
        y, f = a.symbols("y", *shape), a.functions("f", shape, x)
        v = y if shape[0] is m else y.T
        g = a.symbols("a", p, 1) + B @ v + hadamard(C @ v, H @ v)
        yield Step(
            f"∂h/∂x = ∂g/∂y ∂f/∂x, y is {kind}",
            a.jacobian(a.at(g, y, f), x),
            a.at(a.jacobian(g, y), y, f) @ a.jacobian(f, x),
        )


# -- properties --------------------------------------------------------------------------------


@lemma("eq:matrix-property1", X="m n", Y="m n", m=3, n=4)
def matrix_property_1(a: SymbolicAlgebra, X: Any, Y: Any, m: Any) -> Sides:
    """If z^j = x^j (x^j)ᵀ y^j for all j, then Z = X ⊙ (1_m diag(Xᵀ Y)ᵀ)"""
    return of_columns(a, lambda x, y: x @ x.T @ y, X, Y), hadamard(X, row_repeat(diag(X.T @ Y).T, m))


@lemma("eq:matrix-property2", X="m n", Y="m n", m=3, n=4)
def matrix_property_2(a: SymbolicAlgebra, X: Any, Y: Any, m: Any) -> Sides:
    """If z^j = 1_m (x^j)ᵀ y^j for all j, then Z = 1_m diag(Xᵀ Y)ᵀ"""
    return of_columns(a, lambda x, y: ones(m, like=X) @ x.T @ y, X, Y), row_repeat(diag(X.T @ Y).T, m)


@lemma("eq:matrix-property3", X="m n", Y="m n", m=3, n=4)
def matrix_property_3(a: SymbolicAlgebra, X: Any, Y: Any, m: Any) -> Iterator[Step]:
    """If z^j = x^j 1_mᵀ y^j for all j, then Z = X ⊙ (1_m 1_mᵀ Y)"""
    one = ones(m, like=X)
    yield from chain(
        of_columns(a, lambda x, y: x @ one.T @ y, X, Y),
        ("Z = X ⊙ (1_m 1_mᵀ Y)", hadamard(X, one @ one.T @ Y)),
        ("in the table's operations", hadamard(X, row_repeat(columns_sum(Y), m))),
    )


@lemma("eq:matrix-property5", X="m n", Y="m n", m=3, n=4)
def matrix_property_5(a: SymbolicAlgebra, X: Any, Y: Any, n: Any) -> Sides:
    """If z_i = x_i y_iᵀ y_i for all i, then Z = (diag(X Yᵀ) 1_nᵀ) ⊙ Y"""
    return of_rows(a, lambda x, y: x @ y.T @ y, X, Y), hadamard(column_repeat(diag(X @ Y.T), n), Y)


@lemma("eq:matrix-property6", X="m n", Y="m n", m=3, n=4)
def matrix_property_6(a: SymbolicAlgebra, X: Any, Y: Any, n: Any) -> Sides:
    """If z_i = x_i y_iᵀ 1_nᵀ for all i, then Z = diag(X Yᵀ) 1_nᵀ"""
    return of_rows(a, lambda x, y: x @ y.T @ ones(n, like=X).T, X, Y), column_repeat(diag(X @ Y.T), n)


@lemma("eq:matrix-property7", X="m n", Y="m n", m=3, n=4)
def matrix_property_7(a: SymbolicAlgebra, X: Any, Y: Any, n: Any) -> Iterator[Step]:
    """If z_i = x_i 1_n y_i for all i, then Z = (X 1_n 1_nᵀ) ⊙ Y"""
    one = ones(n, like=X)
    yield from chain(
        of_rows(a, lambda x, y: x @ one @ y, X, Y),
        ("Z = (X 1_n 1_nᵀ) ⊙ Y", hadamard(X @ one @ one.T, Y)),
        ("in the table's operations", hadamard(column_repeat(rows_sum(X), n), Y)),
    )


# -- the literal forms of the paper and the linear forms of the code ---------------------------


@lemma("appendix:batch-normalization", X="N D", N=3, D=4)
def linear_form_of_the_centering(a: SymbolicAlgebra, X: Any, N: Any) -> Sides:
    """X - (1_N 1_Nᵀ / N) X = X - 1_N μ, with μ the column means of X"""
    return X - (ones(N, like=X) @ ones(N, like=X).T / N) @ X, X - row_repeat(columns_mean(X), N)


@lemma("appendix:batch-normalization", R="N D", N=3, D=4)
def linear_form_of_the_variance(a: SymbolicAlgebra, R: Any, N: Any) -> Sides:
    """diag(Rᵀ R)ᵀ / N = 1_Nᵀ (R ⊙ R) / N"""
    return diag(R.T @ R).T / N, columns_sum(hadamard(R, R)) / N


@lemma("eq:batch-normalization-backpropagation", Z="N D", DZ="N D", N=3, D=4)
def linear_forms_of_batch_normalization(a: SymbolicAlgebra, Z: Any, DZ: Any, N: Any) -> Iterator[Step]:
    """(N I_N - 1_N 1_Nᵀ) DZ = N DZ - 1_N (1_Nᵀ DZ), and diag(Zᵀ DZ)ᵀ = 1_Nᵀ (Z ⊙ DZ)"""
    literal = (N * identity(N, like=Z) - ones(N, N, like=Z)) @ DZ
    yield Step("1_N 1_Nᵀ = 1_NN", ones(N, like=Z) @ ones(N, like=Z).T, ones(N, N, like=Z))
    yield Step("(N I - 1 1ᵀ) DZ = N DZ - 1_N (1_Nᵀ DZ)", literal, N * DZ - row_repeat(columns_sum(DZ), N))
    yield Step("diag(Zᵀ DZ)ᵀ = 1_Nᵀ (Z ⊙ DZ)", diag(Z.T @ DZ).T, columns_sum(hadamard(Z, DZ)))


@lemma("eq:softmax-layer-backprop1", Y="N K", DY="N K", N=3, K=5)
def linear_form_of_the_softmax_layer(a: SymbolicAlgebra, Y: Any, DY: Any, K: Any) -> Sides:
    """diag(DY Yᵀ) 1_Kᵀ = ((DY ⊙ Y) 1_K) 1_Kᵀ"""
    return diag(DY @ Y.T) @ ones(K, like=Y).T, column_repeat(rows_sum(hadamard(DY, Y)), K)


# -- softmax -----------------------------------------------------------------------------------


@lemma("eq:softmax-single", z="1 K", K=5)
def softmax_of_a_row(a: SymbolicAlgebra, z: Any) -> Sides:
    """softmax(z) = e^z / (e^z 1_K)"""
    e = exp(z)
    return softmax(z), scaled(e, reciprocal(rows_sum(e)))


@lemma("eq:softmax-multiple", Z="N K", N=3, K=5)
def softmax_of_a_batch(a: SymbolicAlgebra, Z: Any, K: Any) -> Iterator[Step]:
    """softmax(Z) = e^Z ⊙ ((1 / (e^Z 1_K)) 1_Kᵀ), which is softmax of every row"""
    E, one = exp(Z), ones(K, like=Z)
    yield Step("e^Z ⊙ ((1 / (e^Z 1_K)) 1_Kᵀ)", softmax(Z), hadamard(E, reciprocal(E @ one) @ one.T))
    yield Step("row i is softmax(z_i)", softmax(Z), a.by_rows(lambda i: softmax(a.row(Z, i)), Z.shape))


@lemma("eq:stable-softmax-single", z="1 K", c="1 1", K=5)
def stable_softmax_of_a_row(a: SymbolicAlgebra, z: Any, c: Any, K: Any) -> Iterator[Step]:
    """stable-softmax(z) = e^y / (e^y 1_K) with y = z - max(z) 1_Kᵀ, which is softmax(z)"""
    y = z - rows_max(z) @ ones(K, like=z).T
    yield Step("e^y / (e^y 1_K)", stable_softmax(z), scaled(exp(y), reciprocal(rows_sum(exp(y)))))
    yield Step("softmax(z - c 1_Kᵀ) = softmax(z) for every c", softmax(z - column_repeat(c, K)), softmax(z))
    yield Step("stable-softmax(z) = softmax(z)", stable_softmax(z), softmax(z))
    yield Step("stable-log-softmax(z) = log-softmax(z)", stable_log_softmax(z), log_softmax(z))


@lemma("eq:stable-softmax-multiple", Z="N K", N=3, K=5)
def stable_softmax_of_a_batch(a: SymbolicAlgebra, Z: Any, K: Any) -> Iterator[Step]:
    """stable-softmax(Z) = e^Y ⊙ ((1 / (e^Y 1_K)) 1_Kᵀ) with Y = Z - max(Z)_row 1_Kᵀ, which is softmax(Z)"""
    one = ones(K, like=Z)
    Y = Z - rows_max(Z) @ one.T
    yield Step("e^Y ⊙ ((1 / (e^Y 1_K)) 1_Kᵀ)", stable_softmax(Z), hadamard(exp(Y), reciprocal(exp(Y) @ one) @ one.T))
    yield Step("stable-softmax(Z) = softmax(Z)", stable_softmax(Z), softmax(Z))
    yield Step("stable-log-softmax(Z) = log-softmax(Z)", stable_log_softmax(Z), log_softmax(Z))


@lemma("eq:softmax-derivation", z="1 K", K=5)
def softmax_derivation(a: SymbolicAlgebra, z: Any) -> Iterator[Step]:
    """∂softmax(z)/∂z = Diag(y) - yᵀ y with y = softmax(z)"""
    e, y = exp(z), softmax(z)
    s = reciprocal(rows_sum(e))
    yield from chain(
        a.jacobian(y, z),
        ("∂(e^z · 1/(e^z 1_K))/∂z", a.jacobian(scaled(e, s), z)),
        ("product rule 2", scaled(a.jacobian(e, z), s) + e.T @ a.jacobian(s, z)),
        ("∂e^z/∂z = Diag(e^z), ∂(1/s)/∂z = -e^z/s²", scaled(Diag(e), s) - e.T @ scaled(e, hadamard(s, s))),
        ("Diag and the product are linear", Diag(scaled(e, s)) - scaled(e, s).T @ scaled(e, s)),
        ("e^z / (e^z 1_K) = y", Diag(y) - y.T @ y),
        ("what the package computes", softmax_jacobian(z)),
        ("the derivative of stable-softmax", a.jacobian(stable_softmax(z), z)),
    )


@lemma("eq:log-softmax-derivation", x="1 D", v="1 D > 0", D=5)
def log_softmax_derivation(a: SymbolicAlgebra, x: Any, v: Any, D: Any) -> Iterator[Step]:
    """∂log-softmax(x)/∂x = I_D - 1_D softmax(x)"""
    I, one, y = identity(D, like=x), ones(D, like=x), softmax(x)
    yield Step("log-softmax(x) = log(softmax(x))", log_softmax(x), log(y))
    yield from chain(
        a.jacobian(log_softmax(x), x),
        ("∂log(softmax(x))/∂x", a.jacobian(log(y), x)),
        ("chain rule", a.at(a.jacobian(log(v), v), v, y) @ a.jacobian(y, x)),
        ("∂log(y)/∂y = Diag(1/y), the softmax derivation", Diag(reciprocal(y)) @ (Diag(y) - y.T @ y)),
        ("Diag(1/y) Diag(y) = I_D", I - Diag(reciprocal(y)) @ y.T @ y),
        ("Diag(1/y) yᵀ = 1_D", I - one @ y),
        ("what the package computes", log_softmax_jacobian(x)),
        ("the derivative of stable-log-softmax", a.jacobian(stable_log_softmax(x), x)),
    )


# -- batch normalization of a column -----------------------------------------------------------


def _mean_matrix(x: Any) -> Any:
    """1_N 1_Nᵀ / N"""
    N, _ = x.shape
    return ones(N, like=x) @ ones(N, like=x).T / N


def _centered(x: Any) -> Any:
    """x - 1_N μ"""
    N, _ = x.shape
    return x - row_repeat(columns_mean(x), N)


def _variance(r: Any) -> Any:
    """rᵀ r / N"""
    N, _ = r.shape
    return columns_sum(hadamard(r, r)) / N


@lemma("appendix:batch-normalization", x="N 1", Dr="N 1", N=4)
def batch_normalization_centering(a: SymbolicAlgebra, x: Any, Dr: Any, N: Any) -> Iterator[Step]:
    """r = (I_N - 1_N 1_Nᵀ / N) x, hence Dx = (I_N - 1_N 1_Nᵀ / N) Dr, for a column x"""
    I, J, r = identity(N, like=x), _mean_matrix(x), _centered(x)
    yield Step("r = (I_N - 1_N 1_Nᵀ / N) x", r, (I - J) @ x)
    yield Step("∂r/∂x = I_N - 1_N 1_Nᵀ / N", a.jacobian(r, x), I - J)
    yield from chain(
        a.gradient(dot(Dr, r), x),
        ("chain rule, with Dx = (∂ℒ/∂x)ᵀ", (Dr.T @ a.jacobian(r, x)).T),
        ("Dx = (I_N - 1_N 1_Nᵀ / N) Dr", (I - J) @ Dr),
    )


@lemma("appendix:batch-normalization", r="N 1", Dz="N 1", N=4)
def batch_normalization_scaling(a: SymbolicAlgebra, r: Any, Dz: Any, N: Any) -> Iterator[Step]:
    """z = σ^(-1/2) r with σ = rᵀ r / N, hence Dr = (σ^(-1/2) / N) (N I_N - z zᵀ) Dz, for an arbitrary column r"""
    I, sigma = identity(N, like=r), _variance(r)
    s = inv_sqrt(sigma)
    z = r @ s
    yield from chain(
        a.jacobian(z, r),
        ("product rule 1", scaled(a.jacobian(r, r), s) + r @ a.jacobian(s, r)),
        ("∂σ^(-1/2)/∂r = -(σ^(-3/2) / 2) ∂σ/∂r", scaled(I, s) - r @ scaled(a.jacobian(sigma, r), s**3) / 2),
        ("∂σ/∂r = 2 rᵀ / N", scaled(I, s) - r @ scaled(2 * r.T / N, s**3) / 2),
        ("z zᵀ = σ^(-1) r rᵀ", scaled(N * I - z @ z.T, s) / N),
    )
    yield from chain(
        a.gradient(dot(Dz, z), r),
        ("chain rule, with Dr = (∂ℒ/∂r)ᵀ", (Dz.T @ a.jacobian(z, r)).T),
        ("Dr = (σ^(-1/2) / N) (N I_N - z zᵀ) Dz", scaled(N * I - z @ z.T, s) @ Dz / N),
    )


@lemma("appendix:batch-normalization", r="N 1", N=4)
def batch_normalization_epsilon(a: SymbolicAlgebra, r: Any, N: Any) -> Sides:
    """∂z/∂r = (s / N) (N I_N - z zᵀ) with z = s r, also for s = (σ + ε)^(-1/2)"""
    epsilon = a.symbols("epsilon", is_positive=True)
    s = inv_sqrt(_variance(r), epsilon)
    z = r @ s
    return a.jacobian(z, r), scaled(N * identity(N, like=r) - z @ z.T, s) / N


@lemma("appendix:batch-normalization", x="N 1", Dz="N 1", N=4)
def batch_normalization_column(a: SymbolicAlgebra, x: Any, Dz: Any, N: Any) -> Iterator[Step]:
    """Dx = (σ^(-1/2) / N) ((N I_N - 1_N 1_Nᵀ) Dz - z zᵀ Dz), for a column x"""
    I, J, one, r = identity(N, like=x), _mean_matrix(x), ones(N, like=x), _centered(x)
    s = inv_sqrt(_variance(r))
    z = r @ s
    yield Step("1_Nᵀ r = 0", one.T @ r, zeros(1, 1, like=x))
    yield Step("1_Nᵀ z = 0, as z = σ^(-1/2) r", one.T @ z, zeros(1, 1, like=x))
    product = N * I - z @ z.T - one @ one.T + one @ one.T @ z @ z.T / N
    yield from chain(
        a.gradient(dot(Dz, z), x),
        ("Dx from Dr, and Dr from Dz", scaled((I - J) @ (N * I - z @ z.T) @ Dz, s) / N),
        ("the product", scaled(product @ Dz, s) / N),
        ("1_Nᵀ z = 0", scaled((N * I - one @ one.T) @ Dz - z @ z.T @ Dz, s) / N),
    )


# -- losses ------------------------------------------------------------------------------------


@lemma("appendix:loss-functions", y="1 K > 0", t="1 K", K=5)
def cross_entropy(a: SymbolicAlgebra, y: Any, t: Any) -> Iterator[Step]:
    """∇_y ℒ_CE(y, t) = -t ⊙ 1/y, with ℒ_CE(y, t) = -t log(y)ᵀ"""
    loss = CrossEntropyLoss()
    yield Step("ℒ_CE(y, t) = -t log(y)ᵀ", loss(y, t) * ones(1, 1, like=y), -t @ log(y).T)
    yield from chain(
        a.gradient(loss(y, t), y),
        ("product rule 3", -t @ a.jacobian(log(y), y)),
        ("∂log(y)/∂y = Diag(1/y)", -t @ Diag(reciprocal(y))),
        ("t Diag(1/y) = t ⊙ 1/y", -hadamard(t, reciprocal(y))),
        ("what the loss computes", loss.gradient(y, t)),
    )


@lemma("appendix:loss-functions", Y="N K > 0", T="N K", N=3, K=4)
def cross_entropy_of_a_batch(a: SymbolicAlgebra, Y: Any, T: Any) -> Iterator[Step]:
    """∇_Y ℒ_CE(Y, T) = -T ⊙ 1/Y"""
    yield from _batch(a, "-T ⊙ 1/Y", CrossEntropyLoss(), Y, T, -hadamard(T, reciprocal(Y)))


@lemma("eq:softmax-cross-entropy-derivation", y="1 K", t="1 K", K=5)
def softmax_cross_entropy(a: SymbolicAlgebra, y: Any, t: Any, K: Any) -> Iterator[Step]:
    """∇_y ℒ_SCE(y, t) = t 1_K softmax(y) - t, with ℒ_SCE(y, t) = -t log-softmax(y)ᵀ"""
    loss = SoftmaxCrossEntropyLoss()
    I, one = identity(K, like=y), ones(K, like=y)
    yield Step("ℒ_SCE(y, t) = -t log-softmax(y)ᵀ", loss(y, t) * ones(1, 1, like=y), -t @ log_softmax(y).T)
    yield from chain(
        a.gradient(loss(y, t), y),
        ("product rule 3", -t @ a.jacobian(log_softmax(y), y)),
        ("log-softmax derivation", -t @ (I - one @ softmax(y))),
        ("the product", t @ one @ softmax(y) - t),
        ("what the loss computes", loss.gradient(y, t)),
    )


@lemma("eq:softmax-cross-entropy-derivation", Y="N K", T="N K", N=3, K=4)
def softmax_cross_entropy_of_a_batch(a: SymbolicAlgebra, Y: Any, T: Any, K: Any) -> Iterator[Step]:
    """∇_Y ℒ_SCE(Y, T) = softmax(Y) ⊙ (T 1_K 1_Kᵀ) - T"""
    one = ones(K, like=Y)
    formula = hadamard(softmax(Y), T @ one @ one.T) - T

    def of_row(i: Any) -> Any:
        return a.row(T, i) @ one @ softmax(a.row(Y, i)) - a.row(T, i)

    yield Step("matrix property 7", a.by_rows(of_row, Y.shape), formula)
    yield Step("the table's form", formula, hadamard(softmax(Y), column_repeat(rows_sum(T), K)) - T)
    yield from _batch(a, "softmax(Y) ⊙ (T 1_K 1_Kᵀ) - T", SoftmaxCrossEntropyLoss(), Y, T, formula)


@lemma("eq:softmax-cross-entropy-derivation", Y="N K", S="N K", N=3, K=4)
def softmax_cross_entropy_one_hot(a: SymbolicAlgebra, Y: Any, S: Any, N: Any, K: Any) -> Iterator[Step]:
    """∇_Y ℒ_SCE(Y, T) = softmax(Y) - T whenever T 1_K = 1_N, as for one-hot rows of T

    Every such T is of the form S ⊙ ((1 / (S 1_K)) 1_Kᵀ), and is so for S = T.
    """
    loss = SoftmaxCrossEntropyLoss()
    T = hadamard(S, column_repeat(reciprocal(rows_sum(S)), K))
    yield Step("T 1_K = 1_N", rows_sum(T), ones(N, like=Y))
    yield from chain(
        a.gradient(loss(Y, T), Y),
        ("∇_Y ℒ_SCE = softmax(Y) - T", softmax(Y) - T),
        ("what the loss computes", loss.gradient(Y, T)),
    )


@lemma("appendix:loss-functions", y="1 K", K=5)
def derivative_of_log_sigmoid(a: SymbolicAlgebra, y: Any, K: Any) -> Iterator[Step]:
    """∂log(σ(y))/∂y = Diag(1_Kᵀ - σ(y))"""
    yield Step("the table's log_sigmoid(y) is log(σ(y))", log_sigmoid(y), log(sigmoid(y)))
    yield Step("Diag(1_Kᵀ - σ(y))", a.jacobian(log(sigmoid(y)), y), Diag(ones(1, K, like=y) - sigmoid(y)))


@lemma("eq:logistic-cross-entropy-loss", y="1 K", t="1 K", K=5)
def logistic_cross_entropy(a: SymbolicAlgebra, y: Any, t: Any, K: Any) -> Iterator[Step]:
    """∇_y ℒ_LCE(y, t) = t ⊙ σ(y) - t, with ℒ_LCE(y, t) = -t log(σ(y))ᵀ"""
    loss = LogisticCrossEntropyLoss()
    yield Step("ℒ_LCE(y, t) = -t log(σ(y))ᵀ", loss(y, t) * ones(1, 1, like=y), -t @ log(sigmoid(y)).T)
    yield from chain(
        a.gradient(loss(y, t), y),
        ("product rule 3", -t @ a.jacobian(log(sigmoid(y)), y)),
        ("d log(σ(x))/dx = 1 - σ(x)", -t @ Diag(ones(1, K, like=y) - sigmoid(y))),
        ("t ⊙ σ(y) - t", hadamard(t, sigmoid(y)) - t),
        ("what the loss computes", loss.gradient(y, t)),
    )


@lemma("eq:logistic-cross-entropy-loss", Y="N K", T="N K", N=3, K=4)
def logistic_cross_entropy_of_a_batch(a: SymbolicAlgebra, Y: Any, T: Any) -> Iterator[Step]:
    """∇_Y ℒ_LCE(Y, T) = T ⊙ σ(Y) - T"""
    yield from _batch(a, "T ⊙ σ(Y) - T", LogisticCrossEntropyLoss(), Y, T, hadamard(T, sigmoid(Y)) - T)


def _batch(a: SymbolicAlgebra, text: str, loss: LossFunction, Y: Any, T: Any, formula: Any) -> Iterator[Step]:
    """∇_Y ℒ(Y, T) has the rows ∇_y ℒ(y_i, t_i), and is the formula."""
    K = Y.shape[1]
    y, t = a.symbols("y", 1, K), a.symbols("t", 1, K)
    of_a_row = a.gradient(loss(y, t), y)
    rows = a.by_rows(lambda i: a.at(a.at(of_a_row, y, a.row(Y, i)), t, a.row(T, i)), Y.shape)
    yield from chain(
        a.gradient(loss(Y, T), Y),
        ("the rows are ∇_y ℒ(y_i, t_i)", rows),
        (f"∇_Y ℒ(Y, T) = {text}", formula),
        ("what the loss computes", loss.gradient(Y, T)),
    )
