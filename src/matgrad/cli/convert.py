"""`matgrad convert`: models from and to the files of other tools."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from matgrad.cli.commands import Command
from matgrad.cli.files import READS, WRITES
from matgrad.exchange import to_onnx
from matgrad.exchange.files import format_of, save_original


@click.command(cls=Command, short_help="Convert a model from or to ONNX, Keras or PyTorch.")
@click.argument("source", type=READS)
@click.argument("target", type=WRITES)
@click.option("--sparse", is_flag=True, help="Write sparse weights to ONNX as sparse initializers.")
@click.option("--only-weights", is_flag=True, help="Write an npz file of the original library: W1, b1, … alone.")
def convert(source: Path, target: Path, sparse: bool, only_weights: bool) -> None:
    """Convert the model in the file SOURCE to the file TARGET.

    Names end in .npz (a model of matgrad), .safetensors (a state dictionary of PyTorch), .onnx or .keras.
    """
    (read, _), (_, write) = format_of(source), format_of(target)
    for flag, is_given, suffix in (("--sparse", sparse, ".onnx"), ("--only-weights", only_weights, ".npz")):
        if is_given and target.suffix != suffix:
            raise ValueError(f"{flag}: expected a target that ends in {suffix}, found {target}")
    M = read(source)
    (partial(to_onnx, sparse=True) if sparse else save_original if only_weights else write)(M, target)
    click.echo(M)
    if only_weights and M.normalization is not None:
        click.echo(f"the {M.normalization} normalization of the inputs is not in {target}", err=True)
