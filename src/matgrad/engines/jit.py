"""The engine for JAX: computations under `jax.jit`, with donated buffers for the state in training, also on ranks."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from matgrad.backends.base import Array, Scalar
from matgrad.backends.jax_backend import find_device
from matgrad.datasets.loader import DataLoader
from matgrad.distributed.jax_group import JaxGroup
from matgrad.engines.engine import CompiledEvaluation, CompiledStep, Engine, OwnRows, Poll, TracedEvaluation, signature
from matgrad.layers.state import State
from matgrad.program.computations import Computation, Step
from matgrad.program.recorder import check_hidden_state


class JitEngine(Engine):
    """Lets `jax.jit` trace and compile the equations."""

    groups = JaxGroup

    def step(self, step: Step, group: Any = None) -> CompiledStep:
        return JitStep(step) if group is None else ShardedJitStep(step, group)

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
    _labels: tuple[np.ndarray | None, Array | None] = None, None  # of the last loader, and a copy on the device

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
    def takes_loader(self, loader: DataLoader) -> bool:
        return self.is_stable

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

        def put(indices: np.ndarray | None) -> Array | None:
            return None if indices is None else jax.device_put(indices.astype(np.int32), device)

        if self._labels[0] is not loader.labels:
            self._labels = loader.labels, put(loader.labels)
        return {"X": loader.X, "T": loader.T, "s": loader.weights, "labels": self._labels[1], "rows": put(order)}

    def _jitted(self, step: Step) -> Any:
        return jax.jit(step, donate_argnums=0)

    def _compile(self, *inputs: Array) -> None:
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


# -- on several devices, also those of several processes: each has its rows of a batch -----------------------------

RANKS = "ranks"  # the axis of the mesh


class ShardedJitStep(OwnRows, JitStep):
    """The step under `jax.jit` on all devices of a group, with X, T and s in rows, and the state whole on each device.

    It is given whole batches, and XLA's partitioner finds what the devices have to send. JAX shares out equal parts
    only: every device computes all of a batch whose rows cannot be shared out so.
    """

    counts: Array | None = None  # how many ranks asked for each request in the last step

    def __init__(self, step: Step, group: JaxGroup) -> None:
        self.group, self.device = group, find_device(str(step.template.device))
        devices = sorted(jax.devices(self.device.platform), key=lambda device: (device.process_index, device.id))
        places = [i for i, device in enumerate(devices) if device.process_index == group.rank]
        self.places, self.size = slice(places[0], places[-1] + 1), len(devices)  # of this process, and of all
        mesh = Mesh(np.array(devices), (RANKS,))
        self.whole, self.in_rows = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec(RANKS))
        self.sums = jax.jit(lambda state: {name: _sum(X) for name, X in state.items()}, out_shardings=self.whole)
        self.asking: dict[Any, Array] = {}  # by what this rank asks for: what is added up to hear all ranks
        super().__init__(step)

    def load(self, state: Mapping[str, Array]) -> None:
        """Go on from the state of rank 0."""
        with self.group.connected():
            self.matrices = self.sums({name: self._once(X, self.group.is_first) for name, X in state.items()})

    def state(self) -> State:
        """The present state on the model's own device."""
        own = {name: X.addressable_data(0) for name, X in self.matrices.items()}
        with self.group.connected():  # as soon as it is known
            return jax.block_until_ready(copies(jax.device_put(own, self.device)))

    def _once(self, X: Array, is_given: bool = True) -> Array:
        """What this process gives to a sum over all devices: X on the first of its own, if at all, and 0 elsewhere."""
        block = np.zeros((self.places.stop - self.places.start, *X.shape), X.dtype)
        if is_given:
            block[0] = X
        return _placed(block, self.in_rows, (self.size, *X.shape))

    def __call__(self, X: Array, T: Array, eta: Scalar, *s: Array) -> None:
        self.prepare(X, T, *s)
        OwnRows.__call__(self, X, T, eta, *s)

    def rows(self, N: int) -> slice:
        share, rest = divmod(N, self.size)
        return slice(0, N) if rest else slice(self.places.start * share, self.places.stop * share)

    def run(self, N: int, eta: Scalar, *own: Array) -> None:
        """Train on these rows of a batch of N, and hear what ranks asked for in the step before: it has ended."""
        before = self.counts
        with self.group.connected():
            self.matrices, self.counts = self.compiled(self.matrices, *self._inputs(N, eta, *own))
            if before is not None:
                self.group.hear(np.asarray(before.addressable_data(0)).tolist())

    def _inputs(self, N: int, eta: Scalar, *own: Array) -> list[Array]:
        """The inputs of a step on a batch of N, of which this process gives its rows."""
        dtype, sharding = own[0].dtype, self.whole if N % self.size else self.in_rows
        X, T, *s = (_placed(A, sharding, (N, A.shape[1])) for A in own)
        if (key := (dtype, self.group.asked)) not in self.asking:  # in the dtype of the gradients: sent with them
            self.asking[key] = self._once(np.array(self.group.requests(), dtype))
        return [self.asking[key], X, T, np.asarray(eta, dtype), *s]

    def _jitted(self, step: Step) -> Any:
        """The step that also adds up what the ranks ask for."""

        def sharded(state: State, requests: Array, *inputs: Array) -> tuple[State, Array]:
            return step(state, *inputs), _sum(requests)

        return jax.jit(sharded, donate_argnums=0, out_shardings=self.whole)

    def _compile(self, X: Array, T: Array, eta: Scalar, *s: Array) -> None:
        """Compile the step for batches like these, after a check that all ranks have traced the same."""
        lowered = self.compiled.lower(self.matrices, *self._inputs(X.shape[0], eta, *self.own_rows(X, T, *s)))
        self.group.agree({"what it computes": "sha256 " + hashlib.sha256(lowered.as_text().encode()).hexdigest()})
        lowered.compile()


def _placed(own: Array, sharding: NamedSharding, shape: tuple[int, ...]) -> Array:
    """A matrix of all devices, of which this process gives its rows, or all."""
    return jax.make_array_from_process_local_data(sharding, own, shape)


def _sum(X: Array) -> Array:
    """The sum over the first axis, along which the devices lie."""
    return jnp.sum(X, axis=0, dtype=X.dtype)
