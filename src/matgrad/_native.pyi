"""The C++ core; see native/python/module.cpp."""

from collections.abc import Callable

import numpy as np

def cores(root: str = "") -> int: ...
def instruction_sets() -> list[str]: ...
def largest_products(
    A: np.ndarray, B: np.ndarray, starts: np.ndarray, columns: np.ndarray, count: int, pool: ThreadPool
) -> np.ndarray: ...

class ThreadPool:
    def __init__(self, threads: int) -> None: ...
    @property
    def size(self) -> int: ...

class Executor:
    timed: bool
    collective: Callable[[int], object] | None
    def __init__(self, program: str, pool: ThreadPool, instruction_set: str = "") -> None: ...
    def bind(self, name: str, array: np.ndarray) -> None: ...
    def bind_support(
        self,
        name: str,
        starts: np.ndarray,
        columns: np.ndarray,
        column_starts: np.ndarray,
        rows: np.ndarray,
        positions: np.ndarray,
    ) -> None: ...
    def run(
        self,
        inputs: dict[str, np.ndarray] = ...,
        outputs: dict[str, np.ndarray] = ...,
        starts: np.ndarray | None = None,
        columns: np.ndarray | None = None,
    ) -> None: ...
    def train(
        self,
        X: np.ndarray,
        T: np.ndarray,
        rates: np.ndarray,
        order: np.ndarray | None = None,
        labels: np.ndarray | None = None,
        weights: np.ndarray | None = None,
        poll: Callable[[int], None] | None = None,
        every_batch: bool = False,
        starts: np.ndarray | None = None,
        columns: np.ndarray | None = None,
    ) -> None: ...
    @property
    def runs(self) -> int: ...
    @property
    def seconds(self) -> list[float]: ...
