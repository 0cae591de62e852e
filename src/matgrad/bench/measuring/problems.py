"""Problems: the paper's two experiments in the setting that reproduces its table, data, and initial weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from matgrad import datasets
from matgrad.bench.tools.training_tool import Parameters, Setting
from matgrad.datasets import Dataset
from matgrad.sparse.densities import erdos_renyi_densities, random_support
from matgrad.sparse.matrix import SparseMatrix
from matgrad.weight_initializers import initial_weights, sparse_weights

# the setting, for a record; the paper does not state all of it, but this reproduces its table
DESCRIPTION = {
    "layers": "ReLU;ReLU;Linear",
    "loss": "SoftmaxCrossEntropy",
    "optimizer": "Momentum(0.9)",
    "weights": "XavierNormalized",
    "biases": "zero",
    "learning_rate": 0.01,
    "preprocessing": "pixels / 255",
    "order": "as in the files, not shuffled",
    "epochs": 1,
}

OPTIMIZERS = {"GradientDescent": 0.0, "Momentum(0.9)": 0.9}  # with their momentum, for the C++ core

Row = tuple[float, float, float, float]  # loss, train accuracy, test accuracy and seconds in the paper


@dataclass(frozen=True)
class Experiment:
    """One experiment: its data, the sizes of the model, and the paper's rows for it."""

    name: str
    title: str
    read: Callable[[Path], Dataset]
    examples: tuple[int, int]  # for training and for testing
    sizes: tuple[int, ...]
    paper: dict[str, Row]

    def setting(self, dtype: str) -> Setting:
        """The setting that every tool trains."""
        return Setting(self.sizes, dtype=dtype)


EXPERIMENTS = {
    "mnist": Experiment(
        "mnist",
        "MNIST",
        datasets.mnist,
        (60000, 10000),
        (784, 1024, 512, 10),
        {
            "PyTorch-Native": (0.204, 0.940, 0.939, 3.518),
            "Nerva-C++": (0.203, 0.940, 0.939, 3.138),
            "Nerva-PyTorch": (0.204, 0.940, 0.939, 4.909),
            "Nerva-TensorFlow": (0.204, 0.940, 0.939, 12.818),
            "Nerva-JAX": (0.204, 0.940, 0.939, 11.863),
            "Nerva-NumPy": (0.204, 0.940, 0.939, 10.630),
        },
    ),
    "cifar10": Experiment(
        "cifar10",
        "CIFAR-10",
        datasets.cifar10,
        (50000, 10000),
        (3072, 1024, 512, 10),
        {
            "PyTorch-Native": (1.649, 0.410, 0.412, 7.885),
            "Nerva-C++": (1.640, 0.417, 0.418, 7.423),
            "Nerva-PyTorch": (1.643, 0.415, 0.417, 11.277),
            "Nerva-TensorFlow": (1.657, 0.407, 0.407, 18.941),
            "Nerva-JAX": (1.646, 0.417, 0.415, 19.707),
            "Nerva-NumPy": (1.670, 0.398, 0.398, 20.985),
        },
    ),
}


@dataclass(frozen=True, eq=False)
class Data:
    """Examples with pixels in [0, 1], their classes, and where they come from."""

    Xtrain: np.ndarray
    Ttrain: np.ndarray
    Xtest: np.ndarray
    Ttest: np.ndarray
    source: str

    @property
    def is_generated(self) -> bool:
        """Whether it stands in for the real data."""
        return self.source == GENERATED


GENERATED = "generated"


def load(experiment: Experiment, folder: Path | None, *, steps: int | None = None, seed: int = 0) -> Data:
    """The data in the subfolder with the experiment's name, or generated data of the same shape if there is none.

    With `steps`, only the training examples of that many batches.
    """
    count, tests = experiment.examples
    if steps is not None:
        count = min(count, steps * experiment.setting("float32").batch_size)
    place = None if folder is None else folder / experiment.name
    if place is None or not place.exists():
        return generated(experiment.sizes[0], experiment.sizes[-1], count, tests, seed)
    data = experiment.read(place).normalize("unit")
    if data.input_size != experiment.sizes[0] or len(data.Xtrain) < count:
        found, expected = f"{len(data.Xtrain)} × {data.input_size}", f"{count} × {experiment.sizes[0]}"
        raise ValueError(f"{place}: found {found} training examples, expected {expected}")
    return Data(data.Xtrain[:count], data.Ttrain[:count], data.Xtest, data.Ttest, str(place))


def generated(features: int, classes: int, count: int, tests: int, seed: int = 0) -> Data:
    """Noisy copies of one random image per class, with bytes as pixels; a tenth of the classes are random."""
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 128, (classes, features), dtype=np.uint8)

    def draw(N: int) -> tuple[np.ndarray, np.ndarray]:
        t = rng.integers(classes, size=N)
        X = np.divide(images[t] + rng.integers(0, 128, (N, features), dtype=np.uint8), 255, dtype=np.float32)
        return X, np.where(rng.random(N) < 0.1, rng.integers(classes, size=N), t)

    return Data(*draw(count), *draw(tests), GENERATED)


def initial_parameters(setting: Setting, seed: int) -> Parameters:
    """Normalized Xavier weights and zero biases, the same for every tool."""
    rng = np.random.default_rng(seed)
    weights = [initial_weights("XavierNormalized", K, D, rng) for D, K in setting.layers]
    return [(W.astype(setting.dtype), np.zeros((1, len(W)), setting.dtype)) for W in weights]


def sparse_parameters(setting: Setting, density: float, seed: int) -> Parameters:
    """Random supports with Erdős–Rényi densities, weights and biases, the same for every tool."""
    rng = np.random.default_rng(seed)
    parameters = []
    for (D, K), d in zip(setting.layers, erdos_renyi_densities(setting.sizes, density), strict=True):
        S = random_support(K, D, d, rng)
        name = "XavierNormalized"
        W = initial_weights(name, K, D, rng) if S is None else sparse_weights(name, S, rng)[None]
        W = W.astype(setting.dtype)
        b = initial_weights("Xavier", K, D, rng, (1, K)).astype(setting.dtype)
        parameters.append((W if S is None else SparseMatrix(S, W), b))
    return parameters
