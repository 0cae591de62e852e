"""The integer hash behind dropout: equal on every backend, without the state of a generator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def mix(x: Any, times: Callable[[Any, int], Any]) -> Any:
    """A permutation of the integers below 2^32 that scatters them (Wellons' lowbias32).

    `times(x, c)` is x·c modulo 2^32; the quotients are right shifts, which are written
    differently in TensorFlow.
    """
    x = x ^ x // 2**16
    x = times(x, 0x7FEB352D)
    x = x ^ x // 2**15
    x = times(x, 0x846CA68B)
    return x ^ x // 2**16


def uniform(position: Any, seed: Any, count: Any, times: Callable[[Any, int], Any]) -> Any:
    """Integers below 2^24, scattered by a hash of (seed, count, position)."""
    key = mix(mix(times(count, 1), times) ^ times(seed, 1), times)
    return mix(mix(position, times) ^ key, times) // 2**8


def times_64(x: Any, c: int) -> Any:
    """x·c modulo 2^32, computed in 64-bit integers."""
    return x * c & 0xFFFFFFFF
