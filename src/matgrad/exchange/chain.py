"""A model as a chain of operations that other tools have, and a model from such a chain.

Each operation comes with its place, such as 'layer 2, ReLU', with which the message begins if it cannot be exchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from decimal import Decimal
from typing import Any, TypeVar

import numpy as np

from matgrad import activation_functions as af
from matgrad import layers as ly
from matgrad.activation_functions import ActivationFunction
from matgrad.backends.base import DTYPES
from matgrad.datasets.dataset import Normalization
from matgrad.foundation.files import naming
from matgrad.foundation.numbers import own_generator
from matgrad.layers.composite import output_shape, shaped
from matgrad.layers.dropout import DROPOUT_LAYERS, LinearDropoutLayer
from matgrad.layers.state import matrices_of
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.sparse.matrix import SparseMatrix, values_of, with_values
from matgrad.specifications.models import OPTIMIZER

T = TypeVar("T")


class Softmax:
    """The softmax of every row."""


class LogSoftmax:
    """The logarithm of that."""


class Denormalize(Normalization):
    """Y·scale + offset, after all layers; a `Normalization` itself is before them."""


# a layer, linear without the function that follows, and with matrices of NumPy; or a function, or a normalization
Operation = ly.Layer | ActivationFunction | Softmax | LogSoftmax | Normalization
Chain = Iterable[tuple[str, Operation]]

NORMALIZING: dict[str, type[ly.Layer]] = {  # as ONNX and Keras call them
    "BatchNormalization": ly.BatchNormalizationLayer,
    "LayerNormalization": ly.LayerNormalizationLayer,
    "RMSNormalization": ly.RMSNormalizationLayer,
}

# -- from a model ---------------------------------------------------------------------------------

FOLLOWING: dict[type[ly.LinearLayer], Callable[[Any], Operation]] = {  # what follows the linear part of a layer
    ly.ActivationLayer: lambda layer: _as_others(layer.act, layer.b.dtype.name),
    ly.SoftmaxLayer: lambda layer: Softmax(),
    ly.LogSoftmaxLayer: lambda layer: LogSoftmax(),
}
FOLLOWING |= {DROPOUT_LAYERS[cls]: function for cls, function in FOLLOWING.items()}
LINEAR: tuple[type[ly.LinearLayer], ...] = (ly.LinearLayer, LinearDropoutLayer, *FOLLOWING)
GRIDS: tuple[type, ...] = (ly.ConvolutionLayer, ly.MaxPoolingLayer, ly.MeanPoolingLayer)
TOKENS: tuple[type, ...] = (ly.EmbeddingLayer, ly.PositionsLayer, ly.SinusoidalLayer, ly.RotaryLayer, ly.AttentionLayer)
COMPOSITES: tuple[type, ...] = (ly.SequenceLayer, ly.ResidualLayer, ly.GatedLayer, ly.EachLayer)
KNOWN: tuple[type, ...] = (
    *LINEAR,
    *NORMALIZING.values(),
    ly.DropoutLayer,
    *GRIDS,
    *TOKENS,
    *COMPOSITES,
    ly.FunctionLayer,
)  # no other layer, such as SReLU or a user's own, is exchanged


def chain_of(M: MultilayerPerceptron, *, trains: bool = True) -> Iterator[tuple[str, Operation]]:
    """The operations of M, with its normalizations; without `trains`, as they are in evaluation mode."""
    if M.dtype not in DTYPES:
        raise ValueError(f"the model is {M.dtype}, expected one of {', '.join(DTYPES)}; use M.to(dtype=...)")
    yield from _normalizations(M.normalization, Normalization, "inputs", M.dtype)
    for i, layer in enumerate(M.clone().to("numpy").layers, start=1):
        where, kind = f"layer {i}, {layer.specification()}", type(layer)
        with naming(where):
            _check_known(layer, trains)
            following = [*parts_of(layer)]
        yield from ((where, x) for x in following if trains or kind is not ly.DropoutLayer)
    yield from _normalizations(M.target_normalization, Denormalize, "targets", M.dtype)


def _check_known(layer: ly.Layer, trains: bool, name: str = "") -> None:
    """Raise if a layer or a part of it, which the error names, has no counterpart."""
    where = f"part {name}, {layer.specification()}: " if name else ""
    if trains and isinstance(layer, LinearDropoutLayer) and layer.dropout:
        raise ValueError(f"{where}drops weights at rate {layer.dropout}; other tools have dropout of neurons only")
    if type(layer) not in KNOWN:
        raise ValueError(f"{where}other tools have no such layer")
    parts = [x for x in layer.parts() if isinstance(x, ly.LinearLayer)] if isinstance(layer, GRIDS) else layer.parts()
    for i, part in enumerate(parts, start=1):
        _check_known(part, trains, f"{name}.{i}" if name else str(i))


def parts_of(layer: ly.Layer) -> Iterator[Operation]:
    """A layer, and the function that follows its linear part; of a function alone, only that."""
    if isinstance(layer, ly.FunctionLayer):
        yield _as_others(layer.act, None)
        return
    yield layer
    if isinstance(layer, ly.LinearLayer) and type(layer) in FOLLOWING:
        yield FOLLOWING[type(layer)](layer)


def _normalizations(
    found: Normalization | None, cls: type[Normalization], what: str, dtype: str
) -> Iterator[tuple[str, Operation]]:
    """The operation that a normalization is, if it is one."""
    if found is not None and found.kind != "none":
        rows = (A.astype(dtype) for A in (found.offset, found.scale))
        yield f"the {found} normalization of the {what}", cls(found.kind, *rows)


def _as_others(f: Any, dtype: str | None) -> ActivationFunction:
    """The function as other tools have it: αx for x < 0 with any α, and a threshold that x must be greater than.

    The latter depends on the dtype, which a function that follows no linear layer does not know.
    """
    if isinstance(f, af.LeakyReLUActivation):
        if f.alpha > 1:
            raise ValueError(f"is max(αx, x) with α = {f.alpha:g}; other tools have αx for x < 0, which is AllReLU")
        return af.AllReLUActivation(f.alpha)
    if not isinstance(f, af.TReLUActivation):
        return f
    if dtype is None:
        raise ValueError("is a threshold that follows no linear layer, which cannot be exchanged")
    return af.TReLUActivation(float(_next(f.epsilon, -np.inf, dtype)))


def _as_ours(f: Any, dtype: str) -> ActivationFunction:
    """The function of which that is `f`, with a threshold as one writes it: 0.01 for that float32 number."""
    if isinstance(f, af.AllReLUActivation) and f.alpha <= 1:
        return af.LeakyReLUActivation(f.alpha)
    return af.TReLUActivation(float(str(_next(f.epsilon, np.inf, dtype)))) if isinstance(f, af.TReLUActivation) else f


def _next(x: float, towards: float, dtype: str) -> np.floating:
    """The number of a dtype beside x."""
    return np.nextafter(np.dtype(dtype).type(x), towards, dtype=dtype)


def dense(W: Any) -> np.ndarray:
    """A dense or sparse matrix of NumPy as a dense one."""
    return W.to_dense() if isinstance(W, SparseMatrix) else W


def rows_of(layer: ly.Layer) -> list[np.ndarray]:
    """The parameters and statistics of a layer that normalizes, as vectors: γ, β, the running mean and variance."""
    return [getattr(layer, name)[0] for name in (*layer.parameters, *layer.buffers)]


# -- to a model ----------------------------------------------------------------------------------

Outputs = Iterable[tuple[str, np.ndarray]]  # of a model, under "", then those of its parts, by their places
Run = Callable[[np.ndarray], Outputs]  # what another tool computes for a batch, in evaluation mode
BATCHES = ((16, 1.0), (1, 1.0), (5, 100.0), (7, 0.01))  # their sizes, and how large their elements are
TOLERANCE, ROUNDING = 1e-5, 32  # relative to the largest output, and to our own rounding errors


def model_of(chain: Chain, run: Run | None = None) -> MultilayerPerceptron:
    """The model with these operations: it has the optimizers of a new one, and trains where a new one does.

    With `run`, its outputs are compared with those of the other tool, for random batches of several sizes and scales.
    """
    with own_generator():
        operations = list(chain)
        M = assembled(operations)
        if not any(layer.parameters for _, layer in M.walk()):
            raise ValueError("found no layers with weights, expected at least one")
        if len(found := sorted({X.dtype.name for X in matrices_of(M.state()).values() if X.dtype.kind == "f"})) > 1:
            raise ValueError(f"found weights of {' and '.join(found)}, expected one dtype")
        if run is not None:
            precise = M.eval().clone().to(dtype="float64")
            for N, scale in BATCHES:
                X = _random(M.layers[0], N, scale)
                X = X if M.normalization is None else M.normalization.offset + X * M.normalization.scale
                _compare(operations, M, precise, X.astype(M.dtype), run)
    M.train().set_optimizer(OPTIMIZER)
    return M.to("auto")


def _random(layer: ly.Layer, N: int, scale: float) -> np.ndarray:
    """A random batch for the first layer of a model: normal numbers, or labels."""
    rng, D = np.random.default_rng(N), layer.input_size
    return scale * rng.normal(size=(N, D)) if layer.input == "real" else rng.integers(layer.V, size=(N, D))  # type: ignore[attr-defined]


def _compare(
    operations: list[tuple[str, Operation]], M: MultilayerPerceptron, precise: MultilayerPerceptron, X: Any, run: Run
) -> None:
    """Raise if M, with these operations, and what it was read from differ; the error names the first part that does."""
    try:
        with np.errstate(all="ignore"):
            outputs = dict(run(X))
    except Exception as error:  # of the other tool
        reason = " ".join(str(error).split())[:300]
        raise ValueError(f"cannot be run on a batch of {len(X)} × {X.shape[1]}: {reason}") from None
    if _agrees(M, precise, outputs.pop(""), X):
        return
    ends = {where: i for i, (where, _) in enumerate(operations, start=1)}  # the last operation of each part
    first = {where: assembled(operations[: ends[where]]).eval() for where in outputs if where in ends}
    wrong = (where for where, part in first.items() if part.layers and not _agrees(part, None, outputs[where], X))
    raise ValueError(
        f"{next(wrong, 'the model')}: for a random batch of {len(X)}, its outputs are not those of the layers that "
        "were read: it has a setting that cannot be exchanged"
    )


def _agrees(M: MultilayerPerceptron, precise: MultilayerPerceptron | None, found: np.ndarray, X: np.ndarray) -> bool:
    """Whether M has these outputs, up to rounding, of which its own errors are a measure."""
    precise = M.clone().to(dtype="float64") if precise is None else precise
    Y, exact = M.predict(X), precise.predict(X)
    largest, error = (np.abs(A).max(where=np.isfinite(Y), initial=0.0) for A in (Y, Y - exact))
    tolerance = TOLERANCE * largest + ROUNDING * error
    return np.shape(found) == Y.shape and np.allclose(found, Y, 0, tolerance, equal_nan=True)


def assembled(operations: list[tuple[str, Operation]]) -> MultilayerPerceptron:
    """The model with these operations, of which the first ones of a model are a model too."""
    M = MultilayerPerceptron()
    size = next((n for _, operation in operations if (n := _columns(operation)) is not None), 0)
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
    if isinstance(operation, Normalization):
        return operation.scale.shape[1]
    return operation.input_size if isinstance(operation, ly.Layer) and type(operation) is not ly.DropoutLayer else None


def _append(M: MultilayerPerceptron, operation: Operation, size: int) -> None:
    """Add an operation on `size` columns: a layer, the function of the last layer, or a normalization."""
    last: Any = M.layers[-1] if M.layers else None
    if isinstance(operation, Denormalize):
        M.target_normalization = Normalization(**vars(operation))
    elif isinstance(operation, Normalization):
        if last is not None or M.normalization is not None:
            raise ValueError("expected a normalization of the inputs before all layers")
        M.normalization = operation
    elif isinstance(operation, ly.Layer):
        M.layers.append(
            ly.DropoutLayer(size, dropout=operation.dropout) if type(operation) is ly.DropoutLayer else operation
        )
    else:
        M.layers[-1:] = with_function(last, operation, size)


def with_function(layer: Any, function: Any, size: int) -> list[ly.Layer]:
    """A layer and a function of so many columns, which becomes a part of a layer whose last part is linear."""
    if type(layer) is ly.LinearLayer:
        return [linear(layer.W, values_of(layer.b)[0], function)]
    parts = layer.layers if type(layer) in (ly.ConvolutionLayer, ly.EachLayer) else [None]
    if type(parts[-1]) is not ly.LinearLayer:
        return [*([] if layer is None else [layer]), alone(function, size, layer)]
    made = copy(layer)
    made.layers = [*parts[:-1], *with_function(parts[-1], function, parts[-1].output_size)]
    if isinstance(made, ly.ConvolutionLayer):
        if not isinstance(made.layers[0], ly.ActivationLayer):
            raise ValueError("expected an activation function after a convolution")
        made.act = made.layers[0].specification()
    return [made]


def alone(function: Any, size: int, before: ly.Layer | None) -> ly.Layer:
    """A function that follows no linear layer."""
    if not isinstance(function, ActivationFunction) or isinstance(function, af.TReLUActivation):
        raise ValueError("expected a linear layer just before it")
    layer = ly.FunctionLayer(size, _as_ours(function, ""))
    return layer if before is None else shaped(layer, output_shape(before), output_shape(before))


def linear(W: Any, b: np.ndarray | None = None, function: Any = None) -> ly.LinearLayer:
    """A linear layer with a dense or sparse K×D matrix W and a vector b, by default 0, and a function after it."""
    K, D = W.shape
    b = np.zeros(K, W.dtype) if b is None else b
    if b.shape != (K,):
        raise ValueError(f"found a bias of shape {b.shape}, expected {K} numbers for weights of shape {K} × {D}")
    if isinstance(function, ActivationFunction):
        if not np.isfinite([*vars(function).values()]).all():
            raise ValueError(f"found {function!r}, expected finite numbers")
        layer: ly.LinearLayer = ly.ActivationLayer(1, K, _as_ours(function, b.dtype.name))
    else:
        layer = {Softmax: ly.SoftmaxLayer, LogSoftmax: ly.LogSoftmaxLayer}.get(type(function), ly.LinearLayer)(1, K)
    layer.input_size = D  # with which the layer would have drawn weights
    layer.W, layer.b = with_values(W, _checked("weights", values_of(W))), _checked("bias", b[None])
    return layer


def normalizing(cls: type[Any], rows: Mapping[str, np.ndarray], D: int, dtype: str, **settings: float) -> Any:
    """A layer that normalizes D columns, with these parameters and statistics; by default γ is 1 and β is 0."""
    layer = cls(D, **settings)
    for name in (*cls.parameters, *cls.buffers):
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


def normalization(
    cls: type[Normalization], offset: np.ndarray, scale: np.ndarray, kind: str = "standard"
) -> Normalization:
    """The normalization, or its inverse, with these numbers."""
    return cls(kind, *(_checked(name, A.reshape(1, -1)) for name, A in (("offset", offset), ("scale", scale))))


# -- what the tools share -------------------------------------------------------------------------


FUNCTIONS = {  # without settings, as PyTorch calls them; Keras has relu, and ONNX has Relu
    af.ReLUActivation: "ReLU",
    af.HyperbolicTangentActivation: "Tanh",
    af.SigmoidActivation: "Sigmoid",
    af.GELUActivation: "GELU",
    af.SiLUActivation: "SiLU",
    af.SoftplusActivation: "Softplus",
}


def counterpart(table: Mapping[type, T], thing: Any, problem: str) -> T:
    """The entry for exactly the type of a thing: a derived class may compute something else."""
    if type(thing) not in table:
        raise ValueError(problem)
    return table[type(thing)]


def check_settings(expected: Mapping[str, tuple[Any, ...]], found: Callable[[str, Any], Any]) -> None:
    """Raise if a setting has none of the values that are expected; one that is not there has the first of them.

    A comparison of outputs would not always show it, as where the layers before have outputs near 0.
    """
    for name, values in expected.items():
        if (value := found(name, values[0])) not in values:
            raise ValueError(f"found {name}={value!r}, expected {' or '.join(map(repr, values))}")


def complement(momentum: float) -> float:
    """1 - momentum as one writes it: 0.1 for 0.9. In ONNX and Keras momentum is the weight of the old statistics."""
    return float(1 - Decimal(repr(momentum)))
