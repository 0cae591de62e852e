"""The paper's derivations of softmax, batch normalization and the losses, step by step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from matgrad.activation_functions import sigmoid
from matgrad.judges.algebra import Lemma, Step, SymbolicAlgebra, chain
from matgrad.loss_functions import (
    CrossEntropyLoss,
    LogisticCrossEntropyLoss,
    LossFunction,
    SoftmaxCrossEntropyLoss,
)
from matgrad.matrix_operations import (
    Diag,
    column_repeat,
    columns_mean,
    columns_sum,
    dot,
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


def derivations() -> list[Lemma]:
    """The derivations, in the order of the paper."""
    return [
        Lemma.of(softmax_of_a_row, "eq:softmax-single", K=5),
        Lemma.of(softmax_of_a_batch, "eq:softmax-multiple", N=3, K=5),
        Lemma.of(stable_softmax_of_a_row, "eq:stable-softmax-single", K=5),
        Lemma.of(stable_softmax_of_a_batch, "eq:stable-softmax-multiple", N=3, K=5),
        Lemma.of(softmax_derivation, "eq:softmax-derivation", K=5),
        Lemma.of(log_softmax_derivation, "eq:log-softmax-derivation", D=5),
        Lemma.of(batch_normalization_centering, "appendix:batch-normalization", N=4),
        Lemma.of(batch_normalization_scaling, "appendix:batch-normalization", N=4),
        Lemma.of(batch_normalization_epsilon, "appendix:batch-normalization", N=4),
        Lemma.of(batch_normalization_column, "appendix:batch-normalization", N=4),
        Lemma.of(cross_entropy, "appendix:loss-functions", K=5),
        Lemma.of(cross_entropy_of_a_batch, "appendix:loss-functions", N=3, K=4),
        Lemma.of(softmax_cross_entropy, "eq:softmax-cross-entropy-derivation", K=5),
        Lemma.of(softmax_cross_entropy_of_a_batch, "eq:softmax-cross-entropy-derivation", N=3, K=4),
        Lemma.of(softmax_cross_entropy_one_hot, "eq:softmax-cross-entropy-derivation", N=3, K=4),
        Lemma.of(derivative_of_log_sigmoid, "appendix:loss-functions", K=5),
        Lemma.of(logistic_cross_entropy, "eq:logistic-cross-entropy-loss", K=5),
        Lemma.of(logistic_cross_entropy_of_a_batch, "eq:logistic-cross-entropy-loss", N=3, K=4),
    ]


# -- softmax -----------------------------------------------------------------------------------


def softmax_of_a_row(a: SymbolicAlgebra, K: Any) -> Iterator[Step]:
    """softmax(z) = e^z / (e^z 1_K)"""
    z = a.symbols("z", 1, K)
    e = exp(z)
    yield Step("softmax(z) = e^z / (e^z 1_K)", softmax(z), a.scaled(e, reciprocal(rows_sum(e))))


def softmax_of_a_batch(a: SymbolicAlgebra, N: Any, K: Any) -> Iterator[Step]:
    """softmax(Z) = e^Z ⊙ ((1 / (e^Z 1_K)) 1_Kᵀ), which is softmax of every row"""
    Z = a.symbols("Z", N, K)
    E, one = exp(Z), ones(K, like=Z)
    yield Step("e^Z ⊙ ((1 / (e^Z 1_K)) 1_Kᵀ)", softmax(Z), hadamard(E, reciprocal(E @ one) @ one.T))
    yield Step("row i is softmax(z_i)", softmax(Z), a.by_rows(lambda i: softmax(a.row(Z, i)), Z.shape))


def stable_softmax_of_a_row(a: SymbolicAlgebra, K: Any) -> Iterator[Step]:
    """stable-softmax(z) = e^y / (e^y 1_K) with y = z - max(z) 1_Kᵀ, which is softmax(z)"""
    z, c = a.symbols("z", 1, K), a.symbols("c", 1, 1)
    y = z - rows_max(z) @ ones(K, like=z).T
    yield Step("e^y / (e^y 1_K)", stable_softmax(z), a.scaled(exp(y), reciprocal(rows_sum(exp(y)))))
    yield Step("softmax(z - c 1_Kᵀ) = softmax(z) for every c", softmax(z - column_repeat(c, K)), softmax(z))
    yield Step("stable-softmax(z) = softmax(z)", stable_softmax(z), softmax(z))
    yield Step("stable-log-softmax(z) = log-softmax(z)", stable_log_softmax(z), log_softmax(z))


def stable_softmax_of_a_batch(a: SymbolicAlgebra, N: Any, K: Any) -> Iterator[Step]:
    """stable-softmax(Z) = e^Y ⊙ ((1 / (e^Y 1_K)) 1_Kᵀ) with Y = Z - max(Z)_row 1_Kᵀ, which is softmax(Z)"""
    Z = a.symbols("Z", N, K)
    one = ones(K, like=Z)
    Y = Z - rows_max(Z) @ one.T
    yield Step("e^Y ⊙ ((1 / (e^Y 1_K)) 1_Kᵀ)", stable_softmax(Z), hadamard(exp(Y), reciprocal(exp(Y) @ one) @ one.T))
    yield Step("stable-softmax(Z) = softmax(Z)", stable_softmax(Z), softmax(Z))
    yield Step("stable-log-softmax(Z) = log-softmax(Z)", stable_log_softmax(Z), log_softmax(Z))


def softmax_derivation(a: SymbolicAlgebra, K: Any) -> Iterator[Step]:
    """∂softmax(z)/∂z = Diag(y) - yᵀ y with y = softmax(z)"""
    z = a.symbols("z", 1, K)
    e, y = exp(z), softmax(z)
    s = reciprocal(rows_sum(e))
    yield from chain(
        a.jacobian(y, z),
        ("∂(e^z · 1/(e^z 1_K))/∂z", a.jacobian(a.scaled(e, s), z)),
        ("product rule 2", a.scaled(a.jacobian(e, z), s) + e.T @ a.jacobian(s, z)),
        ("∂e^z/∂z = Diag(e^z), ∂(1/s)/∂z = -e^z/s²", a.scaled(Diag(e), s) - e.T @ a.scaled(e, hadamard(s, s))),
        ("Diag and the product are linear", Diag(a.scaled(e, s)) - a.scaled(e, s).T @ a.scaled(e, s)),
        ("e^z / (e^z 1_K) = y", Diag(y) - y.T @ y),
        ("what the package computes", softmax_jacobian(z)),
        ("the derivative of stable-softmax", a.jacobian(stable_softmax(z), z)),
    )


def log_softmax_derivation(a: SymbolicAlgebra, D: Any) -> Iterator[Step]:
    """∂log-softmax(x)/∂x = I_D - 1_D softmax(x)"""
    x, v = a.symbols("x", 1, D), a.symbols("y", 1, D, is_positive=True)
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


def batch_normalization_centering(a: SymbolicAlgebra, N: Any) -> Iterator[Step]:
    """r = (I_N - 1_N 1_Nᵀ / N) x, hence Dx = (I_N - 1_N 1_Nᵀ / N) Dr, for a column x"""
    x, Dr = a.symbols("x", N, 1), a.symbols("Dr", N, 1)
    I, J, r = identity(N, like=x), _mean_matrix(x), _centered(x)
    yield Step("r = (I_N - 1_N 1_Nᵀ / N) x", r, (I - J) @ x)
    yield Step("∂r/∂x = I_N - 1_N 1_Nᵀ / N", a.jacobian(r, x), I - J)
    yield from chain(
        a.gradient(dot(Dr, r), x),
        ("chain rule, with Dx = (∂ℒ/∂x)ᵀ", (Dr.T @ a.jacobian(r, x)).T),
        ("Dx = (I_N - 1_N 1_Nᵀ / N) Dr", (I - J) @ Dr),
    )


def batch_normalization_scaling(a: SymbolicAlgebra, N: Any) -> Iterator[Step]:
    """z = σ^(-1/2) r with σ = rᵀ r / N, hence Dr = (σ^(-1/2) / N) (N I_N - z zᵀ) Dz, for an arbitrary column r"""
    r, Dz = a.symbols("r", N, 1), a.symbols("Dz", N, 1)
    I, sigma = identity(N, like=r), _variance(r)
    s = inv_sqrt(sigma)
    z = r @ s
    yield from chain(
        a.jacobian(z, r),
        ("product rule 1", a.scaled(a.jacobian(r, r), s) + r @ a.jacobian(s, r)),
        ("∂σ^(-1/2)/∂r = -(σ^(-3/2) / 2) ∂σ/∂r", a.scaled(I, s) - r @ a.scaled(a.jacobian(sigma, r), s**3) / 2),
        ("∂σ/∂r = 2 rᵀ / N", a.scaled(I, s) - r @ a.scaled(2 * r.T / N, s**3) / 2),
        ("z zᵀ = σ^(-1) r rᵀ", a.scaled(N * I - z @ z.T, s) / N),
    )
    yield from chain(
        a.gradient(dot(Dz, z), r),
        ("chain rule, with Dr = (∂ℒ/∂r)ᵀ", (Dz.T @ a.jacobian(z, r)).T),
        ("Dr = (σ^(-1/2) / N) (N I_N - z zᵀ) Dz", a.scaled(N * I - z @ z.T, s) @ Dz / N),
    )


def batch_normalization_epsilon(a: SymbolicAlgebra, N: Any) -> Iterator[Step]:
    """∂z/∂r = (s / N) (N I_N - z zᵀ) with z = s r, also for s = (σ + ε)^(-1/2)"""
    r = a.symbols("r", N, 1)
    epsilon = a.symbols("epsilon", is_positive=True)
    s = inv_sqrt(_variance(r), epsilon)
    z = r @ s
    yield Step("∂z/∂r with ε", a.jacobian(z, r), a.scaled(N * identity(N, like=r) - z @ z.T, s) / N)


def batch_normalization_column(a: SymbolicAlgebra, N: Any) -> Iterator[Step]:
    """Dx = (σ^(-1/2) / N) ((N I_N - 1_N 1_Nᵀ) Dz - z zᵀ Dz), for a column x"""
    x, Dz = a.symbols("x", N, 1), a.symbols("Dz", N, 1)
    I, J, one, r = identity(N, like=x), _mean_matrix(x), ones(N, like=x), _centered(x)
    s = inv_sqrt(_variance(r))
    z = r @ s
    yield Step("1_Nᵀ r = 0", one.T @ r, zeros(1, 1, like=x))
    yield Step("1_Nᵀ z = 0, as z = σ^(-1/2) r", one.T @ z, zeros(1, 1, like=x))
    product = N * I - z @ z.T - one @ one.T + one @ one.T @ z @ z.T / N
    yield from chain(
        a.gradient(dot(Dz, z), x),
        ("Dx from Dr, and Dr from Dz", a.scaled((I - J) @ (N * I - z @ z.T) @ Dz, s) / N),
        ("the product", a.scaled(product @ Dz, s) / N),
        ("1_Nᵀ z = 0", a.scaled((N * I - one @ one.T) @ Dz - z @ z.T @ Dz, s) / N),
    )


# -- losses ------------------------------------------------------------------------------------


def cross_entropy(a: SymbolicAlgebra, K: Any) -> Iterator[Step]:
    """∇_y ℒ_CE(y, t) = -t ⊙ 1/y, with ℒ_CE(y, t) = -t log(y)ᵀ"""
    y, t, loss = a.symbols("y", 1, K, is_positive=True), a.symbols("t", 1, K), CrossEntropyLoss()
    yield Step("ℒ_CE(y, t) = -t log(y)ᵀ", a.as_matrix(loss(y, t)), -t @ log(y).T)
    yield from chain(
        a.gradient(loss(y, t), y),
        ("product rule 3", -t @ a.jacobian(log(y), y)),
        ("∂log(y)/∂y = Diag(1/y)", -t @ Diag(reciprocal(y))),
        ("t Diag(1/y) = t ⊙ 1/y", -hadamard(t, reciprocal(y))),
        ("what the loss computes", loss.gradient(y, t)),
    )


def cross_entropy_of_a_batch(a: SymbolicAlgebra, N: Any, K: Any) -> Iterator[Step]:
    """∇_Y ℒ_CE(Y, T) = -T ⊙ 1/Y"""
    Y, T = a.symbols("Y", N, K, is_positive=True), a.symbols("T", N, K)
    yield from _batch(a, "-T ⊙ 1/Y", CrossEntropyLoss(), Y, T, -hadamard(T, reciprocal(Y)))


def softmax_cross_entropy(a: SymbolicAlgebra, K: Any) -> Iterator[Step]:
    """∇_y ℒ_SCE(y, t) = t 1_K softmax(y) - t, with ℒ_SCE(y, t) = -t log-softmax(y)ᵀ"""
    y, t, loss = a.symbols("y", 1, K), a.symbols("t", 1, K), SoftmaxCrossEntropyLoss()
    I, one = identity(K, like=y), ones(K, like=y)
    yield Step("ℒ_SCE(y, t) = -t log-softmax(y)ᵀ", a.as_matrix(loss(y, t)), -t @ log_softmax(y).T)
    yield from chain(
        a.gradient(loss(y, t), y),
        ("product rule 3", -t @ a.jacobian(log_softmax(y), y)),
        ("log-softmax derivation", -t @ (I - one @ softmax(y))),
        ("the product", t @ one @ softmax(y) - t),
        ("what the loss computes", loss.gradient(y, t)),
    )


def softmax_cross_entropy_of_a_batch(a: SymbolicAlgebra, N: Any, K: Any) -> Iterator[Step]:
    """∇_Y ℒ_SCE(Y, T) = softmax(Y) ⊙ (T 1_K 1_Kᵀ) - T"""
    Y, T = a.symbols("Y", N, K), a.symbols("T", N, K)
    one = ones(K, like=Y)
    formula = hadamard(softmax(Y), T @ one @ one.T) - T

    def of_row(i: Any) -> Any:
        return a.row(T, i) @ one @ softmax(a.row(Y, i)) - a.row(T, i)

    yield Step("matrix property 7", a.by_rows(of_row, Y.shape), formula)
    yield Step("the table's form", formula, hadamard(softmax(Y), column_repeat(rows_sum(T), K)) - T)
    yield from _batch(a, "softmax(Y) ⊙ (T 1_K 1_Kᵀ) - T", SoftmaxCrossEntropyLoss(), Y, T, formula)


def softmax_cross_entropy_one_hot(a: SymbolicAlgebra, N: Any, K: Any) -> Iterator[Step]:
    """∇_Y ℒ_SCE(Y, T) = softmax(Y) - T whenever T 1_K = 1_N, as for one-hot rows of T

    Every such T is of the form S ⊙ ((1 / (S 1_K)) 1_Kᵀ), and is so for S = T.
    """
    Y, S, loss = a.symbols("Y", N, K), a.symbols("S", N, K), SoftmaxCrossEntropyLoss()
    T = hadamard(S, column_repeat(reciprocal(rows_sum(S)), K))
    yield Step("T 1_K = 1_N", rows_sum(T), ones(N, like=Y))
    yield from chain(
        a.gradient(loss(Y, T), Y),
        ("∇_Y ℒ_SCE = softmax(Y) - T", softmax(Y) - T),
        ("what the loss computes", loss.gradient(Y, T)),
    )


def derivative_of_log_sigmoid(a: SymbolicAlgebra, K: Any) -> Iterator[Step]:
    """∂log(σ(y))/∂y = Diag(1_Kᵀ - σ(y))"""
    y = a.symbols("y", 1, K)
    yield Step("the table's log_sigmoid(y) is log(σ(y))", log_sigmoid(y), log(sigmoid(y)))
    yield Step("Diag(1_Kᵀ - σ(y))", a.jacobian(log(sigmoid(y)), y), Diag(ones(1, K, like=y) - sigmoid(y)))


def logistic_cross_entropy(a: SymbolicAlgebra, K: Any) -> Iterator[Step]:
    """∇_y ℒ_LCE(y, t) = t ⊙ σ(y) - t, with ℒ_LCE(y, t) = -t log(σ(y))ᵀ"""
    y, t, loss = a.symbols("y", 1, K), a.symbols("t", 1, K), LogisticCrossEntropyLoss()
    yield Step("ℒ_LCE(y, t) = -t log(σ(y))ᵀ", a.as_matrix(loss(y, t)), -t @ log(sigmoid(y)).T)
    yield from chain(
        a.gradient(loss(y, t), y),
        ("product rule 3", -t @ a.jacobian(log(sigmoid(y)), y)),
        ("d log(σ(x))/dx = 1 - σ(x)", -t @ Diag(ones(1, K, like=y) - sigmoid(y))),
        ("t ⊙ σ(y) - t", hadamard(t, sigmoid(y)) - t),
        ("what the loss computes", loss.gradient(y, t)),
    )


def logistic_cross_entropy_of_a_batch(a: SymbolicAlgebra, N: Any, K: Any) -> Iterator[Step]:
    """∇_Y ℒ_LCE(Y, T) = T ⊙ σ(Y) - T"""
    Y, T = a.symbols("Y", N, K), a.symbols("T", N, K)
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
