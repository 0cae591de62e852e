"""The 30 random architectures in float64 on JAX: compiled as the equations one by one, and as on the CPU."""

from __future__ import annotations

from gpu import DEVICE
from gpu.comparison import SEEDS, assert_equal_states, trained

EAGER = SEEDS[::6]  # JAX compiles every operation apart
ONE_SIZE = 10  # examples, so that all batches are of one size: XLA compiles for a second per size


def in_float64():
    """The context in which JAX has float64; it is imported by those that run these tests alone."""
    import jax

    return jax.enable_x64(True)


def test_compiled_training_equals_the_equations():
    with in_float64():
        for seed in EAGER:
            compiled, eager = (trained(seed, "jax", DEVICE, compiled=c, N=ONE_SIZE) for c in (True, False))
            assert_equal_states(compiled, eager, 1e-12, f"seed {seed}")


def test_training_equals_that_on_the_cpu():
    """Three epochs, in which differences of rounding grow."""
    with in_float64():
        for seed in SEEDS:
            here = trained(seed, "jax", DEVICE, compiled=True, epochs=3, N=ONE_SIZE)
            there = trained(seed, "numpy", None, compiled=False, epochs=3, N=ONE_SIZE)
            assert_equal_states(here, there, 1e-9, f"seed {seed}")
