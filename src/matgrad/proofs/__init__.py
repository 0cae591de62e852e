"""Matrices of symbolic sizes in index notation: the table of operations on them, derivatives, and proofs of equality.

`matrices` has the matrix type, derivatives and the comparison of two matrices, and `operators` what it has in common
with other types. What is proved, and how, is in `matgrad.judges`.
"""

from matgrad.proofs.matrices import IndexMatrix, Size, gradient, is_proved, jacobian, symbols

__all__ = ["IndexMatrix", "Size", "gradient", "is_proved", "jacobian", "symbols"]
