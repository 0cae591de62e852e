"""Training in float32 on PyTorch: a loss that falls, results of the CPU, the same bits again, dropout, memory."""

from __future__ import annotations

from unittest import SkipTest

import numpy as np
import torch

import matgrad as mg
from gpu import DEVICE
from gpu.comparison import assert_equal_states, numpy_state
from matgrad.program.computations import train_batch


def mnist_like(device: str = DEVICE, optimizer: str = "Momentum(0.9)", rate: float = 0.05, **options):
    """A model of MNIST's shape and its history, trained on generated data for two epochs."""
    mg.manual_seed(0)
    rng = np.random.default_rng(0)
    images, t = rng.random((10, 784)), rng.integers(10, size=2000)
    X = ((images[t] + rng.random((2000, 784))) / 2).astype(np.float32)  # noisy copies of one image per class
    M = mg.create_model("ReLU;ReLU;Linear", [784, 256, 128, 10], optimizers=optimizer, **options)
    M.to("torch", device=device)
    return M, M.fit(X, t, epochs=2, batch_size=100, learning_rate=rate, seed=0)


def test_training_reduces_the_loss():
    for optimizer, rate in {"GradientDescent": 0.1, "Momentum(0.9)": 0.05, "Adam": 0.001}.items():
        M, history = mnist_like(optimizer=optimizer, rate=rate)
        assert history["loss"][-1] < 0.9 * np.log(10), (optimizer, history["loss"])
        assert M.device is not None
        assert M.device.startswith(DEVICE), M.device


def test_training_gives_the_result_of_the_cpu():
    """In float32, which TF32 would not."""
    for densities in (None, [0.05, 0.2, 1]):
        (here, history), (there, expected) = (mnist_like(device, densities=densities) for device in (DEVICE, "cpu"))
        assert_equal_states(numpy_state(here), numpy_state(there), 1e-3, f"densities {densities}")
        assert abs(history["loss"][-1] - expected["loss"][-1]) < 1e-4 * expected["loss"][-1]


def test_training_again_gives_the_same_bits():
    for densities in (None, [0.05, 0.2, 1]):
        first, second = (numpy_state(mnist_like(densities=densities, dropouts=0.2)[0]) for _ in range(2))
        assert_equal_states(first, second, 0.0, f"densities {densities}")


def test_dropout_has_the_masks_of_the_cpu():
    """The masks of DropoutLayer and of dropped weights after three steps are equal, bit for bit."""
    masks = []
    for backend, device in (("torch", DEVICE), ("numpy", None)):
        mg.manual_seed(7)
        layers = [mg.DropoutLayer(50, 50, 0.3), mg.LinearDropoutLayer(50, 40, dropout=0.4), mg.LinearLayer(40, 3)]
        M = mg.MultilayerPerceptron(layers).to(backend, device=device).train()
        rng = np.random.default_rng(0)
        X = M.backend.from_numpy(rng.random((20, 50), dtype=np.float32), M.device)
        T = M.backend.from_numpy(mg.one_hot(rng.integers(0, 3, 20), 3).astype(np.float32), M.device)
        found = []
        for _ in range(3):
            train_batch(M, mg.SoftmaxCrossEntropyLoss(), X, T, 0.1)
            found += [M.backend.to_numpy(layer.R) != 0 for layer in M.layers[:2]]
        masks.append(found)
    for i, (here, there) in enumerate(zip(*masks, strict=True)):
        assert 0 < here.mean() < 1
        assert (here == there).all(), i


def test_memory_of_sparse_layers():
    """Parameters, gradients and momentum take at most a tenth of those of dense layers at density 0.01."""
    if DEVICE == "cpu":
        raise SkipTest("PyTorch counts the memory of a GPU alone")
    peaks = []
    for density in (0.01, 1.0):
        mg.manual_seed(0)
        n = 4096
        M = mg.create_model(
            "ReLU;ReLU;Linear", [n, n, n, 10], densities=[density, density, 1], optimizers="Momentum(0.9)"
        )
        M.to("torch", device=DEVICE)
        X, T = (M.backend.from_numpy(np.ones((8, k), np.float32), M.device) for k in (n, 10))
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        step = mg.compile_step(M, mg.SoftmaxCrossEntropyLoss())
        step.load(M.state())
        for _ in range(3):
            step(X, T, M.scalar(0.01))
        peaks.append(torch.cuda.max_memory_allocated() - before)
        del M, X, T, step
    assert peaks[0] < peaks[1] / 10, peaks
