"""When ranks send what they add up, what they send together, and where it lies."""

from __future__ import annotations

import numpy as np
import pytest
from threads import on_ranks

from matgrad.distributed import current
from matgrad.engines.sharded import LINE, Exchange
from matgrad.program.program import Program
from matgrad.program.schedule import executable, messages
from matgrad.program.sharding import data_parallel, sharded
from matgrad.specifications.models import create_model

LARGE = "1100;1024;1100;3"  # weights of more than 4 MB, and small ones


def step_of_a_rank(sizes: str, layers: str = "ReLU;ReLU;Linear", optimizers: str = "Momentum(0.9)") -> Program:
    program = create_model(layers, sizes, optimizers=optimizers).program(batch_size=4, fused=False)
    return executable(sharded(program, data_parallel(program, 2), 0, 2))


def carried(program: Program) -> list[list[str]]:
    """The names of what each message carries."""
    return [[x.operands[0].name for x in message] for message in messages(program.values)]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ("6;5;4;3", [["Db3", "DW3", "Db2", "DW2", "Db1", "DW1"]]),
        (LARGE, [["Db3", "DW3", "Db2", "DW2"], ["Db1", "DW1"]]),
    ],
)
def test_small_sums_are_sent_with_the_next_large_one(sizes: str, expected: list[list[str]]):
    assert carried(step_of_a_rank(sizes)) == expected


def test_a_large_sum_is_sent_before_the_next_layer_and_awaited_after_it():
    order = [value.name or value.operation for value in step_of_a_rank(LARGE).values]
    sends, receives = ([i for i, name in enumerate(order) if name == kind] for kind in ("send", "receive"))
    assert sends[3] < order.index("DX2") < order.index("DW1") < sends[4]
    assert receives[0] > sends[-1]


@pytest.mark.parametrize("optimizers", ["Momentum(0.9)", "Adam", "Nesterov(0.9)"])
def test_what_waits_for_nothing_but_its_reader_is_computed_beside_it(optimizers: str):
    values = step_of_a_rank(LARGE, optimizers=optimizers).values
    last = max(i for i, value in enumerate(values) if value.operation == "send")
    of_state = [i for i, x in enumerate(values) if x.operation == "scale" and x.operands[1].operation == "input"]
    assert of_state
    for i in of_state:
        assert i > last
        assert values[i] in values[i + 1].operands or values[i] in values[i + 2].operands


def test_the_matrices_of_a_message_begin_at_cache_lines():
    program = step_of_a_rank("6;5;4;3")

    def starts(rank: int) -> list[int]:
        exchange = Exchange(program, current(), lambda shape, dtype: np.empty(shape, dtype))
        first = min(A.ctypes.data for A in exchange.arrays.values())
        return sorted({A.ctypes.data - first for A in exchange.arrays.values()})

    (found,) = on_ranks(1, starts)
    assert len(found) == 6
    assert [start % LINE for start in found] == [0] * 6
