"""Generated data sets: a checkerboard, and a tiny random one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from matgrad.datasets.dataset import DataError, Dataset
from matgrad.foundation.limits import check_bytes

SQUARES = 8  # per side of the checkerboard
FEATURES, CLASSES = 8, 3  # of the tiny data set


def checkerboard(size: int = 1000, seed: int = 0) -> Dataset:
    """Points (x, y) in the unit square with class (⌊8x⌋ + ⌊8y⌋) mod 2: `size` for training, a fifth for testing."""

    def draw(rng: np.random.Generator, N: int) -> tuple[np.ndarray, np.ndarray]:
        X = rng.random((N, 2), dtype=np.float32)
        return X, np.floor(SQUARES * X).astype(np.int64).sum(axis=1) % 2

    return _generated("checkerboard", size, seed, 2, draw)


def mini(size: int = 20, seed: int = 0) -> Dataset:
    """Random numbers from [0, 1) in 8 columns with random classes 0 to 2, to look at: there is nothing to learn."""

    def draw(rng: np.random.Generator, N: int) -> tuple[np.ndarray, np.ndarray]:
        return rng.random((N, FEATURES), dtype=np.float32), rng.integers(CLASSES, size=N)

    return _generated("mini", size, seed, CLASSES, draw)


def _generated(
    name: str,
    size: int,
    seed: int,
    classes: int,
    draw: Callable[[np.random.Generator, int], tuple[np.ndarray, np.ndarray]],
) -> Dataset:
    """`size` examples for training and a fifth of that, at least one, for testing."""
    if size < 1:
        raise DataError(f"{name}: size: expected 1 or more, found {size}")
    check_bytes(16 * FEATURES * size, f"{name}: size {size}")
    rng = np.random.default_rng(seed)
    train, test = draw(rng, size), draw(rng, max(size // 5, 1))
    return Dataset.checked(name, *train, *test, classes=classes, value_range=(0, 1))
