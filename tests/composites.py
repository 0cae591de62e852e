"""Composite layers to test with: the residual layer of docs/custom.py, and layers that keep one part."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np

import matgrad as mg
from support import to_numpy

LOSS = mg.SoftmaxCrossEntropyLoss()
N, D, H, K = 6, 5, 4, 3

_specification = importlib.util.spec_from_file_location("custom", Path(__file__).parents[1] / "docs" / "custom.py")
custom = importlib.util.module_from_spec(_specification)
_specification.loader.exec_module(custom)
ShortcutLayer = custom.ShortcutLayer


def inner_layers() -> list[mg.Layer]:
    """H → 7 → H, with dropout, a buffer, and a composite inside."""
    return [
        mg.ActivationDropoutLayer(H, 7, "Sigmoid", dropout=0.3),
        ShortcutLayer(7, 7, mg.BatchNormalizationLayer(7), mg.SReLULayer(7, 7)),
        mg.LinearDropoutLayer(7, H, dropout=0.2, renew="epoch"),
    ]


def model(optimizer: str = "Momentum(0.9)", dtype: str = "float64") -> mg.MultilayerPerceptron:
    """D → H → H → K, with parts 2.1, 2.2, 2.2.1, 2.2.2 and 2.3."""
    mg.manual_seed(4)
    layers = [mg.ActivationLayer(D, H, "HyperbolicTangent"), ShortcutLayer(H, H, *inner_layers()), mg.LinearLayer(H, K)]
    M = mg.MultilayerPerceptron(layers).to(dtype=dtype)
    M.set_optimizer(optimizer)
    return M


def plain_model() -> mg.MultilayerPerceptron:
    """D → H → H → K with the default parts, a ReLU and a linear layer."""
    mg.manual_seed(5)
    return mg.MultilayerPerceptron(
        [mg.ActivationLayer(D, H, "HyperbolicTangent"), ShortcutLayer(H, H), mg.LinearLayer(H, K)]
    ).to(dtype="float64")


def batch(seed: int = 0, n: int = N) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, D)), np.eye(K)[rng.integers(0, K, n)]


def copies(state) -> dict[str, np.ndarray]:
    return {name: np.array(to_numpy(X)) for name, X in state.items()}


class Keeper(mg.Layer):
    """Y = f(X), with its only part in an attribute, a list or a dictionary"""

    def __init__(self, kept) -> None:
        super().__init__(H, H)
        self.kept = kept

    def parts(self):
        return [self.kept if isinstance(self.kept, mg.Layer) else next(iter(self.values()))]

    def values(self):
        return self.kept.values() if isinstance(self.kept, dict) else self.kept

    def feedforward(self, X):
        Y = self.parts()[0].feedforward(X)

        self.X = X
        return Y

    def backpropagate(self, Y, DY):
        (part,) = self.parts()
        part.backpropagate(Y, DY)
        self.DX = part.DX
