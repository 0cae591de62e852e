"""Networks of brain scale: the time and the memory that it takes to build and to train a very wide sparse network.

Hidden ReLU layers of the same size, whose neurons have so many inputs on average, and a dense output layer, trained
on generated data with plain gradient descent in the C++ core. With the defaults, it has 50 million hidden neurons.
"""

from __future__ import annotations

import time

import matgrad as mg
from harness import reports
from harness.problems import generated
from harness.team import Record, say
from matgrad.foundation.machine import peak_memory, set_threads
from matgrad.foundation.writing import Table

TITLE = "Networks of brain scale"
NETWORK = {"layers": 10, "neurons": 5_000_000, "connections": 10, "features": 784, "classes": 10}
RATE = 3.0  # divided by the number of neurons of the last hidden layer, over which an output sums


def train(
    network: dict[str, int], batch_size: int, steps: int, seed: int, batches: int, device: str | None = None
) -> Record:
    """Build a network with He's initial weights, and train it for so many steps, on these generated batches in turns.

    The first step compiles, and is not one of those whose mean is `seconds_per_step`.
    """
    D, K, neurons = network["features"], network["classes"], network["neurons"]
    sizes = [D, *[neurons] * network["layers"], K]
    densities = [min(1.0, network["connections"] / size) for size in sizes[:-2]] + [1.0]
    kinds, start = ["ReLU"] * network["layers"] + ["Linear"], time.perf_counter()
    mg.manual_seed(seed)
    M = mg.create_model(kinds, sizes, weights="He", optimizers="GradientDescent", densities=densities)
    M.to("auto", device=device)
    build_seconds = time.perf_counter() - start
    say(f"built in {build_seconds:.1f} s")
    data = generated(D, K, batches * batch_size, seed=seed)
    loader = mg.DataLoader(data.Xtrain, data.Ttrain, batch_size, classes=K).to(M.backend.name, device=device)
    loss, examples, rate = mg.SoftmaxCrossEntropyLoss(), list(loader), RATE / neurons
    losses, step, eta = [mg.compute_loss(M, loader, loss)], mg.compile_step(M, loss), M.scalar(rate)
    step.load(M.state())
    seconds = []
    for i in range(steps):
        begin = time.perf_counter()
        step(*examples[i % batches], eta)
        M.backend.wait(examples[0][0])  # for all that its device does
        seconds.append(time.perf_counter() - begin)
        say(f"step {i + 1} of {steps}: {seconds[-1]:.4g} s")
    M.load_state(step.state())
    losses.append(mg.compute_loss(M, loader, loss))
    return {
        "optimizer": "GradientDescent",
        "batch_size": batch_size,
        "steps": steps,
        "learning_rate": rate,
        "weights": sum(layer.nnz for layer in M.linear_layers()),
        "build_seconds": build_seconds,
        "first_step_seconds": seconds[0],
        "seconds_per_step": sum(seconds[1:]) / (steps - 1) if steps > 1 else seconds[0],
        "losses": losses,
        "peak_bytes": peak_memory(),
    }


def main() -> None:
    """Measure one network."""
    found = reports.parser(__doc__)
    for name, value in {**NETWORK, "batch_size": 8, "steps": 5}.items():
        found.add_argument(f"--{name.replace('_', '-')}", type=int, default=value)
    options = found.parse_args()
    set_threads(options.threads)
    network = {name: getattr(options, name) for name in NETWORK}
    content = train(network, options.batch_size, options.steps, options.seed, batches=options.steps)
    reports.finish("brain", options, {"network": network, **content})


# of a network; docs/gpu.md shows those on a GPU
COLUMNS = {
    "weights": lambda x: f"{x['weights']:,}",
    "batch": lambda x: str(x["batch_size"]),
    "ms per step": lambda x: f"{1e3 * x['seconds_per_step']:.1f}",
    "peak GB": lambda x: "" if x["peak_bytes"] is None else f"{x['peak_bytes'] / 1e9:.1f}",
    "loss": lambda x: "{:.2f} → {:.2f}".format(*x["losses"]),
    "seconds to build": lambda x: f"{x['build_seconds']:.0f}",
}


def tables(record: Record) -> list[Table]:
    """The network in one row."""
    neurons = "{:,} hidden neurons in {layers} layers".format
    network = record["network"]
    title = neurons(network["layers"] * network["neurons"], **network)
    return [reports.listed(title, [record], COLUMNS)]


def notes(record: Record) -> list[str]:
    """What a reader of the table must know."""
    return [f"{record['steps']} steps, of which the first compiles and is not counted"]


if __name__ == "__main__":
    main()
