"""Ranks that are threads of one process, to test with: exact, quick, and without a network."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np

from matgrad.distributed import Collectives, Group
from matgrad.distributed.group import _joined

T = TypeVar("T")


class ThreadGroup(Collectives):
    """A rank that is a thread; all ranks share `barrier` and `slots`."""

    def __init__(self, rank: int, size: int, barrier: threading.Barrier, slots: list[Any]) -> None:
        self.rank, self.size, self.barrier, self.slots = rank, size, barrier, slots
        self.messages: list[int] = []  # the sizes of what was summed

    def all(self, item: Any) -> list[Any]:
        """What all ranks give."""
        self.barrier.wait()
        self.slots[self.rank] = item
        self.barrier.wait()
        return list(self.slots)

    def start_sum(self, X):
        self.messages.append(len(X))
        parts = self.all(_array(X).copy())
        return X, sum(parts[1:], parts[0])

    def wait(self, work):
        X, total = work
        _array(X)[...] = total  # only now: whoever reads X before it has waited finds its own part

    def maximum(self, X):
        _array(X)[...] = np.max(self.all(_array(X).copy()), axis=0)

    def broadcast(self, X):
        _array(X)[...] = self.all(_array(X).copy())[0]

    def gather(self, X, shapes: Sequence[tuple[int, ...]]):
        parts = self.all(_array(X).copy())
        assert [tuple(part.shape) for part in parts] == [tuple(shape) for shape in shapes]
        return parts if isinstance(X, np.ndarray) else [_like(X, part) for part in parts]

    def _exchange(self, item):
        return [json.loads(text) for text in self.all(json.dumps(item))]


def _array(X: Any) -> np.ndarray:
    return X if isinstance(X, np.ndarray) else X.numpy()


def _like(X: Any, A: np.ndarray) -> Any:
    import torch

    return torch.from_numpy(A)


@contextmanager
def using(group: Group | None) -> Iterator[Group | None]:
    """Train as a rank of this group in this thread, within the block."""
    known = dict(vars(_joined))
    _joined.group = group
    try:
        yield group
    finally:
        vars(_joined).clear()
        vars(_joined).update(known)


def on_ranks(size: int, work: Callable[[int], T], timeout: float = 120) -> list[T]:
    """What `work(rank)` returns on every rank; the first error of a rank is raised."""
    barrier, slots = threading.Barrier(size, timeout=timeout), [None] * size
    results: list[Any] = [None] * size
    errors: list[BaseException] = []

    def run(rank: int) -> None:
        try:
            with using(ThreadGroup(rank, size, barrier, slots)):
                results[rank] = work(rank)
        except threading.BrokenBarrierError:
            pass
        except BaseException as error:
            errors.append(error)
            barrier.abort()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results
