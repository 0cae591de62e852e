"""`matgrad train`: its options."""

from __future__ import annotations

from typing import Any

import click

from matgrad.cli.groups import GroupedCommand, option
from matgrad.cli.options import (
    NOT_NEGATIVE,
    PATH,
    POSITIVE,
    SEED,
    config_option,
    data_options,
    density_options,
    machine_options,
    normalize_option,
    plugin_option,
)
from matgrad.cli.run import TrainingRun
from matgrad.specifications.models import OPTIMIZER, WEIGHTS
from matgrad.training import BATCH_SIZE, EPOCHS, LEARNING_RATE


@click.command(cls=GroupedCommand, short_help="Train a multilayer perceptron.")
@option("Model", "--layers", default="ReLU;ReLU;Linear", metavar="LIST", help="The types of the layers.")
@option(
    "Model",
    "--layer-sizes",
    metavar="LIST",
    help="Features, then the size of every linear layer: 784;1024;512;10.  [default: hidden sizes 128, 64 …]",
)
@option("Model", "--layer-weights", default=WEIGHTS, metavar="LIST", help="Initial weights.")
@option("Model", "--load-weights", type=PATH, metavar="FILE", help="Start from the weights in a file.")
@option("Model", "--dropouts", default="0", metavar="LIST", help="Dropout rates of the linear layers.")
@option("Model", "--loss", metavar="NAME", help="The loss function.  [default: the one that fits the last layer]")
@plugin_option
@data_options
@normalize_option
@option(
    "Data",
    "--validation",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    metavar="FRACTION",
    help="Hold out this part of the training data, and measure it too.",
)
@option("Training", "--optimizers", default=OPTIMIZER, metavar="LIST", help="One for all layers, or one per layer.")
@option("Training", "--learning-rate", default=str(LEARNING_RATE), metavar="RATE", help="A number or a schedule.")
@option("Training", "--per-step", is_flag=True, help="Count the schedule in steps instead of epochs.")
@option("Training", "--epochs", type=click.IntRange(min=0), default=EPOCHS, metavar="N", help="Passes over the data.")
@option(
    "Training", "--batch-size", type=click.IntRange(min=1), default=BATCH_SIZE, metavar="N", help="Examples per step."
)
@option("Training", "--weight-decay", type=NOT_NEGATIVE, metavar="λ", help="Add λθ to the gradients.")
@option("Training", "--clip", type=POSITIVE, metavar="C", help="Clip gradients to norm C.")
@option("Training", "--seed", type=SEED, default=0, metavar="N", help="Seed of weights, batches and dropout.")
@option("Training", "--no-shuffle", is_flag=True, help="Take the examples in the order of the data.")
@option(
    "Training",
    "--early-stopping",
    type=click.IntRange(min=1),
    metavar="EPOCHS",
    help="Stop when the validation loss has not improved for so many epochs, and keep the best model.",
)
@density_options
@option("Output", "--output", type=PATH, metavar="DIR", help="Write run.json and model.npz there.")
@option("Output", "--save-weights", type=PATH, metavar="FILE", help="Write the trained model to an npz file.")
@option("Output", "--save-dataset", type=PATH, metavar="FILE", help="Write the data, as read, to an npz file.")
@option("Output", "--quiet", is_flag=True, help="Print only the last line.")
@option("Output", "--json", "as_json", is_flag=True, help="Print the record of the run as JSON, and nothing else.")
@option("Output", "--no-statistics", is_flag=True, help="Do not measure loss and accuracies after each epoch.")
@option(
    "Output",
    "--timer",
    type=click.Choice(["disabled", "brief", "full"]),
    default="disabled",
    help="Show how long feedforward, loss, backpropagate and optimize take (brief), or every equation of every "
    "layer (full), in their order, with the rates of the products. Of operations that run fused, one equation has "
    "the time; jax and tensorflow run the equations one by one.",
)
@option(
    "Output",
    "--gradient-step",
    type=POSITIVE,
    metavar="H",
    help="Check gradients by central differences of this size on the first batch of each epoch.",
)
@option("Output", "--info", is_flag=True, help="Print the data and the parameters before training.")
@option("Output", "--debug", is_flag=True, help="Print the matrices of every batch.")
@option("Output", "--precision", type=click.IntRange(min=1), default=4, metavar="N", help="Digits of printed matrices.")
@option(
    "Output",
    "--edgeitems",
    type=click.IntRange(min=1),
    default=3,
    metavar="N",
    help="Rows and columns printed at the edges.",
)
@machine_options
@option("Engine", "--eager", is_flag=True, help="Run the equations one by one instead of the compiled step.")
@config_option
def train(**options: Any) -> None:
    """Train a multilayer perceptron; without options on the embedded handwritten digits.

    Lists are separated by semicolons; items may have arguments: --layers "AllReLU(0.3);Linear",
    --learning-rate "MultiStepLR(0.1; 10, 15; 0.1)". One value serves all layers. The last line printed is
    the test accuracy, or for a regression the root mean squared error.
    """
    TrainingRun(options).run()
