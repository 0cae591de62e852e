"""What ranks send in a step: no more than XLA's partitioner lets them send, and nothing is gathered."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import cases
import numpy as np
import pytest
from cases import BUILT_IN
from xla_traffic import RANKS, N

from matgrad.distributed.group import part
from matgrad.program import optimized, record_computation
from matgrad.program.computations import make_step
from matgrad.program.program import Program
from matgrad.program.schedule import messages, scheduled
from matgrad.program.sharding import data_parallel, sharded
from support import PATIENCE

DENSE = [name for name, case in BUILT_IN.items() if not case.densities and case.batch_size > 1]


def program_of(name: str, rank: int = 0) -> Program:
    """The step of a case on one of two ranks, which send 8 examples."""
    M, loss, clip_norm, loader = cases.model(name, "numpy", batch_size=N)
    program = record_computation(make_step(M, loss, clip_norm=clip_norm), M.state(), *loader.batch(0))
    return scheduled(optimized(sharded(program, data_parallel(program, RANKS), rank, RANKS)))


@pytest.fixture(scope="module")
def xla() -> dict[str, dict[str, int]]:
    """What XLA sends, by case."""
    script = Path(__file__).with_name("xla_traffic.py")
    run = subprocess.run([sys.executable, script, *DENSE], capture_output=True, text=True, timeout=PATIENCE)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("name", DENSE)
def test_no_more_is_sent_than_by_xla(name, xla):
    found = messages(program_of(name).values)
    assert len(found) <= xla[name]["all-reduce"]
    assert sum(value.nbytes for message in found for value in message) <= xla[name]["bytes"]


@pytest.mark.parametrize("name", BUILT_IN)
def test_no_layer_of_the_package_gathers(name):
    collectives = {value.operation for value in program_of(name).values if value.kind == "collective"}
    assert collectives == {"send", "receive"}


def test_a_mlp_sends_its_gradients_as_one_message():
    M, *_ = cases.model("mlp", "numpy")
    (message,) = messages(program_of("mlp").values)
    parameters = [X for name, X in M.state().items() if name.count(".") == 1]
    assert sum(value.nbytes for value in message) == sum(X.nbytes for X in parameters)


def test_sparse_layers_send_their_stored_elements_only():
    M, *_ = cases.model("sparse", "numpy")
    sent = sum(value.nbytes for message in messages(program_of("sparse").values) for value in message)
    assert sent == sum(8 * (layer.nnz + layer.b.size) for layer in M.layers)
    assert sent < 8 * sum(np.prod(layer.W.shape) for layer in M.layers)


def test_the_ranks_share_all_rows_out():
    for n in range(1, 20):
        for size in range(1, 6):
            parts = [part(n, rank, size) for rank in range(size)]
            assert [i for rows in parts for i in range(rows.start, rows.stop)] == list(range(n))
            assert max(rows.stop - rows.start for rows in parts) - min(rows.stop - rows.start for rows in parts) <= 1
