"""Problems: models, data and initial weights, which are the same for every tool."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

import matgrad as mg
from matgrad.sparse.densities import erdos_renyi_densities, random_support
from matgrad.sparse.matrix import values_of
from matgrad.weight_initializers import create_initializer, initial_weights, sparse_weights

# the weights W (K×D, dense or sparse) and the bias b (1×K) of every layer
Parameters = list[tuple[Any, np.ndarray]]

GENERATED = "generated"


@dataclass(frozen=True)
class Setting:
    """What every tool trains: ReLU layers and a linear layer, softmax cross-entropy, a constant learning rate."""

    sizes: tuple[int, ...]  # features, hidden layers, classes
    batch_size: int = 100
    learning_rate: float = 0.01
    momentum: float = 0.9  # 0 for plain gradient descent
    dtype: str = "float32"
    device: str | None = None  # None is the CPU
    matmul: str = "float32"  # how products are computed: "float32" or "tf32"

    @property
    def layers(self) -> list[tuple[int, int]]:
        """The inputs and outputs of every layer."""
        return list(pairwise(self.sizes))

    @property
    def optimizer(self) -> str:
        """The specification of the optimizer in matgrad."""
        return f"Momentum({self.momentum})" if self.momentum else "GradientDescent"


@dataclass(frozen=True)
class Data:
    """Examples, their classes, and where they come from."""

    Xtrain: np.ndarray
    Ttrain: np.ndarray
    Xtest: np.ndarray
    Ttest: np.ndarray
    source: str

    def about(self) -> dict[str, Any]:
        """What a record says about it."""
        (N, D), tests = self.Xtrain.shape, len(self.Xtest)
        counts = {"training_examples": N, "test_examples": tests, "features": D}
        return {"source": self.source, "is_generated": self.source == GENERATED, **counts}


def generated(features: int, classes: int, count: int, tests: int = 1, seed: int = 0) -> Data:
    """Noisy copies of one random image per class, with bytes as pixels; a tenth of the classes are random."""
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 128, (classes, features), dtype=np.uint8)

    def draw(N: int) -> tuple[np.ndarray, np.ndarray]:
        t = rng.integers(classes, size=N)
        X = np.divide(images[t] + rng.integers(0, 128, (N, features), dtype=np.uint8), 255, dtype=np.float32)
        return X, np.where(rng.random(N) < 0.1, rng.integers(classes, size=N), t)

    return Data(*draw(count), *draw(tests), GENERATED)


def initial_parameters(setting: Setting, seed: int, density: float = 1.0) -> Parameters:
    """Normalized Xavier weights and zero biases.

    Sparse weights have Erdős–Rényi densities and biases that are not zero: many inputs of ReLU would be 0, where its
    derivative is 1 in the paper and 0 in PyTorch.
    """
    rng, name, dtype = np.random.default_rng(seed), "XavierNormalized", setting.dtype
    if density == 1:
        weights = [initial_weights(name, K, D, rng) for D, K in setting.layers]
        return [(W.astype(dtype), np.zeros((1, len(W)), dtype)) for W in weights]
    parameters = []
    for (D, K), d in zip(setting.layers, erdos_renyi_densities(setting.sizes, density), strict=True):
        S = random_support(K, D, d, rng)
        W = initial_weights(name, K, D, rng) if S is None else sparse_weights(name, S, rng)[None]
        W, b = W.astype(dtype), create_initializer("Xavier")(rng, K, D, (1, K)).astype(dtype)
        parameters.append((W if S is None else mg.SparseMatrix(S, W), b))
    return parameters


def dense(W: Any) -> np.ndarray:
    """W as a dense matrix."""
    return W.to_dense() if isinstance(W, mg.SparseMatrix) else W


def stored(parameters: Parameters) -> int:
    """The number of weights that are stored."""
    return sum(values_of(W).size for W, _ in parameters)
