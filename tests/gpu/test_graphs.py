"""Training in CUDA graphs: epochs, new states, other sizes, what cannot be captured, and too little memory."""

from __future__ import annotations

import warnings

import numpy as np
import torch

import matgrad as mg
from gpu import DEVICE
from matgrad.engines.cuda.graphs import Graph
from matgrad.engines.cuda.step import GraphStep
from matgrad.engines.engine import compile_step
from matgrad.layers.state import matrices_of

LOSS = mg.SoftmaxCrossEntropyLoss()
D, K = 50, 10


def model(layers: str = "ReLU;Linear", device: str = DEVICE, **options) -> mg.MultilayerPerceptron:
    mg.manual_seed(1)
    M = mg.create_model(layers, [D, 64, K], optimizers="Momentum(0.9)", **options)
    return M.to("torch", dtype="float64", device=device)


def arrays(N: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(2)
    return rng.normal(size=(N, D)), rng.integers(0, K, N)


def numbers(M: mg.MultilayerPerceptron) -> dict[str, np.ndarray]:
    return {name: np.array(M.backend.to_numpy(X)) for name, X in matrices_of(M.state()).items()}


def assert_close(found: dict[str, np.ndarray], expected: dict[str, np.ndarray], context: object) -> None:
    for name, E in expected.items():
        assert np.abs(found[name] - E).max(initial=0.0) <= 1e-11 * max(np.abs(E).max(initial=0.0), 1), (context, name)


def fitted(device: str, options: dict, fit: dict, N: int = 437) -> mg.MultilayerPerceptron:
    M = model(device=device, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        M.fit(*arrays(N), epochs=3, batch_size=10, seed=0, **fit)
    return M


def test_epochs_are_those_of_the_cpu():
    cases = [
        ({}, {"shuffle": True}),
        ({}, {"shuffle": False}),
        ({}, {"per_step": True, "learning_rate": mg.ExponentialScheduler(0.1, 0.01)}),
        ({}, {"sample_weight": np.linspace(0, 2, 437)}),
        ({}, {"clip_norm": 0.5}),
        ({"dropouts": "0.3;0"}, {}),
        ({"dropouts": "0.3;0", "renew": "epoch"}, {}),
        ({"layers": "ReLU;BatchNormalization;Linear"}, {}),
        ({"layers": "ReLU;LayerNormalization;RMSNormalization;Linear"}, {}),
        ({"densities": "0.2;1"}, {}),
        ({"densities": "0.2;1", "dropouts": "0.3;0"}, {}),
    ]
    for options, fit in cases:
        here, there = (fitted(device, options, fit) for device in (DEVICE, "cpu"))
        assert_close(numbers(here), numbers(there), (options, fit))


def test_other_states_need_no_new_graphs():
    M = model()
    step = compile_step(M, LOSS)
    data = mg.DataLoader(*arrays(437), 10, shuffle=True, seed=0).to("torch", dtype="float64", device=DEVICE)
    step.load(M.state())
    for _ in range(2):
        step.train(data, lambda i: 0.1)
    if isinstance(step, GraphStep):
        before = [dict(executor.graphs) for executor in step.executors.values()]
        assert all(graph.is_captured for graphs in before for graph in graphs.values())
        step.load(M.state())
        step.train(data, lambda i: 0.1)
        assert before == [executor.graphs for executor in step.executors.values()]


def test_a_state_is_not_changed_later():
    M = model()
    step = compile_step(M, LOSS)
    data = mg.DataLoader(*arrays(437), 10).to("torch", dtype="float64", device=DEVICE)
    step.load(M.state())
    step.train(data, lambda i: 0.1)
    state = step.state()
    before = {name: X.clone() for name, X in state.items()}
    step.train(data, lambda i: 0.1)
    for name, X in state.items():
        assert torch.equal(X, before[name]), name
        assert not torch.equal(X, step.state()[name]), name


def test_what_cannot_be_captured_runs_all_the_same():
    X, sums = torch.ones(10, device=DEVICE), []
    graph = Graph(lambda: sums.append(X.sum().item()), X.device)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for _ in range(4):
            graph()
    assert sums == [10.0] * 4, sums
    assert DEVICE == "cpu" or "runs without a CUDA graph" in str(found[-1].message), found
    assert (X + torch.ones_like(X)).sum().item() == 20  # the device still works
    assert torch.rand(10, device=DEVICE).max().item() < 1  # and so does its random generator


def test_too_little_memory_is_one_error():
    if DEVICE == "cpu":
        return
    M = model()
    step = compile_step(M, LOSS)
    step.load(M.state())
    free, N = torch.cuda.mem_get_info()[0], 1
    X = torch.zeros((1, D), dtype=torch.float64, device=DEVICE)
    N = int(free / (8 * 64))  # so many rows of Z1 fill the memory
    message = ""
    try:
        step(X.expand(N, D), X[:, :K].expand(N, K), M.scalar(0.1))
    except MemoryError as error:
        message = str(error)
    assert "the training step: needs about" in message, message
    assert "GB free" in message, message
    step(X, X[:, :K], M.scalar(0.1))
