"""Checks of examples X and targets T: one error that names the array, what was found and what was expected.

X may be a sparse matrix of SciPy, which is never made dense.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from matgrad.backends import backend_of
from matgrad.backends.base import Array


def check_examples(X: Array, T: Array, where: str = "", part: str = "") -> None:
    """Raise if examples and targets cannot be trained on or measured; errors have `where` and `part` around X and T."""
    x, t = f"{where}X{part}", f"{where}T{part}"
    if not is_scipy(X):
        check_dense(X, x)
    check_dense(T, t)
    if len(X.shape) != 2 or 0 in tuple(X.shape):
        raise ValueError(f"{x}: expected a matrix with at least one row, found shape {tuple(X.shape)}")
    if len(T.shape) not in (1, 2) or X.shape[0] != len(T):
        found = len(T) if len(T.shape) else "none"
        raise ValueError(f"{x} has {X.shape[0]} rows and T{part} has {found}: expected one target per row")
    if 0 in tuple(T.shape):
        raise ValueError(f"{t}: expected at least one column, found shape {tuple(T.shape)}")
    check_finite(X, x)
    check_finite(T, t)


def checked_examples(X: Any, T: Any, where: str = "", part: str = "") -> tuple[Any, np.ndarray]:
    """X and T as NumPy arrays, or X as a CSR matrix if it is sparse, after these checks."""
    check_dense(T, f"{where}T{part}")
    X, T = as_array(X, f"{where}X{part}"), np.asarray(T)
    check_examples(X, T, where, part)
    return X, T


def is_scipy(A: Any) -> bool:
    """Whether A is a sparse matrix or array of SciPy."""
    return any(base.__module__.startswith("scipy.sparse") for base in type(A).__mro__)


def as_array(A: Any, where: str) -> Any:
    """A as a NumPy array or, if it is a sparse matrix of SciPy, in CSR format: sorted, and with duplicates added up."""
    if not is_scipy(A):
        check_dense(A, where)
        return np.asarray(A)
    from scipy.sparse import csr_array

    B = csr_array(A)
    if not B.has_canonical_format:
        B = B.copy()  # not to change A
        B.sum_duplicates()
    return B


def stacked(*parts: Any) -> Any:
    """The rows of several arrays or CSR matrices, one after the other."""
    if not is_scipy(parts[0]):
        return np.concatenate(parts)
    from scipy.sparse import vstack

    return vstack(parts, format="csr")


def check_dense(A: Any, where: str) -> None:
    """Raise for what NumPy would misread in silence: sparse matrices of any library, masked arrays and `np.matrix`."""
    layout = str(getattr(A, "layout", ""))  # only a tensor of torch has one
    is_sparse = not isinstance(A, np.ndarray) and "sparse" in f"{type(A).__mro__} {layout}".lower()
    if is_sparse or isinstance(A, np.ma.MaskedArray | np.matrix):
        found = f"a sparse matrix ({layout or type(A).__name__})" if is_sparse else f"a {type(A).__name__}"
        expected = "a dense one, such as A.toarray(), A.to_dense() or A.filled(0), or, for X, a sparse matrix of SciPy"
        raise TypeError(f"{where}: found {found}; expected {expected}")


def check_finite(A: Any, where: str, found: Any = None) -> None:
    """Raise if there is NaN or infinity; A may be the float32 version of `found`, whose values are shown."""
    B = A.data if is_scipy(A) else backend_of(A).to_numpy(A)
    if B.dtype.kind not in "fiub":
        raise ValueError(f"{where}: found {B.dtype}, expected numbers")
    if not all_finite(B):
        place = tuple(np.argwhere(~np.isfinite(B))[0])
        if is_scipy(A):
            place = np.searchsorted(A.indptr, place[0], side="right") - 1, A.indices[place[0]]
        row, column = (*place, 0)[:2]
        value, kind = (A[place], "number") if found is None else (found[place], "float32 number")
        raise ValueError(f"{where}, row {row}, column {column}: found {value}, expected a finite {kind}")


def as_type(A: Any, dtype: Any, where: str) -> Any:
    """A, which is finite, with elements of another type, after a check that they are finite too."""
    with np.errstate(over="ignore"):
        B = A.astype(dtype, copy=False)
    if B is not A:
        check_finite(B, where, A)
    return B


def checked_weights(weights: Any, N: int, where: str = "weights") -> np.ndarray:
    """The weights as a vector of N float64 numbers, after a check that they are finite, not negative and not all 0."""
    s = np.asarray(weights)
    if s.shape not in ((N,), (N, 1)):
        raise ValueError(f"{where}: found shape {s.shape}, expected {N} numbers")
    check_finite(s, where)
    s = s.reshape(-1).astype(np.float64)
    if s.min() < 0:
        raise ValueError(f"{where}: found {s.min()} in row {s.argmin()}, expected numbers from 0")
    if not s.any():
        raise ValueError(f"{where}: all weights are zero, expected a positive one")
    return s


def all_finite(A: np.ndarray) -> bool:
    """Whether no element is NaN or infinite; their sum, which needs no memory, decides unless it overflows."""
    if A.dtype.kind != "f":
        return True
    with np.errstate(all="ignore"):
        return bool(np.isfinite(A.sum())) or bool(np.isfinite(A).all())
