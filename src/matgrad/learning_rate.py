"""Learning rate schedulers: pure functions i ↦ η_i, where i counts epochs or steps from 0."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from matgrad.specifications.parsing import create


class LearningRateScheduler:
    """A function ℕ → ℝ that gives the learning rate of epoch (or step) i."""

    lr: float

    def __post_init__(self) -> None:
        self.require(math.isfinite(self.lr) and self.lr >= 0, "lr must be finite and at least 0")

    def require(self, condition: bool, message: str) -> None:
        """Raise ValueError with the message and the scheduler, unless the condition holds."""
        if not condition:
            raise ValueError(f"{message}, found {self}")

    def __call__(self, i: int) -> float:
        """η_i"""
        raise NotImplementedError


def checked_rate(schedule: Callable[[int], float], i: int) -> float:
    """η_i, after a check that it is a finite number of 0 or more."""
    try:
        eta = float(schedule(i))
    except OverflowError:
        eta = math.inf
    if not 0 <= eta < math.inf:
        expected = "expected a finite number of 0 or more as learning rate"
        raise ValueError(f"{schedule}: {expected}, found {eta} for number {i}, counted from 0")
    return eta


@dataclass(frozen=True)
class ConstantScheduler(LearningRateScheduler):
    """η_i = η₀"""

    lr: float

    def __call__(self, i: int) -> float:
        return self.lr


@dataclass(frozen=True)
class TimeBasedScheduler(LearningRateScheduler):
    """η_{i+1} = η_i / (1 + d·i): η₀, η₀, η₀/(1+d), η₀/((1+d)(1+2d)) for i = 0, 1, 2, 3"""

    lr: float
    decay: float

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(self.decay >= 0, "decay must be at least 0")

    def __call__(self, i: int) -> float:
        return self.lr / math.prod((1 + self.decay * j for j in range(i)), start=1.0)


@dataclass(frozen=True)
class StepBasedScheduler(LearningRateScheduler):
    """η_i = η₀·d^⌊(1+i)/r⌋, with change rate d and drop rate r"""

    lr: float
    change_rate: float
    drop_rate: float

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(self.drop_rate > 0, "drop_rate must be more than 0")
        self.require(self.change_rate >= 0, "change_rate must be at least 0")

    def __call__(self, i: int) -> float:
        return self.lr * self.change_rate ** math.floor((1 + i) / self.drop_rate)


@dataclass(frozen=True)
class MultiStepLRScheduler(LearningRateScheduler):
    """η_i = η₀·Γ^k, with k the number of milestones m_j ≤ i (the paper's sum never stops decaying)"""

    lr: float
    milestones: Sequence[int]  # or a single milestone
    gamma: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.milestones, int | float):
            object.__setattr__(self, "milestones", [self.milestones])
        is_list = not isinstance(self.milestones, str) and all(isinstance(m, int) for m in self.milestones)
        self.require(is_list and min(self.milestones, default=0) >= 0, "milestones must be integers of 0 or more")
        self.require(self.gamma >= 0, "gamma must be at least 0")

    def __call__(self, i: int) -> float:
        return self.lr * self.gamma ** sum(m <= i for m in self.milestones)


@dataclass(frozen=True)
class ExponentialScheduler(LearningRateScheduler):
    """η_i = η₀·e^(-d·i)"""

    lr: float
    decay: float

    def __call__(self, i: int) -> float:
        return self.lr * math.exp(-self.decay * i)


@dataclass(frozen=True)
class CosineScheduler(LearningRateScheduler):
    """η_i = m + (η₀ - m)·(1 + cos(π·i/n))/2 for i < n, with n steps and minimum m; then η_i = m

    PyTorch's CosineAnnealingLR rises again after n steps.
    """

    lr: float
    steps: int
    minimum: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(isinstance(self.steps, int) and self.steps >= 1, "steps must be a positive integer")
        self.require(0 <= self.minimum <= self.lr, "minimum must be from 0 to lr")

    def __call__(self, i: int) -> float:
        return self.minimum + (self.lr - self.minimum) * (1 + math.cos(math.pi * min(i / self.steps, 1))) / 2


@dataclass(frozen=True)
class WarmUpScheduler(LearningRateScheduler):
    """η_i = s_0·(i + 1)/(w + 1) for i < w, with w steps; then η_i = s_(i-w), with any other schedule s

    As PyTorch's SequentialLR of LinearLR(start_factor=1/(w+1)) and the schedule; Keras begins with η_0 = 0.
    """

    steps: int
    schedule: Callable[[int], float]  # or a number, or its specification

    def __post_init__(self) -> None:
        object.__setattr__(self, "schedule", create_scheduler(self.schedule))
        self.require(isinstance(self.steps, int) and self.steps >= 1, "steps must be a positive integer")

    def __call__(self, i: int) -> float:
        w, s = self.steps, self.schedule
        return s(0) * ((i + 1) / (w + 1)) if i < w else s(i - w)


SCHEDULERS: dict[str, type[LearningRateScheduler]] = {
    "Constant": ConstantScheduler,
    "TimeBased": TimeBasedScheduler,
    "StepBased": StepBasedScheduler,
    "MultiStepLR": MultiStepLRScheduler,
    "Exponential": ExponentialScheduler,
    "Cosine": CosineScheduler,
    "WarmUp": WarmUpScheduler,
}


def create_scheduler(specification: float | str | Callable[[int], float]) -> Callable[[int], float]:
    """The scheduler of a number or a string, such as ``WarmUp(5; Cosine(0.1; 50))``; a function stays as it is."""
    if callable(specification):
        return specification
    try:
        lr = float(specification)
    except (TypeError, ValueError):
        return create(str(specification), SCHEDULERS, "learning rate scheduler")
    return ConstantScheduler(lr)
