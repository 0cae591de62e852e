"""Ranks that are processes of `jax.distributed`, each with one device or more."""

from __future__ import annotations

import atexit
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any

import jax
import numpy as np
from jax._src import distributed  # which alone has the store
from jax.errors import JaxRuntimeError
from jax.experimental.multihost_utils import process_allgather

from matgrad.distributed.board import Board
from matgrad.distributed.group import Group
from matgrad.distributed.starting import Place, place_of

# of JAX, where it has them: messages between CPUs, no exit of a process because another one has ended, and no hold of
# SIGTERM, which ends a run after a checkpoint
OPTIONS = {
    "jax_cpu_collectives_implementation": "gloo",
    "jax_enable_recoverability": True,
    "jax_enable_preemption_service": False,
}

_groups = count()  # of this process; all ranks make the same ones


class JaxGroup(Group):
    """The processes of `jax.distributed`; without it, this process alone, with all its devices.

    The compiled step itself has what JAX adds up; `engines/jit_sharded.py` makes it. What goes wrong between ranks is a
    ConnectionError that says which one has ended, and why.
    """

    def __init__(self) -> None:
        self.rank, self.size = jax.process_index(), jax.process_count()
        self.board = Board(_Store(f"matgrad/{next(_groups)}"), self.rank, self.size)
        if self.size > 1:
            atexit.register(self._leave)

    def _exchange(self, item: Any) -> list[Any]:
        """What every rank gives: plain values, which are sent as JSON."""
        data = np.frombuffer(json.dumps(item).encode(), np.uint8)
        with self.told():
            sizes = process_allgather(np.array([len(data)])).reshape(-1)
            width = 1 << int(max(sizes)).bit_length()  # for each width, XLA compiles a program
            rows = process_allgather(np.pad(data, (0, width - len(data)))).reshape(self.size, -1)
        return [json.loads(row[:n].tobytes()) for row, n in zip(rows, sizes, strict=True)]

    def fail(self, reason: str = "") -> bool:
        """End the group because this rank fails; the others notice when its process ends, and look at the board."""
        super().fail(reason)
        atexit.unregister(self._leave)
        return self.size > 1 and self.board.end(reason)

    def close(self) -> None:
        """End the group, together with all ranks; the processes stay connected, which JAX does once."""
        self.exchange("closed", "the end of the group")
        super().close()

    def _leave(self) -> None:
        """Let rank 0 end last: it has JAX's service, without which JAX aborts a process."""
        with suppress(RuntimeError):
            self.board.leave()
            if self.rank:
                jax.distributed.shutdown()

    @contextmanager
    def told(self) -> Iterator[None]:
        """Say which rank is to blame for an error."""
        try:
            yield
        except JaxRuntimeError as error:
            if self.size == 1 or "RESOURCE_EXHAUSTED" in str(error):  # out of memory
                raise
            raise ConnectionError(self.board.why()) from error


class _Store:
    """The keys and values of `jax.distributed`, which rank 0 has, behind a prefix."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.client: Any = distributed.global_state.client

    def set(self, key: str, value: str, /) -> None:
        self.client.key_value_set(f"{self.prefix}/{key}", value, allow_overwrite=True)

    def get(self, key: str, /) -> bytes:
        return self.client.key_value_try_get(f"{self.prefix}/{key}").encode()

    def check(self, keys: list[str], /) -> bool:
        try:
            for key in keys:
                self.get(key)
        except JaxRuntimeError as error:
            if not str(error).startswith("NOT_FOUND"):
                raise
            return False
        return True


def connected(place: Place, timeout: float) -> JaxGroup:
    """The ranks that were started together; they meet within `timeout` seconds, or fail.

    The port is another one after each restart, because the dead may still be at the last; torchrun has the first.
    """
    for name, value in OPTIONS.items():
        if hasattr(jax.config, name):
            jax.config.update(name, value)
    address, seconds = f"{place.host}:{place.port + 1 + place.attempt}", max(1, round(timeout))
    try:
        jax.distributed.initialize(address, place.size, place.rank, [_gpu(place)], initialization_timeout=seconds)
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise ConnectionError(f"the ranks cannot meet at {address} within {timeout:g} s: {reason}") from error
    group = JaxGroup()
    with _silence():
        group.exchange("here", "the start of the group")
    return group


def adopted(timeout: float) -> JaxGroup | None:
    """The processes that JAX has connected already or, if this one was started alone, its devices; else None."""
    is_connected = distributed.global_state.client is not None
    return JaxGroup() if is_connected or (place_of(os.environ) is None and jax.device_count() > 1) else None


@contextmanager
def _silence() -> Iterator[None]:
    """Nothing on standard output, where gloo writes when it connects."""
    sys.stdout.flush()
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


def _gpu(place: Place) -> int:
    """The number of the GPU of a rank on its machine, if there is any, among those that it sees."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return place.local_rank % len(visible.split(",")) if visible else place.local_rank
