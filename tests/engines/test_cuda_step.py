"""Steps and evaluations for CUDA devices, on the CPU, where a graph calls its function again."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
import torch

import matgrad as mg
from matgrad.callbacks import Callback, Checkpoints
from matgrad.datasets import DataLoader
from matgrad.engines import engine, torch_engine
from matgrad.engines.cuda import graphs, memory
from matgrad.engines.cuda.graphs import GraphExecutor
from matgrad.engines.cuda.step import GraphEvaluation, GraphStep
from matgrad.engines.executor import Executor
from matgrad.engines.registry import compile_step, get_engine
from matgrad.engines.torch_kernels import TorchKernels
from matgrad.program.computations import Evaluation, make_step
from matgrad.sparse.support import Support
from matgrad.specifications.models import create_model
from support import to_numpy

LOSS = mg.SoftmaxCrossEntropyLoss()
D, K = 20, 5


def model(layers: str = "ReLU;Linear", sizes: str = f"{D};30;{K}", **options) -> mg.MultilayerPerceptron:
    mg.manual_seed(1)
    return create_model(layers, sizes, optimizers="Momentum(0.9)", **options).to("torch", dtype="float64")


def graph_step(M: mg.MultilayerPerceptron) -> GraphStep:
    step = GraphStep(make_step(M, LOSS), get_engine("torch").kernels, Executor)
    step.load(M.state())
    return step


def plain_step(M: mg.MultilayerPerceptron):
    step = compile_step(M, LOSS)
    step.load(M.state())
    return step


def loader(N: int = 337, batch_size: int = 10, has_labels: bool = True, is_weighted: bool = False, **options):
    rng = np.random.default_rng(2)
    X, labels, s = rng.normal(size=(N, D)), rng.integers(0, K, N), rng.random(N)
    T = labels if has_labels else np.eye(K)[labels]
    data = DataLoader(X, T, batch_size, seed=3, classes=K, weights=s if is_weighted else None, **options)
    return data.to("torch", dtype="float64")


def rate(i: int) -> float:
    return 0.1 / (1 + i)


def graphs_of(step) -> list[dict]:
    return [dict(executor.graphs) for executor in step.executors.values()]


def assert_same(a, b) -> None:
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(to_numpy(a[name]), to_numpy(b[name]), err_msg=name)


# -- epochs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("has_labels", [False, True])
@pytest.mark.parametrize("is_weighted", [False, True])
@pytest.mark.parametrize(("N", "batch_size"), [(337, 10), (336, 8), (7, 10), (90, 7)])
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
    "dropout": ("ReLU;Linear", {"dropouts": "0.3;0"}),
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


def test_a_given_state_is_not_changed():
    M = model()
    before = {name: X.clone() for name, X in M.state().items()}
    step = graph_step(M)
    step.train(loader(), rate)
    assert_same(M.state(), before)


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


def test_polls_are_spared_but_for_the_last():
    polled = []
    graph_step(model()).train(loader(337, 1), rate, polled.append)
    assert polled[-1] == 337
    assert polled.count(337) == 1
    assert len(polled) < 337 / 8 + 3


def test_a_rate_that_fails_leaves_the_batches_before_it_trained():
    def failing(i: int) -> float:
        return 0.1 if i < 11 else 1 / 0

    found, expected = graph_step(model()), plain_step(model())
    with pytest.raises(ZeroDivisionError):
        found.train(loader(), failing)
    for _, (X, T) in zip(range(11), loader(), strict=False):
        expected(X, T, 0.1)
    assert_same(found.state(), expected.state())


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


# -- runs ------------------------------------------------------------------------------------------


@pytest.fixture
def on_cuda(monkeypatch):
    """Lets models on the CPU train as those on a CUDA device, without Triton."""
    monkeypatch.setattr(torch_engine.TorchEngine, "cuda", property(lambda engine: (engine.kernels, Executor)))

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
    "in order": {"shuffle": False},
    "rates per step": {"per_step": True, "learning_rate": mg.ExponentialScheduler(0.1, 0.01)},
    "weights": {"sample_weight": np.linspace(0, 2, 337)},
    "validation": {"validation": 0.2},
    "clipping": {"clip_norm": 0.1},
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


@pytest.mark.parametrize("interval", [1, 7])
@pytest.mark.parametrize("shuffle", [False, True])
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


def test_compiling_is_reported_apart(on_cuda):
    _, history = fitted(on_cuda, True)
    assert 0 < history.compilation_seconds < sum(history["seconds"])


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
    monkeypatch.setattr(memory, "_free", lambda device: 12 << 20)
    with pytest.raises(MemoryError, match=r"the training step: needs about .* on cpu, found 12 MB free; smaller"):
        fitted(on_cuda, True)


def test_memory_of_a_program():
    """Z and A of the first layer (which share memory or not), Y and what the loss and the gradients need."""
    program = graph_step(model()).prepare(*loader().batch(0)).program
    at_least, at_most = 8 * 10 * (30 + K), 8 * (6 * 10 * (30 + K) + 2 * (D * 30 + 30 * K))
    assert at_least < graphs.memory_of(program) < at_most
