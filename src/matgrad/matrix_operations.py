"""The table of matrix operations: the operations in which layers, losses and optimizers are written.

Every matrix is 2-D: a row vector is 1×n and a column vector is m×1. An operation takes NumPy
arrays, PyTorch, JAX or TensorFlow tensors, or SymPy matrices, and returns a matrix of the same kind,
dtype and device. Transposition, addition, subtraction, products, and what a scalar c does to every element are the
operators ``X.T  X + Y  X - Y  X @ Y  c + X  c - X  c * X  X / c``. Nothing else broadcasts.
The operations that layers need work on sparse matrices too.

In the definitions below, X and Y are m×n matrices with elements x_ij and y_ij.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from matgrad.backends import backend_of
from matgrad.backends.base import Kind, Matrix, Scalar, size_of
from matgrad.sparse.matrix import values_of
from matgrad.sparse.operands import BlockDiagonal, OneHot, Selection

# -- the paper's table -------------------------------------------------------------------------


def _function(name: str, definition: str) -> Callable[[Kind], Kind]:
    """The operation of this name on one matrix, which all backends have."""

    def operation(X: Kind) -> Kind:
        return getattr(backend_of(X), name)(X)

    operation.__name__ = operation.__qualname__ = name
    operation.__doc__ = definition
    return operation


columns_sum = _function("columns_sum", "1_mᵀ X, the 1×n row vector with elements Σ_i x_ij.")
rows_sum = _function("rows_sum", "X 1_n, the m×1 column vector with elements Σ_j x_ij.")
columns_max = _function("columns_max", "1×n row vector with elements max_i x_ij.")
rows_max = _function("rows_max", "m×1 column vector with elements max_j x_ij.")
columns_mean = _function("columns_mean", "(1_mᵀ X) / m, the 1×n row vector of column means (the paper divides by n).")
rows_mean = _function("rows_mean", "(X 1_n) / n, the m×1 column vector of row means (the paper divides by m).")
exp = _function("exp", "m×n matrix with elements e^x_ij.")
log = _function("log", "m×n matrix with elements ln x_ij.")
reciprocal = _function("reciprocal", "1 / X, the m×n matrix with elements 1 / x_ij.")
sqrt = _function("sqrt", "m×n matrix with elements √x_ij.")
log_sigmoid = _function("log_sigmoid", "m×n matrix with elements ln σ(x_ij) = min(x_ij, 0) - ln(1 + e^-|x_ij|).")


def zeros(m: int, n: int = 1, *, like: Matrix | None = None) -> Matrix:
    """m×n matrix of zeros, of the kind and dtype of `like` (NumPy float64 without it)."""
    return _full(0, m, n, like)


def ones(m: int, n: int = 1, *, like: Matrix | None = None) -> Matrix:
    """m×n matrix of ones, of the kind and dtype of `like` (NumPy float64 without it)."""
    return _full(1, m, n, like)


def identity(n: int, *, like: Matrix | None = None) -> Matrix:
    """n×n identity matrix, of the kind and dtype of `like` (NumPy float64 without it)."""
    like = np.empty((0, 0)) if like is None else like
    return backend_of(like).identity(n, like)


def dot(x: Matrix, y: Matrix) -> Scalar:
    """Σ_i x_i·y_i, the scalar xᵀy of two column vectors or xyᵀ of two row vectors."""
    _elementwise("dot", x, y)
    return _checked("dot", x, lambda m, n: 1 in (m, n), "two row or two column vectors").dot(x, y)


def hadamard(X: Kind, Y: Kind) -> Kind:
    """X ⊙ Y, the m×n matrix with elements x_ij·y_ij."""
    return _elementwise("hadamard", X, Y).hadamard(X, Y)


def diag(X: Kind, p: int | None = None) -> Kind:
    """n×1 column vector with elements x_ii, the diagonal of an n×n matrix X.

    With a p, the stack of the blocks of p rows on the diagonal of an X that has as many blocks of columns: diag(X, 1)
    is diag(X).
    """
    backend = backend_of(X)
    if p is not None:
        return backend.diag_product(X, backend.identity(X.shape[1], X), p)
    return _checked("diag", X, lambda m, n: m == n, "a square matrix").diag(X)


def Diag(x: Kind, p: int | None = None) -> Any:
    """n×n matrix with the row or column vector x on its diagonal and zeros elsewhere.

    With a p, the block-diagonal matrix of the blocks of p rows of a matrix x, for products only: Diag(A, p) B has the
    blocks A_i B_i, and Diag(A, p)ᵀ B the blocks A_iᵀ B_i. For a column vector x, Diag(x, 1) is Diag(x).
    """
    backend_of(x)
    if p is not None:
        return BlockDiagonal(x, p)
    return _checked("Diag", x, lambda m, n: 1 in (m, n), "a row or a column vector").Diag(x)


def elements_sum(X: Matrix, s: Matrix | None = None) -> Scalar:
    """1_mᵀ X 1_n, the scalar Σ_ij x_ij; with an m×1 column s of weights, sᵀ X 1_n."""
    return backend_of(X).elements_sum(X if s is None else hadamard(column_repeat(s, X.shape[1]), X))


def column_repeat(x: Kind, n: int) -> Kind:
    """x 1_nᵀ, the m×n matrix of n copies of the m×1 column vector x."""
    return _checked("column_repeat", x, lambda m, n: n == 1, "a column vector").column_repeat(x, n)


def row_repeat(x: Kind, m: int) -> Kind:
    """1_m x, the m×n matrix of m copies of the 1×n row vector x."""
    return _checked("row_repeat", x, lambda m, n: m == 1, "a row vector").row_repeat(x, m)


def apply(f: Callable[[Any], Any], X: Kind) -> Kind:
    """m×n matrix with elements f(x_ij), for an f written in operators, such as ``lambda x: x**3``.

    Numeric backends call f once with the whole matrix; SymPy calls it once per element.
    """
    return backend_of(X).apply(f, X)


def inv_sqrt(X: Kind, epsilon: float = 0) -> Kind:
    """m×n matrix with elements (x_ij + ε)^(-1/2)."""
    return backend_of(X).inv_sqrt(X, epsilon)


# -- beyond the paper's table ------------------------------------------------------------------

step = _function("step", "m×n matrix with elements 1 where x_ij ≥ 0 and 0 elsewhere; it selects pieces of functions.")
sign = _function("sign", "m×n matrix with elements 1 where x_ij > 0, -1 where x_ij < 0 and 0 where x_ij = 0.")
tanh = _function("tanh", "m×n matrix with elements tanh x_ij.")
erf = _function("erf", "m×n matrix with elements erf x_ij = 2/√π ∫₀^x_ij e^(-t²) dt.")
log1p = _function("log1p", "m×n matrix with elements ln(1 + x_ij), accurate near 0.")


def clip(X: Kind, c: float) -> Kind:
    """m×n matrix with elements min(max(x_ij, -c), c), for a c of 0 or more."""
    return backend_of(X).clip(X, c)


def positive(X: Kind) -> Kind:
    """X + tiny, with the smallest positive normal number of X's dtype, for X ≥ 0: in effect it changes only zeros.

    The logarithm and the reciprocal of the result are finite. On SymPy tiny is 0.
    """
    backend = backend_of(X)
    m, n = X.shape
    return X + backend.full(backend.tiny(X), m, n, X)


def product_on(W: Kind, A: Kind, B: Kind) -> Kind:
    """A B at the positions that W stores, which for a dense matrix W is the whole product; B may be sparse too."""
    backend_of(values_of(W), A, values_of(B))
    return backend_of(W).product_on(W, A, B)


def stack(X: Kind, P: int) -> Kind:
    """(N·P)×Q matrix, each row of the N×(P·Q) matrix X cut into P rows: u_(n,p)q = x_n(p,q)."""
    return backend_of(X).stack(X, P)


def unstack(U: Kind, P: int) -> Kind:
    """N×(P·Q) matrix, each P rows of the (N·P)×Q matrix U joined to one: the inverse of `stack`, and its adjoint."""
    return backend_of(U).unstack(U, P)


def diag_product(A: Kind, B: Kind, p: int) -> Kind:
    """diag(A B, p), the stack of the blocks of p rows on the diagonal of A B, without the rest of A B.

    B has as many blocks of columns as A has blocks of p rows; diag(A B) is diag_product(A, B, 1).
    """
    return backend_of(A, B).diag_product(A, B, p)


def one_hot(x: Matrix | np.ndarray, n: int) -> Any:
    """m×n matrix E with e_ij = 1 where x_i = j and 0 elsewhere, for products only; columns are counted from 0.

    E W and X Eᵀ take rows of W and columns of X, Eᵀ G and U E add them up. x is an m×1 column vector or, if it is
    fixed and belongs to no backend, a NumPy array of integers, in which -1 stands for a row of zeros.
    """
    backend_of(x)
    return Selection(x, n) if isinstance(x, np.ndarray) and x.dtype.kind in "iu" else OneHot(x, n)


def uniform(m: int, n: int, *, seed: Scalar, count: Scalar, like: Matrix) -> Matrix:
    """m×n matrix of pseudorandom numbers in [0, 1): a hash of (seed, count, i, j).

    The numbers are the same on every backend. `seed` and `count` are integers modulo 2³², or 0-d
    arrays of integers, which may be traced.
    """
    return backend_of(like).uniform(m, n, seed, count, like)


# -- helpers and errors ------------------------------------------------------------------------


def _full(value: float, m: int, n: int, like: Matrix | None) -> Matrix:
    like = np.empty((0, 0)) if like is None else like
    return backend_of(like).full(value, m, n, like)


def _checked(name: str, X: Matrix, fits: Callable[..., bool], expected: str) -> Any:
    """The backend of X, after a check that its size fits."""
    backend = backend_of(X)
    if not fits(*X.shape):
        raise ValueError(f"{name}: expected {expected}, found {size_of(X)}")
    return backend


def _elementwise(name: str, X: Matrix, Y: Matrix) -> Any:
    """The backend of two matrices of equal size."""
    backend = backend_of(X, Y)
    if X.shape != Y.shape:
        raise ValueError(f"{name}: expected equal sizes, found {size_of(X)} and {size_of(Y)}")
    return backend


# the table: all functions of this module
__all__ = sorted(name for name, f in vars().items() if getattr(f, "__module__", "") == __name__ and name[0] != "_")
