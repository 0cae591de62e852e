"""Problems: models, data and initial weights, and the files through which the processes share them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

import matgrad as mg

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
        is_generated = self.source == GENERATED
        counts = {"training_examples": N, "test_examples": tests, "features": D}
        return {"source": self.source, "is_generated": is_generated, **counts}


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
    """Normalized Xavier weights and zero biases, the same for every tool.

    Sparse weights have Erdős–Rényi densities and biases that are not zero: many inputs of ReLU would be 0, where its
    derivative is 1 in the paper and 0 in PyTorch.
    """
    from matgrad.sparse.densities import erdos_renyi_densities, random_support
    from matgrad.weight_initializers import initial_weights, sparse_weights

    rng, name = np.random.default_rng(seed), "XavierNormalized"
    if density == 1:
        weights = [initial_weights(name, K, D, rng) for D, K in setting.layers]
        return [(W.astype(setting.dtype), np.zeros((1, len(W)), setting.dtype)) for W in weights]
    parameters = []
    for (D, K), d in zip(setting.layers, erdos_renyi_densities(setting.sizes, density), strict=True):
        S = random_support(K, D, d, rng)
        W = initial_weights(name, K, D, rng) if S is None else sparse_weights(name, S, rng)[None]
        W = W.astype(setting.dtype)
        b = initial_weights("Xavier", K, D, rng, (1, K)).astype(setting.dtype)
        parameters.append((W if S is None else mg.SparseMatrix(S, W), b))
    return parameters


def values_of(W: Any) -> np.ndarray:
    """The stored elements of W, dense or sparse."""
    return W.values if isinstance(W, mg.SparseMatrix) else W


def densely(parameters: Parameters) -> Parameters:
    """The parameters with dense weights."""
    return [(W.to_dense() if isinstance(W, mg.SparseMatrix) else W, b) for W, b in parameters]


# -- files ------------------------------------------------------------------------------------------


def write_problem(folder: Path, X: np.ndarray, t: np.ndarray, initial: Parameters) -> None:
    """Examples, classes and initial parameters, for every tool."""
    np.save(folder / "X.npy", X)
    np.save(folder / "t.npy", t)
    write_parameters(folder / "initial.npz", initial)


def write_parameters(path: Path, parameters: Parameters) -> None:
    """W1, b1, W2, …; for a sparse W1 its values, with W1.shape, W1.starts and W1.columns."""
    content: dict[str, Any] = {}
    for k, (W, b) in enumerate(parameters, start=1):
        content |= {f"W{k}": values_of(W), f"b{k}": b}
        if isinstance(W, mg.SparseMatrix):
            S = W.support
            content |= {f"W{k}.shape": np.array(S.shape), f"W{k}.starts": S.starts, f"W{k}.columns": S.columns}
    np.savez(path, **content)


def read_parameters(path: Path) -> Parameters:
    """The parameters in a file that `write_parameters` wrote."""
    with np.load(path) as file:
        content = dict(file)
    count = sum(name.startswith("b") for name in content)
    return [(_weights(content, f"W{k}"), content[f"b{k}"]) for k in range(1, count + 1)]


def _weights(content: dict[str, np.ndarray], name: str) -> Any:
    """The weights with this name, dense or sparse."""
    if f"{name}.shape" not in content:
        return content[name]
    shape = tuple(content[f"{name}.shape"].tolist())
    support = mg.Support(shape, content[f"{name}.starts"], content[f"{name}.columns"])
    return mg.SparseMatrix(support, content[name])
