"""JAX on a GPU: its devices, float32 that is not TF32, whole epochs in few calls."""

from __future__ import annotations

import numpy as np

import matgrad as mg
from gpu import DEVICE
from gpu.comparison import assert_equal_states, numpy_state
from gpu.test_devices import ERRORS, assert_errors, error_of, model, on_gpu
from matgrad.backends import get_backend
from matgrad.datasets import DataLoader
from matgrad.engines.engine import compile_step


def test_products_have_the_precision_that_was_asked_for():
    on_gpu()
    for matmul in ERRORS:
        assert_errors("jax", DEVICE, matmul, "jax")


def test_names_of_devices():
    on_gpu()
    backend = get_backend("jax")
    assert backend.find_device("auto") == backend.find_device("cuda") == backend.find_device("gpu") == "gpu:0"
    assert backend.find_device(None) == "gpu:0"
    assert backend.find_device("cpu") == "cpu:0"
    assert model("jax", "cuda:0").device == "gpu:0"
    assert model("jax", "cpu").device == "cpu:0"
    assert "device 'cuda:99': JAX" in error_of(lambda: model("jax", "cuda:99"), ValueError)


def test_too_little_memory_is_told_with_sizes():
    on_gpu()
    free = get_backend("jax").free_memory("gpu:0")
    assert 1 << 28 < free
    loader = DataLoader(np.ones((10, 1000), np.float32), np.zeros((10, 1)))
    loader.X = np.broadcast_to(np.float32(1), (int(1.5 * free) // 4 // 1000, 1000))  # which takes no memory here
    message = error_of(lambda: loader.to("jax", device=DEVICE), MemoryError)
    assert message.startswith("the data: needs "), message


def test_epochs_give_the_result_of_single_steps_and_of_the_cpu():
    rng = np.random.default_rng(2)
    X, labels = rng.normal(size=(1030, 60)), rng.integers(0, 5, 1030)
    states = []
    for backend, device, together in (("jax", DEVICE, True), ("jax", DEVICE, False), ("numpy", None, False)):
        mg.manual_seed(1)
        M = mg.create_model("ReLU;ReLU;Linear", [60, 50, 40, 5], optimizers="Momentum(0.9)", dropouts=0.1)
        M.to(backend, device=device)
        loader = DataLoader(X, labels, 10, shuffle=True, seed=3).to(backend, dtype=M.dtype, device=M.device)
        step = compile_step(M, mg.SoftmaxCrossEntropyLoss())
        step.load(M.state())
        done: list[int] = []
        for _ in range(2):
            if together:
                step.train(loader, lambda i: 0.05, done.append)
            else:
                for A, B in loader:
                    step(A, B, M.scalar(0.05))
        M.load_state(step.state())
        states.append(numpy_state(M))
        assert len(done) < 20, done
    assert_equal_states(states[0], states[1], 1e-4, "single steps")
    assert_equal_states(states[0], states[2], 1e-3, "the processor")
