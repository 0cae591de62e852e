"""What the tests of sparse matrices and layers share: supports, and their masks."""

from __future__ import annotations

import numpy as np

import matgrad as mg

BACKENDS = ("numpy", "torch")  # those with sparse matrices; `--backend` chooses among dense ones


def some_support(K: int, D: int, density: float, seed: int = 0) -> mg.Support:
    """A random support with about that density."""
    return mg.Support.from_mask(np.random.default_rng(seed).random((K, D)) < density)


def mask_of(S: mg.Support) -> np.ndarray:
    """The positions of a support as a matrix of booleans, by plain loops."""
    mask = np.zeros(S.shape, dtype=bool)
    for i in range(S.shape[0]):
        for k in range(S.starts[i], S.starts[i + 1]):
            mask[i, S.columns[k]] = True
    return mask
