"""Weight initializers: distributions for a K×D weight matrix.

A specification such as ``Xavier`` or ``Uniform(-0.1, 0.1)`` names one of `INITIALIZERS`. All
numbers come from a NumPy generator, so equal seeds give equal weights on every backend. An array of
the given `shape` is drawn: K×D, or 1×nnz for the values of a sparse matrix.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from matgrad.foundation.limits import FLOAT32
from matgrad.foundation.random_numbers import Generator, generator
from matgrad.specifications.parsing import create

Initializer = Callable[[Generator, int, int, tuple[int, ...]], np.ndarray]  # rng, K, D, shape


def Uniform(a: float = -0.1, b: float = 0.1) -> Initializer:
    """U(a, b)"""
    if not a <= b:
        raise ValueError(f"Uniform({a}, {b}): expected a <= b")
    if not math.isfinite(b - a):
        raise ValueError(f"Uniform({a}, {b}): expected a finite b - a")
    return lambda rng, K, D, shape: rng.uniform(a, b, shape)


def Normal(a: float = 0.0, b: float = 0.1) -> Initializer:
    """N(a, b), with mean a and standard deviation b"""
    if not 0 <= b < math.inf:
        raise ValueError(f"Normal({a}, {b}): expected a standard deviation b >= 0")
    return lambda rng, K, D, shape: rng.normal(a, b, shape)


def Zero() -> Initializer:
    """0"""
    return lambda rng, K, D, shape: np.zeros(shape)


def Xavier() -> Initializer:
    """U(-1/√D, 1/√D)"""
    return lambda rng, K, D, shape: Uniform(-1 / math.sqrt(D), 1 / math.sqrt(D))(rng, K, D, shape)


def XavierNormalized() -> Initializer:
    """U(-√6/√(D+K), √6/√(D+K)), Glorot's uniform distribution"""
    return lambda rng, K, D, shape: Uniform(-math.sqrt(6 / (D + K)), math.sqrt(6 / (D + K)))(rng, K, D, shape)


def XavierNormal() -> Initializer:
    """N(0, √(2/(D+K))), Glorot's normal distribution"""
    return lambda rng, K, D, shape: Normal(0, math.sqrt(2 / (D + K)))(rng, K, D, shape)


def He() -> Initializer:
    """N(0, √(2/D))"""
    return lambda rng, K, D, shape: Normal(0, math.sqrt(2 / D))(rng, K, D, shape)


def HeUniform() -> Initializer:
    """U(-√(6/D), √(6/D))"""
    return lambda rng, K, D, shape: Uniform(-math.sqrt(6 / D), math.sqrt(6 / D))(rng, K, D, shape)


INITIALIZERS: dict[str, Callable[..., Initializer]] = {
    "Xavier": Xavier,
    "XavierNormalized": XavierNormalized,
    "XavierUniform": XavierNormalized,
    "XavierNormal": XavierNormal,
    "He": He,
    "HeNormal": He,
    "HeUniform": HeUniform,
    "Uniform": Uniform,
    "Normal": Normal,
    "Zero": Zero,
}


def create_initializer(specification: str) -> Initializer:
    """The initializer that a string such as ``Uniform(-0.1, 0.1)`` names."""
    return create(specification, INITIALIZERS, "weight initializer")


def initial_weights(
    specification: str, K: int, D: int, rng: Generator | None = None, shape: tuple[int, ...] | None = None
) -> np.ndarray:
    """An array of the given `shape` (K×D by default) from the named distribution for a K×D matrix."""
    draw = create_initializer(specification)
    A = draw(rng if rng is not None else generator(), K, D, (K, D) if shape is None else shape)
    if A.size and not -FLOAT32 <= A.min() <= A.max() <= FLOAT32:
        raise ValueError(f"weights {specification}: found numbers that are no finite float32 numbers")
    return A
