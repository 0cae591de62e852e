"""`matgrad bench brain`: build and train a network of brain scale."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from matgrad.cli.bench_run import TurnsProgress
from matgrad.cli.files import Command, WritesFolder
from matgrad.cli.options import COUNT, SEED
from matgrad.foundation.files import as_json as json_text
from matgrad.foundation.machine import machine, set_threads
from matgrad.foundation.writing import make_folder, write_json


@click.command(cls=Command, short_help="Build and train a network with millions of neurons.")
@click.option("--layers", type=click.IntRange(1, 10_000), default=10, show_default=True, help="Hidden layers.")
@click.option("--neurons", type=COUNT, default=5_000_000, show_default=True, help="Neurons per hidden layer.")
@click.option("--connections", type=COUNT, default=10, show_default=True, help="Inputs per hidden neuron, on average.")
@click.option("--features", type=COUNT, default=784, show_default=True, help="Features of an example.")
@click.option("--classes", type=click.IntRange(2, 2**31 - 1), default=10, show_default=True, help="Classes.")
@click.option("--batch-size", type=COUNT, default=8, show_default=True, help="Examples per step.")
@click.option("--steps", type=COUNT, default=5, show_default=True, help="Steps of training.")
@click.option("--threads", type=click.IntRange(min=1), metavar="N", help="CPU threads.  [default: all]")
@click.option("--seed", type=SEED, default=0, show_default=True, help="Seed of the network and of the data.")
@click.option("--output", type=WritesFolder("bench.json"), metavar="DIR", help="Write bench.json to this folder.")
@click.option("--overwrite", is_flag=True, help="Let --output replace the results that a folder has.")
@click.option("--json", "as_json", is_flag=True, help="Print the record as JSON, and nothing else.")
def brain(output: Path | None, as_json: bool, **options: Any) -> None:
    """Build a sparse network of ReLU layers, and train it on generated data with plain gradient descent.

    The output layer is dense. The record has the seconds to build the network and per step, the loss before and after
    training, and the peak memory of the process. With the defaults, the network has 50 million hidden neurons.
    """
    from matgrad.bench.experiments.brain import Network, run_brain
    from matgrad.bench.reports.record import record

    started, threads = time.time(), options["threads"] or machine()["cores"]
    set_threads(options["threads"])
    network = Network(*(options[key] for key in ("layers", "neurons", "connections", "features", "classes")))
    progress = TurnsProgress(network.layers + 1 + options["steps"], silent=as_json)
    progress.start()
    try:
        arguments = {key: options[key] for key in ("batch_size", "steps", "seed")}
        content = run_brain(network, **arguments, report=progress.say)
    finally:
        progress.stop()
    whole = record("brain", started, threads, options | {"output": output}) | content
    if output is not None:
        make_folder(output)
        write_json(output / "bench.json", whole)
    click.echo(json_text(whole) if as_json else _text(whole))


def _text(record: dict[str, Any]) -> str:
    """The record in a few lines."""
    network, machine, peak = record["network"], record["machine"], record["peak_bytes"]
    rows = {
        "hidden neurons": f"{record['hidden_neurons']:,} in {network['layers']} layers",
        "weights": f"{record['weights']:,}",
        "built in": f"{record['build_seconds']:.1f} s",
        "seconds per step": f"{record['seconds_per_step']:.3g}, batch {record['batch_size']}",
        "first step": f"{record['first_step_seconds']:.3g} s, with compiling",
        "loss": "{:.4f} before, {:.4f} after {} steps".format(*record["losses"], record["steps"]),
        "peak memory": "unknown" if peak is None else f"{peak / 1e9:.2f} GB",
        "machine": f"{machine['processor']}, {machine['threads']} threads, {machine['memory_GB']} GB",
    }
    return "\n".join(f"{name:<17} {value}" for name, value in rows.items())
