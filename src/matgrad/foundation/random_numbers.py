"""The random generator that is used wherever none is given."""

from __future__ import annotations

import numpy as np

Generator = np.random.Generator

_generator = np.random.default_rng()


def manual_seed(seed: int) -> None:
    """Restart the generator of initial weights, supports, dropout seeds and batch orders."""
    global _generator
    _generator = np.random.default_rng(seed)


def generator() -> Generator:
    """The generator that is used where none is given."""
    return _generator
