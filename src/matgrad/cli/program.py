"""`matgrad program`: a training step as the equations that are executed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

import matgrad as mg
from matgrad.backends.base import DTYPES
from matgrad.cli.options import PATH, POSITIVE, SEED, check_writable, plugin_option
from matgrad.foundation.files import as_json as json_text
from matgrad.foundation.files import atomic_write
from matgrad.loss_functions import create_loss
from matgrad.program.computations import make_step
from matgrad.specifications.models import create_model
from matgrad.training import default_loss

if TYPE_CHECKING:
    from matgrad.program import Program

STANDARD_OUTPUT = Path("-")


@click.command(short_help="Show or save a training step as equations.")
@click.option("--layers", default="ReLU;ReLU;Linear", show_default=True, metavar="LIST", help="The layers' types.")
@click.option("--layer-sizes", default="784;1024;512;10", show_default=True, metavar="LIST", help="Their sizes.")
@click.option("--layer-weights", default="XavierNormalized", show_default=True, metavar="LIST", help="Initial weights.")
@click.option("--dropouts", default="0", show_default=True, metavar="LIST", help="Dropout rates of the linear layers.")
@click.option("--densities", default="1", show_default=True, metavar="LIST", help="Densities of the linear layers.")
@click.option("--optimizers", default="Momentum(0.9)", show_default=True, metavar="LIST", help="One, or one a layer.")
@click.option("--loss", metavar="NAME", help="The loss function.  [default: the one that fits the last layer]")
@click.option("--batch-size", type=click.IntRange(min=1), default=100, show_default=True, help="Examples a step.")
@click.option("--clip", type=POSITIVE, metavar="C", help="Clip gradients to norm C.")
@click.option("--dtype", type=click.Choice(DTYPES), default="float32", show_default=True, help="Element type.")
@click.option("--seed", type=SEED, default=0, show_default=True, help="Seed of the weights.")
@click.option("--as-recorded", is_flag=True, help="Before operations are fused.")
@click.option("--save", type=PATH, metavar="FILE", help="Write program and weights to a safetensors file.")
@click.option("--latex", type=PATH, metavar="FILE", help="Write the equations as a LaTeX document; - prints it.")
@plugin_option
@click.option("--json", "as_json", is_flag=True, help="Print as JSON, and nothing else.")
def program(**options: Any) -> None:
    """Record a training step, and show it as equations in the order of execution.

    x' is x after the step. ⊙ multiplies elements, [x ≥ 0] is 1 or 0, and 1_N b repeats the row b.
    """
    from matgrad.program import optimized, record_computation
    from matgrad.program.description import as_dictionary
    from matgrad.storage.programs import save_program

    path: Path | None = options["save"]
    latex: Path | None = options["latex"]
    if path is not None:
        check_writable(path, f"--save {path}")
    if latex is not None and latex != STANDARD_OUTPUT:
        check_writable(latex, f"--latex {latex}")
    if latex == STANDARD_OUTPUT and options["as_json"]:
        raise click.UsageError("--latex - and --json: expected one of them, as each prints nothing else")
    mg.manual_seed(options["seed"])
    M = create_model(
        options["layers"],
        options["layer_sizes"],
        weights=options["layer_weights"],
        optimizers=options["optimizers"],
        dropouts=options["dropouts"],
        densities=options["densities"],
    ).to(dtype=options["dtype"])
    loss = create_loss(options["loss"]) if options["loss"] else default_loss(M)
    N = options["batch_size"]
    X, T = (np.empty((N, n), M.dtype) for n in (M.layers[0].input_size, M.layers[-1].output_size))
    recorded = record_computation(make_step(M, loss, clip_norm=options["clip"]), M.state(), X, T)
    result = recorded if options["as_recorded"] else optimized(recorded)
    if path is not None:
        save_program(result, path, M.state())
    if latex is not None:
        _write_latex(latex, result)
    if latex != STANDARD_OUTPUT:
        click.echo(json_text(as_dictionary(result)) if options["as_json"] else str(result))


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
