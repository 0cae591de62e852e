"""The pass itself: programs of ranks compute what the whole program computes, for any placement of the inputs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threads import on_ranks

from matgrad.distributed import current
from matgrad.distributed.group import part
from matgrad.engines.kernels import Executor
from matgrad.engines.sharded import Exchange
from matgrad.loss_functions import create_loss
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.program import optimized, record_computation
from matgrad.program.computations import make_step
from matgrad.program.program import Program, Value
from matgrad.program.schedule import MESSAGE, executable, messages, scheduled
from matgrad.program.sharding import COLUMNS, ROWS, WHOLE, Placement, data_parallel, sharded
from matgrad.specifications.models import create_model
from program_support import GIVEN, STATE, kernels_of, numbers, outputs, programs

RANKS = 2


def own_part(A: np.ndarray, placement: Placement, rank: int, ranks: int = RANKS) -> np.ndarray:
    """What a rank has of A."""
    if placement == WHOLE:
        return np.array(A)
    axis = (ROWS, COLUMNS).index(placement)
    rows = part(A.shape[axis], rank, ranks)
    return np.array(A[rows] if axis == 0 else A[:, rows])


def run_on_ranks(program: Program, placements: dict[str, Placement], state, given) -> list[dict[str, np.ndarray]]:
    """The state of every rank after the program."""

    def work(rank: int) -> dict[str, np.ndarray]:
        group, kernels = current(), kernels_of("numpy")
        own = executable(sharded(program, placements, rank, RANKS))
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


@settings(deadline=None)
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


def step_of_a_rank(M: MultilayerPerceptron) -> Program:
    """The step of rank 0 on four examples."""
    D, K = M.layers[0].input_size, M.layers[-1].output_size
    step = make_step(M, create_loss("SoftmaxCrossEntropy"))
    program = record_computation(step, M.state(), np.zeros((4, D)), np.zeros((4, K)))
    return scheduled(optimized(sharded(program, data_parallel(program, RANKS), 0, RANKS)))


def test_the_program_of_a_rank_needs_others():
    M = create_model("ReLU;Linear", "4;3;2").to(dtype="float64")
    with pytest.raises(ValueError, match="send: the program of a rank cannot run without other ranks"):
        Executor(step_of_a_rank(M), kernels_of("numpy"), M.state())


def test_too_few_rows_are_not_shared_out():
    X = Value("input", (), (1, 3), name="X")
    program = Program({"X": X}, {"X": Value("negative", (X,), (1, 3))})
    with pytest.raises(ValueError, match="X has 1 rows, expected at least one for each of 2 ranks"):
        sharded(program, {"X": ROWS}, 0, RANKS)


def test_sums_are_sent_while_products_are_computed_and_large_ones_at_once():
    M = create_model("ReLU;ReLU;Linear", "64;1200;1200;10").to(dtype="float64")  # W2 has 11.5 MB
    values = step_of_a_rank(M).values
    first, second = messages(values)
    assert sum(value.nbytes for value in first) >= MESSAGE
    places = {value: i for i, value in enumerate(values)}
    products = [places[value] for value in values if value.operation == "matmul"]
    received = [places[value] for value in values if value.operation == "receive"]
    assert places[first[-1]] < max(products) < min(received)  # the first message is under way during a product
    assert {value.shape for value in second} == {(1200, 64), (1, 1200)}
    assert len(received) == len([*first, *second]) == 6


def test_the_product_of_two_sums_is_not_the_sum_of_products():
    X, Y = (Value("input", (), (4, 2), name=name) for name in "XY")
    flipped = Value("transpose", (X,), (2, 4), order=1)
    sums = [Value("matmul", (flipped, A), (2, 2), order=2) for A in (X, Y)]
    program = Program(
        {"X": X, "Y": Y, "a": Value("input", (), (2, 2), name="a")}, {"a": Value("matmul", (*sums,), (2, 2), order=3)}
    )
    rng = np.random.default_rng(0)
    given = {name: rng.normal(size=(4, 2)) for name in "XY"}
    state = {"a": np.zeros((2, 2))}
    for found in run_on_ranks(program, {"X": ROWS, "Y": ROWS}, state, given):
        np.testing.assert_allclose(found["a"], given["X"].T @ given["X"] @ (given["X"].T @ given["Y"]), rtol=1e-13)
