"""Checks of examples X and targets T: one error that names the array, what was found and what was expected."""

from __future__ import annotations

from typing import Any

import numpy as np

from matgrad.backends import backend_of
from matgrad.backends.base import Matrix


class DataError(ValueError):
    """Data that cannot be used: the message names the file or array, what was found and what was expected."""


def check_examples(X: Matrix, T: Matrix, part: str = "") -> None:
    """Refuse examples and targets that cannot be trained on or measured; `part` comes before their names in errors."""
    check_dense(X, f"{part}X")
    check_dense(T, f"{part}T")
    if len(X.shape) != 2 or 0 in tuple(X.shape):
        raise DataError(f"{part}X: expected a matrix with at least one row, found shape {tuple(X.shape)}")
    if len(T.shape) not in (1, 2) or len(X) != len(T):
        found = len(T) if len(T.shape) else "none"
        raise DataError(f"{part}X has {len(X)} rows and {part}T has {found}: expected one target per row")
    check_finite(X, f"{part}X")
    check_finite(T, f"{part}T")


def checked_examples(X: Any, T: Any, part: str = "") -> tuple[np.ndarray, np.ndarray]:
    """X and T as NumPy arrays, after these checks."""
    check_dense(X, f"{part}X")
    check_dense(T, f"{part}T")
    X, T = np.asarray(X), np.asarray(T)
    check_examples(X, T, part)
    return X, T


def check_dense(A: Any, where: str) -> None:
    """Refuse what NumPy would misread in silence: sparse matrices of any library, masked arrays and `np.matrix`."""
    if isinstance(A, np.ma.MaskedArray):
        raise TypeError(f"{where}: found a MaskedArray, expected an array without a mask, such as A.filled(0)")
    if isinstance(A, np.matrix):
        raise TypeError(f"{where}: found an np.matrix, expected an array, such as np.asarray(A)")
    kind, layout = type(A), str(getattr(A, "layout", ""))  # only a tensor of torch has a layout
    bases = " ".join(f"{base.__module__}.{base.__name__}" for base in kind.__mro__)
    if not isinstance(A, np.ndarray) and "sparse" in f"{bases} {layout}".lower():
        found = layout or f"{kind.__module__.partition('.')[0]} {kind.__name__}"
        raise TypeError(
            f"{where}: found a sparse matrix ({found}), which is not supported as data yet; expected a dense one, "
            "such as A.toarray() or A.to_dense()"
        )


def check_numbers(A: np.ndarray, where: str) -> None:
    """Refuse elements that are not real numbers."""
    if A.dtype.kind not in "fiub":
        raise DataError(f"{where}: found {A.dtype}, expected numbers")


def check_finite(A: Matrix, where: str, found: np.ndarray | None = None) -> None:
    """Refuse NaN and infinity; A may be the float32 version of `found`, whose values are shown."""
    B = backend_of(A).to_numpy(A)
    check_numbers(B, where)
    if not all_finite(B):
        place = tuple(np.argwhere(~np.isfinite(B))[0])
        row, column = (*place, 0)[:2]
        value = (B if found is None else found)[place]
        kind = "number" if found is None else "float32 number"
        raise DataError(f"{where}, row {row}, column {column}: found {value}, expected a finite {kind}")


def all_finite(A: np.ndarray) -> bool:
    """Whether no element is NaN or infinite; their sum, which needs no memory, decides unless it overflows."""
    with np.errstate(all="ignore"):
        return bool(np.isfinite(A.sum())) or bool(np.isfinite(A).all())
