"""What tests share: matrices on the framework under test, comparisons, and torch as an oracle."""

from __future__ import annotations

import gzip
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from matgrad.backends import backend_of, get_backend
from matgrad.callbacks import Callback
from matgrad.sparse.support import Support

# where real MNIST and CIFAR-10 are, in the folders mnist/ and cifar10/
DATA = Path(os.environ.get("MATGRAD_DATA", Path(__file__).parents[2] / "shared" / "data"))

# seconds until a test gives up on something that it waits for: less than the limit of a test in pyproject.toml, and
# much more than anything takes on a busy machine, since no test depends on speed
PATIENCE = 600

# relative to the largest element of what is expected
TOLERANCE = {"float32": 2e-6, "float64": 1e-13}


class Framework:
    """A backend of matgrad with the conversions that tests need."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.backend = get_backend(name)
        if name == "jax":
            import jax

            jax.config.update("jax_enable_x64", True)
        if name == "torch":
            import torch

            torch.set_num_threads(1)

    def matrix(self, A, dtype: str = "float64"):
        """A as a matrix (or 0-d array) of this framework."""
        return self.backend.from_numpy(np.asarray(A, dtype=dtype))

    def compiled(self, f):
        """f itself, but under `jax.jit` for JAX, which otherwise compiles every operation apart."""
        if self.name == "jax":
            import jax

            return jax.jit(f)
        return f

    def ways(self) -> Iterator[tuple[Framework, bool]]:
        """Where to train by the equations, and where compiled; JAX would compile each equation: NumPy's instead."""
        yield Framework("numpy") if self.name == "jax" else self, False
        yield self, True

    def __repr__(self) -> str:
        return self.name


@contextmanager
def unprivileged() -> Iterator[None]:
    """Be the user nobody, if we are root, who may write everywhere."""
    if os.geteuid() != 0:
        yield
        return
    os.setresuid(65534, 65534, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)


@contextmanager
def open_folder() -> Iterator[Path]:
    """A folder where everybody may write; pytest's own are for one user."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        yield Path(name)


def spread(rows: Iterable, columns: Sequence, each: int = 1, name: Callable = str) -> list:
    """All pairs of a row and a column, as parameters of a test; each run has `each` columns of a row, the rest is slow.

    They go round: the next row has the next columns.
    """
    pairs = []
    for i, row in enumerate(rows):
        chosen = {(each * i + j) % len(columns) for j in range(each)}
        for k, column in enumerate(columns):
            marks = () if k in chosen else pytest.mark.slow
            pairs.append(pytest.param(row, column, id=f"{name(row)}-{column}", marks=marks))
    return pairs


class AfterEpoch(Callback):
    """Calls a function with the run after each epoch."""

    def __init__(self, function) -> None:
        self.epoch = function


def to_numpy(X) -> np.ndarray:
    """X as a NumPy array of the same dtype, whatever framework it comes from; of a support the positions."""
    if isinstance(X, Support):
        return X.flat()
    return np.asarray(backend_of(X).to_numpy(X))


def assert_close(
    actual,
    expected,
    *,
    tolerance: float | None = None,
    noise: float = 0.0,
    dtype: str | None = None,
    context: str = "",
):
    """`actual` has the shape and dtype of `expected` and its values, relative to the largest of them.

    `noise` is an absolute difference that is allowed as well.
    """
    A, E = to_numpy(actual), np.asarray(expected)
    assert A.shape == E.shape, f"{context}: shape {A.shape}, expected {E.shape}"
    assert A.dtype == np.dtype(dtype or E.dtype), f"{context}: dtype {A.dtype}, expected {dtype or E.dtype}"
    tolerance = TOLERANCE[A.dtype.name] if tolerance is None else tolerance
    finite = np.abs(E[np.isfinite(E)])
    scale = max(finite.max(initial=0.0), np.finfo(np.float32).tiny)
    np.testing.assert_allclose(A, E, rtol=tolerance, atol=max(tolerance * scale, noise), err_msg=context)


def read_idx(path: Path) -> np.ndarray:
    """The array of unsigned bytes in a gzipped IDX file."""
    content = gzip.decompress(path.read_bytes())
    dimensions = content[3]
    shape = np.frombuffer(content, ">u4", dimensions, offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape)
