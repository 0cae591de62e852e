"""`matgrad plot` draws runs, and `matgrad runs` lists and compares them."""

from __future__ import annotations

from pathlib import Path

import click

from matgrad.cli.commands import Command, Reads, Writes, echo, echo_json, json_option, option
from matgrad.cli.train import train
from matgrad.foundation.files import existing_folder
from matgrad.foundation.imports import check_matplotlib
from matgrad.inspection.figures import METADATA, write_figure
from matgrad.runs.records import KEYS, RECORD, Run, compare, read_run, runs_figure, sorted_by, table

PLOTS, OUTPUT = ("plot.png", "plot.svg"), "The picture: a file that ends in .png or .svg. Repeatable."


@click.command("plot", cls=Command)
@click.argument("runs", type=Reads(RECORD), nargs=-1, required=True, metavar="RUN…")
@option("Options", "--output", type=Writes(*METADATA), multiple=True, default=PLOTS, metavar="FILE", help=OUTPUT)
def plot(runs: tuple[Path, ...], output: tuple[Path, ...]) -> None:
    """Draw one or many runs: loss, accuracy or error, a learning rate that changes, and time of training.

    RUN is a folder that matgrad train --output wrote, its run.json, or a log of --log. Needs matplotlib.
    """
    check_matplotlib()
    found = [read_run(path) for path in runs]
    write_figure(lambda: runs_figure(found), output)
    for path in output:
        echo(path)


@click.command("runs", cls=Command)
@click.argument("folder", type=Reads(), metavar="DIR")
@click.option("--sort", type=click.Choice(list(KEYS)), default="name", show_default=True, help="The order of the runs.")
@json_option
def runs_command(folder: Path, sort: str, as_json: bool) -> None:
    """List the runs below DIR, found by their run.json: data, model, losses, accuracies, time, and options that differ.

    Losses and accuracies are those of the test data: of the final model, and the best of all epochs.
    """
    found: list[Run] = []
    for path in sorted(existing_folder(folder).rglob(RECORD)):
        try:
            found.append(read_run(path))
        except ValueError as error:
            echo(f"note: skipped {error}", err=True)
    ignored = {p.name for p in train.params if getattr(p, "group", None) in ("Output", "Options")} | {"seed"}
    rows = sorted_by(sort, compare(found, folder, ignored))
    if as_json:
        echo_json(rows)
    else:
        echo(table(rows).text() if rows else f"{folder}: found no runs")
