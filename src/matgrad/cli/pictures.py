"""`matgrad pictures` for a saved model, and the option of `matgrad train` for pictures of a run."""

from __future__ import annotations

from pathlib import Path

import click

from matgrad.callbacks import Pictures
from matgrad.cli.commands import Command, option
from matgrad.cli.files import READS, Writes
from matgrad.foundation.imports import check_matplotlib
from matgrad.foundation.writing import atomic_write
from matgrad.inspection.figures import FIGURES, parse_shape, snapshot, write_png
from matgrad.specifications.parsing import parse_numbers
from matgrad.storage.models import load

NAMES = (*(f"{name}.gif" for name in FIGURES), *(f"epoch_*_{name}.png" for name in FIGURES))
PICTURES = Writes(names=NAMES, settings={"epochs": lambda text: parse_numbers(text, "epoch"), "shape": parse_shape})

HELP = 'Draw the weights, as PNG files and animations: "DIR, epochs=0,5,10, shape=28x28".'
picture_option = option("Output", "--pictures", type=PICTURES, metavar="DIR", help=HELP)


def pictures(value: Path | None) -> Pictures | None:
    """The callback that the option asks for, if any."""
    if value is None:
        return None
    folder, settings = PICTURES.split(value)
    return Pictures(folder, **settings)


@click.command("pictures", cls=Command, short_help="Draw pictures of a saved model's weights.")
@click.argument("file", type=READS)
@click.argument("folder", type=Writes(names=tuple(f"{name}.png" for name in FIGURES)), metavar="DIR")
@click.option("--shape", metavar="HxW", help="Of the images, with channels if any: 32x32x3.  [default: square]")
@click.option("--overwrite", is_flag=True, help="Replace the pictures that DIR has.")
def pictures_command(file: Path, folder: Path, shape: str | None, overwrite: bool) -> None:
    """Draw the connections of the inputs, the connectivity of the layers and histograms of the weights.

    FILE is a model that matgrad train or M.save wrote; inputs.png, connectivity.png and weights.png are written to DIR.
    """
    check_matplotlib()
    shot = snapshot(load(file), file.stem, None if shape is None else parse_shape(shape))
    folder.mkdir(exist_ok=True)
    for name, draw in FIGURES.items():
        with atomic_write(folder / f"{name}.png") as png:
            write_png(draw(shot, [shot]), png)
        click.echo(folder / f"{name}.png")
