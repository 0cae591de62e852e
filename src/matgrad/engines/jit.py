"""The engine for JAX: computations under `jax.jit`, with donated buffers for the state in training."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from matgrad.backends.base import Array, Scalar
from matgrad.datasets.loader import DataLoader
from matgrad.distributed.group import Group
from matgrad.engines.engine import (
    Batches,
    CompiledEvaluation,
    CompiledStep,
    Engine,
    Poll,
    TracedEvaluation,
    is_plain,
    signature,
)
from matgrad.layers.state import State
from matgrad.program.computations import Computation, Step
from matgrad.program.recorder import check_hidden_state


class JitEngine(Engine):
    """Lets `jax.jit` trace and compile the equations."""

    def step(self, step: Step) -> CompiledStep:
        return JitStep(step)

    def sharded_step(self, step: Step, group: Group) -> CompiledStep:
        from matgrad.engines.jit_sharded import ShardedJitStep  # which is a JitStep

        return ShardedJitStep(step, group)

    def evaluation(self, computation: Computation) -> CompiledEvaluation:
        return TracedEvaluation(computation, jax.jit)


# what one call does at most, so that the host hears an interrupt in time
MOST_STEPS = 64
MOST_FLOPS = {"cpu": 5e9, "gpu": 5e10}


class JitStep(CompiledStep):
    """The step under `jax.jit`, with buffers of its own.

    A call takes the host longer than a small step takes a GPU. So the batches of a plain `DataLoader` are gathered on
    the device, and many of them make one call.
    """

    is_stable = True  # whether a step changes no shape or dtype of the state
    _labels: tuple[np.ndarray, Array] | None = None  # of the last loader, and a copy on the device

    def __init__(self, step: Step) -> None:
        self.matrices: State = {}
        self.invalidate(step, is_same=False)

    def invalidate(self, step: Step, is_same: bool) -> None:
        if not is_same:
            self.step, self.compiled = step, self._jitted(step)
            self.several = jax.jit(partial(_several, step), static_argnames="N", donate_argnums=0)
            self.prepared: set[tuple] = set()

    def load(self, state: Mapping[str, Array]) -> None:
        self.matrices = copies(state)

    def state(self) -> State:
        return copies(self.matrices)

    def prepare(self, X: Array, T: Array, *s: Array) -> None:
        sizes = signature((X, T, *s))
        if sizes not in self.prepared:
            check_hidden_state(self.step, self.matrices, X, T, None, *s)
            self._compile(X, T, jnp.zeros((), X.dtype), *s)
            self.prepared.add(sizes)

    def __call__(self, X: Array, T: Array, eta: Scalar, *s: Array) -> None:
        self.prepare(X, T, *s)
        self.matrices = self.compiled(self.matrices, X, T, eta, *s)

    # -- whole epochs -----------------------------------------------------------------------------------
    def takes(self, batches: Batches) -> bool:
        return is_plain(batches) and self.is_stable

    def train_epoch(self, loader: DataLoader, rates: list[float], poll: Poll) -> None:
        """Train on all batches; the host is one call ahead of the device."""
        etas = np.array(rates, loader.X.dtype)
        order, N, full = loader.order(), loader.batch_size, loader.size // loader.batch_size
        examples, most, i, before = self._examples(loader, order), self._most_steps(N, full), 0, None
        while i < len(rates):
            n = most if i + most <= full else 1
            if n > 1:
                self.matrices = self.several(self.matrices, examples, etas[i : i + n], np.int32(i * N), N=N)
            else:
                X, T, *s = loader.batch(i * N, order)
                self(X, T, jnp.asarray(etas[i]), *s)
            i += n
            last = jnp.array(min(self.matrices.values(), key=np.size), copy=True)  # the next call deletes the matrices
            jax.block_until_ready(last if i == len(rates) else before)
            before = last
            poll(i)

    def _most_steps(self, N: int, full: int) -> int:
        """How many steps make one call: a number that leaves few of the full batches over."""
        (device,) = next(iter(self.matrices.values())).devices()
        flops = 6 * N * sum(map(np.size, self.matrices.values()))  # of a step with dense matrices, or fewer
        most = int(min(MOST_STEPS, full, MOST_FLOPS.get(device.platform, MOST_FLOPS["gpu"]) // flops))
        return min(range(most // 2 + 1, most + 1), key=lambda n: (full % n, -n), default=1)

    def _examples(self, loader: DataLoader, order: np.ndarray | None) -> dict[str, Array | None]:
        """The data, their labels and their order on the device."""
        (device,) = loader.X.devices()
        if loader.labels is not None and (self._labels is None or self._labels[0] is not loader.labels):
            self._labels = loader.labels, jax.device_put(loader.labels.astype(np.int32), device)
        labels = None if loader.labels is None or self._labels is None else self._labels[1]
        rows = None if order is None else jax.device_put(order.astype(np.int32), device)
        return {"X": loader.X, "T": loader.T, "s": loader.weights, "labels": labels, "rows": rows}

    def _jitted(self, step: Step) -> Any:
        """The step as a function under `jax.jit`."""
        return jax.jit(step, donate_argnums=0)

    def _compile(self, *inputs: Array) -> None:
        """Let XLA compile it for inputs like these."""
        lowered = self.compiled.lower(self.matrices, *inputs)
        self.is_stable = _signatures(lowered.out_info) == _signatures(self.matrices)
        lowered.compile()


def _several(step: Step, state: State, examples: dict[str, Any], etas: Array, start: Scalar, N: int) -> State:
    """A step for each η, on batches of N examples from position `start` of their order."""

    def one(i: Scalar, state: State) -> State:
        def taken(A: Array) -> Array:
            return jax.lax.dynamic_slice_in_dim(A, start + i * N, N)

        rows = examples["rows"]
        rows = None if rows is None else taken(rows)

        def batch(A: Array) -> Array:
            return taken(A) if rows is None else _rows(A, rows)

        labels, s = examples["labels"], examples["s"]
        T = batch(examples["T"]) if labels is None else _rows(examples["T"], batch(labels))
        return step(state, batch(examples["X"]), T, etas[i], *(() if s is None else (batch(s),)))

    return jax.lax.fori_loop(0, len(etas), one, state)


def _rows(A: Array, indices: Array) -> Array:
    """The rows of A with these indices, which it has."""
    return A.at[indices].get(mode="promise_in_bounds")


def _signatures(state: Mapping[str, Any]) -> dict[str, tuple]:
    """The shapes and dtypes of matrices."""
    return {name: (X.shape, X.dtype) for name, X in state.items()}


def copies(state: Mapping[str, Array]) -> State:
    """The same matrices in new buffers, because `jax.jit` deletes those it updates."""
    return {name: jnp.array(X, copy=True) for name, X in state.items()}
