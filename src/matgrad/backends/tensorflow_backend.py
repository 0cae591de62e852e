"""The table on TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from matgrad.backends.base import Backend, CompiledStep, Matrix, Scalar
from matgrad.backends.hashing import times_64, uniform
from matgrad.program.recorder import check_hidden_state

if TYPE_CHECKING:
    from matgrad.engines.training_step import Step

# gives tensors `.T` and the operators of arrays; global, so nothing but this backend asks for it
tf.experimental.numpy.experimental_enable_numpy_behavior()


class TensorflowBackend(Backend):
    """TensorFlow tensors, eager and inside `tf.function`."""

    name = "tensorflow"

    def full(self, value, m, n, like):
        return tf.fill([m, n], tf.constant(value, like.dtype))

    def identity(self, n, like):
        return tf.eye(n, dtype=like.dtype)

    def hadamard(self, X, Y):
        return tf.multiply(X, Y)

    def diag(self, X):
        return tf.linalg.diag_part(X)[:, None]

    def Diag(self, x):
        return tf.linalg.diag(tf.reshape(x, [-1]))

    def elements_sum(self, X):
        return tf.reduce_sum(X)

    def column_repeat(self, x, n):
        return tf.broadcast_to(x, [x.shape[0], n])

    def row_repeat(self, x, m):
        return tf.broadcast_to(x, [m, x.shape[1]])

    def columns_sum(self, X):
        return tf.reduce_sum(X, axis=0, keepdims=True)

    def rows_sum(self, X):
        return tf.reduce_sum(X, axis=1, keepdims=True)

    def columns_max(self, X):
        return tf.reduce_max(X, axis=0, keepdims=True)

    def rows_max(self, X):
        return tf.reduce_max(X, axis=1, keepdims=True)

    def exp(self, X):
        return tf.exp(X)

    def log(self, X):
        return tf.math.log(X)

    def log1p(self, X):
        return tf.math.log1p(X)

    def reciprocal(self, X):
        return tf.math.reciprocal(X)

    def sqrt(self, X):
        return tf.sqrt(X)

    def tanh(self, X):
        return tf.tanh(X)

    def erf(self, X):
        return tf.math.erf(X)

    def step(self, X):
        return tf.cast(tf.greater_equal(X, 0), X.dtype)

    def log_sigmoid(self, X):
        return tf.math.log_sigmoid(X)

    def uniform(self, m, n, seed, count, like):
        seed, count = tf.cast(seed, tf.int64), tf.cast(count, tf.int64)
        position = tf.reshape(tf.range(m * n, dtype=tf.int64), [m, n])
        return tf.cast(uniform(position, seed, count, times_64), like.dtype) / 2**24

    def compile(self, step):
        return TensorflowStep(step)

    def from_numpy(self, A, device=None):
        with tf.device(device):
            return tf.constant(np.asarray(A))

    def to_numpy(self, X):
        return X.numpy()

    def take_rows(self, X, indices):
        return tf.gather(X, indices)

    def dtype(self, X):
        return X.dtype.name

    def check_device(self, device):
        try:
            with tf.device(device):
                tf.constant(0.0)
        except (ValueError, RuntimeError, tf.errors.OpError) as error:
            raise ValueError(f"device {device!r}: {str(error).splitlines()[0]}") from None

    def device(self, X):
        return getattr(X, "device", None) or None


class TensorflowStep(CompiledStep):
    """The step in a `tf.function`, compiled by XLA, on variables of its own.

    A call costs a quarter of a millisecond. So batches are collected, and `BLOCK` of them are one
    call; what is left goes one by one when the state is asked for or the size of the batch changes.
    """

    BLOCK = 10

    def __init__(self, step: Step) -> None:
        self.step = step
        self.variables: dict[str, tf.Variable] = {}
        self.waiting: list[tuple[Matrix, Matrix, Scalar]] = []
        self.prepared: set[tuple] = set()
        self.one, self.block = (tf.function(f, autograph=False, jit_compile=True) for f in (self._one, self._block))

    def load(self, state: Mapping[str, Matrix]) -> None:
        self.waiting.clear()
        if not self.variables:
            self.variables = {name: tf.Variable(X) for name, X in state.items()}
        self._assign(state)

    def state(self) -> dict[str, Matrix]:
        self._flush()
        return {name: tf.identity(variable) for name, variable in self.variables.items()}

    def prepare(self, X: Matrix, T: Matrix) -> None:
        if _signature(X, T) not in self.prepared:
            before = self.state()
            check_hidden_state(self.step, before, X, T)
            try:
                self.one(X, T, tf.zeros((), X.dtype))  # XLA compiles when a function is first run
            finally:
                self._assign(before)
            self.prepared.add(_signature(X, T))

    def __call__(self, X: Matrix, T: Matrix, eta: Scalar) -> None:
        self.prepare(X, T)
        if self.waiting and _signature(*self.waiting[0][:2]) != _signature(X, T):
            self._flush()
        self.waiting.append((X, T, eta))
        if len(self.waiting) == self.BLOCK:
            self.block(*zip(*self.waiting, strict=True))
            self.waiting.clear()

    def _flush(self) -> None:
        """Run the steps that wait."""
        for batch in self.waiting:
            self.one(*batch)
        self.waiting.clear()

    def _one(self, X: Matrix, T: Matrix, eta: Scalar) -> None:
        """One step."""
        self._assign(self.step(self._values(), X, T, eta))

    def _block(self, Xs: tuple[Matrix, ...], Ts: tuple[Matrix, ...], etas: tuple[Scalar, ...]) -> None:
        """`BLOCK` steps, in a loop inside XLA."""
        names, X, T, eta = list(self.variables), tf.stack(Xs), tf.stack(Ts), tf.stack(etas)

        def body(i: Scalar, *values: Matrix) -> tuple:
            state = self.step(dict(zip(names, values, strict=True)), X[i], T[i], eta[i])
            return (i + 1, *(state[name] for name in names))

        start = (tf.constant(0), *self._values().values())
        _, *values = tf.while_loop(lambda i, *_: i < self.BLOCK, body, start)
        self._assign(dict(zip(names, values, strict=True)))

    def _values(self) -> dict[str, Matrix]:
        """The state as tensors: a variable has no transpose."""
        return {name: tf.convert_to_tensor(variable) for name, variable in self.variables.items()}

    def _assign(self, state: Mapping[str, Matrix]) -> None:
        for name, X in state.items():
            self.variables[name].assign(X, read_value=False)


def _signature(X: Matrix, T: Matrix) -> tuple:
    """What a compiled step is for."""
    return (*X.shape, *T.shape, X.dtype, T.dtype)
