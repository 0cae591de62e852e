"""The 30 random architectures in float64 on JAX."""

from __future__ import annotations

from gpu.comparison import check_all, check_on_jax


def test_compiled_training_equals_the_equations_and_that_of_the_cpu():
    check_all(check_on_jax, most=6)
