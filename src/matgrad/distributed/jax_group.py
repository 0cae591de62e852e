"""Ranks that are processes of `jax.distributed`, each with one device or more."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np
from jax.errors import JaxRuntimeError
from jax.experimental.multihost_utils import process_allgather

from matgrad.distributed.group import LOOPBACK, OPEN, Group, Place, integer, is_loopback, lost, place_of

# of JAX: messages between CPUs, and no handler of SIGTERM, which ends a run after a checkpoint
OPTIONS = {"jax_cpu_collectives_implementation": "gloo", "jax_enable_preemption_service": False}

PROCESSES = ("JAX_NUM_PROCESSES", "JAX_PROCESS_ID")  # beside JAX_COORDINATOR_ADDRESS; JAX itself asks the cluster alone


class JaxGroup(Group):
    """The processes of `jax.distributed`, which stay connected; without it, this process alone, with all its devices.

    The compiled step itself contains the sums over ranks; see `engines/jit.py`. An error between ranks, such as
    a lost connection, is a ConnectionError.
    """

    def __init__(self) -> None:
        self.rank, self.size = jax.process_index(), jax.process_count()

    def _exchange(self, item: Any) -> list[Any]:
        """The item of every rank, sent as JSON."""
        data = np.frombuffer(json.dumps(item).encode(), np.uint8)
        with self.connected():
            sizes = process_allgather(np.array([len(data)])).reshape(-1)
            width = 1 << int(max(sizes)).bit_length()  # for each width, XLA compiles a program
            rows = process_allgather(np.pad(data, (0, width - len(data)))).reshape(self.size, -1)
        return [json.loads(row[:n].tobytes()) for row, n in zip(rows, sizes, strict=True)]

    @contextmanager
    def connected(self) -> Iterator[None]:
        """Turn an error between ranks into a ConnectionError."""
        try:
            yield
        except JaxRuntimeError as error:
            if self.size == 1 or "RESOURCE_EXHAUSTED" in str(error):  # out of memory
                raise
            raise lost(error) from error


def connected(place: Place, timeout: float) -> JaxGroup:
    """The ranks that were started together; they meet within `timeout` seconds, or fail.

    torchrun has the port itself, and after a restart the old processes may still have the last one.
    """
    _configure()
    host = LOOPBACK if place.is_local else place.host
    address, seconds = f"{host}:{place.port + 1 + place.attempt}", max(1, round(timeout))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")  # of the GPUs of this machine
    gpu = place.local_rank % len(visible.split(",")) if visible else place.local_rank
    try:
        where: dict[str, Any] = {"coordinator_bind_address": address} if place.is_local else {}
        jax.distributed.initialize(address, place.size, place.rank, [gpu], initialization_timeout=seconds, **where)
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise ConnectionError(f"the ranks cannot meet at {address} within {timeout:g} s: {reason}") from error
    return _joined()


def adopted(timeout: float) -> JaxGroup | None:
    """The processes that JAX has connected, or connects by its own variables; else the devices of this process alone.

    None if other variables have to be used.
    """
    if jax.distributed.is_initialized():
        return JaxGroup()
    if "JAX_COORDINATOR_ADDRESS" in os.environ:
        _configure()
        size, rank = (integer(os.environ, name) if name in os.environ else None for name in PROCESSES)
        address = os.environ["JAX_COORDINATOR_ADDRESS"]
        if is_loopback(address.rpartition(":")[0]):
            os.environ.setdefault("JAX_COORDINATOR_BIND_ADDRESS", address)
        elif not rank:
            warnings.warn(OPEN, stacklevel=3)
        jax.distributed.initialize(None, size, rank, initialization_timeout=max(1, round(timeout)))
        return _joined()
    return JaxGroup() if place_of(os.environ) is None and jax.device_count() > 1 else None


def _configure() -> None:
    for name, value in OPTIONS.items():
        if hasattr(jax.config, name):
            jax.config.update(name, value)


def _joined() -> JaxGroup:
    """The group, after a first exchange, during which gloo writes to standard output."""
    group = JaxGroup()
    sys.stdout.flush()
    kept = os.dup(1)
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 1)
            group.exchange("here", "the start of the group")
    finally:
        os.dup2(kept, 1)
        os.close(kept)
    return group
