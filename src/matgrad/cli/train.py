"""`matgrad train`: its options."""

from __future__ import annotations

from typing import Any

import click

from matgrad.cli.options import (
    NOT_NEGATIVE,
    PATH,
    POSITIVE,
    SEED,
    config_option,
    data_options,
    machine_options,
    normalize_option,
    plugin_option,
)
from matgrad.cli.run import TrainingRun
from matgrad.training import BATCH_SIZE, EPOCHS, LEARNING_RATE


@click.command(short_help="Train a multilayer perceptron.")
@click.option("--layers", default="ReLU;ReLU;Linear", show_default=True, metavar="LIST", help="The layers' types.")
@click.option(
    "--layer-sizes",
    metavar="LIST",
    help="Features, then the size of every linear layer: 784;1024;512;10.  [default: hidden sizes 128, 64 …]",
)
@click.option("--layer-weights", default="XavierNormalized", show_default=True, metavar="LIST", help="Initial weights.")
@click.option("--dropouts", default="0", show_default=True, metavar="LIST", help="Dropout rates of the linear layers.")
@click.option(
    "--densities", metavar="LIST", help="Part of the weights that a linear layer stores, in (0, 1].  [default: 1]"
)
@click.option(
    "--overall-density",
    type=float,
    metavar="PART",
    help="Densities by the Erdős–Rényi rule: small layers keep more of their weights.",
)
@click.option("--optimizers", default="Momentum(0.9)", show_default=True, metavar="LIST", help="One, or one a layer.")
@click.option("--loss", metavar="NAME", help="The loss function.  [default: the one that fits the last layer]")
@click.option(
    "--learning-rate", default=str(LEARNING_RATE), show_default=True, metavar="RATE", help="A number or a schedule."
)
@click.option("--per-step", is_flag=True, help="Count the schedule in steps instead of epochs.")
@click.option("--epochs", type=click.IntRange(min=0), default=EPOCHS, show_default=True, help="Passes over the data.")
@click.option(
    "--batch-size", type=click.IntRange(min=1), default=BATCH_SIZE, show_default=True, help="Examples per step."
)
@click.option("--weight-decay", type=NOT_NEGATIVE, metavar="λ", help="Add λθ to the gradients.")
@click.option("--clip", type=POSITIVE, metavar="C", help="Clip gradients to norm C.")
@click.option("--seed", type=SEED, default=0, show_default=True, help="Seed of weights, batches and dropout.")
@click.option("--no-shuffle", is_flag=True, help="Take the examples in the order of the data.")
@click.option(
    "--validation",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    metavar="FRACTION",
    help="Hold out this part of the training data, and measure it too.",
)
@click.option(
    "--early-stopping",
    type=click.IntRange(min=1),
    metavar="EPOCHS",
    help="Stop when the validation loss has not improved for so many epochs, and keep the best model.",
)
@data_options
@normalize_option
@click.option("--save-dataset", type=PATH, metavar="FILE", help="Write the data, as read, to an npz file.")
@click.option("--load-weights", type=PATH, metavar="FILE", help="Start from the weights in a file.")
@click.option("--save-weights", type=PATH, metavar="FILE", help="Write the trained model to an npz file.")
@click.option("--output", type=PATH, metavar="DIR", help="Write run.json and model.npz there.")
@machine_options
@click.option("--eager", is_flag=True, help="Run the equations one by one instead of the compiled step.")
@plugin_option
@config_option
@click.option(
    "--gradient-step",
    type=POSITIVE,
    metavar="H",
    help="Check gradients by central differences of this size on the first batch of each epoch.",
)
@click.option("--no-statistics", is_flag=True, help="Do not measure loss and accuracies after each epoch.")
@click.option(
    "--timer",
    type=click.Choice(["disabled", "brief", "full"]),
    default="disabled",
    help="Show how long feedforward, loss, backpropagate and optimize take (brief), or every equation of every "
    "layer (full), in their order, with the rates of the products. Of operations that run fused, one equation has "
    "the time; jax and tensorflow run the equations one by one.",
)
@click.option("--info", is_flag=True, help="Print the data and the parameters before training.")
@click.option("--debug", is_flag=True, help="Print the matrices of every batch.")
@click.option(
    "--precision", type=click.IntRange(min=1), default=4, show_default=True, help="Digits of printed matrices."
)
@click.option(
    "--edgeitems",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="Printed rows and columns at the edges.",
)
@click.option("--quiet", is_flag=True, help="Print only the last line.")
@click.option("--json", "as_json", is_flag=True, help="Print the whole record of the run as JSON, and nothing else.")
def train(**options: Any) -> None:
    """Train a multilayer perceptron; without options on the embedded handwritten digits.

    Lists are separated by semicolons; items may have arguments: --layers "AllReLU(0.3);Linear",
    --learning-rate "MultiStepLR(0.1; 10, 15; 0.1)". One value serves all layers. The last line printed is
    the test accuracy, or for a regression the root mean squared error.
    """
    TrainingRun(options).run()
