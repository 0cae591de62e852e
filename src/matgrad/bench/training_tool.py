"""What is measured: a tool that trains the experiments' model, one epoch at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

Parameters = list[tuple[np.ndarray, np.ndarray]]  # the weights W (K×D) and the bias b (1×K) of every layer


@dataclass(frozen=True)
class Setting:
    """What every tool trains: ReLU layers and a linear one, softmax cross-entropy, momentum, a constant rate."""

    sizes: tuple[int, ...]  # features, hidden layers, classes
    batch_size: int = 100
    learning_rate: float = 0.01
    momentum: float = 0.9
    dtype: str = "float32"

    @property
    def layers(self) -> list[tuple[int, int]]:
        """The inputs and outputs of every layer."""
        return list(pairwise(self.sizes))


class TrainingTool(ABC):
    """One tool. It is loaded, started and prepared once, then started again and timed in every round."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting

    @abstractmethod
    def load(self, X: np.ndarray, t: np.ndarray) -> None:
        """Copy examples X (N×D) and classes t (N) to where the tool trains on them."""

    @abstractmethod
    def start(self, parameters: Parameters) -> None:
        """Begin with these parameters, and with momentum 0."""

    @abstractmethod
    def train(self, batches: int) -> None:
        """Train on the first batches, in order; returns when all is computed. This is what is timed."""

    @abstractmethod
    def parameters(self) -> Parameters:
        """The parameters as they are now."""

    def prepare(self) -> None:
        """Do what happens once, such as compiling, and warm up; the parameters may change."""
        self.train(2)

    @abstractmethod
    def release(self) -> None:
        """Forget the examples, to free their memory."""
