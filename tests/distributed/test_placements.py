"""Other placements of the same step: every rank has only its part of layers, or of what optimizers remember."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import cases
import numpy as np
import pytest
from cases import CASES, RATE
from test_sharding import own_part
from threads import on_ranks

from matgrad.distributed import current
from matgrad.engines.kernels import Executor
from matgrad.engines.sharded import Exchange
from matgrad.program import Program, record_computation
from matgrad.program.computations import make_step
from matgrad.program.schedule import executable
from matgrad.program.sharding import (
    COLUMNS,
    ROWS,
    WHOLE,
    Placements,
    data_parallel,
    sharded,
    shared_optimizer,
    with_optimizers,
)
from matgrad.specifications.models import create_model
from program_support import kernels_of

Place = Callable[[Program], Placements]
State = dict[str, np.ndarray]
EPOCHS = 2


def tensor_parallel(program: Program, layers: Sequence[str]) -> Placements:
    """Consecutive layers in parts, as in Megatron, with all examples on every rank: of layers 1 and 2, ``["1", "2"]``.

    The first ones are shared out by their outputs and the last one by its inputs. That takes one sum in feedforward,
    and one in backpropagation if there are layers before them.
    """
    placements: Placements = {}
    for name, x in program.inputs.items():
        layer, _, parameter = name.partition(".")
        is_weights = f"{parameter}.".startswith("W.")
        if layer in layers[:-1] and not x.is_scalar and (is_weights or x.shape[1] > 1):
            placements[name] = ROWS if is_weights else COLUMNS
        elif layer == layers[-1] and is_weights and not x.is_scalar:
            placements[name] = COLUMNS
    return placements


def train_in_parts(name: str, place: Place, ranks: int) -> list[tuple[State, Placements, list[Program]]]:
    """What every rank has of the state after some epochs, how it is placed, and its programs."""
    parts = [cases.model(name, "numpy") for _ in range(ranks)]

    def work(rank: int) -> tuple[State, Placements, list[Program]]:
        M, loss, clip_norm, loader = parts[rank]
        step, whole = make_step(M, loss, clip_norm=clip_norm), M.state()
        executors, state = {}, {}
        for X, T in [batch for _ in range(EPOCHS) for batch in loader]:
            if len(X) not in executors:
                recorded = record_computation(step, whole, X, T)
                placed = place(recorded) | ({} if len(X) >= ranks else {"X": WHOLE, "T": WHOLE})  # not shared out
                state = state or {key: own_part(A, placed.get(key, WHOLE), rank, ranks) for key, A in whole.items()}
                own = executable(sharded(recorded, placed, rank, ranks))
                exchange = Exchange(own, current(), lambda shape, dtype: np.empty(shape, dtype))
                executors[len(X)] = placed, Executor(own, kernels_of("numpy"), state, exchange)
            placed, executor = executors[len(X)]
            inputs = {key: own_part(A, placed.get(key, WHOLE), rank, ranks) for key, A in (("X", X), ("T", T))}
            executor.execute(**inputs, eta=np.array(RATE))
        return state, placed, [executor.program for _, executor in executors.values()]

    return on_ranks(ranks, work)


def operations(programs: list[Program]) -> dict[str, list[str]]:
    """The collectives of the first program, with the names of what they exchange."""
    found: dict[str, list[str]] = {}
    for value in programs[0].values:
        if value.kind == "collective":
            found.setdefault(value.operation, []).append(value.operands[0].name)
    return found


def check(name: str, place: Place, ranks: int) -> dict[str, list[str]]:
    """Compare with one process; the collectives of a rank."""
    expected = cases.train(name, "numpy", EPOCHS)
    trained = train_in_parts(name, place, ranks)
    for rank, (state, placed, _) in enumerate(trained):
        for key, A in state.items():
            whole = own_part(expected[key], placed.get(key, WHOLE), rank, ranks)
            np.testing.assert_allclose(A, whole, rtol=1e-11, atol=CASES[name].tolerance, err_msg=f"{name}, {key}")
        assert sum(A.nbytes for A in state.values()) < 0.85 * sum(A.nbytes for A in expected.values())
    return operations(trained[0][2])


def of_layers(*layers: str) -> Place:
    return partial(tensor_parallel, layers=layers)


@pytest.mark.parametrize(
    ("name", "ranks"),
    [("mlp", 2), *((name, 3) for name in ("mlp", "batchnorm", "layernorm", "dropout", "clip", "adamw", "srelu"))],
)
def test_what_optimizers_remember_in_parts(name: str, ranks: int):
    found = check(name, partial(shared_optimizer, size=ranks), ranks)
    assert "Db1" in found["reduce_scatter_columns"]
    assert len(found["reduce_scatter_rows"]) == len(found["all_gather_rows"]) >= 2  # gradients, and new weights
    assert not {x for x in found.get("send", []) if x.startswith(("DW", "Db"))}, "no gradient is added up on all ranks"


@pytest.mark.parametrize(
    ("name", "ranks", "layers", "sums"),
    [
        ("mlp", 2, ("1", "2"), 1),
        ("mlp", 3, ("2", "3"), 2),  # and the gradient of what layer 1 gives
        ("dropout", 3, ("1", "2"), 1),
        ("srelu", 3, ("1", "2"), 1),
        ("clip", 3, ("1", "2", "3"), 2),  # and the squares of the gradients
        ("batchnorm", 3, ("1", "2", "3"), 1),
    ],
)
def test_layers_in_parts(name: str, ranks: int, layers: tuple[str, ...], sums: int):
    found = check(name, of_layers(*layers), ranks)
    assert len(found["send"]) == sums
    assert not [operation for operation in found if "gather" in operation or "scatter" in operation]


def step(densities: float = 1.0, optimizers: str = "Adam") -> Program:
    M = create_model("ReLU;Linear", "20;16;5", optimizers=optimizers, densities=densities)
    return M.program(batch_size=7, fused=False)


def test_what_an_optimizer_remembers_is_placed_like_its_matrix():
    found = with_optimizers(step(), {"1.W": ROWS, "1.W.v": WHOLE, "2.b": COLUMNS})
    assert found == {
        "1.W": ROWS, "1.W.m": ROWS, "1.W.v": WHOLE, "2.b": COLUMNS, "2.b.m": COLUMNS, "2.b.v": COLUMNS
    }  # fmt: skip


def test_what_is_too_small_for_all_ranks_stays_whole():
    found = shared_optimizer(step(optimizers="Momentum(0.9)"), 6)
    assert found == {"X": ROWS, "T": ROWS, "1.W.delta": ROWS, "1.b.delta": COLUMNS,
                     "2.W.delta": COLUMNS, "2.b.delta": WHOLE}  # fmt: skip


def test_values_of_sparse_matrices_stay_whole():
    program = step(densities=0.3, optimizers="Momentum(0.9)")
    found = shared_optimizer(program, 2)
    assert (found["1.W.delta"], found["1.b.delta"]) == (WHOLE, COLUMNS)
    sharded(program, found, 0, 2)


@pytest.mark.parametrize(
    ("placements", "message"),
    [
        ({"3.W": ROWS}, "3.W: the program has no such input; known: 1.W, 1.b, "),
        ({"1.W": COLUMNS}, "1.W, one value per element of 1.W.support: expected both whole, or 1.W in columns and "
                           "1.W.support in rows, found columns and whole"),
        ({"1.W.support": ROWS}, "found whole and rows"),
        ({"2.b": ROWS}, "2.b has 1 rows, expected at least one for each of 2 ranks"),
    ],
)  # fmt: skip
def test_placements_that_cannot_be_are_refused(placements: Placements, message: str):
    program = step(densities=0.3)
    with pytest.raises(ValueError, match=message):
        sharded(program, placements, 0, 2)


def test_data_parallel_keeps_the_state_whole():
    assert data_parallel(step(), 2) == {"X": ROWS, "T": ROWS}
    assert data_parallel(step(), 100) == {}
