"""Observing, recording, checking and training in several threads at once: nobody sees another's layers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait

import numpy as np
import pytest

import matgrad as mg
from matgrad.engines.fallback import TrainingStep
from matgrad.inspection.gradient_check import check_gradients
from matgrad.inspection.observing import observed
from matgrad.inspection.profiling import profile
from matgrad.program.computations import make_step, train_batch
from matgrad.program.recorder import record_computation

N, REPETITIONS = 6, 15
LOSS = mg.SoftmaxCrossEntropyLoss()
CLASSES = (mg.Layer, mg.LinearLayer, mg.ActivationLayer, mg.BatchNormalizationLayer, mg.MultilayerPerceptron)


def make(seed: int) -> tuple[mg.MultilayerPerceptron, np.ndarray, np.ndarray]:
    """A model whose layers are of the same classes for every seed, with a batch."""
    rng = np.random.default_rng(seed)
    layers = [
        mg.ActivationLayer(5, 4, mg.ReLUActivation()),
        mg.BatchNormalizationLayer(4, 4),
        mg.LinearLayer(4, 3),
    ]
    M = mg.MultilayerPerceptron(layers).to(dtype="float64")
    M.set_weights("Normal(0, 0.7)", rng)
    return M, rng.normal(size=(N, 5)), mg.one_hot(rng.integers(0, 3, N), 3).astype(float)


def observe(seed: int) -> list:
    """Eager steps under observation; the hook refuses layers that it was not given."""
    M, X, T = make(seed)
    own, names = {id(layer) for layer in M.layers}, []

    def hook(layer: mg.Layer, equation, value):
        assert id(layer) in own
        names.append(str(equation))
        return value

    with observed(M.layers, hook):
        train_batch(M, LOSS, X, T, np.array(0.1))
    return [names, *M.state().values()]


def record(seed: int) -> list:
    M, X, T = make(seed)
    return [str(record_computation(make_step(M, LOSS), M.state(), X, T))]


def check(seed: int) -> list:
    M, X, T = make(seed)
    return [(result.name, result.found, result.ok) for result in check_gradients(M, LOSS, X, T, max_elements=3)]


def time_equations(seed: int) -> list:
    M, X, T = make(seed)
    with profile(M) as p:
        TrainingStep(M, LOSS, compiled=False)(X, T, np.array(0.1))
    return [sorted((row.name, row.calls) for row in p._rows.values()), *M.state().values()]


def plain(seed: int) -> list:
    M, X, T = make(seed)
    train_batch(M, LOSS, X, T, np.array(0.1))
    return list(M.state().values())


def assert_equal(actual: list, expected: list) -> None:
    for A, E in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(A, E)


@pytest.mark.filterwarnings("error")
def test_threads_observe_record_check_profile_and_train_without_disturbing_each_other():
    tasks: list[Callable[[int], list]] = [observe, record, check, time_equations, plain]
    alone = {task: [task(seed) for seed in range(3)] for task in tasks}
    barrier = threading.Barrier(len(tasks))

    def work(task: Callable[[int], list]) -> None:
        barrier.wait(timeout=60)
        for k in range(REPETITIONS):
            assert_equal(task(k % 3), alone[task][k % 3])

    before = [dict(vars(cls)) for cls in CLASSES]
    with ThreadPoolExecutor(len(tasks)) as pool:
        futures = [pool.submit(work, task) for task in tasks]
        while not all(future.done() for future in futures):
            assert [dict(vars(cls)) for cls in CLASSES] == before
            wait(futures, timeout=0.01)
        for future in futures:
            future.result()
