"""Keras: a model as a `keras.Sequential`, and from live models, on any backend of Keras, and from .keras files.

Such a file is a zip archive with a configuration in JSON, and weights in HDF5. It is read without Keras, so that
nothing in it is run: only known layers, and plain arrays. Live models are read by the file that Keras writes of them.
"""

from __future__ import annotations

import inspect
import io
import math
import re
import tempfile
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import count, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np

from matgrad import activation_functions as af
from matgrad import layers as ly
from matgrad.backends.base import DTYPES
from matgrad.datasets.dataset import Normalization
from matgrad.exchange import chain, shapes
from matgrad.exchange.chain import FUNCTIONS, Operation, chain_of, counterpart, model_of
from matgrad.exchange.keras_shapes import GRIDS, Written, each, grid, shape_for, written
from matgrad.foundation.files import naming, parse_json
from matgrad.foundation.limits import JSON, check_bytes, check_count, file_limit, limit_from
from matgrad.foundation.writing import atomic_write
from matgrad.layers.composite import Shape, output_shape
from matgrad.multilayer_perceptron import MultilayerPerceptron

if TYPE_CHECKING:
    import keras

CONFIGURATION, WEIGHTS = "config.json", "model.weights.h5"
HDF5 = b"\x89HDF\r\n\x1a\n"  # how such a file begins
MEMBERS = {"metadata.json", CONFIGURATION, WEIGHTS}
MODELS = {"Sequential": "keras", "Functional": "keras.src.models.functional"}  # with their modules
AXES = (-1, 1, [-1], [1], (-1,), (1,))  # the columns
HOOKS = ("_forward_hooks", "_forward_pre_hooks")  # of layers on PyTorch
SMALLEST = 1e-7  # below which Keras replaces the scale of a normalization

Config = dict[str, Any]


def to_keras(M: MultilayerPerceptron) -> keras.Sequential:
    """The model as a `keras.Sequential` with the same outputs and dtype, for raw examples, as `M.predict` takes.

    Sparse weights become dense ones.
    """
    import keras

    model = keras.Sequential([keras.Input((M.layers[0].input_size,), dtype=M.dtype)])
    shape: Shape = ()  # of the images or tokens between two layers; () of rows
    for where, operation in chain_of(M):
        with naming(where):
            wanted = shape_for(operation, shape)
            if wanted != shape:
                model.add(keras.layers.Reshape(wanted) if wanted else keras.layers.Flatten())
            for kind, settings, *weights in written(operation, _of_row):
                model.add(getattr(keras.layers, kind)(**settings, dtype=M.dtype))
                model.layers[-1].set_weights(weights)
            has_shape = isinstance(operation, ly.EmbeddingLayer) or (wanted and isinstance(operation, ly.Layer))
            shape = output_shape(operation) if has_shape else wanted
    if shape:
        model.add(keras.layers.Flatten())
    return model


def _of_row(operation: Any) -> Written:
    """The layer of Keras for an operation on rows."""
    return counterpart(WRITERS, operation, "Keras has no such layer")(operation)


def _squared(x: Normalization) -> Written:
    """A normalization, of which Keras keeps the squares of the scales."""
    with np.errstate(over="ignore", under="ignore"):
        variance = x.scale * x.scale
    if (x.scale < SMALLEST).any() or (np.sqrt(variance) != x.scale).any():
        raise ValueError(f"Keras keeps the squares of scales, expected scales from {SMALLEST:g} to 1e19")
    return "Normalization", {"mean": x.offset[0], "variance": variance[0], "invert": isinstance(x, chain.Denormalize)}


def _piecewise(kind: str, setting: str, x: float) -> Written:
    if x < 0:
        raise ValueError(f"has the number {x:g}, which is negative; Keras has positive ones only")
    return kind, {setting: x}


WRITERS: dict[type, Callable[[Any], Written]] = {
    **dict.fromkeys(
        chain.LINEAR,
        lambda x: ("Dense", {"units": x.output_size, "kernel_initializer": "zeros"}, chain.dense(x.W).T, x.b[0]),
    ),
    chain.Softmax: lambda x: ("Softmax", {}),
    chain.LogSoftmax: lambda x: ("Activation", {"activation": "log_softmax"}),
    ly.BatchNormalizationLayer: lambda x: (
        "BatchNormalization",
        {"epsilon": x.epsilon, "momentum": chain.complement(x.momentum)},
        *chain.rows_of(x),
    ),
    ly.LayerNormalizationLayer: lambda x: ("LayerNormalization", {"epsilon": x.epsilon}, *chain.rows_of(x)),
    ly.RMSNormalizationLayer: lambda x: ("RMSNormalization", {"epsilon": x.epsilon}, *chain.rows_of(x)),
    ly.EmbeddingLayer: lambda x: ("Embedding", {"input_dim": x.V, "output_dim": x.size}, x.W),
    ly.DropoutLayer: lambda x: ("Dropout", {"rate": x.dropout}),
    Normalization: _squared,
    chain.Denormalize: _squared,
    af.AllReLUActivation: lambda f: _piecewise("LeakyReLU", "negative_slope", f.alpha),
    af.TReLUActivation: lambda f: _piecewise("ReLU", "threshold", f.epsilon),
    af.ELUActivation: lambda f: ("ELU", {"alpha": f.alpha}),
    **dict.fromkeys(FUNCTIONS, lambda f: ("Activation", {"activation": FUNCTIONS[type(f)].lower()})),
}


def save_keras(M: MultilayerPerceptron, path: str | Path) -> None:
    """Write `to_keras(M)` to a .keras file, which `from_keras` reads."""
    with tempfile.TemporaryDirectory() as folder, atomic_write(path) as file:
        file.write(_saved(to_keras(M), folder).read_bytes())


def _saved(model: keras.Model, folder: str) -> Path:
    """The file of a model."""
    path = Path(folder) / "model.keras"  # the name must end so
    with own_warnings_ignored():
        model.save(path)
    return path


@contextmanager
def own_warnings_ignored() -> Iterator[None]:
    """Ignore that Keras turns its variables into arrays in a way that NumPy 2 warns of."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "__array__ implementation", DeprecationWarning)
        yield


# -- to a model -----------------------------------------------------------------------------------


def from_keras(model: keras.Model | str | Path) -> MultilayerPerceptron:
    """The model that a Keras model is, or a .keras file, of which no code is run; a missing bias becomes 0."""
    if isinstance(model, str | Path):
        return load_keras(model)
    import keras

    if not isinstance(model, keras.Model):
        raise TypeError(f"expected a keras.Model or the name of a .keras file, found {type(model).__name__}")
    if type(model).__name__ not in MODELS or not type(model).__module__.startswith("keras."):
        raise ValueError(f"expected a Sequential or a functional model of Keras, found a {type(model).__name__}")
    _check_own(model, set())
    with tempfile.TemporaryDirectory() as folder:
        parts = parts_in(_saved(model, folder))
    return model_of(operations_of(parts), partial(outputs_of, parts, model=model))


def _check_own(layer: Any, seen: set[int]) -> None:
    """Raise if a layer or a part of it runs code of users, which may compute anything, or was seen before."""
    import keras

    kind, f = type(layer), getattr(layer, "activation", None)
    with naming(f"layer {layer.name!r}, {kind.__name__}"):
        if kind.__name__ not in MODELS and getattr(keras.layers, kind.__name__, None) is not kind:
            raise ValueError("found a class of users, expected one of Keras")
        if vars(layer).keys() & {"call", "__call__"} or any(vars(layer).get(name) for name in HOOKS):
            raise ValueError("has a method or a hook of its own, which may compute anything")
        if inspect.isfunction(f) and getattr(keras.activations, f.__name__, None) is not f:
            raise ValueError(f"the activation {f.__name__!r} is a function of users, expected one of Keras")
        variables = [] if kind.__name__ in MODELS else [layer, *layer.variables]
        if any(id(variable) in seen for variable in variables):
            raise ValueError("occurs twice or shares its weights; expected its own")
        seen |= {*map(id, variables)}
    for part in getattr(layer, "layers", ()):
        _check_own(part, seen)


def load_keras(path: str | Path) -> MultilayerPerceptron:
    """The model in a .keras file; it is compared with the layers of Keras, where that is installed."""
    with naming(path, kind="a .keras file"):
        parts = parts_in(path)
        run = None
        with suppress(ImportError):  # of Keras or of its backend
            import keras  # noqa: F401

            run = partial(outputs_of, parts)
        return model_of(operations_of(parts), run)


def outputs_of(parts: list[Part], X: np.ndarray, model: keras.Model | None = None) -> chain.Outputs:
    """What a model computes, by default as a chain of its layers, and what Keras's layers with these settings do.

    Only plain settings are passed on, so that nothing in a file is run.
    """
    import keras

    found, Y = {}, keras.ops.convert_to_tensor(X)
    with own_warnings_ignored():
        for part in parts:
            plain = {name: x for name, x in part.config.items() if not isinstance(x, dict)}
            layer = getattr(keras.layers, part.kind)(**plain | {"dtype": part.dtype})
            layer.build(Y.shape)
            layer.load_own_variables({str(i): A for i, A in enumerate(part.arrays)})
            Y = layer(Y, training=False)
            found[part.where] = keras.ops.convert_to_numpy(Y).reshape(len(X), -1)
        if model is not None:
            shape = (len(X), *model.input_shape[1:])  # a layer Flatten takes examples of any shape
            Y = model(X.reshape(shape), training=False)
        yield "", keras.ops.convert_to_numpy(Y).reshape(len(X), -1)
    yield from found.items()


@dataclass
class Part:
    """A layer in a file of Keras: the name of its class, its settings and its arrays."""

    kind: str
    config: Config
    arrays: list[np.ndarray]

    @property
    def where(self) -> str:
        """Its place in messages."""
        return f"layer {self.config['name']!r}, {self.kind}"

    @property
    def dtype(self) -> str:
        """The dtype in which it keeps its weights and computes."""
        name = self.config["dtype"]
        if isinstance(name, dict) and name["class_name"] == "DTypePolicy":
            name = name["config"]["name"]
        return name

    def number(self, name: str) -> float:
        """A setting that is a number."""
        return float(self.config[name])

    def check(self) -> None:
        """Raise if settings have values other than those in `EXPECTED`."""
        if self.dtype not in DTYPES:
            raise ValueError(f"found dtype {self.dtype!r}, expected {' or '.join(DTYPES)}")
        chain.check_settings(EXPECTED.get(self.kind, {}), self.config.get)

    def named(self, *names: str) -> dict[str, np.ndarray]:
        """The arrays of the layer, which are as many as these names."""
        if len(self.arrays) != len(names):
            raise ValueError(f"found {len(self.arrays)} arrays, expected {len(names)}: {', '.join(names)}")
        return dict(zip(names, self.arrays, strict=True))


# -- the archive -----------------------------------------------------------------------------------


def parts_in(path: str | Path) -> list[Part]:
    """The layers in a .keras file, after a check of what is in it, and how large."""
    with open(path, "rb") as file, zipfile.ZipFile(file) as archive:
        sizes = {member.filename: member.file_size for member in archive.infolist()}
        if {*sizes} != MEMBERS or len(archive.infolist()) != len(MEMBERS):
            found = ", ".join(map(repr, [*sizes][:10]))
            raise ValueError(f"expected the files {', '.join(sorted(MEMBERS))} in it, found {found}")
        check_bytes(sum(sizes.values()), "the content", file_limit(path))
        check_count(sizes[CONFIGURATION], JSON, CONFIGURATION, "bytes")
        configuration, weights = archive.read(CONFIGURATION), archive.read(WEIGHTS)
    if not weights.startswith(HDF5):
        raise ValueError(f"{WEIGHTS}: not an HDF5 file")
    arrays: dict[str, np.ndarray] = {}
    with h5py.File(io.BytesIO(weights), "r") as file:
        limit = limit_from(len(weights))
        file.visititems(lambda name, thing: _read(name, thing, arrays, limit))  # which follows no links to other files
    return [*_parts(parse_json(configuration.decode()), "", arrays)]


def _read(name: str, thing: h5py.Group | h5py.Dataset, arrays: dict[str, np.ndarray], limit: int) -> None:
    """Add an array in a file to those that were read; raise if it is outside of the file, or too large."""
    if isinstance(thing, h5py.Dataset):
        with naming(f"{WEIGHTS}: {name}"):
            if thing.external or thing.is_virtual:
                raise ValueError("is in another file, expected all arrays in this one")
            if thing.dtype.kind not in "fiu" or thing.shape is None:
                raise ValueError(f"found {thing.dtype}, expected numbers")
            before = sum(A.nbytes for A in arrays.values())
            check_bytes(before + math.prod(thing.shape) * thing.dtype.itemsize, "all arrays so far", limit)
            arrays[name] = thing[()].astype(thing.dtype.newbyteorder("="), copy=False)


def _parts(model: Config, place: str, arrays: Mapping[str, np.ndarray]) -> Iterator[Part]:
    """The layers of a model, and of the models in it, whose arrays have names such as layers/dense_1/vars/0.

    A model and a layer are tables as Keras writes them, with the entries class_name, module and config.
    """
    _check_class(model["class_name"], model["module"], MODELS)
    layers = model["config"]["layers"]
    if model["class_name"] == "Functional":
        _check_chain(model["config"], layers)
    seen, shape = Counter[str](), None  # of the inputs, before the layer that takes them
    for layer, following in zip(layers, [*layers[1:], {"class_name": ""}], strict=True):
        kind, config = layer["class_name"], layer["config"]
        if kind == "InputLayer":
            shape, takes_labels = config["batch_shape"], following["class_name"] == "Embedding"
            if (len(shape) > 2 or takes_labels) and None not in shape[1:]:  # of rows, which all models of matgrad take
                dtype = (following["config"] if takes_labels else config)["dtype"]
                yield Part("Reshape", {"name": config["name"], "dtype": dtype, "target_shape": shape[1:]}, [])
            continue
        if shape is not None and len(shape) != 2 and kind not in ("Flatten", *MODELS) and None in shape[1:]:
            raise ValueError(f"found inputs of shape {shape}, expected sizes that are known")
        shape = None
        part = Part(kind, config, [])
        if kind not in MODELS:
            with naming(part.where):
                _check_class(kind, layer["module"], dict.fromkeys(READERS, "keras.layers"))
        name = re.sub("([a-z])([A-Z])", r"\1_\2", re.sub("(.)([A-Z][a-z]+)", r"\1_\2", kind)).lower()
        own = f"{place}layers/{name}_{seen[kind]}" if seen[kind] else f"{place}layers/{name}"
        seen[kind] += 1
        if kind in MODELS:
            yield from _parts(layer, f"{own}/", arrays)
        else:
            names = (f"{own}/vars/{i}" for i in count())
            part.arrays += [arrays[name] for name in takewhile(arrays.__contains__, names)]
            yield part


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
        if options := [node["kwargs"] for node in layer["inbound_nodes"] if any(node["kwargs"].values())]:
            raise ValueError(f"layer {name!r}: is called with {options[0]}, expected no options such as training=True")
        if not all(isinstance(argument, dict) for argument in arguments):
            raise ValueError(f"layer {name!r}: takes several inputs, expected a chain of layers")
        taken = [argument["config"]["keras_history"] for argument in arguments]
        if taken != ([] if before is None else [[before, 0, 0]]):
            raise ValueError(f"layer {name!r}: takes {taken}, expected the output of {before!r} alone")
        before = name
    if config.get("output_layers") not in ([before, 0, 0], [[before, 0, 0]]):
        raise ValueError(f"the outputs are {config.get('output_layers')}, expected that of the last layer {before!r}")


# -- the layers -----------------------------------------------------------------------------------


def operations_of(parts: list[Part]) -> Iterator[tuple[str, Operation]]:
    """The operations of layers, with their places."""
    at: Shape = ()  # of the images or tokens between two layers; () of rows
    padding = 0
    for part in parts:
        with naming(part.where):
            part.check()
            if part.kind in ("Reshape", "Flatten"):
                at = tuple(part.config["target_shape"]) if part.kind == "Reshape" else ()
                operations: list[Any] = []
            elif part.kind in ("ZeroPadding1D", "ZeroPadding2D"):
                padding, operations = shapes.single("padding", part.config["padding"]), []
            elif part.kind in GRIDS:
                operations = grid(part, at, padding, _activation)
                at, padding = output_shape(operations[0]), 0
            elif part.kind == "Embedding":
                if len(at) != 1:
                    raise ValueError("takes labels of any length: expected it after keras.Input((L,)), their number")
                operations = [shapes.embedding(at, part.named("embeddings")["embeddings"])]
                at = output_shape(operations[0])
            else:
                operations = READERS[part.kind](part)
                if len(at) > 1:
                    operations = [each(at, x) for x in operations]
                    at = next((output_shape(x) for x in operations if isinstance(x, ly.EachLayer)), at)
            if padding and part.kind not in ("ZeroPadding1D", "ZeroPadding2D"):
                raise ValueError("follows a layer that pads with zeros; expected a convolution or a mean after it")
        yield from ((part.where, operation) for operation in operations)


def _dense(layer: Part) -> list[Operation]:
    arrays = layer.named("kernel", *(["bias"] if layer.config["use_bias"] else []))
    W = arrays["kernel"]
    K = W.shape[1]
    if layer.config["units"] != K:
        raise ValueError(f"found units={layer.config['units']!r}, expected {K}")
    return [chain.linear(W.T, arrays.get("bias")), *_activation(layer)]


def _activation(layer: Part) -> list[Operation]:
    name = layer.config["activation"]
    if not isinstance(name, str) or name not in ACTIVATIONS:
        raise ValueError(f"found the activation {name!r}, expected one of {', '.join(ACTIVATIONS)}")
    return [ACTIVATIONS[name]()] if name != "linear" else []


def _normalizing(layer: Part) -> list[Operation]:
    """A normalization of columns or rows, with γ or β only where an option says so."""
    cls = chain.NORMALIZING[layer.kind]
    without = {name for name, option in (("gamma", "scale"), ("beta", "center")) if not layer.config.get(option, True)}
    rows = layer.named(*(name for name in (*cls.parameters, *cls.buffers) if name not in without))
    if not rows:
        raise ValueError("found scale=False and center=False, expected one of them to be True")
    momentum = layer.config.get("momentum")
    settings = {} if momentum is None else {"momentum": chain.complement(momentum)}
    D = len(next(iter(rows.values())))
    return [chain.normalizing(cls, rows, D, layer.dtype, epsilon=layer.number("epsilon"), **settings)]


def _relu(layer: Part) -> list[Operation]:
    """A layer that is x above a threshold, and has a slope below it, but not both."""
    slope, threshold = layer.number("negative_slope"), layer.number("threshold")
    if slope and threshold:
        raise ValueError(f"found negative_slope={slope} and threshold={threshold}, expected one of them to be 0")
    if threshold:
        return [af.TReLUActivation(threshold)]
    return [af.AllReLUActivation(slope) if slope else af.ReLUActivation()]


def _normalization(layer: Part) -> list[Operation]:
    if layer.config["mean"] is None:
        mean, variance, _ = layer.named("mean", "variance", "count").values()
    else:
        mean, variance = (np.asarray(layer.config[name], dtype=layer.dtype) for name in ("mean", "variance"))
    with np.errstate(invalid="ignore"):
        scale = np.sqrt(variance)
    if mean.ndim != 1 or not (scale >= SMALLEST).all():
        raise ValueError("expected a mean and a variance, not near 0, for every column")
    return [chain.normalization(chain.Denormalize if layer.config["invert"] else Normalization, mean, scale)]


ACTIVATIONS: dict[str, Callable[[], Any]] = {
    **{name.lower(): function for function, name in chain.FUNCTIONS.items()},
    "linear": lambda: None,
    "leaky_relu": lambda: af.AllReLUActivation(0.2),
    "elu": af.ELUActivation,
    "softmax": chain.Softmax,
    "log_softmax": chain.LogSoftmax,
}

READERS: dict[str, Callable[[Part], list[Operation]]] = {
    **dict.fromkeys(
        ("Reshape", "Embedding", "ZeroPadding1D", "ZeroPadding2D", *GRIDS), lambda layer: []
    ),  # see operations_of
    "Identity": lambda layer: [],
    "Flatten": lambda layer: [],
    "Normalization": _normalization,
    "Dense": _dense,
    **dict.fromkeys(chain.NORMALIZING, _normalizing),
    "Dropout": lambda layer: [ly.DropoutLayer(1, dropout=layer.number("rate"))],
    "Activation": _activation,
    "ReLU": _relu,
    "LeakyReLU": lambda layer: [af.AllReLUActivation(layer.number("negative_slope"))],
    "ELU": lambda layer: [af.ELUActivation(layer.number("alpha"))],
    "Softmax": lambda layer: [chain.Softmax()],
}

EXPECTED: dict[str, dict[str, tuple[Any, ...]]] = {  # the values that settings may have, also where Keras is missing
    **{kind: {"data_format": (None, "channels_last")} for kind in ("Flatten", "ZeroPadding2D", *GRIDS)},
    "Normalization": {"axis": AXES},
    **{kind: {"quantization_config": (None,), "lora_rank": (None,)} for kind in ("Dense", "Embedding")},
    "BatchNormalization": {"axis": AXES, "renorm": (False, None)},
    "LayerNormalization": {"axis": AXES, "rms_scaling": (False, None)},
    "RMSNormalization": {"axis": AXES},
    "Dropout": {"noise_shape": (None,)},
    "ReLU": {"max_value": (None,)},
    "Softmax": {"axis": (-1, 1)},
}
