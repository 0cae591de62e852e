"""What is measured: a tool that trains the experiments' model, one epoch at a time."""

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
    """What every tool trains: ReLU layers and a linear one, softmax cross-entropy, a constant rate."""

    sizes: tuple[int, ...]  # features, hidden layers, classes
    batch_size: int = 100
    learning_rate: float = 0.01
    momentum: float = 0.9  # 0 for plain gradient descent
    dtype: str = "float32"

    @property
    def layers(self) -> list[tuple[int, int]]:
        """The inputs and outputs of every layer."""
        return list(pairwise(self.sizes))

    @property
    def optimizer(self) -> str:
        """The optimizer in matgrad's words."""
        return f"Momentum({self.momentum})" if self.momentum else "GradientDescent"


class TrainingTool(ABC):
    """One tool. It is loaded, started and prepared once, then started again and timed in every round."""

    folder: Path  # for files of its own; set before the tool is loaded
    is_own_process = False  # whether it trains in a process that it starts

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
        """Train on the first batches, in order; returns when all is computed. This is what is timed.

        A tool that is a program of its own returns the seconds that it measured itself.
        """

    @abstractmethod
    def parameters(self) -> Parameters:
        """The parameters as they are now; none where nothing is trained."""

    def prepare(self) -> None:
        """Do what happens once, such as compiling, and warm up; the parameters may change."""
        self.train(2)

    @abstractmethod
    def release(self) -> None:
        """Forget the examples, to free their memory."""
