"""`matgrad program`: a training step, or feedforward, as the equations that are executed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import matgrad as mg
from matgrad.cli.files import READS, STANDARD_OUTPUT, WRITES, Writes
from matgrad.cli.groups import GroupedCommand, option
from matgrad.cli.options import (
    COUNT,
    POSITIVE,
    SEED,
    dtype_option,
    plugin_option,
)
from matgrad.cli.saved_models import is_given, make_sparse, rebuilt
from matgrad.cli.sparsity import density_options, sparsity_of
from matgrad.foundation.files import as_json as json_text
from matgrad.foundation.writing import atomic_write
from matgrad.loss_functions import create_loss
from matgrad.program.models import BATCH_SIZE
from matgrad.specifications.models import OPTIMIZER, WEIGHTS, create_model, set_optimizers
from matgrad.storage.models import SavedModel

if TYPE_CHECKING:
    from matgrad.program import Program


@click.command(cls=GroupedCommand, short_help="Show or save a training step, or feedforward, as equations.")
@option("Model", "--layers", default="ReLU;ReLU;Linear", metavar="LIST", help="The layers.")
@option("Model", "--layer-sizes", default="784;1024;512;10", metavar="LIST", help="Layer sizes.")
@option("Model", "--layer-weights", default=WEIGHTS, metavar="LIST", help="Initial weights.")
@option("Model", "--dropouts", default="0", metavar="LIST", help="Dropout rates of the linear layers.")
@density_options
@option(
    "Model", "--load-weights", type=READS, metavar="MODEL", help="A model file of `matgrad train`, or a program file."
)
@option("Training", "--feedforward", is_flag=True, help="Compute Y in evaluation mode instead of a training step.")
@option("Training", "--optimizers", default=OPTIMIZER, metavar="LIST", help="One, or one per layer.")
@option("Training", "--loss", metavar="NAME", help="The loss function.  [default: the one that fits the last layer]")
@option("Training", "--batch-size", type=COUNT, default=BATCH_SIZE, help="Examples per step.")
@option("Training", "--clip", type=POSITIVE, metavar="C", help="Clip gradients to norm C.")
@dtype_option
@option("Training", "--seed", type=SEED, default=0, help="Seed of the weights.")
@option("Output", "--as-recorded", is_flag=True, help="Show the program before operations are fused.")
@option(
    "Output", "--save", type=WRITES, metavar="FILE", help="Write the program and the weights to a safetensors file."
)
@option(
    "Output",
    "--latex",
    type=Writes(prints=True),
    metavar="FILE",
    help="Write the equations as a LaTeX document; - prints it.",
)
@plugin_option
@option("Output", "--json", "as_json", is_flag=True, help="Print as JSON, and nothing else.")
def program(**options: Any) -> None:
    """Record a training step, or feedforward, and show it as equations in the order of execution.

    x' is x after the step, ⊙ multiplies elements, [x ≥ 0] is 1 or 0, and 1_N b repeats the row b.
    """
    from matgrad.program.description import as_dictionary
    from matgrad.storage.programs import save_program

    path: Path | None = options["save"]
    latex: Path | None = options["latex"]
    if latex == STANDARD_OUTPUT and options["as_json"]:
        raise click.UsageError("--latex - and --json: expected one of them, as each prints nothing else")
    if options["feedforward"]:
        _refuse(("loss", "clip", "optimizers"), "--feedforward", "it belongs to a training step")
    mg.manual_seed(options["seed"])
    if options["load_weights"]:
        saved = rebuilt(options)
        if note := make_sparse(saved.model, options):
            click.echo(note, err=True)
    else:
        saved = SavedModel(new_model(options))
    set_optimizers(saved.model, options["optimizers"])
    M = saved.model.to(dtype=options["dtype"])
    loss = None
    if not options["feedforward"]:
        loss = create_loss(options["loss"]) if options["loss"] else saved.loss
        saved.information["loss"] = loss.specification()
    result = M.program(
        feedforward=options["feedforward"],
        loss=loss,
        batch_size=options["batch_size"],
        clip_norm=options["clip"],
        fused=not options["as_recorded"],
    )
    if path is not None:
        save_program(result, path, saved)
    if latex is not None:
        _write_latex(latex, result)
    if latex != STANDARD_OUTPUT:
        click.echo(json_text(as_dictionary(result)) if options["as_json"] else str(result))


def new_model(options: dict[str, Any]) -> mg.MultilayerPerceptron:
    """The model that the options describe."""
    return create_model(
        options["layers"],
        options["layer_sizes"],
        weights=options["layer_weights"],
        dropouts=options["dropouts"],
        **sparsity_of(options, options["layer_sizes"]),
    )


def _refuse(names: tuple[str, ...], flag: str, reason: str) -> None:
    """Refuse options that do not go together with another one."""
    for name in names:
        if is_given(name):
            raise ValueError(f"--{name.replace('_', '-')} and {flag}: {reason}")


def _write_latex(path: Path, program: Program) -> None:
    from matgrad.foundation.notation import document
    from matgrad.program.latex import program_latex

    text = document(program_latex(program))
    if path == STANDARD_OUTPUT:
        click.echo(text, nl=False)
        return
    with atomic_write(path) as file:
        file.write(text.encode())
    click.echo(f"LaTeX in {path}", err=True)
