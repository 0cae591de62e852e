"""`matgrad sample`: what a model of a text writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

import matgrad as mg
from matgrad.cli.commands import Command, echo, option
from matgrad.cli.files import READS
from matgrad.cli.options import SEED, TEMPERATURE, machine_options, move
from matgrad.foundation.machine import set_threads


@click.command(cls=Command)
@click.argument("model", type=READS)
@option("Output", "--prompt", default="\n", metavar="TEXT", help="What the text begins with.")
@option("Output", "--length", type=click.IntRange(min=0), default=500, metavar="N", help="Characters to write.")
@option("Output", "--temperature", type=TEMPERATURE, default=0.8, metavar="T", help="0: always the most probable one.")
@option("Output", "--seed", type=SEED, metavar="N", help="Of the draws.  [default: another one each time]")
@machine_options
def sample(model: Path, prompt: str, **options: Any) -> None:
    """Write the PROMPT, and how MODEL, which `matgrad train --text` has trained, continues it.

    MODEL is a model file or a checkpoint.
    """
    set_threads(options["threads"])
    M = move(mg.load(model), options)
    settings = {name: options[name] for name in ("length", "temperature", "seed")}
    echo(prompt + M.sample(prompt, **settings))
