"""The pass itself: programs of ranks compute what the whole program computes, for any placement of the inputs."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from threads import on_ranks

from matgrad.distributed import current
from matgrad.distributed.group import part
from matgrad.engines.exchange import Exchange
from matgrad.engines.executor import Executor
from matgrad.program import optimized
from matgrad.program.program import Program
from matgrad.program.rules import with_separate_exchange
from matgrad.program.schedule import scheduled
from matgrad.program.sharding import COLUMNS, ROWS, WHOLE, Placement, sharded
from program_support import GIVEN, STATE, kernels_of, numbers, outputs, programs

RANKS = 2


def own_part(A: np.ndarray, placement: Placement, rank: int) -> np.ndarray:
    """What a rank has of A."""
    if placement == WHOLE:
        return np.array(A)
    axis = (ROWS, COLUMNS).index(placement)
    rows = part(A.shape[axis], rank, RANKS)
    return np.array(A[rows] if axis == 0 else A[:, rows])


def run_on_ranks(program: Program, placements: dict[str, Placement], state, given) -> list[dict[str, np.ndarray]]:
    """The state of every rank after the program."""

    def work(rank: int) -> dict[str, np.ndarray]:
        group, kernels = current(), kernels_of("numpy")
        own = with_separate_exchange(optimized(sharded(program, placements, rank, RANKS)))
        own = scheduled(own)
        matrices = {name: own_part(A, placements.get(name, WHOLE), rank) for name, A in state.items()}
        inputs = {name: own_part(A, placements.get(name, WHOLE), rank) for name, A in given.items()}
        exchange = Exchange(own, group, lambda shape, dtype: kernels.empty(shape, dtype, None))
        Executor(own, kernels, matrices, exchange).execute(**inputs)
        return matrices

    return on_ranks(RANKS, work)


@st.composite
def placed_programs(draw) -> tuple[Program, dict[str, Placement], int]:
    """A random program, placements of its inputs, and the seed of its numbers."""
    program = draw(programs(exact=True))

    def placement(shape) -> Placement:
        possible = [WHOLE] + [axis for axis, n in zip((ROWS, COLUMNS), shape, strict=False) if n >= RANKS]
        return draw(st.sampled_from(possible))

    placements = {name: placement(shape) for name, shape in (STATE | GIVEN).items()}
    return program, placements, draw(st.integers(0, 99))


@given(placed_programs())
def test_any_program_can_be_sharded_with_any_placements(drawn):
    program, placements, seed = drawn
    state, inputs = numbers(seed, exact=True)
    expected = outputs(program, state | inputs)
    if not all(np.isfinite(A).all() and np.abs(A).max(initial=0) < 2**50 for A in expected.values()):
        return  # no longer exact
    for rank, found in enumerate(run_on_ranks(program, placements, state, inputs)):
        for name, A in expected.items():
            np.testing.assert_array_equal(found[name], own_part(A, placements.get(name, WHOLE), rank), err_msg=name)
