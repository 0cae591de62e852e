"""Layers of Keras by their configurations, from a live model or from a file: a chain of operations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from matgrad import activation_functions as af
from matgrad.backends.base import DTYPES
from matgrad.exchange import chain
from matgrad.exchange.chain import Operation, at
from matgrad.layers import BatchNormalizationLayer, LayerNormalizationLayer, RMSNormalizationLayer

MODELS = {"Sequential": "keras", "Functional": "keras.src.models.functional"}  # with their modules
AXES = (-1, 1, [-1], [1], (-1,), (1,))  # the columns
SMALLEST = 1e-7  # below which Keras replaces the scale of a normalization

Config = dict[str, Any]
Weights = list[np.ndarray]


def operations_of(
    model: Config, weights: Callable[[tuple[Config, ...]], Weights], path: tuple[Config, ...] = ()
) -> Iterator[tuple[str, Operation]]:
    """The operations of a model; `weights` gives the arrays of a layer, which is inside of models.

    A model and a layer are tables as Keras writes them, with the entries class_name, module and config.
    """
    _check_class(model, MODELS)
    layers = _entry(_entry(model, "config", dict), "layers", list)
    if model["class_name"] == "Functional":
        _check_chain(_entry(model, "config", dict), layers)
    shape, is_flat = None, True
    for layer in layers:
        if not isinstance(layer, dict):
            raise ValueError(f"found {type(layer).__name__} among the layers, expected tables")
        _entry(layer, "class_name", str)
        if layer.get("class_name") in MODELS:
            yield from operations_of(layer, weights, (*path, layer))
            continue
        config = _entry(layer, "config", dict)
        if layer.get("class_name") == "InputLayer":
            shape = config.get("batch_shape")
            is_flat = isinstance(shape, list | tuple) and len(shape) == 2
            continue
        if not is_flat and layer.get("class_name") != "Flatten":
            raise ValueError(f"found inputs of shape {shape}, expected examples × features, or a layer Flatten first")
        is_flat = True
        where = f"layer {config.get('name')!r}, {layer.get('class_name')}"
        with at(where):
            _check_class(layer, dict.fromkeys(READERS, "keras.layers"))
            operations = READERS[layer["class_name"]](_Layer(config, weights((*path, layer))))
        yield from ((where, operation) for operation in operations)


def _entry(table: Config, name: str, kind: type) -> Any:
    """An entry of a table, which must be of this kind."""
    if not isinstance(value := table.get(name), kind):
        raise ValueError(f"{name}: found {type(value).__name__}, expected {kind.__name__}")
    return value


def _check_class(thing: Config, known: dict[str, str]) -> None:
    """Raise if a class is not one of these classes of Keras itself."""
    name, module = thing.get("class_name"), thing.get("module")
    if not isinstance(name, str) or known.get(name) != module:
        raise ValueError(f"found the class {name!r} of {module!r}, expected one of Keras: {', '.join(known)}")


def _check_chain(config: Config, layers: list[Config]) -> None:
    """Raise if a layer of a functional model takes anything but the output of the one before it."""
    before = None
    for layer in layers:
        try:
            arguments = [argument for node in layer["inbound_nodes"] for argument in node["args"]]
            taken = [argument["config"]["keras_history"] for argument in arguments]
        except (LookupError, TypeError):
            where = layer.get("name") if isinstance(layer, dict) else layer
            raise ValueError(f"layer {where!r}: takes several inputs, expected a chain of layers") from None
        if taken != ([] if before is None else [[before, 0, 0]]):
            raise ValueError(f"layer {layer.get('name')!r}: takes {taken}, expected the output of {before!r} alone")
        before = layer.get("name")
    if config.get("output_layers") not in ([before, 0, 0], [[before, 0, 0]]):
        raise ValueError(f"the outputs are {config.get('output_layers')}, expected that of the last layer {before!r}")


class _Layer:
    """The configuration and the arrays of a layer."""

    def __init__(self, config: Config, weights: Weights) -> None:
        self.config, self.weights, self.dtype = config, weights, _dtype(config.get("dtype"))

    def __getitem__(self, name: str) -> Any:
        """An entry of the configuration."""
        if name not in self.config:
            raise ValueError(f"found no {name}")
        return self.config[name]

    def number(self, name: str) -> float:
        """An entry that is a number."""
        if isinstance(value := self[name], bool) or not isinstance(value, int | float):
            raise ValueError(f"{name}: found {value!r}, expected a number")
        return value

    def expect(self, **allowed: tuple[Any, ...]) -> None:
        """Raise if entries have other values; one that is not there counts as None."""
        for name, values in allowed.items():
            if (found := self.config.get(name)) not in values:
                raise ValueError(f"found {name}={found!r}, expected {' or '.join(map(repr, values))}")

    def arrays(self, *names: str) -> Weights:
        """The arrays of the layer, which are as many as these names."""
        if len(self.weights) != len(names):
            raise ValueError(f"found {len(self.weights)} arrays, expected {len(names)}: {', '.join(names)}")
        return self.weights


def _dtype(policy: Any) -> str:
    """The dtype of a layer, in which it keeps its weights and computes."""
    name = policy
    if (
        isinstance(policy, dict)
        and policy.get("class_name") == "DTypePolicy"
        and isinstance(policy.get("config"), dict)
    ):
        name = policy["config"].get("name")
    if name not in DTYPES:
        raise ValueError(f"found dtype {name!r}, expected {' or '.join(DTYPES)}")
    return name


def _dense(layer: _Layer) -> list[Operation]:
    layer.expect(use_bias=(True, False), quantization_config=(None,), lora_rank=(None,))
    W, *bias = layer.arrays("kernel", *["bias"] * layer["use_bias"])
    if W.ndim != 2:
        raise ValueError(f"found a kernel of shape {W.shape}, expected a matrix")
    b = bias[0] if bias else np.zeros(W.shape[1], W.dtype)
    return [chain.Affine(W.T, b), *_activation(layer)]


def _activation(layer: _Layer) -> list[Operation]:
    name = layer["activation"]
    if not isinstance(name, str) or name not in ACTIVATIONS:
        raise ValueError(f"found the activation {name!r}, expected one of {', '.join(ACTIVATIONS)}")
    return [ACTIVATIONS[name]()] if name != "linear" else []


def _batch_normalization(layer: _Layer) -> list[Operation]:
    layer.expect(axis=AXES, renorm=(False, None))
    rows = _rows(layer, "running_mean", "running_variance")
    momentum = chain.complement(layer.number("momentum"))
    return [chain.normalizing(BatchNormalizationLayer, layer.number("epsilon"), momentum=momentum, **rows)]


def _layer_normalization(layer: _Layer) -> list[Operation]:
    layer.expect(axis=AXES, rms_scaling=(False, None))
    return [chain.normalizing(LayerNormalizationLayer, layer.number("epsilon"), **_rows(layer))]


def _rows(layer: _Layer, *statistics: str) -> dict[str, Any]:
    """γ and β, 1 and 0 if the layer has none of them, and statistics."""
    layer.expect(scale=(True, False), center=(True, False))
    names = ["gamma"] * layer["scale"] + ["beta"] * layer["center"] + [*statistics]
    if not names:
        raise ValueError("found scale=False and center=False, expected one of them to be True")
    found = dict(zip(names, layer.arrays(*names), strict=True))
    like = found[names[-1]]
    return {"gamma": np.ones_like(like), "beta": np.zeros_like(like)} | found


def _rms_normalization(layer: _Layer) -> list[Operation]:
    layer.expect(axis=AXES)
    (gamma,) = layer.arrays("scale")
    return [chain.normalizing(RMSNormalizationLayer, layer.number("epsilon"), gamma=gamma)]


def _relu(layer: _Layer) -> list[Operation]:
    """A layer that is x above a threshold, and has a slope below it, but not both."""
    layer.expect(max_value=(None,))
    slope, threshold = layer.number("negative_slope"), layer.number("threshold")
    if slope and threshold:
        raise ValueError(f"found negative_slope={slope} and threshold={threshold}, expected one of them to be 0")
    if threshold:
        return [af.TReLUActivation(chain.above(threshold, layer.dtype))]
    return [chain.with_slope(slope) if slope else af.ReLUActivation()]


def _normalization(layer: _Layer) -> list[Operation]:
    layer.expect(axis=AXES, invert=(True, False))
    if layer["mean"] is None:
        mean, variance, _ = layer.arrays("mean", "variance", "count")
    else:
        mean, variance = (np.asarray(layer[name], dtype=layer.dtype) for name in ("mean", "variance"))
    with np.errstate(invalid="ignore"):
        scale = np.sqrt(variance)
    if mean.ndim != 1 or not (scale >= SMALLEST).all():
        raise ValueError("expected a mean and a variance, not near 0, for every column")
    normalization = chain.normalization_of(mean, scale)
    return [chain.Denormalize(normalization) if layer["invert"] else chain.Normalize(normalization)]


def _softmax(layer: _Layer) -> list[Operation]:
    layer.expect(axis=(-1, 1))
    return [chain.Softmax()]


def _flatten(layer: _Layer) -> list[Operation]:
    layer.expect(data_format=(None, "channels_last"))
    return []


def _dropout(layer: _Layer) -> list[Operation]:
    layer.expect(noise_shape=(None,))
    return [chain.Dropout(layer.number("rate"))]


ACTIVATIONS: dict[str, Callable[[], Any]] = {
    "linear": lambda: None,
    "relu": af.ReLUActivation,
    "leaky_relu": lambda: chain.with_slope(0.2),
    "tanh": af.HyperbolicTangentActivation,
    "sigmoid": af.SigmoidActivation,
    "gelu": af.GELUActivation,
    "silu": af.SiLUActivation,
    "elu": af.ELUActivation,
    "softplus": af.SoftplusActivation,
    "softmax": chain.Softmax,
    "log_softmax": chain.LogSoftmax,
}

READERS: dict[str, Callable[[_Layer], list[Operation]]] = {
    "Identity": lambda layer: [],
    "Flatten": _flatten,
    "Normalization": _normalization,
    "Dense": _dense,
    "BatchNormalization": _batch_normalization,
    "LayerNormalization": _layer_normalization,
    "RMSNormalization": _rms_normalization,
    "Dropout": _dropout,
    "Activation": _activation,
    "ReLU": _relu,
    "LeakyReLU": lambda layer: [chain.with_slope(layer.number("negative_slope"))],
    "ELU": lambda layer: [af.ELUActivation(layer.number("alpha"))],
    "Softmax": _softmax,
}
