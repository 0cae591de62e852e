"""Conversion of matrices from one backend to another."""

from __future__ import annotations

from matgrad.backends import Backend, backend_of
from matgrad.backends.base import Array


def convert(X: Array, backend: Backend, dtype: str | None, device: str | None) -> Array:
    """X on another backend; floating-point elements get the given dtype, counters stay integers."""
    A = backend_of(X).to_numpy(X)
    return backend.from_numpy(A.astype(dtype) if dtype and A.dtype.kind == "f" else A, device)
