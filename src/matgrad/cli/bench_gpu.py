"""`matgrad bench gpu`: training on a GPU, part by part."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from matgrad.cli.bench import PLOTS, Names
from matgrad.cli.bench_run import TurnsProgress
from matgrad.cli.files import Command, WritesFolder
from matgrad.cli.options import SEED
from matgrad.foundation.files import as_json as json_text
from matgrad.foundation.installing import check_matplotlib
from matgrad.foundation.machine import machine
from matgrad.foundation.writing import atomic_write, make_folder, write_json

PARTS = ("steps", "jax", "epoch", "large", "sparse", "wide")


@click.command(cls=Command, short_help="Measure training on a GPU.")
@click.option(
    "--parts",
    type=Names(),
    default=",".join(PARTS),
    show_default=True,
    metavar="LIST",
    help="What to measure: steps of the paper's models on PyTorch and on JAX, an epoch of M.fit, a large dense model, "
    "a sparse layer against the density, very wide networks.",
)
@click.option("--device", default="cuda", show_default=True, metavar="NAME", help="The device of PyTorch and of JAX.")
@click.option(
    "--rounds", type=click.IntRange(min=1), default=5, show_default=True, help="How often everything is measured."
)
@click.option("--seed", type=SEED, default=0, show_default=True, help="Seed of the weights and of generated data.")
@click.option(
    "--output",
    type=WritesFolder("bench.json", "table.md", *PLOTS),
    metavar="DIR",
    help="Write bench.json, table.md, plot.png and plot.svg to this folder; bench.json after every part.",
)
@click.option("--overwrite", is_flag=True, help="Let --output replace the results that a folder has.")
@click.option("--no-plot", is_flag=True, help="Do not draw a plot; drawing needs matplotlib.")
@click.option("--json", "as_json", is_flag=True, help="Print the record as JSON, and nothing else.")
def gpu(output: Path | None, as_json: bool, no_plot: bool, **options: Any) -> None:
    """Train on a GPU beside native PyTorch (eager, compiled, in a CUDA graph), JAX, masked matrices and cuSPARSE.

    The record has the time per step, also in TF32, and the memory of sparse layers. Tools of PyTorch and JAX take
    turns, each in its own process. The exit status is 1 if one fails; the others are still measured.
    """
    from matgrad.bench.experiments.gpu import Plan, Run, run_gpu
    from matgrad.bench.reports import plots, tables
    from matgrad.bench.reports.gpu_tables import gpu_failures
    from matgrad.bench.reports.record import record

    _check(options)
    if output is not None and not no_plot:
        check_matplotlib()
    started, threads = time.time(), machine()["cores"]
    progress = TurnsProgress(0, silent=as_json)
    run = Run(options["device"], options["seed"], options["rounds"], threads, progress.say)
    for content in run_gpu(Plan(options["parts"]), run):
        whole = record("gpu", started, threads, options) | content
        if output is not None:
            make_folder(output)
            write_json(output / "bench.json", whole)
    if output is not None:
        with atomic_write(output / "table.md") as file:
            file.write(tables.markdown(whole).encode())
        if not no_plot:
            plots.draw(whole, output)
    click.echo(json_text(whole) if as_json else tables.text(whole))
    if gpu_failures(whole):
        raise click.exceptions.Exit(1)


def _check(options: dict[str, Any]) -> None:
    """Refuse unknown parts, and a device that is not there."""
    from matgrad.backends import get_backend

    unknown = [part for part in options["parts"] if part not in PARTS]
    if unknown or not options["parts"]:
        raise ValueError(f"--parts: unknown part {''.join(unknown[:1])!r}; known: {', '.join(PARTS)}")
    get_backend("torch").find_device(options["device"])
