"""`matgrad train`: its options, in one process or as a rank of several that torchrun, SLURM or JAX started together."""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stdout, suppress
from typing import Any

import click

from matgrad import distributed
from matgrad.callbacks.report import EVENTS, SUFFIXES
from matgrad.cli import options as shared
from matgrad.cli.commands import WRITES, Command, Writes, as_click_error, echo, option, warnings_to
from matgrad.cli.configuration import WRITTEN, checkpoint_options, config_option, recorded, resume
from matgrad.cli.inspect import picture_option
from matgrad.cli.options import COUNT, POSITIVE, SCALING
from matgrad.cli.run import TrainingRun
from matgrad.distributed import Disagreement
from matgrad.distributed.group import place_of
from matgrad.storage.checkpoints import find_checkpoint
from matgrad.training import BATCH_SIZE, EPOCHS, LEARNING_RATE

FRACTION = click.FloatRange(0, 1, min_open=True, max_open=True)
RUN_FOLDER, LOG = Writes(names=("run.json", "model.npz")), Writes(*SUFFIXES, names=(EVENTS,))
STATISTICS, TIMER = click.Choice(["none", "loss", "costs"]), click.Choice(["disabled", "brief", "full"])
FEATURES = '"drop=id,name; categorical=auto; missing=median; unknown=zero"; columns=… chooses them'
STOPPING = "Stop after this many epochs without a smaller validation loss, and keep the best model."
METHODS = (
    "SET, RigL(0.3, every=100, decay=cosine), SNIP, GMP, or your own rules: "
    "Topology(Magnitude(0.2), grow=Random, weights=Xavier, every=100)."
)
LOGS = "Write a row per epoch to PATH.jsonl, PATH.csv, or a folder for TensorBoard. Repeatable."


RESTARTS = "TORCHELASTIC_RESTART_COUNT"  # in the environment: how often torchrun has restarted the ranks


class RankedCommand(Command):
    """A command that runs in one process, or as a rank of several."""

    def make_context(self, info_name: str | None, args: list[str], *more: Any, **extra: Any) -> click.Context:
        """The context of the command line; a run that torchrun has restarted is resumed from its newest checkpoint."""
        ctx = super().make_context(info_name, args, *more, **extra)
        if os.environ.get(RESTARTS, "0") != "0" and ctx.params["checkpoint"] is not None:
            folder, asked = WRITTEN.split(ctx.params["checkpoint"])[0], recorded(ctx.params)
            with suppress(ValueError, OSError):  # there is no checkpoint yet
                known = (checkpoint := find_checkpoint(folder)).record.get("configuration", {})
                if all(asked[name] in (None, known.get(name)) for name in asked if name not in ("device", "threads")):
                    resume(ctx, checkpoint)
                    ctx.params |= {"resume": folder, "checkpoint": None, "overwrite": True}  # its own files
        return ctx

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, as a rank if it was started as one.

        Rank 0 alone prints, except for errors; one that all ranks have is printed once.
        """
        options, place = ctx.params, place_of(os.environ)
        if (place is None or place.size == 1) and "JAX_COORDINATOR_ADDRESS" not in os.environ:
            return super().invoke(ctx)
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # JAX's: only errors
        with warnings_to(lambda message: echo(f"note: {message}", err=True)):
            group = distributed.start(backend="torch" if options["backend"] == "auto" else options["backend"])
        if options["device"] == "cuda" and place is not None:
            options["device"] = f"cuda:{place.local_rank}"
        try:
            with open(os.devnull, "w") as nowhere, redirect_stdout(sys.stdout if group.is_first else nowhere):
                super().invoke(ctx)
                group.close()
        except click.exceptions.Exit:  # a run that was interrupted ends in order
            group.close()
            raise
        except BaseException as error:
            if (shown := as_click_error(error)) is None:
                raise
            if group.is_first or not isinstance(error, Disagreement):
                echo(f"rank {group.rank}: {shown.format_message()}", err=True)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(shown.exit_code)  # without waiting for connections, whose other ends may be lost


@click.command(cls=RankedCommand)
@shared.model_options("ReLU;ReLU;Linear", None)
@shared.load_option
@shared.data_options
@option("Data", "--features", metavar="SPEC", help=f"Columns of the table, such as {FEATURES}.")
@option(
    "Data",
    "--normalize",
    type=SCALING,
    default="unit",
    help="Scale inputs to [0, 1], or to mean 0, deviation 1.",
)
@option("Data", "--normalize-targets", hidden=True, type=SCALING, help="Scale the targets of a regression.")
@option("Data", "--validation", type=FRACTION, metavar="FRACTION", help="Hold out this part of the training data.")
@shared.optimizers_option
@option("Training", "--learning-rate", default=str(LEARNING_RATE), metavar="RATE", help="A number or a schedule.")
@option("Training", "--per-step", hidden=True, is_flag=True, help="Apply the schedule per step instead of per epoch.")
@option("Training", "--epochs", type=click.IntRange(min=0), default=EPOCHS, metavar="N", help="Passes over the data.")
@option("Training", "--batch-size", type=COUNT, default=BATCH_SIZE, metavar="N", help="Examples per step.")
@option("Training", "--class-weights", metavar="LIST", help="Weights of the classes: 1;2;0.5, or balanced.")
@option("Training", "--clip", type=POSITIVE, metavar="C", help="Clip gradients to norm C.")
@shared.seed_option
@option("Training", "--no-shuffle", hidden=True, is_flag=True, help="Take the examples in the order of the data.")
@option("Training", "--early-stopping", type=COUNT, metavar="EPOCHS", help=STOPPING)
@checkpoint_options
@option("Sparsity", "--sparse-training", metavar="METHOD", help=METHODS)
@option("Output", "--output", type=RUN_FOLDER, metavar="DIR", help="Write run.json and model.npz to this folder.")
@option("Output", "--overwrite", is_flag=True, help="Replace the files of another run in such a folder.")
@option("Output", "--log", type=LOG, multiple=True, metavar="PATH", help=LOGS)
@picture_option
@option("Output", "--save-weights", type=WRITES, metavar="FILE", help="Write the trained model to an npz file.")
@option("Output", "--save-dataset", hidden=True, type=WRITES, metavar="FILE", help="Write the data to an npz file.")
@option("Output", "--quiet", is_flag=True, help="Print only the last line.")
@option("Output", "--json", "as_json", is_flag=True, help="Print only the record of the run, as JSON.")
@option("Output", "--statistics", type=STATISTICS, help="Of each epoch; costs: FLOPs, memory.  [default: loss]")
@option("Output", "--timer", type=TIMER, default="disabled", help="Time the parts of a step, or each equation.")
@option("Output", "--trace", hidden=True, type=WRITES, metavar="FILE", help="Write the mean step for Perfetto.")
@option("Output", "--gradient-step", hidden=True, type=POSITIVE, metavar="H", help="Check gradients by differences.")
@option("Output", "--show", metavar="LIST", help="Print matrices: parameters, batches, precision=6, edgeitems=5.")
@shared.machine_options
@option("Engine", "--eager", hidden=True, is_flag=True, help="Run the equations one by one, not compiled.")
@config_option
def train(**options: Any) -> None:
    """Train a multilayer perceptron; without options, on the embedded handwritten digits.

    The items of a list are separated by semicolons and may have arguments: --layers "AllReLU(0.3);Linear",
    --learning-rate "MultiStepLR(0.1; 10, 15; 0.1)". A single item serves all layers. The last line printed
    is the test accuracy or, for a regression, the root mean squared error, in the units of the data.

    Rare options, also for the configuration file: --per-step, --no-shuffle, --normalize-targets, --save-dataset,
    --trace, --gradient-step, --matmul, --eager.
    """
    TrainingRun(options).run()
