"""Models from chains of operations."""

from __future__ import annotations

from typing import Any

import numpy as np

from matgrad.activation_functions import ActivationFunction
from matgrad.backends.base import DTYPES
from matgrad.exchange.chain import (
    ROWS,
    Affine,
    BatchNormalization,
    Chain,
    Denormalize,
    Dropout,
    LayerNormalization,
    LogSoftmax,
    Normalize,
    Normalizing,
    Operation,
    Softmax,
    at,
)
from matgrad.foundation.random_numbers import preserved_generator
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
from matgrad.layers.state import State, matrices_of
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.sparse.matrix import SparseMatrix, values_of, with_values
from matgrad.specifications.models import OPTIMIZER


def model_of(chain: Chain) -> MultilayerPerceptron:
    """The model with these operations: it has the optimizers of a new one, and trains where a new one does."""
    M, operations = MultilayerPerceptron(), list(chain)
    size = next((n for _, operation in operations if (n := _columns(operation)) is not None), 0)
    with preserved_generator():
        for where, operation in operations:
            with at(where):
                if _columns(operation) not in (None, size):
                    raise ValueError(f"takes {_columns(operation)} columns, but what is before it has {size}")
                if M.target_normalization is not None:
                    raise ValueError("follows the normalization of the targets, which is expected to be the last")
                _append(M, operation, size)
                size = M.layers[-1].output_size if M.layers else size
    if not any(layer.parameters for layer in M.layers):
        raise ValueError("found no layers with weights, expected at least one")
    _check_dtype(M.state())
    M.set_optimizer(OPTIMIZER)
    return M.to("auto")


def _columns(operation: Operation) -> int | None:
    """The number of columns of the matrix that an operation takes; None if it takes any."""
    if isinstance(operation, Normalize | Denormalize):
        return operation.normalization.scale.shape[1]
    if isinstance(operation, Affine):
        return operation.W.shape[1]
    return operation.gamma.size if isinstance(operation, Normalizing) else None


def _append(M: MultilayerPerceptron, operation: Operation, size: int) -> None:
    """Add an operation, for so many columns: a layer, the function of the last layer, or a normalization."""
    last = M.layers[-1] if M.layers else None
    if isinstance(operation, Normalize):
        if last is not None or M.normalization is not None:
            raise ValueError("expected a normalization of the inputs before all layers")
        M.normalization = operation.normalization
    elif isinstance(operation, Denormalize):
        M.target_normalization = operation.normalization
    elif isinstance(operation, Affine):
        M.layers.append(_linear(operation))
    elif isinstance(operation, Normalizing):
        M.layers.append(_normalizing(operation))
    elif isinstance(operation, Dropout):
        M.layers.append(DropoutLayer(size, dropout=operation.rate))
    elif type(last) is LinearLayer:
        M.layers[-1] = _linear(Affine(last.W, last.b[0]), operation)
    else:
        raise ValueError("expected a linear layer just before it: a layer of matgrad is linear, then a function")


def _linear(affine: Affine, function: ActivationFunction | Softmax | LogSoftmax | None = None) -> LinearLayer:
    """A linear layer, with a function after it."""
    W, b = affine.W, affine.b
    K, D = W.shape
    if b.shape != (K,):
        raise ValueError(f"found a bias of shape {b.shape}, expected {K} numbers for weights of shape {K} × {D}")
    options: dict[str, Any] = {"support": W.support} if isinstance(W, SparseMatrix) else {}
    if isinstance(function, ActivationFunction):
        layer: LinearLayer = ActivationLayer(D, K, function, **options)
    else:
        layer = {Softmax: SoftmaxLayer, LogSoftmax: LogSoftmaxLayer}.get(type(function), LinearLayer)(D, K, **options)
    layer.W, layer.b = with_values(W, _checked("weights", values_of(W))), _checked("bias", b[None])
    return layer


def _normalizing(operation: Normalizing) -> Layer:
    """A layer that normalizes batches or examples."""
    D, epsilon = operation.gamma.size, operation.epsilon
    if isinstance(operation, BatchNormalization):
        layer: Layer = BatchNormalizationLayer(D, epsilon=epsilon, momentum=operation.momentum)
    elif isinstance(operation, LayerNormalization):
        layer = LayerNormalizationLayer(D, epsilon=epsilon)
    else:
        layer = RMSNormalizationLayer(D, epsilon=epsilon)
    rows = {name: getattr(operation, name) for name in ROWS if hasattr(operation, name)}
    for name, row in rows.items():
        if row.shape != (D,):
            raise ValueError(f"{name}: found shape {row.shape}, expected {D} numbers")
        setattr(layer, ROWS[name], _checked(name, row[None]))
    return layer


def _checked(name: str, A: np.ndarray) -> np.ndarray:
    """A copy of A, after a check that it has finite numbers of a known dtype."""
    if A.dtype.name not in DTYPES:
        raise ValueError(f"{name}: found {A.dtype}, expected one of {', '.join(DTYPES)}")
    if not np.isfinite(A).all():
        raise ValueError(f"{name}: found elements that are not finite numbers")
    return np.array(A, order="C")


def _check_dtype(state: State) -> None:
    """Refuse matrices of several dtypes."""
    found = sorted({X.dtype.name for X in matrices_of(state).values() if X.dtype.kind == "f"})
    if len(found) > 1:
        raise ValueError(f"found weights of {' and '.join(found)}, expected one dtype")
