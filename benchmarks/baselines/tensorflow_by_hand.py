"""TensorFlow by hand: a training step with GradientTape in a tf.function."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from harness.problems import Parameters, Setting
from harness.tools import TrainingTool


class TensorFlow(TrainingTool):
    """One call of the function per batch, which slices the batch itself.

    The update is TensorFlow's own kernel for Keras' momentum: faster than v.assign(μv - ηg) and
    w.assign_add(v), and than jit_compile=True.
    """

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        sizes = [shape for D, K in setting.layers for shape in ((D, K), (1, K))]
        self.P, self.V = ([tf.Variable(tf.zeros(size, setting.dtype)) for size in sizes] for _ in range(2))

    def load(self, X: np.ndarray, t: np.ndarray) -> None:
        self.X, self.t = tf.constant(X), tf.constant(t)
        self.step = tf.function(self._step)

    def start(self, parameters: Parameters) -> None:
        for variable, A in zip(self.P, (A for W, b in parameters for A in (W.T, b)), strict=True):
            variable.assign(A)
        for velocity in self.V:
            velocity.assign(tf.zeros_like(velocity))

    def train(self, batches: int) -> None:
        B = self.setting.batch_size
        for i in range(0, batches * B, B):
            self.step(tf.constant(i))

    def _step(self, i: tf.Tensor) -> None:
        """Train on the batch that starts at row i."""
        P, V, B = self.P, self.V, self.setting.batch_size
        X, t = self.X[i : i + B], self.t[i : i + B]
        with tf.GradientTape() as tape:
            loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=t, logits=self._logits(X))
            mean = tf.reduce_mean(loss)
        for variable, velocity, gradient in zip(P, V, tape.gradient(mean, P), strict=True):
            tf.raw_ops.ResourceApplyKerasMomentum(  # v' = μv - ηg and w' = w + v'
                var=variable.handle,
                accum=velocity.handle,
                lr=tf.constant(self.setting.learning_rate, gradient.dtype),
                grad=gradient,
                momentum=tf.constant(self.setting.momentum, gradient.dtype),
            )

    def _logits(self, X: Any) -> Any:
        """The output of the last layer."""
        *hidden, W, b = self.P
        for U, c in zip(hidden[::2], hidden[1::2], strict=True):
            X = tf.nn.relu(X @ U + c)
        return X @ W + b

    def parameters(self) -> Parameters:
        return [(W.numpy().T, b.numpy()) for W, b in zip(self.P[::2], self.P[1::2], strict=True)]
