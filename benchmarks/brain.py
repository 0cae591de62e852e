"""Networks of brain scale: the time and the memory that it takes to build and to train a very wide sparse network.

Hidden ReLU layers of the same size, whose neurons have so many inputs on average, and a dense output layer, trained
on generated data with plain gradient descent in the C++ core. With the defaults, it has 50 million hidden neurons.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import matgrad as mg
from harness.problems import GENERATED, generated
from harness.reports import Record, circumstances, finish, head, parser, say
from matgrad.foundation.machine import peak_memory, set_threads
from matgrad.foundation.writing import Table

TITLE = "Networks of brain scale"
NETWORK = {"layers": 10, "neurons": 5_000_000, "connections": 10, "features": 784, "classes": 10}
RATE = 3.0  # divided by the number of neurons of the last hidden layer, over which an output sums
notes = circumstances


class Clock(mg.Callback):
    """When steps were done: the engine tells of each one, unless that takes less than a tenth of a second."""

    def __init__(self) -> None:
        self.done: list[tuple[int, float]] = []  # number of steps, time

    def start(self, run: Any) -> None:
        self.done.append((0, time.perf_counter()))

    def poll(self, run: Any) -> None:
        if run.batch > self.done[-1][0]:
            say(f"step {run.batch} of {run.batches} is done")
            self.done.append((run.batch, time.perf_counter()))

    def seconds_per_step(self) -> float:
        """The mean of all steps but the first, with which compiling and memory count, if they are told apart."""
        (a, start), (b, end) = self.done[min(1, len(self.done) - 2)], self.done[-1]
        return (end - start) / (b - a)


def build(network: dict[str, int]) -> mg.MultilayerPerceptron:
    """The network, with He's initial weights."""
    sizes = [network["features"], *[network["neurons"]] * network["layers"], network["classes"]]
    densities = [min(1.0, network["connections"] / D) for D in sizes[:-2]] + [1.0]
    kinds = ["ReLU"] * network["layers"] + ["Linear"]
    return mg.create_model(kinds, sizes, weights="He", optimizers="GradientDescent", densities=densities)


def measure(options: argparse.Namespace) -> Record:
    """Build the network, and train it."""
    network = {name: getattr(options, name) for name in NETWORK}
    mg.manual_seed(options.seed)
    start = time.perf_counter()
    M = build(network)
    build_seconds = time.perf_counter() - start
    say(f"built in {build_seconds:.1f} s")
    data = generated(options.features, options.classes, options.steps * options.batch_size, seed=options.seed)
    loader = mg.DataLoader(data.Xtrain, data.Ttrain, options.batch_size, classes=options.classes)
    loss, rate, clock = mg.SoftmaxCrossEntropyLoss(), RATE / options.neurons, Clock()
    losses = [mg.compute_loss(M, loader, loss)]
    mg.stochastic_gradient_descent(M, 1, loss, lambda i: rate, loader, callbacks=[clock])
    losses += [mg.compute_loss(M, loader, loss)]
    return {
        "network": network,
        "data": GENERATED,
        "engine": M.engine,
        "dtype": M.dtype,
        "optimizer": "GradientDescent",
        "batch_size": options.batch_size,
        "steps": options.steps,
        "learning_rate": rate,
        "hidden_neurons": options.layers * options.neurons,
        "weights": sum(layer.nnz for layer in M.linear_layers()),
        "build_seconds": build_seconds,
        "first_step_seconds": clock.done[1][1] - clock.done[0][1],
        "seconds_per_step": clock.seconds_per_step(),
        "losses": losses,
        "peak_bytes": peak_memory(),
    }


def main() -> None:
    """Measure one network."""
    found = parser(__doc__)
    for name, value in {**NETWORK, "batch_size": 8, "steps": 5}.items():
        found.add_argument(f"--{name.replace('_', '-')}", type=int, default=value)
    options, started = found.parse_args(), time.time()
    set_threads(options.threads)
    content = measure(options)
    finish(head("brain", started, options) | content, options.output)


def tables(record: Record) -> list[Table]:
    """The record in a few rows."""
    peak = record["peak_bytes"]
    rows = {
        "hidden neurons": f"{record['hidden_neurons']:,} in {record['network']['layers']} layers",
        "weights": f"{record['weights']:,}",
        "built in": f"{record['build_seconds']:.1f} s",
        "seconds per step": f"{record['seconds_per_step']:.3g}, batch {record['batch_size']}",
        "first step": f"{record['first_step_seconds']:.3g} s, with compiling",
        "loss": "{:.4f} before, {:.4f} after {} steps".format(*record["losses"], record["steps"]),
        "peak memory": "unknown" if peak is None else f"{peak / 1e9:.2f} GB",
    }
    return [Table(TITLE, ["what", "value"], [list(item) for item in rows.items()])]


if __name__ == "__main__":
    main()
