"""The training step of JAX on several devices, also those of several processes: each has its rows of a batch."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from matgrad.backends.base import Array, Scalar
from matgrad.backends.jax_backend import find_device
from matgrad.distributed.group import Group
from matgrad.distributed.jax_group import JaxGroup
from matgrad.engines.engine import OwnRows, wrong_group
from matgrad.engines.jit import JitStep, copies
from matgrad.layers.state import State
from matgrad.program.computations import Step

RANKS = "ranks"  # the axis of the mesh


class ShardedJitStep(OwnRows, JitStep):
    """The step under `jax.jit` on all devices of a group, with X, T and s in rows, and the state whole on each device.

    It is given whole batches, and XLA's partitioner finds what the devices have to send. JAX shares out equal parts
    only: every device computes all of a batch whose rows cannot be shared out so.
    """

    counts: Array | None = None  # how many ranks asked for each request in the last step

    def __init__(self, step: Step, group: Group) -> None:
        if not isinstance(group, JaxGroup):
            raise wrong_group("jax", group)
        self.group, self.device = group, find_device(str(step.template.device))
        devices = sorted(jax.devices(self.device.platform), key=lambda device: (device.process_index, device.id))
        places = [i for i, device in enumerate(devices) if device.process_index == group.rank]
        self.places, self.size = slice(places[0], places[-1] + 1), len(devices)  # of this process, and of all
        mesh = Mesh(np.array(devices), (RANKS,))
        self.whole, self.in_rows = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec(RANKS))
        self.sums = jax.jit(lambda state: {name: _sum(X) for name, X in state.items()}, out_shardings=self.whole)
        self.asking: dict[Any, Array] = {}  # by what this rank asks for
        super().__init__(step)

    # -- the state, which all devices have --------------------------------------------------------------
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

    # -- batches ----------------------------------------------------------------------------------------
    def __call__(self, X: Array, T: Array, eta: Scalar, *s: Array) -> None:
        self.prepare(X, T, *s)
        OwnRows.__call__(self, X, T, eta, *s)

    def rows(self, N: int) -> slice:
        """The rows of this process of a batch of N."""
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
        return [self._requests(dtype), X, T, np.asarray(eta, dtype), *s]

    def _requests(self, dtype: Any) -> Array:
        """What the ranks ask for, to be added up; in the dtype of the gradients, since it is sent with them."""
        key = dtype, self.group.asked
        if key not in self.asking:
            self.asking[key] = self._once(np.array(self.group.requests(), dtype))
        return self.asking[key]

    # -- compiling --------------------------------------------------------------------------------------
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
