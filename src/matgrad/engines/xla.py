"""The engine for TensorFlow: computations in a `tf.function`, compiled by XLA."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import tensorflow as tf

from matgrad.backends.base import Array, Scalar
from matgrad.engines.engine import CompiledEvaluation, CompiledStep, Engine, TracedEvaluation, signature
from matgrad.program.computations import Computation, Step
from matgrad.program.recorder import check_hidden_state

compiled_by_xla = partial(tf.function, autograph=False, jit_compile=True)


class XlaEngine(Engine):
    """Lets `tf.function` trace the equations and XLA compile them."""

    def step(self, step: Step, group: Any = None) -> CompiledStep:
        return XlaStep(step)

    def evaluation(self, computation: Computation) -> CompiledEvaluation:
        return TracedEvaluation(computation, compiled_by_xla)


class XlaStep(CompiledStep):
    """The step in a `tf.function`, compiled by XLA, with variables of its own.

    A call costs a quarter of a millisecond. So batches are collected, and `BLOCK` of them make one
    call; the rest run one by one when the state is read or the size of the batches changes.
    """

    BLOCK = 10

    def __init__(self, step: Step) -> None:
        self.variables: dict[str, tf.Variable] = {}
        self.waiting: list[tuple[Array, ...]] = []  # the inputs of steps
        self.invalidate(step, is_same=False)

    def invalidate(self, step: Step, is_same: bool) -> None:
        if not is_same:
            self._flush()
            self.step = step
            self.prepared: set[tuple] = set()
            self.one, self.block = map(compiled_by_xla, (self._one, self._block))

    def load(self, state: Mapping[str, Array]) -> None:
        self.waiting.clear()
        if not self.variables:
            self.variables = {name: tf.Variable(X) for name, X in state.items()}
        self._assign(state)

    def state(self) -> dict[str, Array]:
        self._flush()
        return {name: tf.identity(variable) for name, variable in self.variables.items()}

    def prepare(self, X: Array, T: Array, *s: Array) -> None:
        if signature((X, T, *s)) not in self.prepared:
            before = self.state()
            check_hidden_state(self.step, before, X, T, None, *s)
            try:
                self.one(X, T, tf.zeros((), X.dtype), *s)  # XLA compiles a function when it first runs
            finally:
                self._assign(before)
            self.prepared.add(signature((X, T, *s)))

    def __call__(self, X: Array, T: Array, eta: Scalar, *s: Array) -> None:
        self.prepare(X, T, *s)
        eta = eta if tf.is_tensor(eta) else tf.constant(eta, X.dtype)  # which would be float32 otherwise
        inputs = X, T, eta, *s
        if self.waiting and signature(self.waiting[0]) != signature(inputs):
            self._flush()
        self.waiting.append(inputs)
        if len(self.waiting) == self.BLOCK:
            self.block(*zip(*self.waiting, strict=True))
            self.waiting.clear()

    def _flush(self) -> None:
        """Run the waiting steps."""
        for batch in self.waiting:
            self.one(*batch)
        self.waiting.clear()

    def _one(self, *inputs: Array) -> None:
        self._assign(self.step(self._values(), *inputs))

    def _block(self, *inputs: tuple[Array, ...]) -> None:
        """`BLOCK` steps, in a loop inside XLA."""
        names, stacked = list(self.variables), [tf.stack(matrices) for matrices in inputs]

        def body(i: Scalar, *values: Array) -> tuple:
            state = self.step(dict(zip(names, values, strict=True)), *(A[i] for A in stacked))
            return (i + 1, *(state[name] for name in names))

        start = (tf.constant(0), *self._values().values())
        _, *values = tf.while_loop(lambda i, *_: i < self.BLOCK, body, start)
        self._assign(dict(zip(names, values, strict=True)))

    def _values(self) -> dict[str, Array]:
        """The state as tensors: a variable has no transpose."""
        return {name: tf.convert_to_tensor(variable) for name, variable in self.variables.items()}

    def _assign(self, state: Mapping[str, Array]) -> None:
        for name, X in state.items():
            self.variables[name].assign(X, read_value=False)
