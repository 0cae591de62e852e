"""Whole runs of models as on a CUDA device, on the CPU: histories, callbacks, checkpoints, profiles, errors."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
import torch
from graph_support import D, K, assert_same, graph_step, loader, model

import matgrad as mg
from matgrad.backends.torch_backend import TorchBackend
from matgrad.callbacks import Callback, Checkpoints
from matgrad.engines import torch_engine
from matgrad.engines.cuda import graphs
from matgrad.engines.cuda.graphs import GraphExecutor
from matgrad.engines.kernels import Executor


class Stop(Exception):
    pass


@pytest.fixture
def on_cuda(monkeypatch):
    """Lets models on the CPU train as those on a CUDA device, without Triton."""
    monkeypatch.setattr(torch_engine.TorchEngine, "on_cuda", lambda engine, M: (engine.kernels, Executor))

    def switch(is_on: bool) -> None:
        monkeypatch.setattr(torch_engine, "_is_on_cuda", lambda M: is_on)

    return switch


class Every(Callback):
    """Looks at the model after every few batches."""

    def __init__(self, interval: int) -> None:
        self.interval, self.seen = interval, []

    def batch(self, run) -> None:
        self.seen.append((run.step, run.batch, float(run.M.state()["1.W"].sum())))


FITS = {
    "plain": {},
    "rates per step": {"per_step": True, "learning_rate": mg.ExponentialScheduler(0.1, 0.01)},
    "weights": {"sample_weight": np.linspace(0, 2, 337)},
    "validation": {"validation": 0.2},
}


def fitted(on_cuda, is_on: bool, **options) -> tuple[mg.MultilayerPerceptron, mg.History]:
    on_cuda(is_on)
    M = model(dropouts="0.2;0")
    rng = np.random.default_rng(2)
    X, T = rng.normal(size=(337, D)), rng.integers(0, K, 337)
    return M, M.fit(X, T, epochs=3, batch_size=10, seed=0, **options)


@pytest.mark.parametrize("name", FITS)
def test_fit_gives_the_history_of_a_cpu(name, on_cuda):
    (found, history), (expected, right) = (fitted(on_cuda, is_on, **FITS[name]) for is_on in (True, False))
    assert_same(found.state(), expected.state())
    assert history.keys() == right.keys()
    for key in history.keys() - {"seconds"}:
        np.testing.assert_allclose(history[key], right[key], rtol=1e-12, err_msg=key)


@pytest.mark.parametrize(("interval", "shuffle"), [(1, True), (7, False)])
def test_callbacks_see_the_model_between_batches(interval, shuffle, on_cuda):
    callbacks = [Every(interval), Every(interval)]
    for is_on, callback in zip((True, False), callbacks, strict=True):
        fitted(on_cuda, is_on, shuffle=shuffle, callbacks=[callback])
    assert len(callbacks[0].seen) == 3 * 34 // interval
    assert callbacks[0].seen == callbacks[1].seen


def test_a_run_goes_on_from_a_checkpoint(on_cuda, tmp_path):
    class Crash(Callback):
        interval = 45  # in the second epoch

        def batch(self, run) -> None:
            raise Stop

    expected, _ = fitted(on_cuda, True)
    with pytest.raises(Stop):
        fitted(on_cuda, True, callbacks=[Checkpoints(tmp_path, every=40), Crash()])
    found, _ = fitted(on_cuda, True, resume=tmp_path)
    assert_same(found.state(), expected.state())


def test_a_profile_measures_the_equations_without_graphs(on_cuda):
    on_cuda(True)
    M = model()
    rng = np.random.default_rng(2)
    with mg.profile(M) as profile:
        M.fit(rng.normal(size=(95, D)), rng.integers(0, K, 95), batch_size=10, epochs=2)
    rows = {row.name: row for row in profile.rows()}
    assert profile.batches == 20
    assert rows["layer 1 ActivationLayer.DW"].calls == 20
    assert rows["layer 1 ActivationLayer.DW"].seconds > 0


def test_sparse_examples_are_trained_on_one_batch_after_the_other(on_cuda):
    """The numbers of their elements differ."""
    rng = np.random.default_rng(2)
    X, T = scipy.sparse.random_array((90, D), density=0.3, rng=rng, format="csr"), rng.integers(0, K, 90)
    states = []
    for is_on in (True, False):
        on_cuda(is_on)
        M = model()
        M.fit(X, T, epochs=2, batch_size=10, seed=0)
        states.append(M.state())
    assert_same(*states)


def test_too_little_memory_is_an_error_with_sizes(on_cuda, monkeypatch):
    def fail(self, n: int) -> None:
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(GraphExecutor, "_execute", fail)
    monkeypatch.setattr(TorchBackend, "free_memory", lambda self, device: 12 << 20)
    with pytest.raises(MemoryError, match=r"the training step: needs about .* on cpu, found 12 MB free; smaller"):
        fitted(on_cuda, True)


def test_memory_of_a_program():
    """Z and A of the first layer (which share memory or not), Y and what the loss and the gradients need."""
    program = graph_step(model()).prepare(*loader().batch(0)).program
    at_least, at_most = 8 * 10 * (30 + K), 8 * (6 * 10 * (30 + K) + 2 * (D * 30 + 30 * K))
    assert at_least < graphs.memory_of(program) < at_most
