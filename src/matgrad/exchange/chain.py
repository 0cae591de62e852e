"""A model as a chain of operations that other tools have, and a model from such a chain.

Each operation comes with its place, such as 'layer 2, ReLU', with which the message begins if it cannot be exchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeVar

import numpy as np

from matgrad import activation_functions as af
from matgrad.activation_functions import ActivationFunction
from matgrad.backends.base import DTYPES
from matgrad.datasets.normalization import Normalization
from matgrad.foundation.files import naming
from matgrad.foundation.numbers import preserved_generator
from matgrad.layers import (
    ActivationLayer,
    BatchNormalizationLayer,
    DropoutLayer,
    Layer,
    LayerNormalizationLayer,
    LinearDropoutLayer,
    LinearLayer,
    LogSoftmaxLayer,
    RMSNormalizationLayer,
    SoftmaxLayer,
)
from matgrad.layers.dropout import DROPOUT_LAYERS
from matgrad.layers.state import matrices_of
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.sparse.matrix import SparseMatrix, values_of, with_values
from matgrad.specifications.models import OPTIMIZER

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Affine:
    """Y = X Wᵀ + 1_N b, with a dense or sparse K×D matrix W and a vector b, both of NumPy."""

    W: Any
    b: np.ndarray


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


class Denormalize(Normalize):
    """Y·scale + offset, after all other operations."""


Normalizing = BatchNormalizationLayer | LayerNormalizationLayer | RMSNormalizationLayer  # with matrices of NumPy
NORMALIZING: dict[str, type[Layer]] = {  # as ONNX and Keras call them
    "BatchNormalization": BatchNormalizationLayer,
    "LayerNormalization": LayerNormalizationLayer,
    "RMSNormalization": RMSNormalizationLayer,
}
Operation = Affine | ActivationFunction | Softmax | LogSoftmax | Normalizing | Dropout | Normalize
Chain = Iterable[tuple[str, Operation]]


# -- from a model ---------------------------------------------------------------------------------

# the operations that each layer is; a layer that is not listed, such as SReLU or a user's own, cannot be exchanged
OPERATIONS: dict[type[Layer], Callable[[Any], list[Operation]]] = {
    LinearLayer: lambda layer: [Affine(layer.W, layer.b[0])],
    ActivationLayer: lambda layer: [Affine(layer.W, layer.b[0]), layer.act],
    SoftmaxLayer: lambda layer: [Affine(layer.W, layer.b[0]), Softmax()],
    LogSoftmaxLayer: lambda layer: [Affine(layer.W, layer.b[0]), LogSoftmax()],
    **dict.fromkeys(NORMALIZING.values(), lambda layer: [layer]),
    DropoutLayer: lambda layer: [Dropout(layer.dropout)],
}
OPERATIONS |= {DROPOUT_LAYERS[cls]: OPERATIONS[cls] for cls in DROPOUT_LAYERS.keys() & OPERATIONS.keys()}


def chain_of(M: MultilayerPerceptron, *, trains: bool = True) -> Iterator[tuple[str, Operation]]:
    """The operations of M, with its normalizations; without `trains`, as they are in evaluation mode."""
    if M.dtype not in DTYPES:
        raise ValueError(f"the model is {M.dtype}, expected one of {', '.join(DTYPES)}; use M.to(dtype=...)")
    if M.normalization is not None and M.normalization.kind != "none":
        yield f"the {M.normalization} normalization of the inputs", Normalize(M.normalization)
    for i, layer in enumerate(M.clone().to("numpy").layers, start=1):
        where = f"layer {i}, {layer.specification()}"
        with naming(where):
            if trains and isinstance(layer, LinearDropoutLayer) and layer.dropout:
                raise ValueError(f"drops weights at rate {layer.dropout}; other tools have dropout of neurons only")
            operations = counterpart(OPERATIONS, layer, "other tools have no such layer")(layer)
        yield from ((where, operation) for operation in operations if trains or not isinstance(operation, Dropout))
    if M.target_normalization is not None and M.target_normalization.kind != "none":
        yield f"the {M.target_normalization} normalization of the targets", Denormalize(M.target_normalization)


def dense(W: Any) -> np.ndarray:
    """A dense or sparse matrix of NumPy as a dense one."""
    return W.to_dense() if isinstance(W, SparseMatrix) else W


# -- to a model ----------------------------------------------------------------------------------

Outputs = Iterable[tuple[str, np.ndarray]]  # of a model, under "", then those of its parts, by their places
Run = Callable[[np.ndarray], Outputs]  # what another tool computes for a batch, in evaluation mode
SIZES = (16, 1)  # of the batches
TOLERANCES = {"float32": 1e-3, "float64": 1e-6}  # relative to the largest output


def model_of(chain: Chain, run: Run | None = None) -> MultilayerPerceptron:
    """The model with these operations: it has the optimizers of a new one, and trains where a new one does.

    With `run`, its outputs are compared with those of the other tool, for random batches of several sizes.
    """
    operations = list(chain)
    M = _assembled(operations)
    if not any(layer.parameters for layer in M.layers):
        raise ValueError("found no layers with weights, expected at least one")
    if len(found := sorted({X.dtype.name for X in matrices_of(M.state()).values() if X.dtype.kind == "f"})) > 1:
        raise ValueError(f"found weights of {' and '.join(found)}, expected one dtype")
    if run is not None:
        for N in SIZES:
            X = np.random.default_rng(0).normal(size=(N, M.layers[0].input_size))
            if M.normalization is not None:
                X = M.normalization.offset + X * M.normalization.scale
            _compare(operations, X.astype(M.dtype), run)
    M.set_optimizer(OPTIMIZER)
    return M.to("auto")


def _compare(operations: list[tuple[str, Operation]], X: np.ndarray, run: Run) -> None:
    """Raise if a model and the one that it was read from differ; the error names the first part that does."""
    try:
        with np.errstate(all="ignore"):
            outputs = dict(run(X))
    except Exception as error:  # of the other tool
        raise ValueError(f"cannot be run on a batch of {len(X)} × {X.shape[1]}: {error}") from None
    if _agrees(operations, outputs.pop(""), X):
        return
    ends = {where: i for i, (where, _) in enumerate(operations, start=1)}  # the last operation of each part
    wrong = (where for where, Y in outputs.items() if where in ends and not _agrees(operations[: ends[where]], Y, X))
    raise ValueError(
        f"{next(wrong, 'the model')}: for a random batch of {len(X)}, its outputs are not those of the layers that "
        "were read: it has a setting, a hook or a method of its own that cannot be exchanged"
    )


def _agrees(operations: list[tuple[str, Operation]], found: np.ndarray, X: np.ndarray) -> bool:
    """Whether the model with these operations has this output, up to rounding; before its first layer there is none."""
    M = _assembled(operations)
    if not M.layers:
        return True
    Y = M.eval().predict(X)
    tolerance, largest = TOLERANCES[X.dtype.name], float(np.abs(Y).max(where=np.isfinite(Y), initial=0.0))
    return np.shape(found) == Y.shape and np.allclose(found, Y, tolerance, tolerance * largest, equal_nan=True)


def _assembled(operations: list[tuple[str, Operation]]) -> MultilayerPerceptron:
    """The model with these operations, of which the first ones of a model are a model too."""
    M = MultilayerPerceptron()
    size = next((n for _, operation in operations if (n := _columns(operation)) is not None), 0)
    with preserved_generator():
        for where, operation in operations:
            with naming(where):
                if _columns(operation) not in (None, size):
                    raise ValueError(f"takes {_columns(operation)} columns, but what is before it has {size}")
                if M.target_normalization is not None:
                    raise ValueError("follows the normalization of the targets, which is expected to be the last")
                _append(M, operation, size)
                size = M.layers[-1].output_size if M.layers else size
    return M


def _columns(operation: Operation) -> int | None:
    """The number of columns of the matrix that an operation takes; None if it takes any."""
    if isinstance(operation, Normalize):
        return operation.normalization.scale.shape[1]
    if isinstance(operation, Affine):
        return operation.W.shape[1]
    return operation.input_size if isinstance(operation, Normalizing) else None


def _append(M: MultilayerPerceptron, operation: Operation, size: int) -> None:
    """Add an operation on `size` columns: a layer, the function of the last layer, or a normalization."""
    last = M.layers[-1] if M.layers else None
    if isinstance(operation, Denormalize):
        M.target_normalization = operation.normalization
    elif isinstance(operation, Normalize):
        if last is not None or M.normalization is not None:
            raise ValueError("expected a normalization of the inputs before all layers")
        M.normalization = operation.normalization
    elif isinstance(operation, Affine):
        M.layers.append(_linear(operation))
    elif isinstance(operation, Normalizing):
        M.layers.append(operation)
    elif isinstance(operation, Dropout):
        M.layers.append(DropoutLayer(size, dropout=operation.rate))
    elif type(last) is LinearLayer:
        M.layers[-1] = _linear(Affine(last.W, values_of(last.b)[0]), operation)
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


def row_names(cls: type[Layer]) -> tuple[str, ...]:
    """The parameters and statistics of a layer that normalizes: γ, β, the running mean and variance."""
    return (*cls.parameters, *cls.buffers)


def rows_of(layer: Normalizing) -> list[np.ndarray]:
    """The parameters and statistics of a layer, as vectors."""
    return [getattr(layer, name)[0] for name in row_names(type(layer))]


def normalizing(cls: type[Any], rows: Mapping[str, np.ndarray], D: int, dtype: str, **settings: float) -> Any:
    """A layer that normalizes D columns, with these parameters and statistics; by default γ is 1 and β is 0."""
    layer = cls(D, **settings)
    for name in row_names(cls):
        row = rows.get(name, getattr(layer, name)[0].astype(dtype))
        if row.shape != (D,):
            raise ValueError(f"{name}: found shape {row.shape}, expected {D} numbers")
        setattr(layer, name, _checked(name, row[None]))
    return layer


def _checked(name: str, A: np.ndarray) -> np.ndarray:
    """A copy of A, after a check that it has finite numbers of a known dtype."""
    if A.dtype.name not in DTYPES:
        raise ValueError(f"{name}: found {A.dtype}, expected one of {', '.join(DTYPES)}")
    if not np.isfinite(A).all():
        raise ValueError(f"{name}: found elements that are not finite numbers")
    return np.array(A, order="C")


# -- what the tools share -------------------------------------------------------------------------


FUNCTIONS = {  # without settings, as PyTorch calls them; Keras has relu, and ONNX has Relu
    af.ReLUActivation: "ReLU",
    af.HyperbolicTangentActivation: "Tanh",
    af.SigmoidActivation: "Sigmoid",
    af.GELUActivation: "GELU",
    af.SiLUActivation: "SiLU",
    af.SoftplusActivation: "Softplus",
}


def always(make: Callable[[], T]) -> Callable[..., T]:
    """A reader or writer of things that have no settings."""
    return lambda *thing: make()


def counterpart(table: Mapping[type, T], thing: Any, problem: str) -> T:
    """The entry for exactly the type of a thing: a derived class may compute something else."""
    if type(thing) not in table:
        raise ValueError(problem)
    return table[type(thing)]


def normalization_of(offset: np.ndarray, scale: np.ndarray, kind: str = "standard") -> Normalization:
    """The normalization with these numbers."""
    a, s = (A.reshape(1, -1) for A in (offset, scale))
    if a.shape != s.shape or not np.isfinite([a, s]).all() or (s <= 0).any():
        raise ValueError("offset and scale of a normalization: expected as many finite numbers of both, scales > 0")
    return Normalization(kind, a, s)


def slope_of(f: af.LeakyReLUActivation) -> float:
    """The α of max(αx, x) if other tools have that function: αx if x < 0, else x."""
    if f.alpha > 1:
        raise ValueError(f"is max(αx, x) with α = {f.alpha:g}; other tools have αx for x < 0, which is AllReLU")
    return f.alpha


def with_slope(alpha: float) -> ActivationFunction:
    """The function αx if x < 0, else x."""
    return af.LeakyReLUActivation(alpha) if alpha <= 1 else af.AllReLUActivation(alpha)


def below(x: float, dtype: str) -> float:
    """The number of a dtype before x: what is greater than it is at least x."""
    return float(np.nextafter(np.dtype(dtype).type(x), -np.inf, dtype=dtype))


def above(x: float, dtype: str) -> float:
    """The number of a dtype after x, as one writes it: 0.01 for that float32 number."""
    return float(str(np.nextafter(np.dtype(dtype).type(x), np.inf, dtype=dtype)))


def complement(momentum: float) -> float:
    """1 - momentum as one writes it: 0.1 for 0.9. In ONNX and Keras momentum is the weight of the old statistics."""
    return float(1 - Decimal(repr(momentum)))
