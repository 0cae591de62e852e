"""Loss and accuracy after each epoch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from matgrad.callbacks.callback import Callback
from matgrad.evaluation.measures import evaluation_batch, measure
from matgrad.program.purity import Snapshot

if TYPE_CHECKING:
    from matgrad.datasets import DataLoader
    from matgrad.training import Training


class Statistics(Callback):
    """The mean loss, and the accuracy or root mean squared error, of each part of the data after each epoch.

    `parts` has the data by prefix: ``{"": train, "validation_": validation}`` gives loss, accuracy,
    validation_loss and validation_accuracy. The `metric` is 'accuracy', 'rmse', 'mae' or 'r2', by default the accuracy
    of targets that are class indices, else the RMSE. Unless `every_epoch`, only `measured` gives them.
    """

    def __init__(self, parts: Mapping[str, DataLoader], metric: str | None = None, *, every_epoch: bool = True) -> None:
        if metric not in (None, *METRICS):
            raise ValueError(f"metric: expected one of {', '.join(METRICS)}, found {metric!r}")
        self.parts, self.metric, self.every_epoch = dict(parts), metric, every_epoch

    def epoch(self, run: Training) -> None:
        if self.every_epoch:
            run.row.update(self.measured(run))

    def measured(self, run: Training) -> dict[str, float]:
        """The measures of the current model, by name."""
        values: dict[str, float] = {}
        for prefix, data in self.parts.items():
            metric = self.metric or ("rmse" if data.labels is None else "accuracy")
            values[f"{prefix}loss"], values[f"{prefix}{metric}"] = _loss_and(metric, run, data)
        return values


def _loss_and(metric: str, run: Training, data: DataLoader) -> tuple[float, float]:
    """The mean loss and the metric of the current model; ranks that train together measure a part each."""
    N, group = data.size, run.group
    # code of users may look at several examples at once, and R² is no mean over examples
    is_shared = 1 < group.size <= N and metric != "r2" and Snapshot(run.M, run.loss).is_builtin
    if is_shared:
        data = data.between(group.part(N).start, group.part(N).stop)
    measures = measure(run.M, data.in_order(evaluation_batch(run.M)), run.loss, compiled=run.compiled)
    own = measures.loss, getattr(measures, metric)
    if not is_shared:
        return own
    counts, losses, metrics = zip(*group.exchange([data.size, *own], "the statistics"), strict=True)
    power = 2 if metric == "rmse" else 1
    mean = float(np.average(np.power(metrics, power), weights=counts))
    return float(np.average(losses, weights=counts)), mean ** (1 / power)


METRICS = ("accuracy", "rmse", "mae", "r2")
MEASURES = ("loss", *METRICS)


def measure_and_part(name: str) -> tuple[str, str | None]:
    """What a value of a row measures, and of which part of the data; the part of a value of the run is None."""
    for part in ("validation", "test"):
        if name.startswith(f"{part}_"):
            return name.removeprefix(f"{part}_"), part
    return name, "training" if name in MEASURES else None
