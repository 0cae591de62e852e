"""`matgrad program`: a training step, or feedforward, as the equations that are executed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import matgrad as mg
from matgrad.cli.files import READS, STANDARD_OUTPUT, WRITES, Writes, write_latex
from matgrad.cli.groups import GroupedCommand, all_of, option
from matgrad.cli.options import (
    COUNT,
    POSITIVE,
    SEED,
    dtype_option,
    plugin_option,
)
from matgrad.cli.saved_models import is_given, make_sparse, rebuilt
from matgrad.cli.sparsity import density_options, sparsity_of
from matgrad.foundation.notation import document
from matgrad.foundation.writing import Table
from matgrad.foundation.writing import as_json as json_text
from matgrad.loss_functions import create_loss
from matgrad.program.models import BATCH_SIZE
from matgrad.specifications.models import OPTIMIZER, WEIGHTS, create_model, set_optimizers
from matgrad.storage.models import SavedModel

if TYPE_CHECKING:
    from matgrad.program import Program
    from matgrad.program.sharding import Placements

model_options = all_of(
    option("Model", "--layers", default="ReLU;ReLU;Linear", metavar="LIST", help="The layers."),
    option("Model", "--layer-sizes", default="784;1024;512;10", metavar="LIST", help="Layer sizes."),
    option("Model", "--layer-weights", default=WEIGHTS, metavar="LIST", help="Initial weights."),
    option("Model", "--dropouts", default="0", metavar="LIST", help="Dropout rates of the linear layers."),
    density_options,
    option(
        "Model",
        "--load-weights",
        type=READS,
        metavar="MODEL",
        help="A model file of `matgrad train`, or a program file.",
    ),
    plugin_option,
)


@click.command(cls=GroupedCommand, short_help="Show or save a training step, or feedforward, as equations.")
@model_options
@option("Training", "--feedforward", is_flag=True, help="Compute Y in evaluation mode instead of a training step.")
@option("Training", "--optimizers", default=OPTIMIZER, metavar="LIST", help="One, or one per layer.")
@option("Training", "--loss", metavar="NAME", help="The loss function.  [default: the one that fits the last layer]")
@option("Training", "--batch-size", type=COUNT, default=BATCH_SIZE, help="Examples per step.")
@option("Training", "--clip", type=POSITIVE, metavar="C", help="Clip gradients to norm C.")
@dtype_option
@option("Training", "--seed", type=SEED, default=0, help="Seed of the weights.")
@option(
    "Training",
    "--ranks",
    type=COUNT,
    metavar="P",
    help="The program of one of P ranks: processes that train together.",
)
@option("Training", "--rank", type=click.IntRange(min=0), default=0, help="Which one, from 0 to P - 1.")
@option(
    "Training",
    "--placements",
    metavar="LIST",
    help="What each rank has only a part of, such as 1.W=rows;1.b=columns;2.W=columns, or the word optimizer for X, T "
    "and what optimizers remember.  [default: X=rows;T=rows]",
)
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
@option("Output", "--json", "as_json", is_flag=True, help="Print as JSON, and nothing else.")
def program(as_json: bool, **options: Any) -> None:
    """Record a training step, or feedforward, and show it as equations in the order of execution.

    x' is x after the step, ⊙ multiplies elements, [x ≥ 0] is 1 or 0, and 1_N b repeats the row b.
    """
    from matgrad.program.description import as_dictionary
    from matgrad.program.latex import program_latex
    from matgrad.program.rules import with_separate_exchange
    from matgrad.storage.programs import save_program

    path: Path | None = options["save"]
    latex: Path | None = options["latex"]
    if latex == STANDARD_OUTPUT and as_json:
        raise click.UsageError("--latex - and --json: expected one of them, as each prints nothing else")
    _check(options)
    saved = described_model(options)
    M = saved.model
    loss = None
    if not options["feedforward"]:
        loss = create_loss(options["loss"]) if options["loss"] else saved.loss
        saved.information["loss"] = loss.specification()
    result = M.program(
        feedforward=options["feedforward"],
        loss=loss,
        batch_size=options["batch_size"],
        clip_norm=options["clip"],
        fused=not options["as_recorded"] and options["ranks"] is None,
    )
    messages = None
    if options["ranks"] is not None:
        result, messages = _of_rank(result, options)
    if path is not None:
        save_program(result, path, saved)
    if latex is not None:
        write_latex(latex, document(program_latex(result)))
    if latex != STANDARD_OUTPUT:
        beside = {} if messages is None else {"messages": messages}
        click.echo(json_text(as_dictionary(with_separate_exchange(result)) | beside) if as_json else str(result))
        if messages is not None and not as_json:
            n, N = result.inputs["T"].shape[0], options["batch_size"]
            share = f"rank {options['rank']} of {options['ranks']} has {n:d} of {N} examples"
            click.echo(f"\n{share}; {_messages_text(messages)}")


def described_model(options: dict[str, Any]) -> SavedModel:
    """The model that the options describe or load, with its optimizers and its element type."""
    mg.manual_seed(options["seed"])
    if options["load_weights"]:
        saved = rebuilt(options)
        if note := make_sparse(saved.model, options):
            click.echo(note, err=True)
    else:
        saved = SavedModel(new_model(options))
    set_optimizers(saved.model, options["optimizers"])
    saved.model.to(dtype=options["dtype"])
    return saved


def new_model(options: dict[str, Any]) -> mg.MultilayerPerceptron:
    """The model that the options describe."""
    return create_model(
        options["layers"],
        options["layer_sizes"],
        weights=options["layer_weights"],
        dropouts=options["dropouts"],
        **sparsity_of(options),
    )


def _check(options: dict[str, Any]) -> None:
    """Raise if options do not go together."""
    P = options["ranks"]
    conflicts = {
        "--feedforward: it is for a training step": options["feedforward"] and ("loss", "clip", "optimizers", "ranks"),
        "--ranks: the program of a rank runs only together with the others": P is not None and ("save",),
        "no --ranks: it says which part of a program a rank has": P is None and ("rank", "placements"),
    }
    for reason, names in conflicts.items():
        for name in filter(is_given, names or ()):
            raise ValueError(f"--{name} and {reason}")
    if P is not None and options["rank"] >= P:
        raise ValueError(f"--rank {options['rank']}: expected 0 to {P - 1}")


def _placements(program: Program, text: str | None, size: int) -> Placements:
    """How the inputs are split among ranks: by the names in a list such as 1.W=rows, or by one of two rules."""
    from matgrad.program.sharding import AXES, data_parallel, shared_optimizer, with_optimizers

    if text is None:
        return data_parallel(program, size)
    if text == "optimizer":
        return shared_optimizer(program, size)
    known, found = {axis.value: axis for axis in AXES}, {}
    for item in text.split(";"):
        name, _, axis = (part.strip() for part in item.partition("="))
        if axis not in known or name in found:
            raise ValueError(f"--placements: {item!r}: expected optimizer, or each NAME=rows or NAME=columns once")
        found[name] = known[axis]
    return with_optimizers(program, found)


def _of_rank(program: Program, options: dict[str, Any]) -> tuple[Program, list[dict[str, Any]]]:
    """The program of a rank, and what it exchanges with the others in a step."""
    from matgrad.program.rules import optimized
    from matgrad.program.schedule import executable, traffic
    from matgrad.program.sharding import sharded
    from matgrad.program.text import Printer

    size = options["ranks"]
    own = sharded(program, _placements(program, options["placements"], size), options["rank"], size)
    executed = executable(own)
    printer = Printer(executed)
    messages = [
        {"operation": x.operation, "carries": [printer.operand(A, "sum") for A in x.matrices], "bytes": x.nbytes}
        for x in traffic(executed)
        if size > 1
    ]
    return own if options["as_recorded"] else optimized(own), messages


def _messages_text(messages: list[dict[str, Any]]) -> str:
    """What a rank exchanges with the others, as a table."""
    total = sum(message["bytes"] for message in messages)
    number = f"{len(messages)} message{'' if len(messages) == 1 else 's'}"
    rows = [[f"{x['operation']} of {', '.join(x['carries'])}", f"{x['bytes']:,}"] for x in messages]
    title = f"{number} of {total:,} bytes per step" if messages else "nothing is sent"
    return Table(title, ["message", "bytes"], rows).text() if rows else title
