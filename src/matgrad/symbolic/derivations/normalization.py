"""The paper's derivation of batch normalization, from one column to the matrix form."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sympy as sp

from matgrad.layers import BatchNormalizationLayer
from matgrad.matrix_operations import (
    columns_mean,
    columns_sum,
    diag,
    dot,
    elements_sum,
    hadamard,
    identity,
    inv_sqrt,
    ones,
    row_repeat,
    zeros,
)
from matgrad.symbolic.checks.derivatives import derivative
from matgrad.symbolic.checks.equality import symbols
from matgrad.symbolic.checks.exact import symbolic_layer
from matgrad.symbolic.derivations.steps import Derivation, Step, by_columns, by_rows, chain


def normalization_derivations() -> list[Derivation]:
    """The derivation for a column, in the order of the paper, then the matrix form."""
    return [
        Derivation.of(batch_normalization_centering, "appendix:batch-normalization", N=4),
        Derivation.of(batch_normalization_scaling, "appendix:batch-normalization", N=4),
        Derivation.of(batch_normalization_epsilon, "appendix:batch-normalization", N=4),
        Derivation.of(batch_normalization_column, "appendix:batch-normalization", N=4),
        Derivation.of(batch_normalization_DX, "eq:batch-normalization-backpropagation", N=4, D=3),
        Derivation.of(batch_normalization_parameters, "appendix:batch-normalization", N=4, D=3),
    ]


def batch_normalization_centering(N: int) -> Iterator[Step]:
    """r = (I_N - 1_N 1_Nᵀ / N) x, hence Dx = (I_N - 1_N 1_Nᵀ / N) Dr, for a column x"""
    x, Dr = symbols("x", N, 1), symbols("Dr", N, 1)
    I, J = identity(N, like=x), _mean_matrix(x)
    r = _centered(x)
    yield Step("r = x - (1_N 1_Nᵀ / N) x", r, x - J @ x)
    yield Step("r = (I_N - 1_N 1_Nᵀ / N) x", r, (I - J) @ x)
    yield Step("∂r/∂x = I_N - 1_N 1_Nᵀ / N", r.jacobian(x), I - J)
    yield from chain(
        derivative(dot(Dr, r), x),
        ("chain rule, with Dx = (∂ℒ/∂x)ᵀ", (Dr.T @ r.jacobian(x)).T),
        ("Dx = (I_N - 1_N 1_Nᵀ / N) Dr", (I - J) @ Dr),
    )


def batch_normalization_scaling(N: int) -> Iterator[Step]:
    """z = σ^(-1/2) r with σ = rᵀ r / N, hence Dr = (σ^(-1/2) / N) (N I_N - z zᵀ) Dz, for an arbitrary column r"""
    r, Dz = symbols("r", N, 1), symbols("Dz", N, 1)
    I, sigma = identity(N, like=r), _variance(r)
    s = inv_sqrt(sigma)
    z = r @ s
    yield from chain(
        z.jacobian(r),
        ("product rule 1", r.jacobian(r) * s[0] + r @ s.jacobian(r)),
        ("chain rule: ∂σ^(-1/2)/∂r = -(σ^(-3/2) / 2) ∂σ/∂r", s[0] * I - s[0] ** 3 / 2 * r @ sigma.jacobian(r)),
        ("∂σ/∂r = 2 rᵀ / N", s[0] * I - s[0] ** 3 / 2 * r @ (2 * r.T / N)),
        ("(σ^(-1/2) / N) (N I_N - σ^(-1) r rᵀ)", s[0] / N * (N * I - r @ r.T / sigma[0])),
        ("z zᵀ = σ^(-1) r rᵀ", s[0] / N * (N * I - z @ z.T)),
    )
    yield from chain(
        derivative(dot(Dz, z), r),
        ("chain rule, with Dr = (∂ℒ/∂r)ᵀ", (Dz.T @ z.jacobian(r)).T),
        ("Dr = (σ^(-1/2) / N) (N I_N - z zᵀ) Dz", s[0] / N * (N * I - z @ z.T) @ Dz),
    )


def batch_normalization_epsilon(N: int) -> Iterator[Step]:
    """∂z/∂r = (s / N) (N I_N - z zᵀ) with z = s r, also for s = (σ + ε)^(-1/2)"""
    r, epsilon = symbols("r", N, 1), sp.Symbol("epsilon", positive=True)
    s = inv_sqrt(_variance(r), epsilon)
    z = r @ s
    yield Step("∂z/∂r with ε", z.jacobian(r), s[0] / N * (N * identity(N, like=r) - z @ z.T))


def batch_normalization_column(N: int) -> Iterator[Step]:
    """Dx = (σ^(-1/2) / N) ((N I_N - 1_N 1_Nᵀ) Dz - z zᵀ Dz), for a column x"""
    x, Dz = symbols("x", N, 1), symbols("Dz", N, 1)
    I, J, one = identity(N, like=x), _mean_matrix(x), ones(N, like=x)
    r = _centered(x)
    s = inv_sqrt(_variance(r))
    z = r @ s
    c = s[0] / N
    yield Step("1_Nᵀ r = 0", one.T @ r, zeros(1, 1, like=x))
    yield Step("1_Nᵀ z = 0, as z = σ^(-1/2) r", one.T @ z, zeros(1, 1, like=x))
    v = symbols("z", N, 1)
    yield Step(
        "the product of the two matrices, for every z",
        (I - J) @ (N * I - v @ v.T),
        N * I - v @ v.T - one @ one.T + one @ one.T @ v @ v.T / N,
    )
    yield from chain(
        derivative(dot(Dz, z), x),
        ("Dx from Dr, and Dr from Dz", c * (I - J) @ (N * I - z @ z.T) @ Dz),
        ("the product", c * (N * I - z @ z.T - one @ one.T + one @ one.T @ z @ z.T / N) @ Dz),
        ("1_Nᵀ z = 0", c * ((N * I - one @ one.T) @ Dz - z @ z.T @ Dz)),
    )


def batch_normalization_DX(N: int, D: int) -> Iterator[Step]:
    """DX = (1_N Σ^(-1/2) / N) ⊙ ((N I_N - 1_N 1_Nᵀ) DZ - Z ⊙ (1_N diag(Zᵀ DZ)ᵀ))"""
    X, DZ = symbols("X", N, D), symbols("DZ", N, D)
    one, A = ones(N, like=X), N * identity(N, like=X) - ones(N, N, like=X)
    R = X - one @ one.T @ X / N
    s = inv_sqrt(diag(R.T @ R).T / N)
    Z = hadamard(one @ s, R)
    z, Dz = Z.col, DZ.col
    yield Step("z^j = σ_j^(-1/2) r^j", Z, by_columns(lambda j: R.col(j) * inv_sqrt(_variance(R.col(j)))[0], D))
    yield from chain(
        derivative(elements_sum(hadamard(DZ, Z)), X),
        ("by columns", by_columns(lambda j: s[j] / N * (A @ Dz(j) - z(j) @ z(j).T @ Dz(j)), D)),
        ("matrix property 1", _literal_DX(Z, s, DZ)),
    )
    layer, V, t, DY = _layer_on_symbols(N, D)
    yield Step("what the layer computes", _literal_DX(V, t, hadamard(row_repeat(layer.gamma, N), DY)), layer.DX)


def batch_normalization_parameters(N: int, D: int) -> Iterator[Step]:
    """DZ = (1_N γ) ⊙ DY, Dβ = 1_Nᵀ DY and Dγ = 1_Nᵀ (DY ⊙ Z)"""
    layer, Z, _, DY = _layer_on_symbols(N, D)
    gamma, beta, one = layer.gamma, layer.beta, ones(N, like=Z)
    gammas, betas = symbols("Gamma", N, D), symbols("Beta", N, D)  # with rows γ_i and β_i
    Y = hadamard(one @ gamma, Z) + one @ beta
    loss = elements_sum(hadamard(DY, Y))
    loss_by_rows = elements_sum(hadamard(DY, hadamard(gammas, Z) + betas))
    yield Step("y_i = γ ⊙ z_i + β", Y, by_rows(lambda i: hadamard(gamma, Z.row(i)) + beta, N))
    yield Step("∂ℒ/∂β_i = ∂ℒ/∂y_i", derivative(loss_by_rows, betas), DY)
    yield Step("∂ℒ/∂γ_i = ∂ℒ/∂y_i ⊙ z_i", derivative(loss_by_rows, gammas), hadamard(DY, Z))
    for name, variable, formula in (
        ("DZ = (1_N γ) ⊙ DY", Z, hadamard(one @ gamma, DY)),
        ("Dβ = 1_Nᵀ DY", beta, one.T @ DY),
        ("Dγ = 1_Nᵀ (DY ⊙ Z)", gamma, one.T @ hadamard(DY, Z)),
    ):
        yield Step(name, derivative(loss, variable), formula)
    yield Step("DZ, computed by the layer", derivative(loss, Z), layer.DZ)
    yield Step("Dβ, computed by the layer", derivative(loss, beta), layer.Dbeta)
    yield Step("Dγ, computed by the layer", derivative(loss, gamma), layer.Dgamma)


def _layer_on_symbols(N: int, D: int) -> tuple[Any, sp.Matrix, sp.Matrix, sp.Matrix]:
    """A batch normalization layer after backpropagation from symbols Z, Σ^(-1/2) and DY, and these symbols."""
    layer: Any = symbolic_layer(BatchNormalizationLayer(D))
    Z, s, DY = symbols("Z", N, D), symbols("s", 1, D), symbols("DY", N, D)
    layer.Z, layer.inv_sqrt_Sigma = Z, s
    layer.backpropagate(symbols("Y", N, D), DY)
    return layer, Z, s, DY


def _literal_DX(Z: sp.Matrix, s: sp.Matrix, DZ: sp.Matrix) -> sp.Matrix:
    """(1_N s / N) ⊙ ((N I_N - 1_N 1_Nᵀ) DZ - Z ⊙ (1_N diag(Zᵀ DZ)ᵀ)), as the paper has it"""
    N, _ = Z.shape
    one, I = ones(N, like=Z), identity(N, like=Z)
    return hadamard(one @ s / N, (N * I - one @ one.T) @ DZ - hadamard(Z, one @ diag(Z.T @ DZ).T))


def _mean_matrix(x: sp.Matrix) -> sp.Matrix:
    """1_N 1_Nᵀ / N"""
    N, _ = x.shape
    return ones(N, like=x) @ ones(N, like=x).T / N


def _centered(x: sp.Matrix) -> sp.Matrix:
    """x - 1_N μ, with the table's operations"""
    N, _ = x.shape
    return x - row_repeat(columns_mean(x), N)


def _variance(r: sp.Matrix) -> sp.Matrix:
    """rᵀ r / N, with the table's operations"""
    N, _ = r.shape
    return columns_sum(hadamard(r, r)) / N
