"""Supports from files: those of a model, or the positions where matrices W1, W2, … are not 0."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from matgrad.backends.base import Matrix
from matgrad.layers.linear import LinearLayer
from matgrad.sparse.matrix import SparseMatrix
from matgrad.sparse.support import Support
from matgrad.storage.models import load_model, read_arrays


def load_supports(path: str | Path) -> list[Support | None]:
    """The supports of the linear layers, in their order, that a file has; None for a matrix without zeros.

    In a model file, a sparse layer has its support, and a dense one the positions where its weights are not 0. Other
    npz files have masks or matrices ``W1, W2, …``, one per linear layer, and possibly ``b1, b2, …``.
    """
    content = read_arrays(path)
    if "matgrad" not in content:
        return [_where_not_zero(A) for A in _matrices(content, path)]
    M = load_model(path).model
    return [_support(layer.W) for _, layer in M.walk() if isinstance(layer, LinearLayer)]


def _support(W: Matrix) -> Support | None:
    return W.support if isinstance(W, SparseMatrix) else _where_not_zero(W)


def _where_not_zero(A: np.ndarray) -> Support | None:
    mask = A != 0
    return None if mask.all() else Support.from_mask(mask)


def _matrices(content: Mapping[str, np.ndarray], path: str | Path) -> list[np.ndarray]:
    """W1, W2, … of a file, after a check that they are matrices of finite numbers and that little else is in it."""
    found = [name for name in content if not re.fullmatch(r"b[1-9]\d*", name)]
    names = [f"W{k}" for k in range(1, len(found) + 1)]
    if not found or {*found} != {*names}:
        expected = "expected a model, or matrices W1, W2, … of all its linear layers (a dense one has no 0)"
        raise ValueError(f"{path}: {expected}, found {', '.join(found) or 'none'}")
    for name in names:
        A = content[name]
        if A.ndim != 2 or A.dtype.kind not in "biuf" or not np.isfinite(A).all():
            raise ValueError(f"{path}: {name}: expected a matrix of numbers, found {A.dtype} of shape {A.shape}")
    return [content[name] for name in names]
