"""Batches of examples and targets, one-hot targets, and weights of examples and classes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from itertools import pairwise
from typing import Any

import numpy as np

from matgrad.backends import backend_of, convert, get_backend
from matgrad.backends.base import Array
from matgrad.datasets.checking import as_array, check_examples, checked_weights, is_scipy
from matgrad.foundation.limits import check_bytes
from matgrad.foundation.numbers import generator
from matgrad.matrix_operations import identity
from matgrad.sparse.matrix import SparseMatrix, values_of, with_values
from matgrad.sparse.support import Support
from matgrad.specifications.parsing import parse_numbers

ClassWeights = str | Mapping[int, float] | Sequence[float] | np.ndarray


class DataLoader:
    """Batches (X, T) of a data set; the last one is smaller if the batch size does not divide N.

    X is an N×D array of finite numbers, or a sparse matrix of SciPy; then a batch is a `SparseMatrix`. T is an N×K
    matrix of targets, a vector of N numbers (regression, K = 1), or a vector of N class indices, which become one-hot
    rows. The order is that of the data or, with `shuffle`, a new one for every pass, from a NumPy generator: the
    same on every backend. Without a `seed` the generator is the one that `manual_seed` sets.

    `classes` is the number of classes, by default the largest index + 1; if it is 1, as for a model with
    one output, integers are numbers and not class indices. `weights` are N numbers, none of them negative, and
    batches are then (X, T, s); see `loss_functions` for what they do. `checked` says that X and T were checked before.
    """

    def __init__(
        self,
        X: Any,
        T: Array,
        batch_size: int = 100,
        *,
        shuffle: bool = False,
        seed: int | None = None,
        classes: int | None = None,
        weights: Any = None,
        checked: bool = False,
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size: expected 1 or more, found {batch_size}")
        X = as_array(X, "X") if is_scipy(X) else X
        if not checked:
            check_examples(X, T)
        self.X = as_matrix(X)
        values = values_of(self.X)
        self._exact: dict[str, np.ndarray] = {}  # the numbers that are rounded here, for a float64 model
        if isinstance(values, np.ndarray) and values.dtype.kind in "iub":
            self._exact["X"] = values
            values = values.astype(np.float32)
            self.X = with_values(self.X, values)
        backend = backend_of(values)
        if not (dtype := backend.dtype(values)).startswith("float"):
            raise TypeError(f"X: expected floating-point numbers, found {dtype}")
        self.T, self.labels = _targets(self.X, T, classes)
        self.weights: Array | None = None
        if weights is not None:
            self._exact["weights"] = s = checked_weights(weights, self.X.shape[0])[:, None]
            self.weights = backend.from_numpy(s.astype(dtype), backend.device(values))
        if self.labels is None and backend.dtype(T) not in (dtype, "float32"):
            self._exact["T"] = backend.to_numpy(T).reshape(self.T.shape)
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.rng = generator() if seed is None else np.random.default_rng(seed)

    _part: tuple[np.ndarray, int] | None = None  # of a part of a shuffled pass: the order, and the number of examples

    @property
    def size(self) -> int:
        """The number of examples."""
        return int(self.X.shape[0]) if self._part is None else self._part[1]

    @property
    def classes(self) -> int | None:
        """The number of classes if the targets are class indices, else None."""
        return None if self.labels is None else len(self.T)

    @property
    def is_plain(self) -> bool:
        """Whether its batches are just ``batch(start, order())``: an engine may then form them itself."""
        return type(self) is DataLoader and not {"batch", "order"} & vars(self).keys()

    def __len__(self) -> int:
        """The number of batches."""
        return -(-self.size // self.batch_size)

    def __iter__(self) -> Iterator[tuple[Array, ...]]:
        order = self.order()
        for start in range(0, self.size, self.batch_size):
            yield self.batch(start, order)

    def order(self) -> np.ndarray | None:
        """The indices of the examples for a pass, a new permutation each time; None if they are not shuffled."""
        if self._part is not None:
            return self._part[0]
        return self.rng.permutation(self.size) if self.shuffle else None

    def batch(self, start: int, order: np.ndarray | None = None) -> tuple[Array, ...]:
        """The batch that begins at position `start` of an order, by default that of the data."""
        return self.examples(start, min(start + self.batch_size, self.size), order)

    def examples(self, start: int, stop: int, order: np.ndarray | None = None) -> tuple[Array, ...]:
        """The examples from position `start` to `stop` of an order, by default that of the data: X, T and maybe s."""
        rows = slice(start, stop) if order is None else order[start:stop]
        s = () if self.weights is None else (rows_of(self.weights, rows),)
        return rows_of(self.X, rows), rows_of(self.T, rows if self.labels is None else self.labels[rows]), *s

    def parts(self, stops: Sequence[int]) -> Iterator[DataLoader]:
        """One pass as several loaders, which end after the numbers of batches in `stops`, and one for the rest."""
        order, N = self.order(), self.batch_size
        for first, last in pairwise([0, *stops, len(self)]):
            start, end = first * N, min(last * N, self.size)
            part = self.between(start, end) if order is None else copy(self)
            if order is not None:
                part._part = np.roll(order, -start), end - start  # an order has all rows
            yield part

    def between(self, start: int, end: int) -> DataLoader:
        """A loader of the examples from `start` to `end` in the order of the data, without a copy of them."""
        part, rows = copy(self), slice(start, end)
        part.X = rows_of(self.X, rows)
        part.T = self.T if self.labels is not None else rows_of(self.T, rows)
        part.labels = None if self.labels is None else self.labels[rows]
        part.weights = None if self.weights is None else rows_of(self.weights, rows)
        part._exact = {}
        return part

    def to(self, backend: str | None = None, *, dtype: str | None = None, device: str | None = None) -> DataLoader:
        """Move the data to another backend, element type or device, in place; returns the loader.

        The device ``auto`` is a GPU if the backend sees one. Data that is there already is not copied, nor are examples
        that another backend can read where they are.
        """
        values = values_of(self.X)
        current = backend_of(values)
        target = current if backend is None else get_backend(backend)
        if dtype is not None:
            target.check_dtype(dtype)
        if values is not self.X:
            target.check_sparse()
        here = current.device(values)
        device = here if device is None and target is current else target.find_device(device)
        if (target, device) != (current, here):
            matrices = (values, self.T, *([] if self.weights is None else [self.weights]))
            size = sum(int(np.prod(A.shape)) for A in matrices)
            target.check_memory(size * np.dtype(dtype or current.dtype(values)).itemsize, device, "the data")
        elif dtype in (None, current.dtype(values)):
            return self
        exact = {name: A.astype(dtype) for name, A in self._exact.items()} if dtype == "float64" else {}
        A = exact.get("X", current.to_numpy(values))
        self.X = with_values(self.X, target.shown(A if dtype is None else A.astype(dtype, copy=False), device))
        self.T = convert(exact.get("T", self.T), target, dtype, device)
        if self.weights is not None:
            self.weights = convert(exact.get("weights", self.weights), target, dtype, device)
        return self

    def in_order(self, batch_size: int) -> DataLoader:
        """A loader of the same examples in the order of the data, without a copy of them."""
        loader = copy(self)
        loader.shuffle, loader.batch_size = False, batch_size
        return loader


def one_hot(labels: np.ndarray, classes: int, *, like: Array | None = None) -> Array:
    """N×K matrix with t_ij = 1 where j = labels_i and 0 elsewhere, for K classes from 0."""
    I = identity(classes, like=like)
    return backend_of(I).take_rows(I, class_indices(labels, classes))


def rows_of(A: Array, rows: slice | np.ndarray) -> Array:
    """The rows of A in a slice, without a copy if the backend allows it, or those with given indices."""
    if isinstance(rows, slice):
        return backend_of(A).rows(A, rows.start, rows.stop)
    return backend_of(A).take_rows(A, rows)


def as_matrix(X: Any) -> Array:
    """X itself if it is dense, and a CSR matrix of SciPy as a `SparseMatrix`."""
    return SparseMatrix(Support(X.shape, X.indptr, X.indices), X.data[None]) if is_scipy(X) else X


def _targets(X: Array, T: Array, classes: int | None) -> tuple[Array, np.ndarray | None]:
    """(the targets as a matrix, None), or (the one-hot rows of all classes, the class of each row)."""
    X = values_of(X)
    backend, is_single = backend_of(X, T), len(T.shape) == 1 or T.shape[1] == 1
    if classes != 1 and is_single and "int" in backend.dtype(T):
        labels = backend.to_numpy(T).reshape(-1)
        classes = int(labels.max()) + 1 if classes is None else classes
        check_bytes(4 * classes**2, f"T: one-hot targets of {classes} classes")
        return identity(classes, like=X), class_indices(labels, classes)
    if classes not in (None, 1) and is_single:
        raise ValueError(
            f"T: found one column of {backend.dtype(T)}, expected {classes}; class indices must be integers"
        )
    A = backend.to_numpy(T).astype(backend.dtype(X))
    return backend.from_numpy(A.reshape(len(A), -1), backend.device(X)), None


def are_classes(T: np.ndarray) -> bool:
    """Whether targets stand for classes: a vector or column of integers or booleans, or rows of probabilities.

    Such a row has at least two elements, not negative and with the sum 1, as a one-hot row has.
    """
    if T.ndim < 2 or T.shape[1] == 1:
        return T.dtype.kind in "iub"
    return T.dtype.kind in "iubf" and bool((T >= 0).all()) and np.allclose(T.sum(axis=1), 1, rtol=0, atol=1e-5)


def class_indices(labels: np.ndarray, classes: int, where: str = "") -> np.ndarray:
    """The labels as int64, after a check that each is one of 0, 1, …, classes - 1; errors begin with `where`."""
    indices = np.asarray(labels)
    wrong = np.argwhere((indices < 0) | (indices >= classes) | (indices != np.floor(indices)))
    if len(wrong):
        found = f"label {indices[tuple(wrong[0])]} in row {wrong[0][0]}"
        raise ValueError(f"{where}{found}: expected a class from 0 to {classes - 1}")
    return indices.astype(np.int64)


def class_weights(specification: ClassWeights, T: np.ndarray, K: int | None) -> np.ndarray:
    """c, the weights of K classes; the targets T of N examples are class indices or rows of probabilities.

    ``"balanced"`` gives all classes the same total weight: class j, which n_j of the N examples have, has the weight
    N / (K·n_j), where K counts the classes that occur. Else it is a list of K weights, such as ``1;2;0.5``, or a
    dictionary from class indices to weights; other classes have the weight 1. A regression, where K is None, has none.
    """
    if K is None:
        raise ValueError("class weights: the targets are numbers, expected classes")
    if isinstance(specification, str) and specification == "balanced":
        counts = T.sum(axis=0) if _are_rows(T) else np.bincount(class_indices(T.reshape(-1), K), minlength=K)
        return np.divide(counts.sum(), np.count_nonzero(counts) * counts, out=np.ones(K), where=counts > 0)
    if isinstance(specification, str):
        specification = parse_numbers(specification, "class weight", float)
    if isinstance(specification, Mapping):
        if unknown := [j for j in specification if j not in range(K)]:
            raise ValueError(f"class weights: found the class {unknown[0]!r}, expected classes from 0 to {K - 1}")
        specification = [specification.get(j, 1.0) for j in range(K)]
    return checked_weights(specification, K, "class weights")


def weights_by_class(T: np.ndarray, c: np.ndarray) -> np.ndarray:
    """T c, the weights of N examples from those of their classes; class indices stand for one-hot rows."""
    return T @ c if _are_rows(T) else c[class_indices(T.reshape(-1), len(c))]


def _are_rows(T: np.ndarray) -> bool:
    """Whether T has rows of probabilities, and not class indices."""
    return T.ndim == 2 and T.shape[1] > 1
