"""What a tool is: it trains the model of an experiment, one epoch at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from matgrad.backends.base import Matrix

# the weights W (K×D, dense or sparse) and the bias b (1×K) of every layer
Parameters = list[tuple[Matrix, np.ndarray]]


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


class TrainingTool(ABC):
    """One tool. It is loaded, started and prepared once, then started again and timed in every round."""

    folder: Path  # for files of its own; set before the tool is loaded
    is_own_process = False  # whether it starts a process that trains

    def __init__(self, setting: Setting) -> None:
        self.setting = setting

    @abstractmethod
    def load(self, X: np.ndarray, t: np.ndarray) -> None:
        """Copy examples X (N×D) and classes t (N) to where the tool trains on them."""

    @abstractmethod
    def start(self, parameters: Parameters) -> None:
        """Begin with these parameters, and with momentum 0."""

    @abstractmethod
    def train(self, batches: int) -> float | None:
        """Train on the first `batches` batches, in order, and return when all is computed. This is what is timed.

        A tool that is a separate program returns the seconds that it measured itself.
        """

    @abstractmethod
    def parameters(self) -> Parameters:
        """The present parameters; an empty list if nothing is trained."""

    def waited(self) -> float:
        """The seconds for which it has waited for other processes so far."""
        return 0.0

    def prepare(self) -> None:
        """Do what happens once, such as compiling, and warm up; the parameters may change."""
        self.train(2)

    @abstractmethod
    def release(self) -> None:
        """Drop the examples, to free their memory."""
