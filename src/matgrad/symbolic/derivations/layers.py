"""The paper's derivations of the linear layer, the softmax layer and the log-softmax layer.

The loss on top of a layer is arbitrary: its gradient DY is a matrix of symbols.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sympy as sp

from matgrad.layers import LinearLayer, LogSoftmaxLayer, SoftmaxLayer
from matgrad.matrix_operations import (
    Diag,
    column_repeat,
    columns_sum,
    diag,
    elements_sum,
    hadamard,
    identity,
    ones,
    rows_sum,
)
from matgrad.softmax_functions import log_softmax, softmax
from matgrad.symbolic.checks.derivatives import derivative
from matgrad.symbolic.checks.equality import symbols
from matgrad.symbolic.checks.exact import symbolic_layer
from matgrad.symbolic.derivations.steps import Derivation, Step, at, by_rows, chain


def layer_derivations() -> list[Derivation]:
    """The linear layer, the softmax layer and the log-softmax layer, in the order of the paper."""
    return [
        Derivation.of(linear_layer_by_rows, "eq:linear-layer-feedforward", N=3, D=4, K=5),
        Derivation.of(linear_layer_DX, "eq:dLdx", N=3, D=4, K=5),
        Derivation.of(linear_layer_Db, "eq:dLdb", N=3, D=4, K=5),
        Derivation.of(linear_layer_DW, "eq:dLdw", N=3, D=4, K=5),
        Derivation.of(softmax_layer_by_rows, "eq:softmax-layer-feedforward", N=3, D=4, K=5),
        Derivation.of(softmax_layer_DZ, "eq:softmax-layer-backprop1", N=3, D=4, K=5),
        Derivation.of(softmax_layer_parameters, "eq:softmax-layer-backprop2", N=3, D=4, K=5),
        Derivation.of(log_softmax_layer_DZ, "appendix:layers", N=3, D=4, K=5),
    ]


# -- the linear layer --------------------------------------------------------------------------


class _LinearCase:
    """A linear layer with symbols, its output Y, an arbitrary loss ℒ(Y) of degree 2 and its gradient DY."""

    def __init__(self, N: int, D: int, K: int) -> None:
        layer: Any = symbolic_layer(LinearLayer(D, K))
        self.layer, self.X, self.W, self.b = layer, symbols("X", N, D), layer.W, layer.b
        self.Y = layer.feedforward(self.X)
        V, G, H = symbols("Y", N, K), symbols("G", N, K), symbols("H", N, K)
        loss = elements_sum(hadamard(G + hadamard(H, V), V))
        self.loss = loss.xreplace(dict(zip(V, self.Y, strict=True)))
        self.DY = at(derivative(loss, V), V, self.Y)
        layer.backpropagate(self.Y, self.DY)


def linear_layer_by_rows(N: int, D: int, K: int) -> Iterator[Step]:
    """Y = X Wᵀ + 1_N b, whose rows are y_i = x_i Wᵀ + b"""
    case = _LinearCase(N, D, K)
    X, W, b = case.X, case.W, case.b
    yield Step("Y = X Wᵀ + 1_N b", case.Y, X @ W.T + ones(N, like=X) @ b)
    yield Step("y_i = x_i Wᵀ + b", case.Y, by_rows(lambda i: X.row(i) @ W.T + b, N))


def linear_layer_DX(N: int, D: int, K: int) -> Iterator[Step]:
    """Dx_i = Dy_i W, hence DX = DY W"""
    case = _LinearCase(N, D, K)
    W, x, y, Dy = case.W, case.X.row, case.Y.row, case.DY.row
    yield from chain(
        derivative(case.loss, case.X),
        (
            "chain rule: Σ_n ∂ℒ/∂y_n ∂y_n/∂x_i",
            by_rows(lambda i: _sum(Dy(n) @ y(n).jacobian(x(i)) for n in range(N)), N),
        ),
        ("∂y_n/∂x_i = 0 for n ≠ i", by_rows(lambda i: Dy(i) @ y(i).jacobian(x(i)), N)),
        ("product rule 4: ∂y_i/∂x_i = W", by_rows(lambda i: Dy(i) @ W, N)),
        ("DX = DY W", case.DY @ W),
        ("what the layer computes", case.layer.DX),
    )


def linear_layer_Db(N: int, D: int, K: int) -> Iterator[Step]:
    """Db = Σ_n Dy_n = 1_Nᵀ DY"""
    case = _LinearCase(N, D, K)
    b, y, Dy = case.b, case.Y.row, case.DY.row
    yield from chain(
        derivative(case.loss, b),
        ("chain rule: Σ_n ∂ℒ/∂y_n ∂y_n/∂b", _sum(Dy(n) @ y(n).jacobian(b) for n in range(N))),
        ("∂y_n/∂b = I_K", _sum(Dy(n) @ identity(K, like=b) for n in range(N))),
        ("Σ_n ∂ℒ/∂y_n", _sum(Dy(n) for n in range(N))),
        ("Db = 1_Nᵀ DY", ones(N, like=b).T @ case.DY),
        ("the table's columns_sum", columns_sum(case.DY)),
        ("what the layer computes", case.layer.Db),
    )


def linear_layer_DW(N: int, D: int, K: int) -> Iterator[Step]:
    """Dw_ij = Σ_n Dy_ni x_nj, hence DW = DYᵀ X"""
    case = _LinearCase(N, D, K)
    X, W, Y, DY = case.X, case.W, case.Y, case.DY
    examples, pairs = range(N), [(n, k) for n in range(N) for k in range(K)]
    yield Step(
        "∂y_nk/∂w_ij = x_nj if k = i, else 0",
        Y.reshape(1, N * K).jacobian(W.reshape(1, K * D)),
        sp.Matrix(N * K, K * D, lambda a, c: X[a // K, c % D] if a % K == c // D else 0),
    )

    def by_elements(i: int, j: int) -> sp.Expr:
        return sum(DY[n, k] * Y[n, k].diff(W[i, j]) for n, k in pairs)

    yield from chain(
        derivative(case.loss, W),
        ("chain rule: Σ_n Σ_k ∂ℒ/∂y_nk ∂y_nk/∂w_ij", sp.Matrix(K, D, by_elements)),
        ("Σ_n ∂ℒ/∂y_ni x_nj", sp.Matrix(K, D, lambda i, j: sum(DY[n, i] * X[n, j] for n in examples))),
        ("DW = DYᵀ X", DY.T @ X),
        ("what the layer computes", case.layer.DW),
    )


# -- the softmax and the log-softmax layer -----------------------------------------------------


def softmax_layer_by_rows(N: int, D: int, K: int) -> Iterator[Step]:
    """z_i = x_i Wᵀ + b and y_i = softmax(z_i), for every row of X"""
    layer: Any = symbolic_layer(SoftmaxLayer(D, K))
    X = symbols("X", N, D)
    Y = layer.feedforward(X)
    yield Step("z_i = x_i Wᵀ + b", layer.Z, by_rows(lambda i: X.row(i) @ layer.W.T + layer.b, N))
    yield Step("y_i = softmax(z_i)", Y, by_rows(lambda i: softmax(layer.Z.row(i)), N))


def softmax_layer_DZ(N: int, D: int, K: int) -> Iterator[Step]:
    """DZ = (DY - diag(DY Yᵀ) 1_Kᵀ) ⊙ Y"""
    Z, DY = symbols("Z", N, K), symbols("DY", N, K)
    Y = softmax(Z)
    y, z, Dy = Y.row, Z.row, DY.row
    layer: Any = symbolic_layer(SoftmaxLayer(D, K))
    layer.X, layer.Z = symbols("X", N, D), Z
    layer.backpropagate(Y, DY)
    literal = hadamard(DY - diag(DY @ Y.T) @ ones(K, like=Z).T, Y)
    yield from chain(
        derivative(elements_sum(hadamard(DY, Y)), Z),
        ("chain rule: ∂ℒ/∂y_i ∂softmax(z_i)/∂z_i", by_rows(lambda i: Dy(i) @ y(i).jacobian(z(i)), N)),
        ("softmax derivation", by_rows(lambda i: Dy(i) @ (Diag(y(i)) - y(i).T @ y(i)), N)),
        ("Dy_i Diag(y_i) = Dy_i ⊙ y_i", by_rows(lambda i: hadamard(Dy(i), y(i)) - Dy(i) @ y(i).T @ y(i), N)),
        ("matrix property 5", literal),
        ("linear form", hadamard(Y, DY - column_repeat(rows_sum(hadamard(DY, Y)), K))),
        ("what the layer computes", layer.DZ),
    )


def softmax_layer_parameters(N: int, D: int, K: int) -> Iterator[Step]:
    """DW = DZᵀ X, Db = 1_Nᵀ DZ and DX = DZ W, for an arbitrary DZ"""
    layer: Any = symbolic_layer(SoftmaxLayer(D, K))
    X, DY = symbols("X", N, D), symbols("DY", N, K)
    Y, DZ = symbols("Y", N, K), symbols("DZ", N, K)
    layer.feedforward(X)
    loss = elements_sum(hadamard(DZ, layer.Z))
    yield Step("DW = DZᵀ X", derivative(loss, layer.W), DZ.T @ X)
    yield Step("Db = 1_Nᵀ DZ", derivative(loss, layer.b), ones(N, like=X).T @ DZ)
    yield Step("DX = DZ W", derivative(loss, X), DZ @ layer.W)
    layer.backpropagate(Y, DY)
    yield Step("DW = DZᵀ X, computed by the layer", layer.DW, layer.DZ.T @ X)
    yield Step("Db = 1_Nᵀ DZ, computed by the layer", layer.Db, ones(N, like=X).T @ layer.DZ)
    yield Step("DX = DZ W, computed by the layer", layer.DX, layer.DZ @ layer.W)


def log_softmax_layer_DZ(N: int, D: int, K: int) -> Iterator[Step]:
    """DZ = DY - softmax(Z) ⊙ (DY 1_K 1_Kᵀ)"""
    Z, DY = symbols("Z", N, K), symbols("DY", N, K)
    Y, I, one = log_softmax(Z), identity(K, like=Z), ones(K, like=Z)
    y, z, Dy = Y.row, Z.row, DY.row
    layer: Any = symbolic_layer(LogSoftmaxLayer(D, K))
    layer.X, layer.Z = symbols("X", N, D), Z
    layer.backpropagate(Y, DY)
    yield from chain(
        derivative(elements_sum(hadamard(DY, Y)), Z),
        ("chain rule: ∂ℒ/∂y_i ∂log-softmax(z_i)/∂z_i", by_rows(lambda i: Dy(i) @ y(i).jacobian(z(i)), N)),
        ("log-softmax derivation", by_rows(lambda i: Dy(i) @ (I - one @ softmax(z(i))), N)),
        ("Dy_i I_K = Dy_i", by_rows(lambda i: Dy(i) - Dy(i) @ one @ softmax(z(i)), N)),
        ("matrix property 7", DY - hadamard(softmax(Z), DY @ one @ one.T)),
        ("in the table's operations", DY - hadamard(softmax(Z), column_repeat(rows_sum(DY), K))),
        ("what the layer computes", layer.DZ),
    )


def _sum(matrices: Iterator[sp.Matrix]) -> sp.Matrix:
    """The sum of one or more matrices."""
    first, *rest = matrices
    return sum(rest, first)
