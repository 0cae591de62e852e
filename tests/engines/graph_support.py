"""What the tests of steps in graphs share: models, data, steps and the comparison of states."""

from __future__ import annotations

import numpy as np

import matgrad as mg
from matgrad.datasets import DataLoader
from matgrad.engines.cuda.step import GraphStep
from matgrad.engines.engine import compile_step, get_engine
from matgrad.engines.kernels import Executor
from matgrad.program.computations import make_step
from matgrad.specifications.models import create_model
from support import to_numpy

LOSS = mg.SoftmaxCrossEntropyLoss()
D, K = 20, 5


def model(layers: str = "ReLU;Linear", sizes: str = f"{D};30;{K}", **options) -> mg.MultilayerPerceptron:
    mg.manual_seed(1)
    return create_model(layers, sizes, optimizers="Momentum(0.9)", **options).to("torch", dtype="float64")


def graph_step(M: mg.MultilayerPerceptron, executor_class: type = Executor) -> GraphStep:
    step = GraphStep(make_step(M, LOSS), get_engine("torch").kernels, executor_class)
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
