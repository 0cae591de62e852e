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
    """Restore the generator afterwards, as if it had been neither used nor restarted inside."""
    global _generator
    before, state = _generator, _generator.bit_generator.state
    try:
        yield
    finally:
        _generator = before
        _generator.bit_generator.state = state
