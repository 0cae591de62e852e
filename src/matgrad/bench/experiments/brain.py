"""Networks of brain scale: the time and the memory that it takes to build and to train a very wide sparse network."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import count
from typing import Any

from matgrad.bench.measuring.problems import GENERATED, generated
from matgrad.callbacks import Callback
from matgrad.datasets import DataLoader
from matgrad.evaluation.measures import compute_loss
from matgrad.foundation.machine import peak_memory
from matgrad.foundation.random_numbers import manual_seed
from matgrad.layers import Layer, LinearLayer
from matgrad.loss_functions import default_loss
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.sparse.matrix import values_of
from matgrad.specifications.models import create_model
from matgrad.training import Training, stochastic_gradient_descent

Report = Callable[[str, int], None]  # what was done, and how many layers and steps
RATE = 3.0  # divided by the number of neurons of the last hidden layer, over which an output sums


@dataclass(frozen=True)
class Network:
    """Hidden layers of the same size, whose neurons have so many inputs on average; the output layer is dense."""

    layers: int
    neurons: int
    connections: int
    features: int
    classes: int

    @property
    def sizes(self) -> list[int]:
        """The number of features, then the sizes of the layers."""
        return [self.features, *[self.neurons] * self.layers, self.classes]

    def build(self, on_layer: Callable[[Layer], None]) -> MultilayerPerceptron:
        """The network, with ReLU, He's initial weights and plain gradient descent."""
        densities = [min(1.0, self.connections / D) for D in self.sizes[:-2]] + [1.0]
        kinds, rule = ["ReLU"] * self.layers + ["Linear"], "GradientDescent"
        return create_model(kinds, self.sizes, weights="He", optimizers=rule, densities=densities, on_layer=on_layer)


class Clock(Callback):
    """When steps were done: the engine tells of each one, unless that takes less than a tenth of a second."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.done: list[tuple[int, float]] = []  # number of steps, time

    def start(self, run: Training) -> None:
        """Start the clock."""
        self.done.append((0, time.perf_counter()))

    def poll(self, run: Training) -> None:
        """Tell what was done."""
        new = run.batch - self.done[-1][0]
        if new:
            self.report(f"step {run.batch} of {run.batches} is done", new)
            self.done.append((run.batch, time.perf_counter()))

    def seconds_per_step(self) -> float:
        """The mean of all steps but the first, with which compiling and memory count, if they are told apart."""
        (a, start), (b, end) = self.done[min(1, len(self.done) - 2)], self.done[-1]
        return (end - start) / (b - a)


def run_brain(network: Network, *, batch_size: int, steps: int, seed: int, report: Report) -> dict[str, Any]:
    """The record of a network that is built, and trained on generated data; `report` tells of each layer and step."""
    manual_seed(seed)
    start, number = time.perf_counter(), count(1)
    M = network.build(lambda layer: report(f"layer {next(number)} of {network.layers + 1} is built", 1))
    build_seconds = time.perf_counter() - start
    data = generated(network.features, network.classes, steps * batch_size, 1, seed)
    loader = DataLoader(data.Xtrain, data.Ttrain, batch_size, classes=network.classes)
    loss, rate, clock = default_loss(M), RATE / network.neurons, Clock(report)
    losses = [compute_loss(M, loader, loss)]
    stochastic_gradient_descent(M, 1, loss, lambda i: rate, loader, callbacks=[clock])
    losses += [compute_loss(M, loader, loss)]
    weights = sum(values_of(x.W).size for x in M.layers if isinstance(x, LinearLayer))
    return {
        "network": asdict(network),
        "data": GENERATED,
        "engine": M.engine,
        "dtype": M.dtype,
        "optimizer": "GradientDescent",
        "batch_size": batch_size,
        "steps": steps,
        "learning_rate": rate,
        "hidden_neurons": network.layers * network.neurons,
        "weights": weights,
        "build_seconds": build_seconds,
        "first_step_seconds": clock.done[1][1] - clock.done[0][1],
        "seconds_per_step": clock.seconds_per_step(),
        "losses": losses,
        "peak_bytes": peak_memory(),
    }
