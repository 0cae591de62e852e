"""Ranks that are processes of torch.distributed: gloo between CPUs, NCCL between GPUs."""

from __future__ import annotations

import gc
import json
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from itertools import count
from math import prod
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from matgrad.backends.base import Array
from matgrad.distributed.group import LOOPBACK, Collectives, Place, lost


@contextmanager
def _connected() -> Iterator[None]:
    """Turn an error of torch.distributed into a ConnectionError."""
    try:
        yield
    except RuntimeError as error:
        raise lost(error) from None


class TorchGroup(Collectives):
    """The ranks of a process group of torch.distributed; NumPy arrays become tensors without a copy.

    An error between ranks, such as a lost connection, is a ConnectionError.
    """

    def __init__(self, processes: dist.ProcessGroup | None = None) -> None:
        self.processes = processes
        self.rank, self.size = dist.get_rank(processes), dist.get_world_size(processes)

    def start_sum(self, X: Array) -> Any:
        with _connected():
            return dist.all_reduce(_tensor(X), group=self.processes, async_op=True)

    def wait(self, work: Any) -> None:
        with _connected():
            work.wait()

    def maximum(self, X: Array) -> None:
        with _connected():
            dist.all_reduce(_tensor(X), op=dist.ReduceOp.MAX, group=self.processes)

    def broadcast(self, X: Array) -> None:
        with _connected():
            dist.broadcast(_tensor(X), src=0, group=self.processes)

    def gather(self, X: Array, shapes: Sequence[tuple[int, ...]]) -> list[Array]:
        own, sizes = _tensor(X), [prod(shape) for shape in shapes]
        flat = own.new_zeros(max(sizes))  # parts may be unequal, messages may not
        flat[: own.numel()] = own.reshape(-1)
        rows = [torch.empty_like(flat) for _ in shapes]
        with _connected():
            dist.all_gather(rows, flat, group=self.processes)
        parts = [row[:n].reshape(shape) for row, n, shape in zip(rows, sizes, shapes, strict=True)]
        return [part.numpy() for part in parts] if isinstance(X, np.ndarray) else parts

    def _exchange(self, item: Any) -> list[Any]:
        data = np.frombuffer(json.dumps(item).encode(), np.uint8).copy()
        sizes = self.gather(np.array([len(data)]), [(1,)] * self.size)
        return [json.loads(part.tobytes()) for part in self.gather(data, [(int(n[0]),) for n in sizes])]

    def fail(self) -> None:
        super().fail()
        dist.destroy_process_group(self.processes)
        gc.collect()  # connections are closed when nothing refers to them, which the others notice


_starts = count()  # of this process; all ranks start the same groups


def connected(place: Place, timeout: float) -> TorchGroup:
    """The ranks that were started together; they meet within `timeout` seconds, or fail.

    The store has a prefix per start, because one that torchrun has also has the addresses of earlier attempts.
    """
    seconds = timedelta(seconds=timeout)
    store = dist.PrefixStore(f"matgrad/{place.attempt}/{next(_starts)}", _store(place, timeout))
    if place.is_local and (names := [name for _, name in socket.if_nameindex() if name.startswith("lo")]):
        for library in ("GLOO", "NCCL"):  # which otherwise listen on the address of the machine's name
            os.environ.setdefault(f"{library}_SOCKET_IFNAME", names[0])
    if torch.cuda.is_available():
        torch.cuda.set_device(place.local_rank % torch.cuda.device_count())
    with _connected():
        dist.init_process_group(_kinds(), store=store, rank=place.rank, world_size=place.size, timeout=seconds)
    return TorchGroup()


@cache  # one per process and address
def _store(place: Place, timeout: float) -> dist.Store:
    """Where the ranks meet: the store of torchrun, or one of rank 0; on one machine, on the loopback interface."""
    host = LOOPBACK if place.is_local else place.host
    is_host = place.rank == 0 and not place.is_served
    listener: dict[str, Any] = {}
    try:
        if is_host and place.is_local:
            listener = {"master_listen_fd": socket.create_server((LOOPBACK, place.port)).detach()}
        seconds = timedelta(seconds=timeout)
        return dist.TCPStore(host, place.port, place.size, is_host, seconds, wait_for_workers=False, **listener)
    except (RuntimeError, OSError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise ConnectionError(f"the ranks cannot meet at {host}:{place.port} within {timeout:g} s: {reason}") from None


def adopted(timeout: float) -> TorchGroup | None:
    """The ranks of an existing process group, such as Ray Train's, which stays; None if there is none."""
    if not (dist.is_available() and dist.is_initialized()):
        return None
    return TorchGroup(dist.new_group(backend=_kinds(), timeout=timedelta(seconds=timeout)))


def _kinds() -> str:
    """What carries messages between devices of each kind."""
    return "cpu:gloo,cuda:nccl" if torch.cuda.is_available() and dist.is_nccl_available() else "gloo"


def _tensor(X: Array) -> torch.Tensor:
    return X if isinstance(X, torch.Tensor) else torch.from_numpy(X)
