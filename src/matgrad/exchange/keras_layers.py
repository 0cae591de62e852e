"""Layers of Keras by their configurations, from a live model or from a file: a chain of operations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from matgrad import activation_functions as af
from matgrad.backends.base import DTYPES
from matgrad.exchange import chain
from matgrad.exchange.chain import Operation
from matgrad.foundation.files import naming
from matgrad.layers import BatchNormalizationLayer, LayerNormalizationLayer, RMSNormalizationLayer

MODELS = {"Sequential": "keras", "Functional": "keras.src.models.functional"}  # with their modules
AXES = (-1, 1, [-1], [1], (-1,), (1,))  # the columns
SMALLEST = 1e-7  # below which Keras replaces the scale of a normalization

Config = dict[str, Any]


@dataclass
class Part:
    """A layer in a file of Keras: the name of its class, its settings and its arrays."""

    kind: str
    config: Config
    arrays: list[np.ndarray]

    @property
    def where(self) -> str:
        """Its place in messages."""
        return place(self.kind, self.config)

    @property
    def dtype(self) -> str:
        """The dtype in which it keeps its weights and computes."""
        name = self.config["dtype"]
        if isinstance(name, dict) and name["class_name"] == "DTypePolicy":
            name = name["config"]["name"]
        if name not in DTYPES:
            raise ValueError(f"found dtype {name!r}, expected {' or '.join(DTYPES)}")
        return name

    def number(self, name: str) -> float:
        """A setting that is a number."""
        return float(self.config[name])

    def check(self) -> None:
        """Raise if settings have values other than those in `EXPECTED`; one that is not there counts as None."""
        for name, values in EXPECTED.get(self.kind, {}).items():
            if (found := self.config.get(name)) not in values:
                raise ValueError(f"found {name}={found!r}, expected {' or '.join(map(repr, values))}")

    def named(self, *names: str) -> dict[str, np.ndarray]:
        """The arrays of the layer, which are as many as these names."""
        if len(self.arrays) != len(names):
            raise ValueError(f"found {len(self.arrays)} arrays, expected {len(names)}: {', '.join(names)}")
        return dict(zip(names, self.arrays, strict=True))


def place(kind: str, config: Config) -> str:
    """The place of a layer in messages."""
    return f"layer {config['name']!r}, {kind}"


def layers_of(model: Config, path: tuple[Config, ...] = ()) -> Iterator[tuple[Config, ...]]:
    """The layers of a model, each after the models that it is inside of.

    A model and a layer are tables as Keras writes them, with the entries class_name, module and config.
    """
    _check_class(model["class_name"], model["module"], MODELS)
    layers = model["config"]["layers"]
    if model["class_name"] == "Functional":
        _check_chain(model["config"], layers)
    shape, is_flat = None, True
    for layer in layers:
        kind = layer["class_name"]
        if kind in MODELS:
            yield from layers_of(layer, (*path, layer))
        elif kind == "InputLayer":
            shape = layer["config"]["batch_shape"]
            is_flat = len(shape) == 2
        else:
            if not is_flat and kind != "Flatten":
                raise ValueError(
                    f"found inputs of shape {shape}, expected examples × features, or a layer Flatten first"
                )
            is_flat = True
            with naming(place(kind, layer["config"])):
                _check_class(kind, layer["module"], dict.fromkeys(READERS, "keras.layers"))
            yield (*path, layer)


def operations_of(parts: list[Part]) -> Iterator[tuple[str, Operation]]:
    """The operations of layers, with their places."""
    for part in parts:
        with naming(part.where):
            part.check()
            operations = READERS[part.kind](part)
        yield from ((part.where, operation) for operation in operations)


def _check_class(name: str, module: str, known: dict[str, str]) -> None:
    """Raise if a class is not one of these classes of Keras itself."""
    if known.get(name) != module:
        raise ValueError(f"found the class {name!r} of {module!r}, expected one of Keras: {', '.join(known)}")


def _check_chain(config: Config, layers: list[Config]) -> None:
    """Raise if a layer of a functional model takes anything but the output of the one before it."""
    before = None
    for layer in layers:
        name = layer["name"]
        arguments = [argument for node in layer["inbound_nodes"] for argument in node["args"]]
        if not all(isinstance(argument, dict) for argument in arguments):
            raise ValueError(f"layer {name!r}: takes several inputs, expected a chain of layers")
        taken = [argument["config"]["keras_history"] for argument in arguments]
        if taken != ([] if before is None else [[before, 0, 0]]):
            raise ValueError(f"layer {name!r}: takes {taken}, expected the output of {before!r} alone")
        before = name
    if config.get("output_layers") not in ([before, 0, 0], [[before, 0, 0]]):
        raise ValueError(f"the outputs are {config.get('output_layers')}, expected that of the last layer {before!r}")


def _dense(layer: Part) -> list[Operation]:
    arrays = layer.named("kernel", *(["bias"] if layer.config["use_bias"] else []))
    W = arrays["kernel"]
    K = W.shape[1]
    if layer.config["units"] != K:
        raise ValueError(f"found units={layer.config['units']!r}, expected {K}")
    return [chain.Affine(W.T, arrays.get("bias", np.zeros(K, W.dtype))), *_activation(layer)]


def _activation(layer: Part) -> list[Operation]:
    name = layer.config["activation"]
    if not isinstance(name, str) or name not in ACTIVATIONS:
        raise ValueError(f"found the activation {name!r}, expected one of {', '.join(ACTIVATIONS)}")
    return [ACTIVATIONS[name]()] if name != "linear" else []


def _batch_normalization(layer: Part) -> list[Operation]:
    settings = {"epsilon": layer.number("epsilon"), "momentum": chain.complement(layer.number("momentum"))}
    return [chain.normalizing(BatchNormalizationLayer, _rows(layer, "mean", "variance"), **settings)]


def _layer_normalization(layer: Part) -> list[Operation]:
    return [chain.normalizing(LayerNormalizationLayer, _rows(layer), epsilon=layer.number("epsilon"))]


def _rows(layer: Part, *statistics: str) -> Iterable[np.ndarray]:
    """γ and β, 1 and 0 if the layer has none of them, and statistics."""
    names = [name for name, option in (("gamma", "scale"), ("beta", "center")) if layer.config[option]]
    found = layer.named(*names, *statistics)
    if not found:
        raise ValueError("found scale=False and center=False, expected one of them to be True")
    like = next(iter(found.values()))
    return ({"gamma": np.ones_like(like), "beta": np.zeros_like(like)} | found).values()


def _rms_normalization(layer: Part) -> list[Operation]:
    return [chain.normalizing(RMSNormalizationLayer, layer.named("gamma").values(), epsilon=layer.number("epsilon"))]


def _relu(layer: Part) -> list[Operation]:
    """A layer that is x above a threshold, and has a slope below it, but not both."""
    slope, threshold = layer.number("negative_slope"), layer.number("threshold")
    if slope and threshold:
        raise ValueError(f"found negative_slope={slope} and threshold={threshold}, expected one of them to be 0")
    if threshold:
        return [af.TReLUActivation(chain.above(threshold, layer.dtype))]
    return [chain.with_slope(slope) if slope else af.ReLUActivation()]


def _normalization(layer: Part) -> list[Operation]:
    if layer.config["mean"] is None:
        mean, variance, _ = layer.named("mean", "variance", "count").values()
    else:
        mean, variance = (np.asarray(layer.config[name], dtype=layer.dtype) for name in ("mean", "variance"))
    with np.errstate(invalid="ignore"):
        scale = np.sqrt(variance)
    if mean.ndim != 1 or not (scale >= SMALLEST).all():
        raise ValueError("expected a mean and a variance, not near 0, for every column")
    normalization = chain.normalization_of(mean, scale)
    return [chain.Denormalize(normalization) if layer.config["invert"] else chain.Normalize(normalization)]


ACTIVATIONS: dict[str, Callable[[], Any]] = {
    **{names.keras: function for function, names in chain.FUNCTIONS.items()},
    "linear": lambda: None,
    "leaky_relu": lambda: chain.with_slope(0.2),
    "elu": af.ELUActivation,
    "softmax": chain.Softmax,
    "log_softmax": chain.LogSoftmax,
}

READERS: dict[str, Callable[[Part], list[Operation]]] = {
    "Identity": lambda layer: [],
    "Flatten": lambda layer: [],
    "Normalization": _normalization,
    "Dense": _dense,
    "BatchNormalization": _batch_normalization,
    "LayerNormalization": _layer_normalization,
    "RMSNormalization": _rms_normalization,
    "Dropout": lambda layer: [chain.Dropout(layer.number("rate"))],
    "Activation": _activation,
    "ReLU": _relu,
    "LeakyReLU": lambda layer: [chain.with_slope(layer.number("negative_slope"))],
    "ELU": lambda layer: [af.ELUActivation(layer.number("alpha"))],
    "Softmax": lambda layer: [chain.Softmax()],
}

EXPECTED: dict[str, dict[str, tuple[Any, ...]]] = {  # the values that settings may have, also where Keras is missing
    "Flatten": {"data_format": (None, "channels_last")},
    "Normalization": {"axis": AXES},
    "Dense": {"quantization_config": (None,), "lora_rank": (None,)},
    "BatchNormalization": {"axis": AXES, "renorm": (False, None)},
    "LayerNormalization": {"axis": AXES, "rms_scaling": (False, None)},
    "RMSNormalization": {"axis": AXES},
    "Dropout": {"noise_shape": (None,)},
    "ReLU": {"max_value": (None,)},
    "Softmax": {"axis": (-1, 1)},
}
