"""Data sets that need no file: the embedded digits, and generated ones."""

from __future__ import annotations

import gzip
from importlib import resources

import numpy as np

from matgrad.datasets.dataset import Dataset
from matgrad.foundation.limits import check_bytes

SQUARES = 8  # per side of the checkerboard
FEATURES, CLASSES = 8, 3  # of the tiny data set


def load_digits() -> tuple[np.ndarray, np.ndarray]:
    """1797 handwritten digits: pixels X, a 1797×64 float32 matrix of 0 to 16, and classes 0 to 9.

    Optical Recognition of Handwritten Digits, E. Alpaydin and C. Kaynak, UCI, CC BY 4.0.
    """
    with (resources.files("matgrad.datasets") / "digits.csv.gz").open("rb") as file:
        table = np.loadtxt(gzip.GzipFile(fileobj=file), delimiter=",", dtype=np.float32)
    return table[:, :-1], table[:, -1].astype(np.int64)


def digits() -> Dataset:
    """The digits of `load_digits`: every fifth, from the first, is a test example (360); 1437 are for training."""
    X, T = load_digits()
    test = np.arange(len(X)) % 5 == 0
    return Dataset.checked("digits", X[~test], T[~test], X[test], T[test], classes=10, value_range=(0, 16))


def checkerboard(size: int = 1000, seed: int = 0) -> Dataset:
    """Points (x, y) in the unit square with class (⌊8x⌋ + ⌊8y⌋) mod 2: `size` for training, a fifth for testing."""
    arrays: list[np.ndarray] = []
    for N, rng in _parts("checkerboard", size, seed):
        X = rng.random((N, 2), dtype=np.float32)
        arrays += [X, np.floor(SQUARES * X).astype(np.int64).sum(axis=1) % 2]
    return Dataset.checked("checkerboard", *arrays, classes=2, value_range=(0, 1))


def mini(size: int = 20, seed: int = 0) -> Dataset:
    """Random numbers from [0, 1) in 8 columns with random classes 0 to 2, to look at: there is nothing to learn."""
    arrays: list[np.ndarray] = []
    for N, rng in _parts("mini", size, seed):
        arrays += [rng.random((N, FEATURES), dtype=np.float32), rng.integers(CLASSES, size=N)]
    return Dataset.checked("mini", *arrays, classes=CLASSES, value_range=(0, 1))


def _parts(name: str, size: int, seed: int) -> list[tuple[int, np.random.Generator]]:
    """The number of training examples and that of test examples, a fifth, at least one; both with one generator."""
    if size < 1:
        raise ValueError(f"{name}: size: expected 1 or more, found {size}")
    check_bytes(16 * FEATURES * size, f"{name}: size {size}")
    rng = np.random.default_rng(seed)
    return [(size, rng), (max(size // 5, 1), rng)]
