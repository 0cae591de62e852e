"""What each epoch adds to the history: loss and accuracy, and what training costs and the model stores."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from matgrad.callbacks.callback import Callback
from matgrad.callbacks.topology import TopologyCallback
from matgrad.evaluation.measures import evaluation_batch, measure
from matgrad.foundation.machine import peak_memory
from matgrad.layers.state import supports_of
from matgrad.layers.weights import WeightedLayer
from matgrad.program.computations import Step, sparse_parameters
from matgrad.program.models import DENSE, step_cost
from matgrad.program.program import EXAMPLES
from matgrad.program.purity import Snapshot
from matgrad.sparse.matrix import SparseMatrix, values_of

if TYPE_CHECKING:
    from matgrad.datasets import DataLoader
    from matgrad.multilayer_perceptron import MultilayerPerceptron
    from matgrad.sparse.support import Support
    from matgrad.training import Training


class Statistics(Callback):
    """The mean loss, and the accuracy or root mean squared error, of each part of the data after each epoch.

    `parts` has the data by prefix: ``{"": train, "validation_": validation}`` gives loss, accuracy,
    validation_loss and validation_accuracy. The `metric` is 'accuracy', 'rmse', 'mae', 'r2' or 'perplexity', by
    default the accuracy of targets that are class
    indices, else the RMSE. Unless `every_epoch`, only `measured` gives them.
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


METRICS = ("accuracy", "rmse", "mae", "r2", "perplexity")
MEASURES = ("loss", *METRICS)


def measure_and_part(name: str) -> tuple[str, str | None]:
    """What a value of a row measures, and of which part of the data; the part of a value of the run is None."""
    for part in ("validation", "test"):
        if name.startswith(f"{part}_"):
            return name.removeprefix(f"{part}_"), part
    return name, "training" if name in MEASURES else None


class Accounting(Callback):
    """Adds to the row of each epoch what its training costs, and what the model stores after it.

    `flops` are the floating-point operations of all products of the epoch, 2·nnz·N for a sparse matrix with nnz stored
    weights and N examples, and `dense_flops` those of the same model with dense layers and examples; both are left out
    if the step cannot be recorded. `update_flops` are those of topology updates. `nnz` has the number of stored
    weights by the name of the layer, `density` their fraction of all weights, and `explored` the fraction of weights
    that were stored at any time (ITOP). `peak_memory` has the most bytes that the process has had in memory so far.

    A callback that changes supports belongs before it.
    """

    state_names = MappingProxyType(dict.fromkeys(("_examples", "_flops", "_dense_flops", "_updates"), int))

    _supports: dict[str, Support]  # of the next step
    _cost: Counter[str] | None  # of a step with them

    def start(self, run: Training) -> None:
        self._known: tuple | None = None  # what the cost depends on
        self._examples = self._flops = self._dense_flops = self._updates = 0
        self._look(run)

    def poll(self, run: Training) -> None:
        """Count the examples since the last call, with the supports that they were trained with."""
        examples = run.examples - self._examples
        if self._cost is not None and examples:
            nnz = {DENSE: examples} | {name: examples * S.nnz for name, S in self._supports.items()}
            sizes = {DENSE: examples} | {name: examples * math.prod(S.shape) for name, S in self._supports.items()}
            if isinstance(X := run.inputs, SparseMatrix):
                N, D = X.shape
                nnz[EXAMPLES], sizes[EXAMPLES] = round(examples * X.support.nnz / N), examples * D
            self._flops += sum(count * nnz[name] for name, count in self._cost.items())
            self._dense_flops += sum(count * sizes[name] for name, count in self._cost.items())
        self._examples = run.examples
        self._look(run)

    def state(self, run: Training) -> dict[str, Any]:
        self.poll(run)
        return super().state(run)

    def epoch(self, run: Training) -> None:
        if self._cost is not None:
            run.row.update(flops=self._flops, dense_flops=self._dense_flops)
        self._examples = self._flops = self._dense_flops = 0
        topology = next((x for x in run.callbacks if isinstance(x, TopologyCallback)), None)
        if topology is not None:
            run.row["update_flops"] = topology.update_flops - self._updates
            self._updates = topology.update_flops
        run.row.update(_stored(run.M, topology), peak_memory=peak_memory())
        self._look(run)

    def _look(self, run: Training) -> None:
        """Take the present supports; with other sparse parameters, or sparse examples, a step has another cost."""
        self._supports = supports_of(run.M.state())
        is_sparse = isinstance(run.inputs, SparseMatrix)
        if self._known != (known := ({*self._supports}, is_sparse)):
            self._known, self._cost = known, step_cost(Step(run.M, run.loss, run.clip_norm), is_sparse)


def _stored(M: MultilayerPerceptron, topology: TopologyCallback | None) -> dict[str, Any]:
    """The number of stored weights by layer, and which fractions of all weights are and have been stored."""
    weights = {name: layer.W for name, layer in M.walk() if isinstance(layer, WeightedLayer)}
    for path, layer, name in sparse_parameters(M):  # also those of other layers
        weights[path if name == "W" else f"{path}.{name}"] = getattr(layer, name)
    nnz = {name: math.prod(values_of(W).shape) for name, W in weights.items()}
    sizes = {name: math.prod(W.shape) for name, W in weights.items()}
    total = max(sum(sizes.values()), 1)
    density = explored = sum(nnz.values()) / total
    if topology is not None:
        sparse = sum(sizes[name] for name, W in weights.items() if isinstance(W, SparseMatrix))
        explored = 1 - (1 - topology.explored) * sparse / total
    return {"nnz": nnz, "density": density, "explored": explored}
