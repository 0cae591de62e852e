"""Softmax functions of the rows of an N×D matrix X, and their Jacobians for one row.

The stable versions subtract the row maximum first: no exponent is positive, so nothing overflows.
Layers and losses use these; the plain versions are the paper's definitions.
"""

from __future__ import annotations

from matgrad.matrix_operations import (
    Diag,
    Kind,
    Matrix,
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


def softmax(X: Kind) -> Kind:  # eq:softmax-multiple
    """e^X ⊙ ((1 / (e^X 1_D)) 1_Dᵀ)"""
    _, D = X.shape
    E = exp(X)
    return hadamard(E, column_repeat(reciprocal(rows_sum(E)), D))


def softmax_jacobian(x: Kind) -> Kind:  # eq:softmax-derivation
    """Diag(y) - yᵀ y, with y = softmax(x) for a row vector x"""
    y = stable_softmax(x)
    return Diag(y) - y.T @ y


def stable_softmax(X: Kind) -> Kind:  # eq:stable-softmax-multiple
    """softmax(Z), with Z = X - max(X)_row 1_Dᵀ"""
    return softmax(_minus_rows_max(X))


def stable_softmax_jacobian(x: Kind) -> Kind:  # appendix:activation-functions
    """Diag(y) - yᵀ y, with y = softmax(x): the maximum cancels out"""
    return softmax_jacobian(x)


def log_softmax(X: Kind) -> Kind:  # appendix:activation-functions
    """X - log(e^X 1_D) 1_Dᵀ"""
    _, D = X.shape
    return X - column_repeat(log(rows_sum(exp(X))), D)


def log_softmax_jacobian(x: Matrix) -> Matrix:  # eq:log-softmax-derivation
    """I_D - 1_D softmax(x), for a row vector x"""
    _, D = x.shape
    return identity(D, like=x) - ones(D, like=x) @ stable_softmax(x)


def stable_log_softmax(X: Kind) -> Kind:  # appendix:activation-functions
    """log_softmax(Z), with Z = X - max(X)_row 1_Dᵀ"""
    return log_softmax(_minus_rows_max(X))


def stable_log_softmax_jacobian(x: Matrix) -> Matrix:  # appendix:activation-functions
    """I_D - 1_D softmax(x): the maximum cancels out"""
    return log_softmax_jacobian(x)


def half_log_softmax(X: Kind) -> Kind:
    """log-softmax(X) / 2 = Z - log(e^2Z 1_D) 1_Dᵀ / 2, with Z = X/2 - max(X/2)_row 1_Dᵀ

    It is finite for all finite X: of two halves the difference does not overflow.
    """
    _, D = X.shape
    Z = _minus_rows_max(X / 2)
    return Z - column_repeat(log(rows_sum(exp(2 * Z))), D) / 2


def _minus_rows_max(X: Kind) -> Kind:
    """X - max(X)_row 1_Dᵀ"""
    _, D = X.shape
    return X - column_repeat(rows_max(X), D)
