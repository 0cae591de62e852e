"""The paper's derivations of loss gradients: cross-entropy, softmax cross-entropy, logistic cross-entropy."""

from __future__ import annotations

from collections.abc import Iterator

import sympy as sp

from matgrad.activation_functions import sigmoid
from matgrad.loss_functions import CrossEntropyLoss, LogisticCrossEntropyLoss, LossFunction, SoftmaxCrossEntropyLoss
from matgrad.matrix_operations import (
    Diag,
    column_repeat,
    hadamard,
    identity,
    log,
    log_sigmoid,
    ones,
    reciprocal,
    rows_sum,
)
from matgrad.softmax_functions import log_softmax, softmax
from matgrad.symbolic.checks.derivatives import derivative
from matgrad.symbolic.checks.equality import symbols
from matgrad.symbolic.derivations.steps import Derivation, Step, by_rows, chain


def loss_derivations() -> list[Derivation]:
    """The losses for one row, then for a batch, in the order of the paper."""
    return [
        Derivation.of(cross_entropy, "appendix:loss-functions", K=5),
        Derivation.of(cross_entropy_of_a_batch, "appendix:loss-functions", N=3, K=4),
        Derivation.of(softmax_cross_entropy, "eq:softmax-cross-entropy-derivation", K=5),
        Derivation.of(softmax_cross_entropy_of_a_batch, "eq:softmax-cross-entropy-derivation", N=3, K=4),
        Derivation.of(softmax_cross_entropy_one_hot, "eq:softmax-cross-entropy-derivation", N=3, K=4),
        Derivation.of(derivative_of_log_sigmoid, "appendix:loss-functions", K=5),
        Derivation.of(logistic_cross_entropy, "eq:logistic-cross-entropy-loss", K=5),
        Derivation.of(logistic_cross_entropy_of_a_batch, "eq:logistic-cross-entropy-loss", N=3, K=4),
    ]


def cross_entropy(K: int) -> Iterator[Step]:
    """∇_y ℒ_CE(y, t) = -t ⊙ 1/y, with ℒ_CE(y, t) = -t log(y)ᵀ"""
    y, t, loss = symbols("y", 1, K, positive=True), symbols("t", 1, K), CrossEntropyLoss()
    yield Step("ℒ_CE(y, t) = -t log(y)ᵀ", _scalar(loss(y, t)), -t @ log(y).T)
    yield from chain(
        derivative(loss(y, t), y),
        ("-∂(t log(y)ᵀ)/∂y", -(t @ log(y).T).jacobian(y)),
        ("product rule 3", -t @ log(y).T.jacobian(y)),
        ("∂log(y)/∂y = Diag(1/y)", -t @ Diag(reciprocal(y))),
        ("t Diag(1/y) = t ⊙ 1/y", -hadamard(t, reciprocal(y))),
        ("what the loss computes", loss.gradient(y, t)),
    )


def cross_entropy_of_a_batch(N: int, K: int) -> Iterator[Step]:
    """∇_Y ℒ_CE(Y, T) = -T ⊙ 1/Y, with ℒ_CE(Y, T) = -1_Nᵀ (T ⊙ log(Y)) 1_K"""
    Y, T, loss = symbols("Y", N, K, positive=True), symbols("T", N, K), CrossEntropyLoss()
    yield _batch_value("-1_Nᵀ (T ⊙ log(Y)) 1_K", loss, Y, T, -hadamard(T, log(Y)))
    yield from _batch_gradient("-T ⊙ 1/Y", loss, Y, T, -hadamard(T, reciprocal(Y)))


def softmax_cross_entropy(K: int) -> Iterator[Step]:
    """∇_y ℒ_SCE(y, t) = t 1_K softmax(y) - t, with ℒ_SCE(y, t) = -t log-softmax(y)ᵀ"""
    y, t, loss = symbols("y", 1, K), symbols("t", 1, K), SoftmaxCrossEntropyLoss()
    I, one = identity(K, like=y), ones(K, like=y)
    yield Step("ℒ_SCE(y, t) = -t log-softmax(y)ᵀ", _scalar(loss(y, t)), -t @ log_softmax(y).T)
    yield from chain(
        derivative(loss(y, t), y),
        ("-∂(t log-softmax(y)ᵀ)/∂y", -(t @ log_softmax(y).T).jacobian(y)),
        ("product rule 3", -t @ log_softmax(y).T.jacobian(y)),
        ("log-softmax derivation", -t @ (I - one @ softmax(y))),
        ("the product", t @ one @ softmax(y) - t),
        ("what the loss computes", loss.gradient(y, t)),
    )


def softmax_cross_entropy_of_a_batch(N: int, K: int) -> Iterator[Step]:
    """∇_Y ℒ_SCE(Y, T) = softmax(Y) ⊙ (T 1_K 1_Kᵀ) - T"""
    Y, T, loss = symbols("Y", N, K), symbols("T", N, K), SoftmaxCrossEntropyLoss()
    one = ones(K, like=Y)
    formula = hadamard(softmax(Y), T @ one @ one.T) - T
    yield _batch_value("-1_Nᵀ (T ⊙ log-softmax(Y)) 1_K", loss, Y, T, -hadamard(T, log_softmax(Y)))
    yield Step("matrix property 7", by_rows(lambda i: T.row(i) @ one @ softmax(Y.row(i)) - T.row(i), N), formula)
    yield Step("the table's form", formula, hadamard(softmax(Y), column_repeat(rows_sum(T), K)) - T)
    yield from _batch_gradient("softmax(Y) ⊙ (T 1_K 1_Kᵀ) - T", loss, Y, T, formula)


def softmax_cross_entropy_one_hot(N: int, K: int) -> Iterator[Step]:
    """∇_Y ℒ_SCE(Y, T) = softmax(Y) - T for one-hot rows of T, and whenever T 1_K = 1_N"""
    Y, S, loss = symbols("Y", N, K), symbols("T", N, K - 1), SoftmaxCrossEntropyLoss()
    y = symbols("y", 1, K)
    T = sp.Matrix.hstack(S, ones(N, like=S) - rows_sum(S))
    one_hot = sp.Matrix(N, K, lambda i, j: int(j == (2 * i + 1) % K))
    yield Step("one-hot: T 1_K = 1_N", rows_sum(one_hot), ones(N, like=Y))
    for case, targets in (("T 1_K = 1_N", T), ("one-hot", one_hot)):
        yield Step(f"∇_Y ℒ_SCE = softmax(Y) - T, {case}", derivative(loss(Y, targets), Y), softmax(Y) - targets)
        yield Step(f"what the loss computes, {case}", softmax(Y) - targets, loss.gradient(Y, targets))
    for k in range(K):
        t = identity(K, like=y).row(k)
        yield Step(f"∇_y ℒ_SCE = softmax(y) - t, class {k}", derivative(loss(y, t), y), softmax(y) - t)


def derivative_of_log_sigmoid(K: int) -> Iterator[Step]:
    """d log(σ(x))/dx = σ'(x)/σ(x) = 1 - σ(x), and ∂log(σ(y))/∂y = Diag(1_Kᵀ - σ(y))"""
    x, y = symbols("x", 1, 1), symbols("y", 1, K)
    s, one = sigmoid(x), ones(1, 1, like=x)
    yield Step("the table's log_sigmoid(x) is log(σ(x))", log_sigmoid(x), log(s))
    yield from chain(
        log(s).diff(x[0]),
        ("σ'(x)/σ(x)", hadamard(s.diff(x[0]), reciprocal(s))),
        ("σ'(x) = σ(x)·(1 - σ(x))", hadamard(hadamard(s, one - s), reciprocal(s))),
        ("1 - σ(x)", one - s),
    )
    yield Step("the package's σ'", s.diff(x[0]), sigmoid.gradient(x))
    yield Step("∂log(σ(y))/∂y", log(sigmoid(y)).jacobian(y), Diag(ones(1, K, like=y) - sigmoid(y)))


def logistic_cross_entropy(K: int) -> Iterator[Step]:
    """∇_y ℒ_LCE(y, t) = t ⊙ σ(y) - t, with ℒ_LCE(y, t) = -t log(σ(y))ᵀ"""
    y, t, loss = symbols("y", 1, K), symbols("t", 1, K), LogisticCrossEntropyLoss()
    yield Step("ℒ_LCE(y, t) = -t log(σ(y))ᵀ", _scalar(loss(y, t)), -t @ log(sigmoid(y)).T)
    yield from chain(
        derivative(loss(y, t), y),
        ("∂(-t log(σ(y))ᵀ)/∂y", (-t @ log(sigmoid(y)).T).jacobian(y)),
        ("product rule 3", -t @ log(sigmoid(y)).T.jacobian(y)),
        ("d log(σ(x))/dx = 1 - σ(x)", -t @ Diag(ones(1, K, like=y) - sigmoid(y))),
        ("t ⊙ σ(y) - t", hadamard(t, sigmoid(y)) - t),
        ("what the loss computes", loss.gradient(y, t)),
    )


def logistic_cross_entropy_of_a_batch(N: int, K: int) -> Iterator[Step]:
    """∇_Y ℒ_LCE(Y, T) = T ⊙ σ(Y) - T, with ℒ_LCE(Y, T) = -1_Nᵀ (T ⊙ log(σ(Y))) 1_K"""
    Y, T, loss = symbols("Y", N, K), symbols("T", N, K), LogisticCrossEntropyLoss()
    yield _batch_value("-1_Nᵀ (T ⊙ log(σ(Y))) 1_K", loss, Y, T, -hadamard(T, log(sigmoid(Y))))
    yield from _batch_gradient("T ⊙ σ(Y) - T", loss, Y, T, hadamard(T, sigmoid(Y)) - T)


def _batch_value(text: str, loss: LossFunction, Y: sp.Matrix, T: sp.Matrix, terms: sp.Matrix) -> Step:
    """ℒ(Y, T) = 1_Nᵀ terms 1_K"""
    N, K = Y.shape
    return Step(f"ℒ(Y, T) = {text}", _scalar(loss(Y, T)), ones(N, like=Y).T @ terms @ ones(K, like=Y))


def _batch_gradient(text: str, loss: LossFunction, Y: sp.Matrix, T: sp.Matrix, formula: sp.Matrix) -> Iterator[Step]:
    """ℒ(Y, T) = Σ_i ℒ(y_i, t_i); ∇_Y ℒ(Y, T) has the rows ∇_y ℒ(y_i, t_i), and is the formula."""
    N, _ = Y.shape
    rows = [(Y.row(i), T.row(i)) for i in range(N)]
    yield Step("ℒ(Y, T) = Σ_i ℒ(y_i, t_i)", _scalar(loss(Y, T)), _scalar(sum(loss(y, t) for y, t in rows)))
    yield from chain(
        derivative(loss(Y, T), Y),
        ("the rows are ∇_y ℒ(y_i, t_i)", by_rows(lambda i: derivative(loss(*rows[i]), rows[i][0]), N)),
        (f"∇_Y ℒ(Y, T) = {text}", formula),
        ("what the loss computes", loss.gradient(Y, T)),
    )


def _scalar(value: sp.Expr) -> sp.Matrix:
    """The 1×1 matrix of a scalar."""
    return sp.Matrix([[value]])
