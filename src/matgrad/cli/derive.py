"""`matgrad derive`: the gradients of a feedforward, with the code of a layer, proved for all sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

import matgrad as mg
from matgrad.activation_functions import ACTIVATIONS
from matgrad.cli.commands import Command, echo_json, json_option, latex_option, option
from matgrad.cli.files import READS, STANDARD_OUTPUT, WRITES, write_text
from matgrad.cli.options import plugin_option
from matgrad.cli.verify import MEANING
from matgrad.foundation.notation import document
from matgrad.judges.algebra import MakeLayer
from matgrad.specifications.models import LAYERS
from matgrad.specifications.parsing import create, lookup, parse_call


@click.command(cls=Command, short_help="Derive the gradients of a feedforward, and prove them.")
@click.argument("equations", required=False)
@option("Model", "--file", type=READS, metavar="FILE", help="Read the equations from a file.")
@option("Model", "--layer", metavar="NAME", help="The feedforward of a layer instead: Softmax, AllReLU(0.3) …")
@option("Model", "--evaluation", is_flag=True, help="Its feedforward in evaluation mode.")
@option("Model", "--name", default="", metavar="NAME", help="The name of the new layer.")
@plugin_option
@option("Output", "--code", is_flag=True, help="Print the code of the layer, and nothing else.")
@option("Output", "--save", type=WRITES, metavar="FILE", help="Write the code of the layer to a file, a plugin.")
@latex_option
@json_option
def derive(equations: str | None, code: bool, latex: Path | None, as_json: bool, **options: Any) -> None:
    """Derive the gradients of a feedforward in matrix form, and write a layer with them.

    EQUATIONS are separated by semicolons or lines. The last one is that of the output Y; X is the input, of size
    N×D. NAME: ROWS COLUMNS declares a parameter:

        matgrad derive "g: 1 D = 1; Y = hadamard(row_repeat(g, N), X)"

    What is printed is proved for all sizes, by running it on symbols. If something is not, the exit status is 1.
    """
    file, layer, name = options["file"], options["layer"], options["name"]
    given = [x for x in (equations, file, layer) if x is not None]
    if len(given) != 1:
        raise ValueError("expected EQUATIONS, --file FILE or --layer NAME, and only one of them")
    if sum((code, as_json, latex == STANDARD_OUTPUT)) > 1:
        raise ValueError("--code, --json and --latex -: expected one of them, as each prints nothing else")
    if options["evaluation"] and layer is None:
        raise ValueError("--evaluation: expected --layer with it; equations have no modes")
    if layer is not None:
        found = mg.derive(layer_named(layer), name=name, training=not options["evaluation"])
    else:
        found = mg.derive(file.read_text(encoding="utf-8") if file is not None else str(equations), name=name)
    if options["save"] is not None:
        write_text(options["save"], found.code, "code")
    if latex is not None:
        write_text(latex, document(found.latex), "LaTeX")
    if code:
        click.echo(found.code, nl=False)
    elif as_json:
        proved = {verdict.name: verdict.ok for verdict in found.verdicts}
        lines = {
            method: [{"name": x.name, "code": x.code, "proved": proved.get(x.name)} for x in getattr(found, method)]
            for method in ("feedforward", "backpropagation")
        }
        whole = {"code": found.code, "latex": found.latex, "proved": found.is_proved, "problems": found.problems}
        echo_json(lines | whole)
    elif latex != STANDARD_OUTPUT:
        count = f"{sum(x.ok for x in found.verdicts)} of {len(found.verdicts)} equations are proved for all sizes"
        click.echo(f"{found}\n\n{found.code}\n{count}\n{MEANING}")
    if not found.is_proved:
        for problem in found.problems:
            click.echo(problem, err=True)
        raise click.exceptions.Exit(1)


def layer_named(specification: str) -> MakeLayer:
    """The constructor, from D and K, of the layer that a string such as ``Softmax`` or ``AllReLU(0.3)`` names."""
    name = parse_call(specification).name
    cls = lookup(name, {**LAYERS, **ACTIVATIONS}, "layer")
    if name in ACTIVATIONS:
        return lambda D, K: mg.ActivationLayer(D, K, specification)
    return lambda D, K: create(specification, LAYERS, "layer", D, D if getattr(cls, "keeps_size", False) else K)
