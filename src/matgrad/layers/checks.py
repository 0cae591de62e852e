"""Checks of the layers of a model, and of its input."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, pairwise
from typing import TYPE_CHECKING

from matgrad.backends import backend_of
from matgrad.backends.base import Matrix
from matgrad.layers.base import layers_in
from matgrad.sparse.matrix import SparseMatrix, values_of

if TYPE_CHECKING:
    from matgrad.layers.layer import Layer


def check_layers(layers: Iterable[Layer]) -> None:
    """Raise if a layer occurs twice, or has inner layers other than its parts."""
    places: dict[int, str] = {}
    for path, layer in _walk(layers):
        if (other := places.setdefault(id(layer), path)) != path:
            raise ValueError(f"layers {other} and {path} are the same {layer!r}: expected two layers")
        parts = {id(part): part for part in layer.parts()}
        kept = {id(part): (name, part) for name, value in vars(layer).items() for part in layers_in(value)}
        for key in kept.keys() - parts.keys():  # a layer that is no part, or in no attribute, could not be cloned
            name, part = kept[key]
            raise ValueError(f"layer {path}, {layer!r}: {name} has {part!r}, which is not in parts()")
        for key in parts.keys() - kept.keys():
            raise ValueError(f"layer {path}, {layer!r}: the part {parts[key]!r} is in none of its attributes")


def _walk(layers: Iterable[Layer]) -> Iterator[tuple[str, Layer]]:
    return (found for i, top in enumerate(layers, start=1) for found in top.walk(str(i)))


def check_sharing(layers: Sequence[Layer]) -> None:
    """Raise if `check_layers` does, or if two parameters share a matrix: each is changed without the other."""
    check_layers(layers)
    named = [(f"{path}.{name}", getattr(x, name)) for path, x in _walk(layers) for name in (*x.parameters, *x.buffers)]
    found = [(name, values_of(X)) for name, X in named if len(X.shape) == 2]
    for (name, X), (other, Y) in combinations(found, 2):
        if type(X) is type(Y) and backend_of(X).shares_memory(X, Y):
            raise ValueError(f"{name} and {other} share a matrix: expected two matrices, such as a copy for one")


def check_input(layers: Sequence[Layer], X: Matrix, like: Matrix) -> None:
    """Raise if the sizes of the layers do not fit, or X does not fit the first, with parameters such as `like`."""
    for i, (before, after) in enumerate(pairwise(layers), start=1):
        if (K := before.output_size) != after.input_size:
            raise ValueError(f"layer {i} has {K} outputs, but layer {i + 1} has {after.input_size} inputs")
    first, backend = layers[0], backend_of(like, values_of(X))
    if isinstance(X, SparseMatrix):
        backend.check_sparse()
        if first.keeps_size:
            raise TypeError(
                f"layer 1, {first!r}, cannot take a sparse X, of which it would compute every element; "
                "put a linear layer before it, or give a dense X, such as X.toarray()"
            )
    if len(X.shape) != 2 or X.shape[1] != first.input_size:
        sizes = " × ".join(map(str, X.shape))
        raise ValueError(f"expected a batch X of size N × {first.input_size}, found {sizes}")
    if X.shape[0] == 0:
        raise ValueError("the batch X is empty: expected at least one example")
    if (dtype := backend.dtype(values_of(X))) != backend.dtype(like):
        wanted = backend.dtype(like)
        raise TypeError(f"X is {dtype} but the model is {wanted}; use M.to(dtype=...) or loader.to(dtype=...)")
