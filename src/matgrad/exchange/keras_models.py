"""Keras: a model as a `keras.Sequential`, and from a live model, on any backend of Keras."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import layers

from matgrad import activation_functions as af
from matgrad.exchange import chain
from matgrad.exchange.chain import FUNCTIONS, chain_of, counterpart, model_of
from matgrad.exchange.keras_files import SMALLEST, Part, operations_of, parts_in
from matgrad.foundation.files import naming
from matgrad.foundation.writing import atomic_write
from matgrad.layers import BatchNormalizationLayer, LayerNormalizationLayer, RMSNormalizationLayer
from matgrad.multilayer_perceptron import MultilayerPerceptron


def to_keras(M: MultilayerPerceptron) -> keras.Sequential:
    """The model as a `keras.Sequential`; see `matgrad.exchange`."""
    model = keras.Sequential([keras.Input((M.layers[0].input_size,), dtype=M.dtype)])
    for where, operation in chain_of(M):
        with naming(where):
            cls, settings = counterpart(WRITERS, operation, "Keras has no such layer")(operation, M.dtype)
            layer = getattr(layers, cls)(**settings, dtype=M.dtype)
            model.add(layer)
            if isinstance(operation, chain.Affine):
                layer.set_weights([chain.dense(operation.W).T, operation.b])
            elif isinstance(operation, chain.Normalizing):
                layer.set_weights(chain.rows_of(operation))
    return model


Layer = tuple[str, dict[str, Any]]  # its class and its settings


def _normalization(x: chain.Normalize, dtype: str) -> Layer:
    """A normalization, of which Keras keeps the squares of the scales."""
    offset, scale = (A[0].astype(dtype) for A in (x.normalization.offset, x.normalization.scale))
    with np.errstate(over="ignore", under="ignore"):
        variance = scale * scale
    if (scale < SMALLEST).any() or (np.sqrt(variance) != scale).any():
        raise ValueError(f"Keras keeps the squares of scales, expected scales from {SMALLEST:g} to 1e19")
    return "Normalization", {"mean": offset, "variance": variance, "invert": isinstance(x, chain.Denormalize)}


def _leaky(alpha: float) -> Layer:
    if alpha < 0:
        raise ValueError(f"has a slope of {alpha:g}, which is negative; Keras has positive ones only")
    return "LeakyReLU", {"negative_slope": alpha}


def _thresholded(f: af.TReLUActivation, dtype: str) -> Layer:
    if f.epsilon <= 0:
        raise ValueError(f"has the threshold {f.epsilon:g}; Keras has positive ones only")
    return "ReLU", {"threshold": chain.below(f.epsilon, dtype)}


WRITERS: dict[type, Callable[[Any, str], Layer]] = {
    chain.Affine: lambda x, dtype: ("Dense", {"units": x.W.shape[0], "kernel_initializer": "zeros"}),
    chain.Softmax: lambda x, dtype: ("Softmax", {}),
    chain.LogSoftmax: lambda x, dtype: ("Activation", {"activation": "log_softmax"}),
    BatchNormalizationLayer: lambda x, dtype: (
        "BatchNormalization",
        {"epsilon": x.epsilon, "momentum": chain.complement(x.momentum)},
    ),
    LayerNormalizationLayer: lambda x, dtype: ("LayerNormalization", {"epsilon": x.epsilon}),
    RMSNormalizationLayer: lambda x, dtype: ("RMSNormalization", {"epsilon": x.epsilon}),
    chain.Dropout: lambda x, dtype: ("Dropout", {"rate": x.rate}),
    chain.Normalize: _normalization,
    chain.Denormalize: _normalization,
    af.LeakyReLUActivation: lambda f, dtype: _leaky(chain.slope_of(f)),
    af.AllReLUActivation: lambda f, dtype: _leaky(f.alpha),
    af.TReLUActivation: _thresholded,
    af.ELUActivation: lambda f, dtype: ("ELU", {"alpha": f.alpha}),
    **dict.fromkeys(FUNCTIONS, lambda f, dtype: ("Activation", {"activation": FUNCTIONS[type(f)].lower()})),
}


@contextmanager
def own_warnings_ignored() -> Iterator[None]:
    """Ignore that Keras turns its variables into arrays in a way that NumPy 2 warns of."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "__array__ implementation", DeprecationWarning)
        yield


# -- to a model -----------------------------------------------------------------------------------


def from_keras(model: keras.Model) -> MultilayerPerceptron:
    """The model that a Keras model is, by the file that Keras writes of it; see `matgrad.exchange`."""
    if not isinstance(model, keras.Model):
        raise TypeError(f"expected a keras.Model or the name of a .keras file, found {type(model).__name__}")
    if not type(model).__module__.startswith("keras."):
        raise ValueError(f"expected a Sequential or a functional model of Keras, found a {type(model).__name__}")
    with tempfile.TemporaryDirectory() as folder:
        parts = parts_in(_saved(model, folder))
    return model_of(operations_of(parts), partial(outputs_of, parts, model=model))


def save_keras(M: MultilayerPerceptron, path: str | Path) -> None:
    """Write `to_keras(M)` to a .keras file."""
    with tempfile.TemporaryDirectory() as folder, atomic_write(path) as file:
        file.write(_saved(to_keras(M), folder).read_bytes())


def _saved(model: keras.Model, folder: str) -> Path:
    """The file of a model."""
    path = Path(folder) / "model.keras"  # the name must end so
    with own_warnings_ignored():
        model.save(path)
    return path


def outputs_of(parts: list[Part], X: np.ndarray, model: keras.Model | None = None) -> chain.Outputs:
    """What a model computes, by default as a chain of its layers, and what Keras's layers with these settings do.

    Only plain settings are passed on, so that nothing in a file is run.
    """
    found, Y = {}, keras.ops.convert_to_tensor(X)
    with own_warnings_ignored():
        for part in parts:
            plain = {name: x for name, x in part.config.items() if not isinstance(x, dict)}
            layer = getattr(layers, part.kind)(**plain | {"dtype": part.dtype})
            layer.build(Y.shape)
            layer.load_own_variables({str(i): A for i, A in enumerate(part.arrays)})
            Y = layer(Y, training=False)
            if part.kind not in ("Identity", "Flatten"):
                found[part.where] = keras.ops.convert_to_numpy(Y)
        if model is not None:
            shape = (len(X), *model.input_shape[1:])  # a layer Flatten takes examples of any shape
            Y = model(X.reshape(shape), training=False)
        yield "", keras.ops.convert_to_numpy(Y)
    yield from found.items()
