"""The table on TensorFlow."""

from __future__ import annotations

from functools import partial

import numpy as np
import tensorflow as tf

from matgrad.backends.base import ELEMENTWISE, Array, Scalar, sum_in_blocks
from matgrad.backends.numpy_backend import ArrayBackend, times_64, uniform
from matgrad.foundation.writing import visible

# gives tensors `.T` and the operators of arrays; it acts globally, so only this backend does it
tf.experimental.numpy.experimental_enable_numpy_behavior()


class TensorflowBackend(ArrayBackend):
    """TensorFlow tensors, eager and inside `tf.function`."""

    name = "tensorflow"
    xp = tf

    def full(self, value: float, m: int, n: int, like: Array) -> Array:
        return tf.fill([m, n], tf.constant(value, like.dtype))

    elements_sum, take_rows = map(staticmethod, (tf.reduce_sum, tf.gather))

    def diag(self, X: Array) -> Array:
        return tf.linalg.diag_part(X)[:, None]

    def Diag(self, x: Array) -> Array:
        return tf.linalg.diag(tf.reshape(x, [-1]))

    def columns_sum(self, X: Array) -> Array:
        return sum_in_blocks(X, lambda A: tf.reduce_sum(A, axis=-2), lambda parts: tf.concat(parts, axis=0))

    rows_sum = staticmethod(partial(tf.reduce_sum, axis=1, keepdims=True))
    columns_max, rows_max = (staticmethod(partial(tf.reduce_max, axis=k, keepdims=True)) for k in (0, 1))
    locals().update({name: staticmethod(getattr(tf.math, name)) for name in ELEMENTWISE})
    log_sigmoid = staticmethod(tf.math.log_sigmoid)

    def erf(self, X: Array) -> Array:
        return tf.math.erf(tf.clip_by_value(X, -10, 10))  # nan for huge numbers, though erf(±10) = ±1

    def _turned(self, A: Array) -> Array:
        return tf.transpose(A, (0, 2, 1))

    def places(self, x: Array, n: int) -> Array:
        x = tf.reshape(x, [-1])
        is_place = (x >= 0) & (x < n) & (x == tf.floor(x))
        return tf.cast(tf.where(is_place, x, tf.cast(n, x.dtype)), tf.int32)

    def taken(self, X: Array, index: Array, axis: int) -> Array:
        return tf.gather(tf.pad(X, [[0, 0], [0, 1]] if axis else [[0, 1], [0, 0]]), index, axis=axis)

    def one_hot_transposed_product(self, x: Array, G: Array, n: int) -> Array:
        return tf.math.unsorted_segment_sum(G, self.places(x, n), n + 1)[:n]

    def uniform(self, m: int, n: int, seed: Scalar, count: Scalar, like: Array) -> Array:
        seed, count = tf.cast(seed, tf.int64), tf.cast(count, tf.int64)
        position = tf.reshape(tf.range(m * n, dtype=tf.int64), [m, n])
        return tf.cast(uniform(position, seed, count, times_64), like.dtype) / 2**24

    def from_numpy(self, A: np.ndarray, device: str | None = None) -> Array:
        with tf.device(device):
            return tf.constant(np.asarray(A))

    def to_numpy(self, X: Array) -> np.ndarray:
        return np.asarray(X.numpy())  # which is a scalar for a 0-d X

    def dtype(self, X: Array) -> str:
        return X.dtype.name

    def find_device(self, name: str | None) -> str | None:
        name = "GPU:0" if name == "auto" and tf.config.list_logical_devices("GPU") else name
        try:
            return self.device(self.from_numpy(np.zeros(1), "CPU:0" if name == "auto" else name))
        except (ValueError, RuntimeError, tf.errors.OpError) as error:
            raise ValueError(f"device {name!r}: {visible(str(error).splitlines()[0])}") from None

    def device(self, X: Array) -> str | None:
        return getattr(X, "device", None) or None
