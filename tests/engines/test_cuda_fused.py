"""Generated kernels against the instructions and the meaning of programs, in Triton's interpreter on the CPU."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from matgrad.program.program import Program
from matgrad.program.rules import optimized, with_separate_outputs
from program_support import kernels_of, numbers, outputs, programs
from support import to_numpy
from triton_support import triton  # noqa: F401 (which chooses the interpreter)

from matgrad.engines.cuda import fused  # isort: skip

METHODS = ("library", "tile", "split")
NEVER_EXACT = pytest.mark.filterwarnings("ignore:.*encountered in.*:RuntimeWarning")  # of the interpreter
pytestmark = NEVER_EXACT


@pytest.fixture
def by(monkeypatch):
    """Chooses how all products are computed, also those of float64 matrices, for which there is cuBLAS otherwise."""
    return lambda method: monkeypatch.setattr(fused, "method", lambda product, matmul: method)


def executed(program: Program, state, given, times: int = 1):
    """The state after the program has run by generated kernels, in memory that is nan until it is written."""
    matrices = {name: torch.tensor(A) for name, A in state.items()}
    executor = fused.FusedExecutor(program, kernels_of("torch"), matrices)
    for A in (*executor.memory.values(), *executor.parts.values()):
        A.fill_(float("nan"))
    for _ in range(times):
        executor.execute(**{name: torch.tensor(A) for name, A in given.items()})
    return {name: to_numpy(A) for name, A in matrices.items()}, executor


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(programs(exact=True), st.integers(0, 100), st.sampled_from(METHODS), st.booleans())
def test_random_programs_equal_their_meaning(by, program: Program, seed: int, method: str, is_optimized: bool):
    by(method)
    program = optimized(program) if is_optimized else with_separate_outputs(program)
    state, batch = numbers(seed, exact=True)
    with np.errstate(all="ignore"):
        expected = state | outputs(program, state | batch)
        expected = state | outputs(program, expected | batch)
    found, _ = executed(program, state, batch, times=2)
    for name in state:
        np.testing.assert_array_equal(found[name], expected[name], err_msg=f"{name} of\n{program}")
