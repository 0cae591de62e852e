"""Keras: a model as a `keras.Sequential`, and from a live model, on any backend of Keras."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np
from keras import layers

from matgrad import activation_functions as af
from matgrad.exchange import chain
from matgrad.exchange.chain import at, chain_of, counterpart, model_of
from matgrad.exchange.keras_layers import MODELS, SMALLEST, Config, Weights, operations_of
from matgrad.layers import BatchNormalizationLayer, LayerNormalizationLayer, RMSNormalizationLayer
from matgrad.multilayer_perceptron import MultilayerPerceptron


def to_keras(M: MultilayerPerceptron) -> keras.Sequential:
    """The model as a `keras.Sequential`; see `matgrad.exchange`."""
    model = keras.Sequential([keras.Input((M.layers[0].input_size,), dtype=M.dtype)])
    for where, operation in chain_of(M):
        with at(where):
            layer, weights = counterpart(WRITERS, operation, "Keras has no such layer")(operation, M.dtype)
            model.add(layer)
            if weights:
                layer.set_weights(weights)
    return model


Made = tuple[layers.Layer, Weights]


def _dense(x: chain.Affine, dtype: str) -> Made:
    layer = layers.Dense(x.W.shape[0], kernel_initializer="zeros", dtype=dtype)
    return layer, [chain.dense(x.W).T, x.b]


def _batch_normalization(x: BatchNormalizationLayer, dtype: str) -> Made:
    layer = layers.BatchNormalization(epsilon=x.epsilon, momentum=chain.complement(x.momentum), dtype=dtype)
    return layer, [A[0] for A in (x.gamma, x.beta, x.running_mean, x.running_variance)]


def _layer_normalization(x: LayerNormalizationLayer, dtype: str) -> Made:
    return layers.LayerNormalization(epsilon=x.epsilon, dtype=dtype), [x.gamma[0], x.beta[0]]


def _rms_normalization(x: RMSNormalizationLayer, dtype: str) -> Made:
    return layers.RMSNormalization(epsilon=x.epsilon, dtype=dtype), [x.gamma[0]]


def _normalization(x: chain.Normalize | chain.Denormalize, dtype: str) -> Made:
    """A normalization, of which Keras keeps the squares of the scales."""
    offset, scale = (A[0].astype(dtype) for A in (x.normalization.offset, x.normalization.scale))
    with np.errstate(over="ignore", under="ignore"):
        variance = scale * scale
    if (scale < SMALLEST).any() or (np.sqrt(variance) != scale).any():
        raise ValueError(f"Keras keeps the squares of scales, expected scales from {SMALLEST:g} to 1e19")
    options: dict[str, Any] = {"invert": isinstance(x, chain.Denormalize), "dtype": dtype}
    return layers.Normalization(mean=offset, variance=variance, **options), []


def _named(name: str) -> Callable[[Any, str], Made]:
    """A writer of functions that Keras has under a name."""
    return lambda f, dtype: (layers.Activation(name, dtype=dtype), [])


def _leaky(alpha: float, dtype: str) -> Made:
    if alpha < 0:
        raise ValueError(f"has a slope of {alpha:g}, which is negative; Keras has positive ones only")
    return layers.LeakyReLU(alpha, dtype=dtype), []


def _thresholded(f: af.TReLUActivation, dtype: str) -> Made:
    if f.epsilon <= 0:
        raise ValueError(f"has the threshold {f.epsilon:g}; Keras has positive ones only")
    return layers.ReLU(threshold=chain.below(f.epsilon, dtype), dtype=dtype), []


WRITERS: dict[type, Callable[[Any, str], Made]] = {
    chain.Affine: _dense,
    chain.Softmax: lambda x, dtype: (layers.Softmax(dtype=dtype), []),
    chain.LogSoftmax: _named("log_softmax"),
    BatchNormalizationLayer: _batch_normalization,
    LayerNormalizationLayer: _layer_normalization,
    RMSNormalizationLayer: _rms_normalization,
    chain.Dropout: lambda x, dtype: (layers.Dropout(x.rate, dtype=dtype), []),
    chain.Normalize: _normalization,
    chain.Denormalize: _normalization,
    af.ReLUActivation: _named("relu"),
    af.LeakyReLUActivation: lambda f, dtype: _leaky(chain.slope_of(f), dtype),
    af.AllReLUActivation: lambda f, dtype: _leaky(f.alpha, dtype),
    af.TReLUActivation: _thresholded,
    af.HyperbolicTangentActivation: _named("tanh"),
    af.SigmoidActivation: _named("sigmoid"),
    af.GELUActivation: _named("gelu"),
    af.SiLUActivation: _named("silu"),
    af.ELUActivation: lambda f, dtype: (layers.ELU(f.alpha, dtype=dtype), []),
    af.SoftplusActivation: _named("softplus"),
}


@contextmanager
def own_warnings_ignored() -> Iterator[None]:
    """Ignore that Keras turns its variables into arrays in a way that NumPy 2 warns of."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "__array__ implementation", DeprecationWarning)
        yield


# -- to a model -----------------------------------------------------------------------------------


def from_keras(model: keras.Model) -> MultilayerPerceptron:
    """The model that a Keras model is; see `matgrad.exchange`."""
    if not isinstance(model, keras.Model):
        raise TypeError(f"expected a keras.Model or the name of a .keras file, found {type(model).__name__}")
    if type(model).__name__ not in MODELS or not type(model).__module__.startswith("keras."):
        raise ValueError(f"expected a Sequential or a functional model of Keras, found a {type(model).__name__}")

    def weights(path: tuple[Config, ...]) -> Weights:
        layer = model
        for entry in path:
            layer = layer.get_layer(entry["config"]["name"])
        return [keras.ops.convert_to_numpy(variable) for variable in layer.weights]

    def run(X: np.ndarray) -> np.ndarray:
        shape = (len(X), *model.input_shape[1:])  # a layer Flatten takes examples of any shape
        return keras.ops.convert_to_numpy(model(X.reshape(shape), training=False))

    with own_warnings_ignored():
        return model_of(operations_of(keras.saving.serialize_keras_object(model), weights), run)
