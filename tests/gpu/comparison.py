"""What the tests on a GPU share: random models, their training, and the comparison of states."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np

import matgrad as mg
from architectures import Architecture, random_architecture
from gpu import DEVICE
from matgrad.foundation.machine import cores
from matgrad.layers.state import matrices_of

SEEDS = range(30)


def examples(a: Architecture, N: int) -> tuple[np.ndarray, np.ndarray]:
    """N examples like those of the architecture."""
    rng = np.random.default_rng(a.seed)
    rows = rng.integers(0, len(a.X), N)
    return a.X[rows] + 0.3 * rng.normal(size=(N, a.X.shape[1])), a.T[rows]


def sparsified(a: Architecture) -> Architecture:
    """The architecture with about two of three linear layers sparse, at least one."""
    rng = np.random.default_rng(a.seed)
    count = sum(isinstance(layer, mg.LinearLayer) for layer in a.M.layers)
    densities = rng.choice([1.0, 0.2, 0.6], size=count)
    densities[rng.integers(count)] = 0.5
    a.M.set_densities(list(densities), rng)
    return a


def trained(
    seed: int, backend: str, device: str | None, *, compiled: bool, sparse: bool = False, epochs: int = 1, N: int = 11
) -> dict[str, np.ndarray]:
    """The state of a random model after epochs of N examples in batches of 5, of which the last may be smaller.

    A warning, as of a step that cannot be compiled, is an error.
    """
    a = random_architecture(seed)
    M = (sparsified(a) if sparse else a).M.to(backend, device=device)
    data = mg.DataLoader(*examples(a, N), batch_size=5, shuffle=True, seed=seed).to(backend, device=device)
    clip_norm, rate = (None, 0.005) if seed % 2 else (1.0, 0.05)
    schedule = mg.ExponentialScheduler(rate, 0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mg.stochastic_gradient_descent(
            M, epochs, a.loss, schedule, data, per_step=True, clip_norm=clip_norm, compiled=compiled
        )
    return numpy_state(M)


def check_on_torch(seed: int) -> None:
    """Compiled training of a random model gives what the equations and the CPU give, and the same bits again."""
    for sparse in (False, True):
        context = f"seed {seed}, sparse {sparse}"
        compiled, eager = (trained(seed, "torch", DEVICE, compiled=c, sparse=sparse) for c in (True, False))
        # weights that are drawn sparse leave some neurons without variance, by which batch normalization divides
        assert_equal_states(compiled, eager, 1e-10 if sparse else 1e-12, f"{context}, compiled and eager")
        first, second = (trained(seed, "torch", DEVICE, compiled=True, sparse=sparse, epochs=3) for _ in range(2))
        assert_equal_states(first, second, 0.0, f"{context}, twice")
        there = trained(seed, "numpy", None, compiled=False, sparse=sparse, epochs=3)
        assert_equal_states(first, there, 1e-9, f"{context}, GPU and CPU")


def check_on_jax(seed: int) -> None:
    """The same on JAX, with batches of one size, for which XLA compiles a second; the equations for some seeds."""
    import jax

    with jax.enable_x64(True):
        first = trained(seed, "jax", DEVICE, compiled=True, epochs=3, N=10)
        there = trained(seed, "numpy", None, compiled=False, epochs=3, N=10)
        assert_equal_states(first, there, 1e-9, f"seed {seed}, GPU and CPU")
        if seed % 6 == 0:  # every operation is compiled apart
            compiled, eager = (trained(seed, "jax", DEVICE, compiled=c, N=10) for c in (True, False))
            assert_equal_states(compiled, eager, 1e-12, f"seed {seed}, compiled and eager")


def check_all(check: Callable[[int], None], most: int = 8) -> None:
    """Check all seeds in several processes, as most of the time goes into compiling."""
    failed = []
    with ProcessPoolExecutor(min(most, cores()), mp_context=get_context("spawn")) as pool:
        for result in [pool.submit(check, seed) for seed in SEEDS]:
            if error := result.exception():
                failed.append(f"{type(error).__name__}: {error}")
    assert not failed, "\n".join(failed)


def numpy_state(M: mg.MultilayerPerceptron) -> dict[str, np.ndarray]:
    """The matrices of M's state as NumPy arrays of their own."""
    return {name: np.array(M.backend.to_numpy(X)) for name, X in matrices_of(M.state()).items()}


def assert_equal_states(
    actual: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray], tolerance: float, context: str
) -> None:
    """Relative to the largest element of each matrix or, for what should be 0, to a hundredth of that of all."""
    assert actual.keys() == expected.keys(), f"{context}: {actual.keys() ^ expected.keys()}"
    largest = max(np.abs(E).max(initial=0.0) for E in expected.values() if E.dtype.kind == "f")
    for name, E in expected.items():
        A = actual[name]
        assert (A.shape, A.dtype) == (E.shape, E.dtype), f"{context}, {name}: {A.dtype} {A.shape}, {E.dtype} {E.shape}"
        bound = tolerance * max(np.abs(E).max(initial=0.0), largest / 100)
        difference = np.abs(A - E).max(initial=0.0)
        assert difference <= bound, f"{context}, {name}: differs by {difference:.1e}, expected at most {bound:.1e}"
