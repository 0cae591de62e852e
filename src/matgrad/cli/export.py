"""`matgrad export`: a saved model as code for where there is neither Python nor a library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

import matgrad as mg
from matgrad.cli.commands import READS, WRITES, Command, Writes, echo, option
from matgrad.cli.options import COUNT, is_given, optimizers_option
from matgrad.cli.saved_models import chosen_loss
from matgrad.exchange.c_code import save_c
from matgrad.specifications.models import set_optimizers


@click.command(cls=Command)
@click.argument("model", type=READS)
@option("Output", "--c", "target", type=Writes(".c"), required=True, metavar="FILE", help="The file of C.")
@option("Output", "--weights", type=WRITES, metavar="FILE", help="Write the weights there, not into the C.")
@option("Training", "--train", is_flag=True, help="Also write a function that trains.")
@option("Training", "--batch-size", type=COUNT, default=1, help="Examples at a time, a macro of the file.")
@option("Training", "--loss", metavar="NAME", help="The loss.  [default: of the model]")
@optimizers_option
def export(model: Path, target: Path, weights: Path | None, train: bool, **options: Any) -> None:
    """Write the model in the file MODEL as one file of C99 that predicts and, with --train, trains.

    It needs nothing but a compiler and the mathematical functions of C: no other library, and no memory but static
    arrays. So it fits a microcontroller, or a browser by way of WebAssembly.
    """
    for name in ("loss", "optimizers"):
        if is_given(name) and not train:
            raise ValueError(f"--{name}: it is for a file that trains; expected --train too")
    M = mg.load(model)
    set_optimizers(M, options["optimizers"])
    loss = chosen_loss(options, M) if train else None
    save_c(M, target, loss=loss, batch_size=options["batch_size"], weights=weights)
    echo(target)
