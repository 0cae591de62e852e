"""The 30 random architectures in float64 on PyTorch: compiled as the equations one by one, and as on the CPU."""

from __future__ import annotations

from gpu import DEVICE
from gpu.comparison import SEEDS, assert_equal_states, trained


def test_compiled_training_equals_the_equations():
    for seed in SEEDS:
        for sparse in (False, True):
            compiled, eager = (trained(seed, "torch", DEVICE, compiled=c, sparse=sparse) for c in (True, False))
            assert_equal_states(compiled, eager, 1e-12, f"seed {seed}, sparse {sparse}")


def test_training_equals_that_on_the_cpu():
    """Three epochs, in which differences of rounding grow."""
    for seed in SEEDS:
        for sparse in (False, True):
            here = trained(seed, "torch", DEVICE, compiled=True, sparse=sparse, epochs=3)
            there = trained(seed, "numpy", None, compiled=False, sparse=sparse, epochs=3)
            assert_equal_states(here, there, 1e-9, f"seed {seed}, sparse {sparse}")


def test_training_again_gives_the_same_bits():
    for seed in SEEDS[::3]:
        first, second = (trained(seed, "torch", DEVICE, compiled=True, sparse=True, epochs=3) for _ in range(2))
        assert_equal_states(first, second, 0.0, f"seed {seed}")
