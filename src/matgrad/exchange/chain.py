"""A model as a chain of operations that other tools have, and a model from such a chain.

Each operation comes with its place, such as 'layer 2, ReLU', with which the message begins if it cannot be exchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeVar

import numpy as np

from matgrad.activation_functions import ActivationFunction, AllReLUActivation, LeakyReLUActivation
from matgrad.backends import backend_of
from matgrad.backends.base import DTYPES
from matgrad.datasets.normalization import Normalization
from matgrad.layers import (
    ActivationLayer,
    BatchNormalizationLayer,
    DropoutLayer,
    Layer,
    LayerNormalizationLayer,
    LinearLayer,
    LogSoftmaxLayer,
    RMSNormalizationLayer,
    SoftmaxLayer,
)
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.sparse.matrix import SparseMatrix, values_of, with_values

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Affine:
    """Y = X Wᵀ + 1_N b, with a dense or sparse K×D matrix W and a vector b, both of NumPy."""

    W: Any
    b: np.ndarray


@dataclass(frozen=True, eq=False)
class BatchNormalization:
    """Batch normalization with vectors of NumPy; momentum is the weight of the new statistics."""

    gamma: np.ndarray
    beta: np.ndarray
    mean: np.ndarray
    variance: np.ndarray
    epsilon: float
    momentum: float


ROWS = {"gamma": "gamma", "beta": "beta", "mean": "running_mean", "variance": "running_variance"}  # in our layer


@dataclass(frozen=True, eq=False)
class LayerNormalization:
    """Layer normalization with vectors of NumPy."""

    gamma: np.ndarray
    beta: np.ndarray
    epsilon: float


@dataclass(frozen=True, eq=False)
class RMSNormalization:
    """RMS normalization with a vector of NumPy."""

    gamma: np.ndarray
    epsilon: float


@dataclass(frozen=True)
class Dropout:
    """Dropout of neurons at a rate."""

    rate: float


class Softmax:
    """The softmax of every row."""


class LogSoftmax:
    """The logarithm of that."""


@dataclass(frozen=True, eq=False)
class Normalize:
    """(X - offset) / scale, before all other operations."""

    normalization: Normalization


@dataclass(frozen=True, eq=False)
class Denormalize:
    """Y·scale + offset, after all other operations."""

    normalization: Normalization


Normalizing = BatchNormalization | LayerNormalization | RMSNormalization
Operation = Affine | ActivationFunction | Softmax | LogSoftmax | Normalizing | Dropout | Normalize | Denormalize
Chain = Iterable[tuple[str, Operation]]


# -- from a model ---------------------------------------------------------------------------------

# the operations that each layer is; a layer that is not listed, such as SReLU or a user's own, is refused
OPERATIONS: dict[type[Layer], Callable[[Any], list[Operation]]] = {
    LinearLayer: lambda layer: [_affine(layer)],
    ActivationLayer: lambda layer: [_affine(layer), layer.act],
    SoftmaxLayer: lambda layer: [_affine(layer), Softmax()],
    LogSoftmaxLayer: lambda layer: [_affine(layer), LogSoftmax()],
    BatchNormalizationLayer: lambda layer: [_batch_normalization(layer)],
    LayerNormalizationLayer: lambda layer: [
        LayerNormalization(_array(layer.gamma)[0], _array(layer.beta)[0], layer.epsilon)
    ],
    RMSNormalizationLayer: lambda layer: [RMSNormalization(_array(layer.gamma)[0], layer.epsilon)],
    DropoutLayer: lambda layer: [Dropout(layer.dropout)],
}


def chain_of(M: MultilayerPerceptron, *, trains: bool = True) -> Iterator[tuple[str, Operation]]:
    """The operations of M, with its normalizations; without `trains`, as they are in evaluation mode."""
    if M.dtype not in DTYPES:
        raise ValueError(f"the model is {M.dtype}, expected one of {', '.join(DTYPES)}; use M.to(dtype=...)")
    if M.normalization is not None and M.normalization.kind != "none":
        yield f"the {M.normalization} normalization of the inputs", Normalize(M.normalization)
    for i, layer in enumerate(M.layers, start=1):
        where = f"layer {i}, {layer.specification()}"
        with at(where):
            if trains and isinstance(layer, LinearLayer) and layer.dropout:
                raise ValueError(f"drops weights at rate {layer.dropout}; other tools have dropout of neurons only")
            operations = counterpart(OPERATIONS, layer, "other tools have no such layer")(layer)
        yield from ((where, operation) for operation in operations if trains or not isinstance(operation, Dropout))
    if M.target_normalization is not None and M.target_normalization.kind != "none":
        yield f"the {M.target_normalization} normalization of the targets", Denormalize(M.target_normalization)


def _affine(layer: LinearLayer) -> Affine:
    return Affine(with_values(layer.W, _array(values_of(layer.W))), _array(layer.b)[0])


def _batch_normalization(layer: BatchNormalizationLayer) -> BatchNormalization:
    rows = {name: _array(getattr(layer, attribute))[0] for name, attribute in ROWS.items()}
    return BatchNormalization(**rows, epsilon=layer.epsilon, momentum=layer.momentum)


def _array(X: Any) -> np.ndarray:
    return backend_of(X).to_numpy(X)


def dense(W: Any) -> np.ndarray:
    """A dense or sparse matrix of NumPy as a dense one."""
    return W.to_dense() if isinstance(W, SparseMatrix) else W


# -- what the tools share -------------------------------------------------------------------------


@contextmanager
def at(where: str) -> Iterator[None]:
    """Errors inside that say why something cannot be exchanged begin with its place."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def counterpart(table: Mapping[type, T], thing: Any, problem: str) -> T:
    """The entry for exactly the type of a thing: a derived class may compute something else."""
    if type(thing) not in table:
        raise ValueError(problem)
    return table[type(thing)]


def normalization_of(offset: np.ndarray, scale: np.ndarray, kind: str = "standard") -> Normalization:
    """The normalization with these numbers, which must be those of float32."""
    rows = []
    for name, A in (("offset", offset), ("scale", scale)):
        row = A.astype(np.float32).reshape(1, -1)
        if not np.isfinite(row).all() or (row != A.reshape(1, -1)).any() or (name == "scale" and (row <= 0).any()):
            raise ValueError(f"{name} of a normalization: expected {'positive ' * (name == 'scale')}float32 numbers")
        rows.append(row)
    if rows[0].shape != rows[1].shape:
        raise ValueError(f"found {rows[0].size} offsets and {rows[1].size} scales of a normalization, expected as many")
    return Normalization(kind, *rows)


def slope_of(f: LeakyReLUActivation) -> float:
    """The α of max(αx, x) if other tools have that function: αx if x < 0, else x."""
    if f.alpha > 1:
        raise ValueError(f"is max(αx, x) with α = {f.alpha:g}; other tools have αx for x < 0, which is AllReLU")
    return f.alpha


def with_slope(alpha: float) -> ActivationFunction:
    """The function αx if x < 0, else x."""
    return LeakyReLUActivation(alpha) if alpha <= 1 else AllReLUActivation(alpha)


def below(x: float, dtype: str) -> float:
    """The number of a dtype before x: what is greater than it is at least x."""
    return float(np.nextafter(np.dtype(dtype).type(x), -np.inf, dtype=dtype))


def above(x: float, dtype: str) -> float:
    """The number of a dtype after x, as one writes it: 0.01 for that float32 number."""
    return float(str(np.nextafter(np.dtype(dtype).type(x), np.inf, dtype=dtype)))


def complement(momentum: float) -> float:
    """1 - momentum as one writes it: 0.1 for 0.9. In ONNX and Keras momentum is the weight of the old statistics."""
    return float(1 - Decimal(repr(momentum)))
