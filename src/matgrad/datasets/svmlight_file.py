"""Data sets in svmlight (libsvm) files: a line such as ``-1 3:0.5 17:2`` has a target and the elements of a row."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from matgrad.datasets.checking import check_finite
from matgrad.datasets.dataset import Dataset, hold_out
from matgrad.datasets.tables import MAX_RARE_CLASSES, TASKS, are_few_integers, described
from matgrad.foundation.files import naming, opened
from matgrad.foundation.imports import check_installed
from matgrad.foundation.limits import check_bytes, file_limit
from matgrad.specifications.parsing import lookup

File = str | os.PathLike[str]
BYTES = 128  # per feature, beside its elements: its weights in a small layer, and a normalization


def svmlight(
    file: File,
    *,
    test: File | None = None,
    task: str | None = None,
    test_fraction: float = 0.2,
    seed: int = 0,
    first_index: int | None = None,
    features: int | None = None,
    dtype: str = "float32",
) -> Dataset:
    """The data set in an svmlight file, whose X is a CSR matrix of SciPy.

    Test examples come from the file `test`, or are a `test_fraction` of the lines, drawn with `seed`. The features
    count from `first_index`, 0 or 1: by default from 0 if any line has a feature 0, else from 1. `features` is their
    number, by default that of the largest index. Without `task` (classification or regression), the targets are
    classes if all are integers that occur twice on average. The `notes` of the data set say what was decided.
    """
    lookup(task or TASKS[0], dict.fromkeys(TASKS), "task")
    parts = [_read(Path(name)) for name in (file, test) if name is not None]
    first = first_index if first_index is not None else int(min(X.indices.min(initial=1) for X, _ in parts))
    D = features if features is not None else max(1, *(int(X.indices.max(initial=0)) + 1 - first for X, _ in parts))
    targets = parts[0][1]
    if task is None:
        task = "classification" if are_few_integers(targets, MAX_RARE_CLASSES) else "regression"
    labels = np.unique(targets) if task == "classification" else None
    names = None if labels is None else tuple(f"{label:.17g}" for label in labels)
    notes = [f"features: {D}, counted from {first}", f"targets: {described(names)}"]
    X, T = _examples(Path(file), *parts[0], first, D, labels)
    if test is None:
        kept, held = hold_out(len(T), test_fraction, seed, str(file))
        X, T, Xt, Tt = X[kept], T[kept], X[held], T[held]
        notes.append(f"test examples: {len(held)} of {len(targets)} lines, drawn with seed {seed}")
    else:
        Xt, Tt = _examples(Path(test), *parts[1], first, D, labels)
        notes.append(f"test examples: {len(Tt)} lines of {test}")
    return Dataset.checked(
        Path(file).name.split(".")[0],
        *(X, T, Xt, Tt),
        source=str(file),
        classes=None if names is None else len(names),
        class_names=names,
        dtype=dtype,
        notes=tuple(notes),
        first_index=first,
    )


def _read(path: Path) -> tuple[Any, np.ndarray]:
    """X, a CSR matrix whose columns are the indices of the file, and the targets."""
    check_installed("sklearn", "sklearn", "svmlight files")
    from sklearn.datasets import load_svmlight_file

    with opened(path, is_text=True) as content, naming(path, "not an svmlight file, or a damaged one: "):
        X, t = load_svmlight_file(content, zero_based=True)
    if not len(t):
        raise ValueError(f"{path}: the file is empty, expected lines such as '1 3:0.5 17:2'")
    check_finite(t, f"{path}: targets")
    return X, t


def _examples(
    path: Path, X: Any, t: np.ndarray, first: int, D: int, labels: np.ndarray | None
) -> tuple[Any, np.ndarray]:
    """X with D columns, the first of which has the index `first`, and the classes of t, or a column of numbers."""
    from scipy.sparse import csr_array

    check_bytes(BYTES * D, f"{path}: {D} features", file_limit(path))
    indices = X.indices - first
    if len(wrong := indices[(indices < 0) | (indices >= D)]):
        found = f"found feature {wrong.max() + first}"
        raise ValueError(f"{path}: {found}, expected numbers from {first} to {first + D - 1}")
    if labels is not None and len(unknown := np.setdiff1d(t, labels)):
        raise ValueError(f"{path}: found target {unknown[0]:g}, expected one of the classes of the training file")
    T = t.reshape(-1, 1) if labels is None else np.searchsorted(labels, t)
    return csr_array((X.data, indices, X.indptr), shape=(X.shape[0], D)), T
