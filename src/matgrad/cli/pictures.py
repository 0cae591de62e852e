"""`matgrad pictures` for a saved model, and the option of `matgrad train` for pictures of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from matgrad.callbacks import Pictures
from matgrad.cli.files import READS, Command, WritesFolder
from matgrad.cli.groups import option
from matgrad.cli.settings import Settings, WritesFolderWithSettings
from matgrad.foundation.imports import check_matplotlib
from matgrad.foundation.writing import atomic_write
from matgrad.inspection.pictures import FIGURES, parse_shape, snapshot, write_png
from matgrad.storage.models import load_model


class ImageShape(click.ParamType):
    """The sizes of an image, and its channels, such as 28x28 or 32x32x3."""

    name = "shape"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The string, if it is one."""
        try:
            parse_shape(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return value


def _epochs(text: str) -> list[int]:
    """The numbers of epochs in a list such as ``0, 5, 10``."""
    items = [item.strip() for item in text.split(",")]
    if not all(item.isdecimal() for item in items):
        raise ValueError(f"epochs: expected integers, separated by commas, found {text!r}")
    return [int(item) for item in items]


SHAPE_HELP = "Rows, columns and channels of the image that the inputs are, such as 28x28 or 32x32x3.  [default: square]"
SETTINGS: Settings = {"epochs": _epochs, "shape": parse_shape}

picture_option = option(
    "Output",
    "--pictures",
    type=WritesFolderWithSettings(
        *(f"{name}.gif" for name in FIGURES),
        *(f"epoch_*_{name}.png" for name in FIGURES),
        known=SETTINGS,
        grows=True,
    ),
    metavar="DIR",
    help='Draw the weights, as PNG files and animations: "DIR, epochs=0,5,10, shape=28x28".',
)


def pictures(options: dict[str, Any]) -> Pictures | None:
    """The callback that the options ask for, if any."""
    value = options["pictures"]
    if value is None:
        return None
    return Pictures(value.path, **{name: SETTINGS[name](text) for name, text in value.settings.items()})


@click.command("pictures", cls=Command, short_help="Draw pictures of a saved model's weights.")
@click.argument("file", type=READS)
@click.argument("folder", type=WritesFolder(*(f"{name}.png" for name in FIGURES)), metavar="DIR")
@click.option("--shape", type=ImageShape(), metavar="HxW", help=SHAPE_HELP)
@click.option("--overwrite", is_flag=True, help="Replace the pictures that DIR has.")
def pictures_command(file: Path, folder: Path, shape: str | None, overwrite: bool) -> None:
    """Draw the connections of the inputs, the connectivity of the layers and histograms of the weights.

    FILE is a model that matgrad train or M.save wrote; inputs.png, connectivity.png and weights.png are written to DIR.
    """
    check_matplotlib()
    shot = snapshot(load_model(file).model, file.stem, None if shape is None else parse_shape(shape))
    folder.mkdir(exist_ok=True)
    for name, draw in FIGURES.items():
        with atomic_write(folder / f"{name}.png") as png:
            write_png(draw(shot, [shot]), png)
        click.echo(folder / f"{name}.png")
