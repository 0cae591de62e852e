"""Loss and accuracy after each epoch, and the end of a diverging run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from matgrad.callbacks.callback import Callback
from matgrad.evaluation.measures import EVALUATION_BATCH, measure

if TYPE_CHECKING:
    from matgrad.datasets import DataLoader
    from matgrad.training import Training


class Statistics(Callback):
    """The mean loss, and the accuracy or root mean squared error, of each part of the data after each epoch.

    `parts` has the data by prefix: ``{"": train, "validation_": validation}`` gives loss, accuracy,
    validation_loss and validation_accuracy.
    """

    def __init__(self, parts: Mapping[str, DataLoader]) -> None:
        self.parts = {prefix: data.in_order(EVALUATION_BATCH) for prefix, data in parts.items()}

    def epoch(self, run: Training) -> None:
        run.row.update(self.measured(run))

    def measured(self, run: Training) -> dict[str, float]:
        """The measures of the current model, by name."""
        values: dict[str, float] = {}
        for prefix, data in self.parts.items():
            measures = measure(run.M, data, run.loss, compiled=run.compiled)
            values[f"{prefix}loss"] = measures.loss
            metric = "rmse" if data.labels is None else "accuracy"
            values[f"{prefix}{metric}"] = getattr(measures, metric)
        return values


class Divergence(Callback):
    """Ends a run whose loss is no longer finite."""

    def epoch(self, run: Training) -> None:
        check_finite_loss(run.row.get("loss", 0.0), run.epoch)


def check_finite_loss(loss: float, epoch: int) -> None:
    """Raise FloatingPointError if the loss is nan or infinite."""
    if not math.isfinite(loss):
        raise FloatingPointError(
            f"the loss is {loss} after epoch {epoch}: a smaller learning rate or clipping may help"
        )
