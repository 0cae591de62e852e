"""Ranks that are processes of `jax.distributed`, each with one device or more."""

from __future__ import annotations

import json
from itertools import count
from typing import Any

import jax
from jax._src import distributed

from matgrad.distributed.group import Group

_rounds = count()  # of exchanges; all processes do the same ones


class JaxGroup(Group):
    """The processes of `jax.distributed`; without it, this process alone, with all its devices."""

    def __init__(self, timeout: float) -> None:
        self.rank, self.size, self.timeout = jax.process_index(), jax.process_count(), timeout

    def exchange(self, item: Any) -> list[Any]:
        """What every rank gives, in the order of the ranks: a plain value that JSON can hold."""
        if self.size == 1:
            return [item]
        i = next(_rounds)
        self._store.key_value_set(_key(i, self.rank), json.dumps(item))
        found = [json.loads(self._read(_key(i, rank), rank)) for rank in range(self.size)]
        if i:  # all have read the round before
            self._store.key_value_delete(_key(i - 1, self.rank))
        return found

    @property
    def _store(self) -> Any:
        """The keys and values that all processes see; JAX has no public name for it."""
        return distributed.global_state.client

    def _read(self, key: str, rank: int) -> str:
        """What a rank has left under a key, as soon as it is there."""
        try:
            return self._store.blocking_key_value_get(key, round(1000 * self.timeout))
        except jax.errors.JaxRuntimeError as error:
            raise ConnectionError(f"rank {rank} gave no answer within {self.timeout:g} s") from error


def _key(i: int, rank: int) -> str:
    return f"matgrad/exchange/{i}/{rank}"


def connected(address: str, rank: int, size: int, timeout: float, device: int | None = None) -> JaxGroup:
    """The group of processes that meet at rank 0's ``host:port``, each with its GPU of this number, or with all."""
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    devices = None if device is None else [device]
    try:
        jax.distributed.initialize(
            address, size, rank, devices, initialization_timeout=round(timeout), cluster_detection_method="deactivate"
        )
    except RuntimeError as error:
        raise ConnectionError(f"jax.distributed at {address}: {str(error).splitlines()[0]}") from error
    return JaxGroup(timeout)
