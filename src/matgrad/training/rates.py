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

    _eta: Scalar | None  # the last one, if it was asked for

    def __init__(self, M: MultilayerPerceptron, schedule: Callable[[int], float], per_step: bool) -> None:
        self.M, self.schedule, self.per_step = M, schedule, per_step

    def start(self, epoch: int, first: int) -> None:
        """Begin an epoch, whose first step has this number."""
        self.first = first
        self._set(checked_rate(self.schedule, epoch))

    def __call__(self, i: int) -> Scalar:
        """η of step i of the epoch, as a 0-d array."""
        self.number(i)
        if self._eta is None:
            self._eta = self.M.scalar(self.last)
        return self._eta

    def number(self, i: int) -> float:
        """η of step i of the epoch, as a number."""
        if self.per_step:
            self._set(checked_rate(self.schedule, self.first + i))
        return self.last

    def _set(self, lr: float) -> None:
        self.last, self._eta = lr, None
