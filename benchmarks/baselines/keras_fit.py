"""Keras on TensorFlow: Model.fit."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf

from harness.problems import Parameters, Setting
from harness.tools import TrainingTool


class Keras(TrainingTool):
    """Sequential, Dense, SGD with momentum, and fit on tensors in memory.

    Keras rounds learning rate and momentum to float32, so in float64 its parameters differ from the others'.
    Not slower than fit on NumPy arrays, with jit_compile=False, or with steps_per_execution=10.
    """

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        keras.config.set_floatx(setting.dtype)
        *hidden, classes = setting.sizes[1:]
        dense = [keras.layers.Dense(K, activation="relu") for K in hidden]
        self.model = keras.Sequential([keras.Input((setting.sizes[0],)), *dense, keras.layers.Dense(classes)])
        self.model.compile(
            optimizer=keras.optimizers.SGD(setting.learning_rate, momentum=setting.momentum),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            jit_compile=True,
        )

    def load(self, X: np.ndarray, t: np.ndarray) -> None:
        self.X, self.t = tf.constant(X), tf.constant(t)

    def start(self, parameters: Parameters) -> None:
        self.model.set_weights([A for W, b in parameters for A in (W.T, b[0])])
        self.model.optimizer.build(self.model.trainable_variables)
        for variable in self.model.optimizer.variables:
            if variable.path.endswith(("momentum", "iteration")):
                variable.assign(keras.ops.zeros_like(variable))

    def train(self, batches: int) -> None:
        B = self.setting.batch_size
        N = batches * B
        X, t = (self.X, self.t) if N == len(self.X) else (self.X[:N], self.t[:N])
        self.model.fit(X, t, batch_size=B, epochs=1, shuffle=False, verbose=0)

    def parameters(self) -> Parameters:
        weights = self.model.get_weights()
        return [(W.T, b[None]) for W, b in zip(weights[::2], weights[1::2], strict=True)]
