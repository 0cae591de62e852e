"""Steps and evaluations for CUDA devices, on the CPU, where a graph calls its function again."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from graph_support import LOSS, D, K, assert_same, graph_step, graphs_of, loader, model, plain_step, rate

from matgrad.engines import engine
from matgrad.engines.cuda import graphs
from matgrad.engines.cuda.step import GraphEvaluation, GraphStep
from matgrad.engines.engine import get_engine
from matgrad.engines.kernels import Executor
from matgrad.engines.torch_engine import TorchKernels
from matgrad.program.computations import Evaluation, make_step
from matgrad.sparse.support import Support
from support import to_numpy

# -- epochs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shuffle", "has_labels", "is_weighted", "N", "batch_size"),
    [
        (True, True, False, 337, 10),
        (False, True, True, 336, 8),
        (True, False, True, 90, 7),
        (False, False, False, 7, 10),
    ],
)
def test_epochs_are_those_of_single_steps(shuffle, has_labels, is_weighted, N, batch_size):
    options = {"shuffle": shuffle, "has_labels": has_labels, "is_weighted": is_weighted}
    found, expected = graph_step(model()), plain_step(model())
    loaders = [loader(N, batch_size, **options) for _ in range(2)]
    for _ in range(3):
        found.train(loaders[0], rate)
        for i, (X, T, *s) in enumerate(loaders[1]):
            expected(X, T, rate(i), *s)
    assert_same(found.state(), expected.state())


LAYERS = {
    "dropout-by-epochs": ("ReLU;Linear", {"dropouts": "0.3;0", "renew": "epoch"}),
    "batch-normalization": ("BatchNormalization;ReLU;Linear", {}),
    "sparse": ("ReLU;Linear", {"densities": "0.2;1"}),
}


@pytest.mark.parametrize("kind", LAYERS)
def test_counters_and_running_means_are_part_of_the_captured_state(kind):
    layers, options = LAYERS[kind]
    found, expected = graph_step(model(layers, **options)), plain_step(model(layers, **options))
    for step in (found, expected):
        for _ in range(2):
            step.train(loader(shuffle=True), rate)
    assert_same(found.state(), expected.state())


# -- graphs ----------------------------------------------------------------------------------------


def test_every_size_of_batch_has_few_graphs():
    step = graph_step(model())
    for _ in range(2):
        step.train(loader(10 * 13 + 7, 10), rate)  # 13 full batches: 8 + 4 + 1, and one of 7
    assert [sorted(graphs) for graphs in graphs_of(step)] == [[1, 4, 8], [1]]
    assert all(graph.is_captured for graphs in graphs_of(step) for graph in graphs.values())


@pytest.mark.parametrize(
    ("limit", "unit"), [("MOST_BYTES", 8 * (10 * D + 10 * K + 1)), ("MOST_FLOPS", 2 * 10 * (2 * D * 30 + 3 * 30 * K))]
)
def test_large_inputs_and_products_have_few_runs_per_replay(limit, unit, monkeypatch):
    for factor, runs in ((1, 1), (2, 2), (3.9, 2), (4, 4), (100, 8), (0.1, 1)):
        monkeypatch.setattr(graphs, limit, int(factor * unit))
        assert graph_step(model()).prepare(*loader().batch(0)).most_runs(100) == runs, factor


def test_what_runs_once_is_not_captured():
    step = graph_step(model())
    step(*loader().batch(0), 0.1)
    assert [graph.is_captured for graphs in graphs_of(step) for graph in graphs.values()] == [False]


def test_an_equal_state_needs_no_new_graphs():
    M, data = model(), loader(shuffle=True)
    step, expected = graph_step(M), plain_step(M)
    for _ in range(2):
        step.train(data, rate)
    before, memory = graphs_of(step), {name: X.data_ptr() for name, X in step.matrices.items()}
    step.load(M.state())
    step.train(loader(), rate)
    expected.train(loader(), rate)
    assert graphs_of(step) == before
    assert {name: X.data_ptr() for name, X in step.matrices.items()} == memory
    assert_same(step.state(), expected.state())


def test_a_state_of_another_size_is_captured_again():
    """A sparse layer that grows."""
    M, data = model(densities="0.2;1"), loader()
    step, expected = graph_step(M), plain_step(M)
    for one in (step, expected):
        one.train(data, rate)
        M.load_state(one.state())
        M.set_densities([0.4, 1], np.random.default_rng(0))
        one.load(M.state())
        one.train(data, rate)
        M.set_densities([0.2, 1], np.random.default_rng(1))
    assert_same(step.state(), expected.state())


# -- the state -------------------------------------------------------------------------------------


def test_a_state_is_not_changed_later():
    step, data = graph_step(model(densities="0.2;1")), loader()
    step.train(data, rate)
    state = step.state()
    before = {name: np.array(to_numpy(X)) for name, X in state.items()}
    step.train(data, rate)
    assert_same(state, before)
    assert not np.array_equal(to_numpy(step.state()["1.W"]), before["1.W"])


class HeldIndex:
    """A support in memory that stays, as kernels for a device have it."""

    def __init__(self, S: Support) -> None:
        self.support, self.shape, self.nnz = S, S.shape, S.nnz


class HeldKernels(TorchKernels):
    """Kernels that read supports from such memory."""

    def index(self, S, like, kept=None):
        if kept is None or (kept.shape, kept.nnz) != (S.shape, S.nnz):
            return HeldIndex(S)
        kept.support = S
        return kept

    def sparse_product(self, out, S, w, B):
        super().sparse_product(out, S.support, w, B)

    def sampled_sum(self, out, S, beta, C, alpha, A, B):
        super().sampled_sum(out, S.support, beta, C, alpha, A, B)

    def sampled_product(self, out, S, A, B):
        super().sampled_product(out, S.support, A, B)


def test_a_topology_update_needs_no_new_graphs():
    """Weights at other positions, and as many as before; then more, for which there are new graphs."""
    M = model(densities="0.2;1")
    held = GraphStep(make_step(M, LOSS), HeldKernels(get_engine("torch").backend), Executor)
    plain = plain_step(M)
    held.load(M.state())
    known = []
    for seed, nnz in enumerate([120, 120, 150]):
        rng = np.random.default_rng(seed)
        w = M.backend.from_numpy(rng.normal(size=(1, nnz)))
        state = M.state() | {"1.W": w, "1.W.delta": 0 * w, "1.W.support": Support.random(30, D, nnz, rng)}
        for step in (held, plain):
            step.load(state)
            for _ in range(2):
                step.train(loader(), rate)
        assert_same(held.state(), plain.state())
        known.append({graph for graphs in graphs_of(held) for graph in graphs.values()})
    assert known[0] == known[1]
    assert not known[1] & known[2]


# -- polls -----------------------------------------------------------------------------------------


class Stop(Exception):
    pass


def test_an_interrupt_leaves_the_state_after_the_batches_that_are_done(monkeypatch):
    monkeypatch.setattr(engine, "POLL_INTERVAL", 0)
    found, expected, polled = graph_step(model()), plain_step(model()), []

    def poll(done: int) -> None:
        polled.append(done)
        if done >= 5 + 16:
            raise Stop

    with pytest.raises(Stop):
        found.train(loader(), rate, poll, first=5)
    for i, (X, T) in zip(range(5, polled[-1]), loader(), strict=False):
        expected(X, T, rate(i))
    assert polled == [13, 21]
    assert_same(found.state(), expected.state())


def test_polls_are_throttled_but_for_the_last():
    polled = []
    graph_step(model()).train(loader(337, 1), rate, polled.append)
    assert polled[-1] == 337
    assert polled.count(337) == 1
    assert len(polled) < 337 / 8 + 3


# -- evaluation ------------------------------------------------------------------------------------


def test_an_evaluation_is_captured_and_follows_the_state():
    M, other = model(), model()
    other.load_state({name: 2 * X for name, X in other.state().items()})
    X, T = loader().batch(0)
    captured = GraphEvaluation(Evaluation(M, LOSS), get_engine("torch").kernels, Executor)
    states = [M.state(), other.state()]
    for state, N in [(states[i % 2], 10 - i % 3) for i in range(12)]:
        found, expected = captured(state, X[:N], T[:N]), Evaluation(M, LOSS)(state, X[:N], T[:N])
        for name in ("Y", "loss"):
            np.testing.assert_allclose(to_numpy(found[name]), to_numpy(expected[name]), rtol=1e-13)
    assert [graph.is_captured for graphs in graphs_of(captured) for graph in graphs.values()] == [True] * 3


# -- generated kernels -----------------------------------------------------------------------------

FUSED = """
import triton_support
from graph_support import loader, model, plain_step, rate
from test_cuda_step import assert_close, fused_step

for options in ({}, {"dropouts": "0.3;0"}, {"densities": "0.3;1"}):
    found, expected = fused_step(model(**options)), plain_step(model(**options))
    for step in (found, expected):
        for _ in range(2):
            step.train(loader(13, 4, shuffle=True), rate)
    assert_close(found.state(), expected.state())
"""


def fused_step(M):
    from matgrad.engines.cuda.fused import FusedExecutor

    return graph_step(M, FusedExecutor)


def assert_close(a, b) -> None:
    for name in a:
        np.testing.assert_allclose(to_numpy(a[name]), to_numpy(b[name]), rtol=1e-12, atol=1e-14, err_msg=name)


def test_generated_kernels_run_on_the_inputs_of_graphs():
    """Triton interprets them, if it is told so before it is imported."""
    version = find_spec("triton") and metadata.version("triton")
    if not version or tuple(map(int, version.split(".")[:2])) < (3, 7):
        pytest.skip(f"the interpreter of Triton 3.7 or later is needed, found {version}")
    places = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parents[1]), *sys.path])
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": places}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FUSED], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
