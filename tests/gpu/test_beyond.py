"""Convolution, pooling, embedding and attention on PyTorch: recorded steps against the equations, and deterministic."""

from __future__ import annotations

import numpy as np

import matgrad as mg
from gpu import DEVICE
from matgrad.engines.fallback import TrainingStep

MODELS = {
    "images": ("Conv(8, 3, padding=1, act=ReLU);MaxPool(2);Each(BatchNormalization);Conv(4, 3);Linear", "8x8x2;5"),
    "text": ("Embedding(16, vocabulary=9);Positions;Transformer(2, heads=4);Linear", "12;5"),
    "llama": (
        "Embedding(16, vocabulary=9);Residual(Each(RMSNormalization;Linear(32));Rotary(4, groups=2);"
        "Attention(4, groups=2);Each(Linear(16)));"
        "Residual(Each(RMSNormalization;Gated(SiLU(24);Linear(24));Linear(16)));Linear",
        "6;5",
    ),
    "sparse": ("Conv(8, 3, act=GELU);AvgPool(2);Linear", "8x8x2;5"),
}


def trained(name: str, compiled: bool, steps: int = 5, device: str | None = DEVICE) -> dict[str, np.ndarray]:
    """The state after some steps."""
    mg.manual_seed(3)
    M = mg.create_model(*MODELS[name], optimizers="Momentum(0.9)", densities="0.4;0.5" if name == "sparse" else None)
    M.to("torch", device=device)
    rng, D = np.random.default_rng(4), M.layers[0].input_size
    X = rng.integers(9, size=(steps, 7, D)) if "Embedding" in MODELS[name][0] else rng.normal(size=(steps, 7, D))
    T = np.eye(5)[rng.integers(5, size=(steps, 7))]
    step = TrainingStep(M, mg.SoftmaxCrossEntropyLoss(), compiled=compiled)
    step.load(M.state())
    for A, B in zip(X, T, strict=True):
        step(*(M.backend.from_numpy(x.astype("float32"), M.device) for x in (A, B)), M.scalar(0.05))
    return {key: M.backend.to_numpy(x) for key, x in step.state().items() if hasattr(x, "cpu")}


def test_steps_are_the_equations():
    for name in MODELS:
        expected, found = trained(name, compiled=False), trained(name, compiled=True)
        for key, A in expected.items():
            np.testing.assert_allclose(found[key], A, rtol=2e-4, atol=2e-5, err_msg=f"{name}: {key}")


def test_runs_are_equal_to_the_last_bit():
    for name in MODELS:
        first, second = trained(name, compiled=True), trained(name, compiled=True)
        for key, A in first.items():
            np.testing.assert_array_equal(second[key], A, err_msg=f"{name}: {key}")
