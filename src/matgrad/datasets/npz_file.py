"""Data sets in npz files with the arrays Xtrain, Ttrain, Xtest and Ttest: the layout of the original Nerva.

A folder may have one of them per epoch, for instance with augmented images.
A sparse Xtrain is there as Xtrain.values, Xtrain.columns, Xtrain.starts and Xtrain.shape, in CSR format; so is Xtest.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from matgrad.datasets.dataset import Dataset, parts_of
from matgrad.foundation.files import existing_folder, naming, read_npz
from matgrad.foundation.limits import check_bytes, limit_from
from matgrad.foundation.writing import atomic_write, visible
from matgrad.sparse.matrix import SparseMatrix
from matgrad.sparse.support import Support

KEYS = ("Xtrain", "Ttrain", "Xtest", "Ttest")
PARTS = ("values", "columns", "starts", "shape")  # of a sparse X
RANGE = "value_range"  # optional: the smallest and the largest value that X can have


def npz(file: str | os.PathLike[str], *, classes: int | None = None, dtype: str = "float32") -> Dataset:
    """The data set in an npz file: X matrices of numbers, T class indices, one-hot rows, or numbers.

    Integers and booleans in a vector or a single column are class indices, rows with a single 1 and zeros are
    one-hot, and other targets are those of a regression. Pickled objects are an error.
    """
    path = Path(file)
    arrays = _arrays(path)
    (arrays["Ttrain"], K), (arrays["Ttest"], Kt) = (_classes_of_one_hot(arrays[T], f"{path}: {T}") for T in KEYS[1::2])
    if None not in (K, Kt) and K != Kt:
        raise ValueError(f"{path}: Ttrain has {K} one-hot columns and Ttest has {Kt}: expected equal numbers")
    A = arrays.get(RANGE)
    if A is not None and (A.shape != (2,) or A.dtype.kind not in "fiu" or not np.isfinite(A).all() or not A[0] < A[1]):
        raise ValueError(f"{path}: {RANGE}: expected the smallest and the largest value, found {A.tolist()}")
    return Dataset.checked(
        path.stem,
        *(arrays[key] for key in KEYS),
        source=str(path),
        classes=next((size for size in (classes, K, Kt) if size is not None), None),
        dtype=dtype,
        value_range=None if A is None else (float(A[0]), float(A[1])),
    )


def save_npz(dataset: Dataset, file: str | os.PathLike[str]) -> None:
    """Write the four arrays of a data set, as they are now (normalized or not), to an npz file.

    The file appears, or replaces an older one, when it is complete.
    """
    arrays = {name: A for key in KEYS for name, A in parts_of(key, getattr(dataset, key)).items()}
    if dataset.value_range is not None:
        arrays[RANGE] = np.array(dataset.value_range)
    with atomic_write(Path(file)) as output:
        np.savez_compressed(output, **arrays)  # type: ignore[arg-type]


def _arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays in a file, after a check that the four are there, and no unknown ones."""
    arrays = read_npz(path)
    for key in ("Xtrain", "Xtest"):
        parts = {name: arrays.pop(f"{key}.{name}") for name in PARTS if f"{key}.{name}" in arrays}
        if len(parts) == len(PARTS) and key not in arrays:
            values, columns, starts, shape = parts.values()
            with naming(f"{path}: {key}"):
                support = Support(tuple(shape.reshape(-1).tolist()), starts, columns)
                check_bytes(16 * support.shape[1], f"{support.shape[1]} columns", limit_from(8 * support.nnz))
                arrays[key] = SparseMatrix(support, values.reshape(1, -1)).to_scipy()
        elif parts:
            raise ValueError(f"{path}: {key}: found {', '.join(parts)}, expected all of {', '.join(PARTS)}")
    missing, unknown = [key for key in KEYS if key not in arrays], sorted(arrays.keys() - {*KEYS, RANGE})
    if missing or unknown:
        found = "; ".join(f"{word} {', '.join(keys)}" for word, keys in (("no", missing), ("unknown", unknown)) if keys)
        raise ValueError(visible(f"{path}: {found}; expected {', '.join(KEYS)}"))
    return arrays


def _classes_of_one_hot(T: np.ndarray, where: str) -> tuple[np.ndarray, int | None]:
    """(the class of each row, the number of classes) of one-hot rows; (T, None) for other targets."""
    if T.ndim != 2 or T.shape[1] < 2 or T.dtype.kind not in "fiub":
        return T, None
    is_one_hot = ((T == 0) | (T == 1)).all(axis=1) & (T.sum(axis=1) == 1)
    if is_one_hot.all() and len(T):
        return T.argmax(axis=1), T.shape[1]
    if T.dtype.kind in "iub":
        row = np.flatnonzero(~is_one_hot)
        found = f"row {row[0]} is not one-hot" if len(row) else "found no rows"
        raise ValueError(f"{where}: {found}; expected a single 1 and zeros in each row of a matrix of integers")
    return T, None


class Preprocessed:
    """The data sets of a folder with epoch0.npz, epoch1.npz, …, which are repeated as needed.

    A file is read when its epoch begins. Every data set must have the sizes of the first.
    """

    def __init__(self, folder: str | os.PathLike[str], *, dtype: str = "float32") -> None:
        path, self.dtype = existing_folder(folder), dtype
        count = sum(re.fullmatch(r"epoch\d+\.npz", file.name) is not None for file in path.iterdir())
        self._files = [path / f"epoch{i}.npz" for i in range(max(count, 1))]
        if missing := [file.name for file in self._files if not file.is_file()]:
            raise ValueError(f"{path}: no file {missing[0]}; expected epoch0.npz, epoch1.npz … without gaps")
        self.first = npz(self._files[0], dtype=dtype)

    def __len__(self) -> int:
        """The number of files."""
        return len(self._files)

    def __iter__(self) -> Iterator[Dataset]:
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, i: int) -> Dataset:
        """The data set of epoch i, from 0: the content of file i mod the number of files."""
        if (number := i % len(self)) == 0:
            return self.first
        dataset = npz(self._files[number], classes=self.first.classes, dtype=self.dtype)
        sizes = "{} inputs, {} outputs and {} classes"
        found, expected = (sizes.format(d.input_size, d.output_size, d.classes) for d in (dataset, self.first))
        if found != expected:
            raise ValueError(f"{self._files[number]}: found {found}, expected {expected} as in {self._files[0].name}")
        return dataset


preprocessed = Preprocessed  # the data sets [0], [1], … of a folder
