"""Accounting: FLOPs against other counts, stored weights, memory, and where they are shown."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.sparse
import torch
from torch.utils.flop_counter import FlopCounterMode

import matgrad as mg
from cli_support import rows, run, succeed
from matgrad.callbacks import Accounting, Callback
from matgrad.callbacks.methods import create_method
from matgrad.datasets import DataLoader
from matgrad.engines.native import NativeStep
from matgrad.foundation.machine import peak_memory, process_memory
from matgrad.loss_functions import create_loss
from matgrad.sparse.support import Support
from matgrad.specifications.models import create_model
from matgrad.training import Training, stochastic_gradient_descent

N, SIZES = 70, (12, 9, 7, 3)  # examples; features and the sizes of the layers
ENGINES = ("numpy", "torch", "native")


def model(densities: object = "0.3;0.5;1", engine: str = "numpy") -> mg.MultilayerPerceptron:
    mg.manual_seed(1)
    return create_model("ReLU;ReLU;Linear", SIZES, densities=densities).to(engine)


def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(2)
    return rng.normal(size=(N, SIZES[0])), rng.integers(0, SIZES[-1], N)


def by_torch(examples: int) -> int:
    """The FLOPs that PyTorch counts for one training step of the dense model."""
    D, H, K, C = SIZES
    net = torch.nn.Sequential(
        torch.nn.Linear(D, H), torch.nn.ReLU(), torch.nn.Linear(H, K), torch.nn.ReLU(), torch.nn.Linear(K, C)
    )
    with FlopCounterMode(display=False) as counter:
        net(torch.ones(examples, D)).sum().backward()
    return counter.get_total_flops()


def by_hand(nnz: list[int], examples: int) -> int:
    """One multiplication and one addition per stored weight and example: forward, DW and, after layer 1, DX."""
    return sum((2 if k == 0 else 3) * 2 * n * examples for k, n in enumerate(nnz))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("compiled", [True, False])
def test_flops_are_those_of_the_stored_weights_and_of_dense_layers(engine: str, compiled: bool):
    history = model(engine=engine).fit(*data(), epochs=2, batch_size=20, compiled=compiled)
    nnz = [round(0.3 * 12 * 9), round(0.5 * 9 * 7), 7 * 3]
    assert history["nnz"] == [{"1": nnz[0], "2": nnz[1], "3": nnz[2]}] * 2
    assert history["flops"] == [by_hand(nnz, N)] * 2
    assert history["dense_flops"] == [by_torch(N)] * 2
    assert history["density"] == history["explored"] == [pytest.approx(sum(nnz) / (12 * 9 + 9 * 7 + 7 * 3))] * 2


def test_a_dense_model_has_it_only_if_asked_for():
    assert "flops" not in model(1).fit(*data(), epochs=1)
    history = model(1).fit(*data(), epochs=1, callbacks=[Accounting()])
    assert history["flops"] == history["dense_flops"] == [by_torch(N)]
    assert history["density"] == history["explored"] == [1]


@pytest.mark.parametrize("options", [{"dropouts": 0.2}, {"optimizers": "Adam"}, {"weights": "He"}])
def test_what_is_no_product_does_not_count(options: dict):
    M = create_model("ReLU;BatchNormalization;ReLU;Linear", SIZES, densities="0.3;0.5;1", **options)
    history = M.fit(*data(), epochs=1, clip_norm=1.0)
    assert history["flops"] == [by_hand([round(0.3 * 12 * 9), round(0.5 * 9 * 7), 7 * 3], N)]


class Resize(Callback):
    """Gives layer 1 another number of weights after some batches, and after each epoch."""

    wants_batches = True

    def __init__(self, sizes: dict[int, int], after_epoch: int, interval: int = 1) -> None:
        self.sizes, self.after_epoch, self.interval = sizes, after_epoch, interval

    def batch(self, run) -> None:
        if run.batch in self.sizes:
            resize(run.M, self.sizes[run.batch])

    def epoch(self, run) -> None:
        resize(run.M, self.after_epoch)


def resize(M: mg.MultilayerPerceptron, nnz: int) -> None:
    M.layers[0].set_support(Support.random(9, 12, nnz, np.random.default_rng(0)))


@pytest.mark.parametrize("engine", ENGINES)
def test_examples_count_with_the_supports_that_they_were_trained_with(engine: str):
    M = model("0.3;1;1", engine)
    history = M.fit(*data(), epochs=2, batch_size=20, callbacks=[Resize({1: 50, 3: 20}, after_epoch=10)])
    rest = by_hand([0, 9 * 7, 7 * 3], N)
    first, second = (4 * (20 * start + 40 * 50 + 10 * 20) + rest for start in (32, 10))
    assert history["flops"] == [first, second]
    assert history["dense_flops"] == [by_torch(N)] * 2
    assert [nnz["1"] for nnz in history["nnz"]] == [10, 10]  # after the update


@pytest.mark.parametrize("engine", ENGINES)
def test_the_same_where_the_engine_trains_between_updates_by_itself(engine: str):
    M = model("0.3;1;1", engine)
    history = M.fit(*data(), epochs=1, batch_size=20, callbacks=[Resize({2: 50}, after_epoch=10, interval=2)])
    assert history["flops"] == [4 * (40 * 32 + 30 * 50) + by_hand([0, 9 * 7, 7 * 3], N)]


class Sparsify(Callback):
    """Makes layer 1 sparse after the first epoch."""

    def epoch(self, run) -> None:
        if run.epoch == 1:
            resize(run.M, 8)


def test_a_model_that_becomes_sparse():
    history = model(1).fit(*data(), epochs=2, callbacks=[Sparsify(), Accounting()])
    assert history["flops"] == [by_torch(N), by_hand([8, 9 * 7, 7 * 3], N)]


def test_batches_of_any_size_and_of_every_epoch():
    X, T = next(iter(DataLoader(*data(), N).to(dtype="float32")))
    batches = [(X[:10], T[:10]), (X[10:45], T[10:45])]
    M, loss = model(), create_loss("SoftmaxCrossEntropy")
    nnz = [32, 32, 21]
    history = stochastic_gradient_descent(
        M, 2, loss, lambda i: 0.01, lambda i: iter(batches[i:]), callbacks=[Accounting()]
    )
    assert history["flops"] == [by_hand(nnz, 45), by_hand(nnz, 35)]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("densities", ["1", "1;0.5;1", "0.3;0.5;1"])
def test_sparse_examples_count_by_their_elements_unless_the_first_layer_is_sparse(engine: str, densities: str):
    X, t = data()
    X = scipy.sparse.csr_array(X * (np.random.default_rng(0).random(X.shape) < 0.2))
    M = model(densities, engine)
    history = M.fit(X, t, epochs=1, batch_size=20, callbacks=[Accounting()] if densities == "1" else [])
    nnz = list(history["nnz"][0].values())
    first = 2 * 2 * 9 * X.nnz if nnz[0] == 12 * 9 else 2 * 2 * nnz[0] * N
    assert history["flops"] == [first + by_hand([0, *nnz[1:]], N)]
    assert history["dense_flops"] == [by_torch(N)]


class Odd(mg.LinearLayer):
    """Keeps something from step to step that is not in its buffers."""

    def feedforward(self, X):
        self.calls = getattr(self, "calls", 0) + 1
        return self.calls * super().feedforward(X)


@pytest.mark.filterwarnings("ignore:training continues uncompiled")
@pytest.mark.filterwarnings("ignore:evaluation continues uncompiled")
def test_flops_that_are_not_known_are_left_out():
    M = mg.MultilayerPerceptron([Odd(12, 3, support=Support.random(3, 12, 9, np.random.default_rng(0)))])
    history = M.fit(*data(), epochs=1)
    assert "flops" not in history
    assert history["nnz"] == [{"1": 9}]


class Positions(Callback):
    """Notes the positions of all weights that are stored, after each batch and each epoch."""

    wants_batches = True

    def __init__(self) -> None:
        self.seen: set[tuple[str, int]] = set()
        self.fractions: list[float] = []

    def start(self, run) -> None:
        self._note(run)

    def batch(self, run) -> None:
        self._note(run)

    def epoch(self, run) -> None:
        self._note(run)
        self.fractions.append(len(self.seen) / (12 * 9 + 9 * 7 + 7 * 3))

    def _note(self, run) -> None:
        for name, layer in run.M.walk():
            flat = layer.W.support.flat() if hasattr(layer.W, "support") else range(layer.W.size)
            self.seen |= {(name, int(k)) for k in flat}


@pytest.mark.parametrize("method", ["static", "SET", "SET(0.5, every=2)", "RigL(0.3, every=3)"])
def test_explored_weights_are_those_that_were_stored_at_any_time(method: str):
    positions = Positions()
    history = model().fit(*data(), epochs=4, batch_size=20, callbacks=[create_method(method), positions])
    assert history["explored"] == pytest.approx(positions.fractions)
    assert (history["explored"][-1] > history["density"][-1] + 0.05) == (method != "static")
    assert [sum(nnz.values()) for nnz in history["nnz"]] == [32 + 32 + 21] * 4


def test_the_updates_of_a_topology_count_apart():
    history = model().fit(*data(), epochs=4, batch_size=20, callbacks=[create_method("RigL(0.3, every=4)")])
    gradients = 2 * 20 * (12 * 9 + 9 * 7)  # of the layers that are sparse, from one batch
    assert history["update_flops"] == [gradients, gradients, 0, 0]  # there are none in the last quarter
    assert history["flops"] == [by_hand([32, 32, 21], N)] * 4


def test_peak_memory_is_the_most_so_far():
    before, present = peak_memory(), process_memory().get("VmRSS")
    if present is None:
        pytest.skip("the system does not tell the memory of a process")
    A = np.ones((before - present + 40_000_000) // 8)
    del A
    assert before + 30_000_000 < peak_memory() < before + 60_000_000
    found = model().fit(*data(), epochs=1)["peak_memory"]
    assert found[0] >= before + 30_000_000


def test_the_command_line_shows_and_records_it(tmp_path):
    options = ("train", "--densities", "ER(0.1)", "--epochs", 2, "--output", tmp_path / "out")
    shown = rows(succeed(*options))
    epochs = json.loads((tmp_path / "out" / "run.json").read_text())["epochs"]
    for row, epoch in zip(shown, epochs, strict=True):
        assert int(row["nnz"]) == sum(epoch["nnz"].values()) == 1703
        assert float(row["density"]) == float(row["explored"]) == round(epoch["density"], 4) == 0.1
        assert float(row["GFLOP"]) == pytest.approx(epoch["flops"] / 1e9, rel=1e-3)
        assert int(row["peak_MB"]) == round(epoch["peak_memory"] / 1e6)
        assert epoch["dense_flops"] == 1437 * 2 * (2 * 64 * 128 + 3 * 128 * 64 + 3 * 64 * 10)
        assert epoch["explored"] == epoch["density"]
    assert "nnz" not in succeed("train", "--epochs", 1)
    dense = run("train", "--epochs", 1, "--statistics", "costs", "--json")
    assert json.loads(dense.stdout)["epochs"][0]["density"] == 1


def test_whole_epochs_stay_in_the_core(monkeypatch):
    counts, train = [], NativeStep._train

    def counting(self, loader, order, rates, poll):
        counts.append(len(rates))
        return train(self, loader, order, rates, poll)

    monkeypatch.setattr(NativeStep, "_train", counting)
    loader = DataLoader(*data(), 20).to(dtype="float32")
    training = Training(model(engine="native"), create_loss("SoftmaxCrossEntropy"), loader, 2)
    training.train([Accounting()])
    assert counts == [3, 3]
    assert training.examples == N
