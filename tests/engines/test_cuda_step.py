"""Steps and evaluations for CUDA devices, on the CPU, where a graph calls its function again."""

from __future__ import annotations

import numpy as np
import pytest

import matgrad as mg
from matgrad.datasets import DataLoader
from matgrad.engines.cuda.step import GraphStep
from matgrad.engines.executor import Executor
from matgrad.engines.registry import compile_step, get_engine
from matgrad.program.computations import make_step
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
