"""The random generator that is used where none is given."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

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


@contextmanager
def preserved_generator() -> Iterator[None]:
    """Restore the generator afterwards, as if it had not been used inside."""
    bits = generator().bit_generator
    state = bits.state
    try:
        yield
    finally:
        bits.state = state
