"""The entries and the adjoints of operations on blocks.

The index of a row of b blocks of p rows is a pair, and so is that of a column of P parts.
"""

from __future__ import annotations

from typing import Any

from matgrad import matrix_operations as table
from matgrad.index_notation.expressions import Expression
from matgrad.index_notation.indices import Index, divided, joined
from matgrad.index_notation.sums import summed
from matgrad.program.shapes import quotient


def stacked(i: Index, j: Index, X: Any) -> Expression:
    """stack(X, P): row (n, p), column j is x_n(p,j)"""
    n, p = divided(i, len(X.indices[1].parts) - len(j.parts))
    return X[n, joined(p, j)]


def unstacked(i: Index, j: Index, U: Any) -> Expression:
    """unstack(U, P): row i, column (p, q) is u_(i,p)q"""
    p, q = divided(j, len(U.indices[1].parts))
    return U[joined(i, p), q]


def block_product(i: Index, j: Index, A: Any, B: Any) -> Expression:
    """Diag(A, p) B: Σ_q a_iq·b_(block,q)j, for row i of a block"""
    rows = len(i.parts) - len(B.indices[0].parts) + len(A.indices[1].parts)  # the parts of p
    block, _ = divided(i, rows)
    return summed(lambda q: A[i, q] * B[joined(block, q), j], A.columns)


def block_transposed_product(i: Index, j: Index, A: Any, B: Any) -> Expression:
    """Diag(A, p)ᵀ B: Σ_p a_(block,p)q·b_(block,p)j, for row (block, q)"""
    block, q = divided(i, len(A.indices[1].parts))
    _, p = divided(A.indices[0], len(A.indices[0].parts) - len(block.parts))
    return summed(lambda p: A[joined(block, p), q] * B[joined(block, p), j], p.size)


def diag_product(i: Index, j: Index, A: Any, B: Any) -> Expression:
    """diag(A B, p): Σ_k a_ik·b_k(block,j), for row i of a block"""
    rows = len(i.parts) - len(B.indices[1].parts) + len(j.parts)
    block, _ = divided(i, rows)
    return summed(lambda k: A[i, k] * B[k, joined(block, j)], A.columns)


def block_rows(A: Any, blocks: Any) -> Any:
    """The rows p of each of so many blocks of A."""
    return quotient(A.shape[0], blocks)


def block_product_adjoint(DY: Any, Y: Any, A: Any, B: Any) -> tuple[Any, Any]:
    """diag(DY Bᵀ, p) and Diag(A, p)ᵀ DY"""
    p = block_rows(A, quotient(B.shape[0], A.shape[1], -1))
    return table.diag_product(DY, B.T, p), table.Diag(A, p).T @ DY


def block_transposed_product_adjoint(DY: Any, Y: Any, A: Any, B: Any) -> tuple[Any, Any]:
    """diag(B DYᵀ, p) and Diag(A, p) DY"""
    p = block_rows(A, quotient(Y.shape[0], A.shape[1], -1))
    return table.diag_product(B, DY.T, p), table.Diag(A, p) @ DY


def diag_product_adjoint(DY: Any, Y: Any, A: Any, B: Any) -> tuple[Any, Any]:
    """Diag(DY, p) Bᵀ and (Diag(DY, p)ᵀ A)ᵀ"""
    D = table.Diag(DY, block_rows(A, quotient(B.shape[1], Y.shape[1], -1)))
    return D @ B.T, (D.T @ A).T
