"""`matgrad pictures` for a saved model, and the options of `matgrad train` for pictures of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from matgrad.callbacks import Pictures
from matgrad.cli.files import READS, Command, WritesFolder
from matgrad.cli.groups import all_of, option
from matgrad.cli.table_options import flag
from matgrad.foundation.installing import check_matplotlib
from matgrad.foundation.writing import atomic_write, make_folder
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


class Epochs(click.ParamType):
    """Numbers of epochs, separated by commas."""

    name = "epochs"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The string, if it is such a list."""
        if not all(item.strip().isdecimal() for item in str(value).split(",")):
            self.fail(f"{value!r} is not a list of whole numbers, separated by commas.", param, ctx)
        return str(value)


SHAPE_HELP = "Rows, columns and channels of the image that the inputs are, such as 28x28 or 32x32x3.  [default: square]"

picture_options = all_of(
    option(
        "Output",
        "--pictures",
        type=WritesFolder(
            *(f"{name}.gif" for name in FIGURES), *(f"epoch_*_{name}.png" for name in FIGURES), grows=True
        ),
        metavar="DIR",
        help="Write pictures of the weights to this folder: connections of the inputs, connectivity of the layers and "
        "histograms, as PNG files at chosen epochs and as animations. Needs matplotlib.",
    ),
    option(
        "Output",
        "--picture-epochs",
        type=Epochs(),
        metavar="LIST",
        help="The epochs with pictures, separated by commas; 0 is the start.  [default: up to 21, evenly spread]",
    ),
    option("Output", "--picture-shape", type=ImageShape(), metavar="HxW", help=SHAPE_HELP),
)


def pictures(options: dict[str, Any]) -> Pictures | None:
    """The callback that the options ask for, if any."""
    if options["pictures"] is None:
        ctx = click.get_current_context(silent=True)
        for name in ("picture_epochs", "picture_shape"):  # the record of a run may have them without a folder
            if ctx is not None and ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
                raise ValueError(f"{flag(name)} needs --pictures")
        return None
    epochs, shape = options["picture_epochs"], options["picture_shape"]
    return Pictures(
        options["pictures"],
        None if epochs is None else [int(item) for item in epochs.split(",")],
        None if shape is None else parse_shape(shape),
    )


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
    make_folder(folder)
    for name, draw in FIGURES.items():
        with atomic_write(folder / f"{name}.png") as png:
            write_png(draw(shot, [shot]), png)
        click.echo(folder / f"{name}.png")
