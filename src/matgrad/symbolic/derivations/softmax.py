"""The paper's derivations of softmax, log-softmax, their stable forms and their Jacobians."""

from __future__ import annotations

from collections.abc import Iterator

import sympy as sp

from matgrad.matrix_operations import (
    Diag,
    column_repeat,
    exp,
    hadamard,
    identity,
    log,
    ones,
    reciprocal,
    rows_max,
    rows_sum,
)
from matgrad.softmax_functions import (
    log_softmax,
    log_softmax_jacobian,
    softmax,
    softmax_jacobian,
    stable_log_softmax,
    stable_softmax,
)
from matgrad.symbolic.checks.equality import symbols
from matgrad.symbolic.derivations.steps import Derivation, Step, at, by_rows, chain


def softmax_derivations() -> list[Derivation]:
    """Softmax for one row, then for a batch, then the Jacobians, in the order of the paper."""
    return [
        Derivation.of(softmax_of_a_row, "eq:softmax-single", K=5),
        Derivation.of(softmax_of_a_batch, "eq:softmax-multiple", N=3, K=5),
        Derivation.of(stable_softmax_of_a_row, "eq:stable-softmax-single", K=5),
        Derivation.of(stable_softmax_of_a_batch, "eq:stable-softmax-multiple", N=3, K=5),
        Derivation.of(softmax_derivation, "eq:softmax-derivation", K=5),
        Derivation.of(log_softmax_derivation, "eq:log-softmax-derivation", D=5),
    ]


def softmax_of_a_row(K: int) -> Iterator[Step]:
    """softmax(z) = e^z / (e^z 1_K)"""
    z = symbols("z", 1, K)
    e = exp(z)
    total = sum(sp.exp(z[k]) for k in range(K))
    yield Step("softmax(z) = e^z / (e^z 1_K)", softmax(z), e / rows_sum(e)[0])
    yield Step("softmax(z)_i = e^z_i / Σ_k e^z_k", softmax(z), sp.Matrix(1, K, lambda _, i: sp.exp(z[i]) / total))


def softmax_of_a_batch(N: int, K: int) -> Iterator[Step]:
    """softmax(Z) = e^Z ⊙ ((1 / (e^Z 1_K)) 1_Kᵀ), which is softmax of every row"""
    Z = symbols("z", N, K)
    E, one = exp(Z), ones(K, like=Z)
    yield Step("e^Z ⊙ ((1 / (e^Z 1_K)) 1_Kᵀ)", softmax(Z), hadamard(E, reciprocal(E @ one) @ one.T))
    yield Step("row i is e^z_i / (e^z_i 1_K)", softmax(Z), by_rows(lambda i: E.row(i) / (E.row(i) @ one)[0], N))


def stable_softmax_of_a_row(K: int) -> Iterator[Step]:
    """stable-softmax(z) = e^y / (e^y 1_K) with y = z - max(z) 1_Kᵀ, which is softmax(z)"""
    z, c = symbols("z", 1, K), symbols("c", 1, 1)
    one = ones(K, like=z)
    y = z - rows_max(z) @ one.T
    yield Step("e^y / (e^y 1_K)", stable_softmax(z), exp(y) / (exp(y) @ one)[0])
    yield Step("softmax(z - c 1_Kᵀ) = softmax(z) for every c", softmax(z - column_repeat(c, K)), softmax(z))
    yield Step("stable-softmax(z) = softmax(z)", stable_softmax(z), softmax(z))
    yield Step("stable-log-softmax(z) = log-softmax(z)", stable_log_softmax(z), log_softmax(z))


def stable_softmax_of_a_batch(N: int, K: int) -> Iterator[Step]:
    """stable-softmax(Z) = e^Y ⊙ ((1 / (e^Y 1_K)) 1_Kᵀ) with Y = Z - max(Z)_row 1_Kᵀ, which is softmax(Z)"""
    Z = symbols("z", N, K)
    one = ones(K, like=Z)
    Y = Z - rows_max(Z) @ one.T
    yield Step("e^Y ⊙ ((1 / (e^Y 1_K)) 1_Kᵀ)", stable_softmax(Z), hadamard(exp(Y), reciprocal(exp(Y) @ one) @ one.T))
    yield Step("stable-softmax(Z) = softmax(Z)", stable_softmax(Z), softmax(Z))
    yield Step("stable-log-softmax(Z) = log-softmax(Z)", stable_log_softmax(Z), log_softmax(Z))


def softmax_derivation(K: int) -> Iterator[Step]:
    """∂softmax(z)/∂z = Diag(y) - yᵀ y with y = softmax(z)"""
    z = symbols("z", 1, K)
    e, y = exp(z), softmax(z)
    s = rows_sum(e)
    f = s[0]
    yield from chain(
        y.jacobian(z),
        ("∂(e^z · 1/(e^z 1_K))/∂z", (e * reciprocal(s)[0]).jacobian(z)),
        ("product rule 2", e.jacobian(z) * reciprocal(s)[0] + e.T @ reciprocal(s).jacobian(z)),
        ("∂e^z/∂z = Diag(e^z), ∂(1/s)/∂z = -e^z/s²", Diag(e) / f - e.T @ (e / f**2)),
        ("Diag and the product are linear", Diag(e / f) - (e / f).T @ (e / f)),
        ("e^z / (e^z 1_K) = y", Diag(y) - y.T @ y),
        ("what the package computes", softmax_jacobian(z)),
        ("the derivative of stable-softmax", stable_softmax(z).jacobian(z)),
    )


def log_softmax_derivation(D: int) -> Iterator[Step]:
    """∂log-softmax(x)/∂x = I_D - 1_D softmax(x)"""
    x, v = symbols("x", 1, D), symbols("y", 1, D, positive=True)
    I, one, y = identity(D, like=x), ones(D, like=x), softmax(x)
    yield Step("log-softmax(x) = log(softmax(x))", log_softmax(x), log(y))
    yield from chain(
        log_softmax(x).jacobian(x),
        ("∂log(softmax(x))/∂x", log(y).jacobian(x)),
        ("chain rule", at(log(v).jacobian(v), v, y) @ y.jacobian(x)),
        ("∂log(y)/∂y = Diag(1/y), the softmax derivation", Diag(reciprocal(y)) @ (Diag(y) - y.T @ y)),
        ("Diag(1/y) Diag(y) = I_D", I - Diag(reciprocal(y)) @ y.T @ y),
        ("Diag(1/y) yᵀ = 1_D", I - one @ y),
        ("what the package computes", log_softmax_jacobian(x)),
        ("the derivative of stable-log-softmax", stable_log_softmax(x).jacobian(x)),
    )
