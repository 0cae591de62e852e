"""Weight initializers: distributions for the elements of a K×D weight matrix.

A specification such as ``Xavier`` or ``Uniform(-0.1, 0.1)`` names one of `INITIALIZERS`. All
numbers come from a NumPy generator, so equal seeds give equal weights on every backend.

D and K are the numbers of inputs and outputs. In a sparse matrix they count the connections that
exist: for the element in row i and column j, D is the number of elements that row i stores, and K
the number that column j stores, so that signals keep their size at every density. ``DenseXavier``,
``DenseHe`` and so on count all inputs and outputs instead, as the original library does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from matgrad.foundation.limits import FLOAT32
from matgrad.foundation.numbers import Generator, generator
from matgrad.sparse.support import CHUNK, Support
from matgrad.specifications.parsing import create, parse_call

Count = Any  # an integer, or an array with one integer per element that is drawn
Initializer = Callable[[Generator, Count, Count, tuple[int, ...]], np.ndarray]  # rng, K, D, shape


def Uniform(a: float = -0.1, b: float = 0.1) -> Initializer:
    """U(a, b)"""
    if not a <= b:
        raise ValueError(f"Uniform({a}, {b}): expected a <= b")
    return lambda rng, K, D, shape: rng.uniform(a, b, shape)


def Normal(a: float = 0.0, b: float = 0.1) -> Initializer:
    """N(a, b), with mean a and standard deviation b"""
    if not b >= 0:
        raise ValueError(f"Normal({a}, {b}): expected a standard deviation b >= 0")
    return lambda rng, K, D, shape: rng.normal(a, b, shape)


def Zero() -> Initializer:
    """0"""
    return lambda rng, K, D, shape: np.zeros(shape)


def Xavier() -> Initializer:
    """U(-1/√D, 1/√D)"""
    return lambda rng, K, D, shape: _uniform(rng, 1 / np.sqrt(D), shape)


def XavierNormalized() -> Initializer:
    """U(-√6/√(D+K), √6/√(D+K)), Glorot's uniform distribution"""
    return lambda rng, K, D, shape: _uniform(rng, np.sqrt(6 / (D + K)), shape)


def XavierNormal() -> Initializer:
    """N(0, √(2/(D+K))), Glorot's normal distribution"""
    return lambda rng, K, D, shape: np.sqrt(2 / (D + K)) * rng.standard_normal(shape)


def He() -> Initializer:
    """N(0, √(2/D))"""
    return lambda rng, K, D, shape: np.sqrt(2 / D) * rng.standard_normal(shape)


def HeUniform() -> Initializer:
    """U(-√(6/D), √(6/D))"""
    return lambda rng, K, D, shape: _uniform(rng, np.sqrt(6 / D), shape)


def _uniform(rng: Generator, r: Any, shape: tuple[int, ...]) -> np.ndarray:
    """U(-r, r), also for an array r, for which NumPy's own function is slow"""
    return 2 * r * rng.random(shape) - r


_BY_SIZE: dict[str, Callable[..., Initializer]] = {  # those that depend on D or K
    "Xavier": Xavier,
    "XavierNormalized": XavierNormalized,
    "XavierUniform": XavierNormalized,
    "XavierNormal": XavierNormal,
    "He": He,
    "HeNormal": He,
    "HeUniform": HeUniform,
}
DENSE = {f"Dense{name}": initializer for name, initializer in _BY_SIZE.items()}  # with all inputs and outputs counted
INITIALIZERS = _BY_SIZE | {"Uniform": Uniform, "Normal": Normal, "Zero": Zero} | DENSE


def create_initializer(specification: str) -> Initializer:
    """The initializer that a string such as ``Uniform(-0.1, 0.1)`` names."""
    return create(specification, INITIALIZERS, "weight initializer")


def initial_weights(specification: str, K: int, D: int, rng: Generator | None = None) -> np.ndarray:
    """A K×D matrix from the named distribution."""
    draw = create_initializer(specification)
    return _checked(draw(rng if rng is not None else generator(), K, D, (K, D)), specification)


def sparse_weights(
    specification: str, support: Support, rng: Generator | None = None, elements: np.ndarray | None = None
) -> np.ndarray:
    """A vector from the named distribution for the stored elements of a support, in row order.

    `elements` chooses some of them by their places in row order; they have the distribution that they have among all.
    """
    draw, rng = create_initializer(specification), rng if rng is not None else generator()
    is_dense = parse_call(specification).name in DENSE
    outputs, inputs = np.diff(support.column_starts), np.diff(support.starts)
    rows, columns = support.row_indices(), support.columns
    if elements is not None:
        rows, columns = rows[elements], columns[elements]
    A = np.empty(len(rows))
    for k in range(0, len(A), CHUNK):  # drawn in pieces, the numbers are the same
        part = slice(k, k + CHUNK)
        K, D = support.shape if is_dense else (outputs[columns[part]], inputs[rows[part]])
        A[part] = draw(rng, K, D, A[part].shape)
    return _checked(A, specification)


def _checked(A: np.ndarray, specification: str) -> np.ndarray:
    """A, after a check that float32 has its numbers."""
    if A.size and not -FLOAT32 <= A.min() <= A.max() <= FLOAT32:
        raise ValueError(f"weights {specification}: found numbers that are no finite float32 numbers")
    return A
