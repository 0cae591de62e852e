"""The embedded data set: handwritten digits."""

from __future__ import annotations

import gzip
from importlib import resources

import numpy as np

from matgrad.datasets.dataset import Dataset


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
