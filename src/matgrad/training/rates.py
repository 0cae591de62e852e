"""The learning rates of a run, step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from matgrad.backends.base import Scalar
from matgrad.learning_rate import checked_rate

if TYPE_CHECKING:
    from matgrad.multilayer_perceptron import MultilayerPerceptron


class Rates:
    """The learning rate of every step: that of its epoch or, with `per_step`, its own, counted over all epochs."""

    def __init__(self, M: MultilayerPerceptron, schedule: Callable[[int], float], per_step: bool) -> None:
        self.M, self.schedule, self.per_step = M, schedule, per_step

    def start(self, epoch: int, first: int) -> None:
        """Begin an epoch, whose first step has this number."""
        self.first = first
        self._set(checked_rate(self.schedule, epoch))

    def __call__(self, i: int) -> Scalar:
        """η of step i of the epoch."""
        if self.per_step:
            self._set(checked_rate(self.schedule, self.first + i))
        return self.eta

    def _set(self, lr: float) -> None:
        self.last, self.eta = lr, self.M.scalar(lr)
