"""A data set: training and test examples with their targets, checked, normalized and split.

Normalization of examples or targets is X' = (X - offset) / scale, found on training data and applied to any data.
Sparse examples are only scaled: an offset would make them dense.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from matgrad.datasets.checking import as_type, check_finite, checked_examples, is_scipy
from matgrad.datasets.loader import class_indices
from matgrad.foundation.files import naming
from matgrad.foundation.limits import check_bytes, limit_from
from matgrad.foundation.writing import visible
from matgrad.specifications.parsing import lookup

if TYPE_CHECKING:
    from matgrad.datasets.features import Features


@dataclass(frozen=True, eq=False)
class Dataset:
    """Examples X, N×D, and targets T: N class indices (int64), or an N×K matrix of numbers (regression).

    Numbers are float32 unless float64 was asked for, as for a float64 model.
    X is a NumPy array or a CSR matrix of SciPy. `value_range` has the smallest and largest value that X can have, if
    known, `features` says how X was made from the columns of a table, and `notes` what the reader decided. The
    features of an svmlight file count from `first_index`. Created by `Dataset.checked`.
    """

    name: str
    Xtrain: Any
    Ttrain: np.ndarray
    Xtest: Any
    Ttest: np.ndarray
    classes: int | None = None
    class_names: tuple[str, ...] | None = None
    value_range: tuple[float, float] | None = None
    notes: tuple[str, ...] = ()
    features: Features | None = None
    first_index: int | None = None

    @classmethod
    def checked(
        cls,
        name: str,
        *arrays: Any,
        source: str | None = None,
        classes: int | None = None,
        dtype: str = "float32",
        **others: Any,
    ) -> Dataset:
        """The data set of Xtrain, Ttrain, Xtest, Ttest and other attributes, or an error that names `source`.

        X and numbers in T get the `dtype`. Integers and booleans in a vector or a single column are classes, 0 to
        `classes` - 1 if that is given; other targets are numbers, and a vector of them becomes a column.
        """
        where = source or name
        X, T = _checked_part(where, "train", dtype, *arrays[:2])
        Xt, Tt = _checked_part(where, "test", dtype, *arrays[2:])
        if is_scipy(X) != is_scipy(Xt):
            raise ValueError(f"{where}: one of Xtrain and Xtest is sparse: expected both or none")
        if (D := X.shape[1]) != (Dt := Xt.shape[1]):
            raise ValueError(f"{where}: Xtrain has {D} columns and Xtest has {Dt}: expected equal numbers")
        if T.shape[1:] != Tt.shape[1:]:
            kinds = ["classes" if A.ndim == 1 else f"{A.shape[1]} columns of numbers" for A in (T, Tt)]
            raise ValueError(f"{where}: Ttrain has {kinds[0]} and Ttest has {kinds[1]}: expected the same")
        if T.ndim == 1:
            classes = max(int(T.max()), int(Tt.max()), 0) + 1 if classes is None else classes
            what = f"{where}: one-hot targets of {classes} classes (numbers are floats)"
            check_bytes(4 * classes**2, what, limit_from(X.data.nbytes))
            class_indices(T, classes, f"{where}: Ttrain: ")
            class_indices(Tt, classes, f"{where}: Ttest: ")
        elif classes is not None:
            raise ValueError(f"{where}: Ttrain: found a matrix of numbers, expected {classes} classes")
        notes = tuple(map(visible, others.pop("notes", ())))
        return cls(visible(name), X, T, Xt, Tt, classes, notes=notes, **others)

    @property
    def input_size(self) -> int:
        """D, the number of columns of X."""
        return self.Xtrain.shape[1]

    @property
    def output_size(self) -> int:
        """K, the number of classes or, for regression, of columns of T."""
        return self.Ttrain.shape[1] if self.classes is None else self.classes

    def sha256(self) -> str:
        """The SHA-256 of names, shapes, element types and bytes of the arrays, in hexadecimal."""
        digest = hashlib.sha256()
        for name in ("Xtrain", "Ttrain", "Xtest", "Ttest"):
            for part, A in parts_of(name, getattr(self, name)).items():
                A = np.ascontiguousarray(A, dtype=A.dtype.newbyteorder("<"))
                digest.update(f"{part} {A.shape} {A.dtype.name}\n".encode())
                digest.update(A.data.cast("B"))
        return digest.hexdigest()

    def normalize(self, kind: str) -> Dataset:
        """The data set with X' = (X - offset) / scale; see `Normalization.of` for the kinds none, unit and standard.

        A model with a `normalization` of its own takes the data as read.
        """
        with naming(self.name):
            normalization = Normalization.of(kind, self.Xtrain, self.value_range, self.Xtrain.dtype.name)
        X, Xt = normalization.apply(self.Xtrain), normalization.apply(self.Xtest)
        check_finite(Xt, f"{self.name}: Xtest after normalization")
        return replace(self, Xtrain=X, Xtest=Xt, value_range=None)


def hold_out(N: int, fraction: float, seed: int = 0, where: str = "data") -> tuple[np.ndarray, np.ndarray]:
    """(kept rows, held-out rows) of N, each in order: about fraction·N are held out, at least one of each."""
    if not 0 < fraction < 1:
        raise ValueError(f"{where}: held-out fraction: expected a number between 0 and 1, found {fraction}")
    if N < 2:
        raise ValueError(f"{where}: expected at least 2 rows to hold some out, found {N}")
    count = min(max(round(fraction * N), 1), N - 1)
    order = np.random.default_rng(seed).permutation(N)
    return np.sort(order[count:]), np.sort(order[:count])


def parts_of(name: str, A: Any) -> dict[str, np.ndarray]:
    """The arrays of which a data set consists, by name: A itself or, if it is sparse, its CSR arrays and its shape."""
    if not is_scipy(A):
        return {name: A}
    index = {"columns": A.indices.astype(np.int32), "starts": A.indptr.astype(np.int64), "shape": np.array(A.shape)}
    return {f"{name}.{part}": B for part, B in ({"values": A.data} | index).items()}


def _checked_part(where: str, part: str, dtype: str, X: Any, T: Any) -> tuple[Any, np.ndarray]:
    """X as a matrix of this type, and T as an int64 vector of class indices or a matrix of numbers of this type."""
    X, T = checked_examples(X, T, f"{where}: ", part)
    X = as_type(X, dtype, f"{where}: X{part}")
    if T.dtype.kind in "iub" and T.size == len(T):
        T = T.reshape(-1).astype(np.int64)
    else:
        T = np.ascontiguousarray(as_type(T.reshape(len(T), -1), dtype, f"{where}: T{part}"))
    return X if is_scipy(X) else np.ascontiguousarray(X), T


KINDS = ("none", "unit", "standard")
ROWS = 4096  # converted to float64 at a time: all of CIFAR-10 would take more than 1 GB


@dataclass(frozen=True, eq=False)
class Normalization:
    """X' = (X - offset) / scale, with 1×D rows `offset` and `scale`, in float64 for a float64 model, else float32."""

    kind: str
    offset: np.ndarray
    scale: np.ndarray

    def __post_init__(self) -> None:
        lookup(self.kind, dict.fromkeys(KINDS), "normalization")
        are_finite = np.isfinite(self.offset).all() and np.isfinite(self.scale).all()
        if self.offset.shape != self.scale.shape or not are_finite or (self.scale <= 0).any():
            raise ValueError(f"the {self.kind} normalization: expected finite offsets and as many positive scales")

    @classmethod
    def of(
        cls, kind: str, X: Any, value_range: tuple[float, float] | None = None, dtype: str = "float32"
    ) -> Normalization:
        """The normalization of a kind for training data X of a model, whose values have a known range or None.

        unit: offset is the smallest value and scale is largest - smallest, of the known range or of each column.
        standard: offset_j = Σ_i x_ij / N and scale_j² = Σ_i (x_ij - offset_j)² / N.
        Of sparse X, unit: offset is 0 and scale is the largest absolute value, of the known range or of each column.
        """
        offset: Any = 0
        scale: Any = 1
        if kind == "standard" and is_scipy(X):
            raise ValueError(f"the normalization {kind!r} would make a sparse X dense; expected 'unit' or 'none'")
        if kind == "standard":
            offset = X.mean(axis=0, dtype=np.float64)
            squares = sum(np.square(X[i : i + ROWS] - offset).sum(axis=0) for i in range(0, len(X), ROWS))
            scale = np.sqrt(squares / len(X))  # exactly 0 for constant float32 columns
        elif kind == "unit" and is_scipy(X):
            scale = abs(X).max(axis=0).toarray() if value_range is None else max(map(abs, value_range))
        elif kind == "unit":
            offset, high = (X.min(axis=0), X.max(axis=0)) if value_range is None else value_range
            scale = np.subtract(high, offset, dtype=np.float64)
        with np.errstate(over="ignore", under="ignore"):
            a, b = (np.full((1, X.shape[1]), A, np.float64).astype(dtype) for A in (offset, scale))
        b[b == 0] = 1
        if len(wrong := np.flatnonzero(~np.isfinite(a + b))):
            raise ValueError(f"column {wrong[0]}: the range of its values is too wide for {dtype}")
        return cls(kind, a, b)

    def apply(self, X: Any) -> Any:
        """(X - offset) / scale for an N×D matrix X, as float64 if X or offset is that, else float32; X for 'none'."""
        D = self.offset.shape[1]
        if X.ndim != 2 or X.shape[1] != D:
            raise ValueError(f"found a matrix with shape {X.shape}, expected {D} columns as in the training data")
        if self.kind == "none":
            return X
        dtype = np.float64 if np.float64 in (X.dtype, self.offset.dtype) else np.float32
        if is_scipy(X) and self.offset.any():
            raise ValueError(f"the normalization {self.kind} shifts the inputs, which would make a sparse X dense")
        with np.errstate(over="ignore", invalid="ignore"):
            if not is_scipy(X):
                Y = np.subtract(X, self.offset, dtype=dtype)
                return np.divide(Y, self.scale, out=Y)
            Y = X.astype(dtype)
            Y.data /= self.scale[0, Y.indices]
            return Y

    def invert(self, Y: np.ndarray) -> np.ndarray:
        """Y·scale + offset for an N×D matrix of floats Y, the X for which `apply` gives Y; with the dtype of Y."""
        return Y if self.kind == "none" else (Y.astype(np.float64) * self.scale + self.offset).astype(Y.dtype)

    def __str__(self) -> str:
        return self.kind
