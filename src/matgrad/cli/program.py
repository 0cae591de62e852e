"""`matgrad program`: a training step, or feedforward, as the equations that are executed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np

from matgrad.cli.commands import (
    STANDARD_OUTPUT,
    WRITES,
    Command,
    echo,
    echo_json,
    json_option,
    latex_option,
    option,
    write_text,
)
from matgrad.cli.examples import random_examples
from matgrad.cli.options import COUNT, POSITIVE, is_given, step_options
from matgrad.cli.saved_models import chosen_loss, described_model
from matgrad.foundation.notation import document
from matgrad.foundation.writing import Table
from matgrad.layers.state import State
from matgrad.loss_functions import LossFunction, default_loss
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.program import Program
from matgrad.program.computations import make_step
from matgrad.program.description import as_dictionary
from matgrad.program.passes import Equality, Shares, proved
from matgrad.program.rules import optimized, with_separate_exchange
from matgrad.program.schedule import executable, traffic
from matgrad.program.sharding import AXES, data_parallel, sharded, shared_optimizer, with_optimizers
from matgrad.program.text import Printer, fused, program_latex
from matgrad.storage.golden import save_golden
from matgrad.storage.programs import save_program

RATE = 0.01  # the learning rate of golden values
PLACEMENTS = (
    "What each rank has only a part of, such as 1.W=rows;1.b=columns;2.W=columns, or the word optimizer for X, T "
    "and what optimizers remember.  [default: X=rows;T=rows]"
)


@click.command(cls=Command)
@step_options
@option("Training", "--feedforward", is_flag=True, help="Compute Y in evaluation mode instead of a training step.")
@option("Training", "--clip", type=POSITIVE, metavar="C", help="Clip gradients to norm C.")
@option("Training", "--ranks", type=COUNT, metavar="P", help="The program of one of P ranks, which train together.")
@option("Training", "--rank", type=click.IntRange(min=0), default=0, help="Which one, from 0 to P - 1.")
@option("Training", "--placements", metavar="LIST", help=PLACEMENTS)
@option("Training", "--prove", "is_proved", is_flag=True, help="Prove each rewriting of the program for all sizes.")
@option("Output", "--as-recorded", is_flag=True, help="Show the program before operations are fused.")
@option("Output", "--open", "is_opened", is_flag=True, help="Show the steps of softmax and other named functions.")
@option("Output", "--save", type=WRITES, metavar="FILE", help="Write program and weights to a safetensors file.")
@option("Output", "--values", type=WRITES, metavar="FILE", help="Write all values of a step to a safetensors file.")
@latex_option
@json_option
def program(as_json: bool, save: Path | None, values: Path | None, latex: Path | None, **options: Any) -> None:
    """Record a training step, or feedforward, and show it as equations in the order of execution.

    x' is x after the step, ⊙ multiplies elements, [x ≥ 0] is 1 or 0, and 1_N b repeats the row b.

    With --prove, the program before and after each application of a rule is compared in index notation, for all sizes,
    and with --ranks what all ranks have together with the whole. The exit status is 1 if something is not proved.
    """
    if latex == STANDARD_OUTPUT and as_json:
        raise ValueError("--latex - and --json: expected one of them, as each prints nothing else")
    P = options["ranks"]
    conflicts = {
        "--feedforward: it is for a training step": options["feedforward"] and ("loss", "clip", "optimizers", "ranks"),
        "--ranks: the program of a rank runs only together with the others": P is not None and ("save", "values"),
        "--as-recorded: there is nothing to prove": options["as_recorded"] and ("is_proved",),
        "no --ranks: it says which part of a program a rank has": P is None and ("rank", "placements"),
    }
    for reason, names in conflicts.items():
        for name in filter(is_given, names or ()):
            raise ValueError(f"--{name} and {reason}")
    if P is not None and options["rank"] >= P:
        raise ValueError(f"--rank {options['rank']}: expected 0 to {P - 1}")
    M, loss = described_model(options), None
    if not options["feedforward"]:
        loss = chosen_loss(options, M)
        M.information = {**M.information, "loss": loss.specification()}
    result = recorded = M.program(
        feedforward=options["feedforward"],
        loss=loss,
        batch_size=options["batch_size"],
        clip_norm=options["clip"],
        fused=False,
    )
    if is_fused := not options["as_recorded"] and P is None and not options["is_proved"]:
        result = optimized(recorded)
    messages: list[dict[str, Any]] = []
    equality, shares = Equality(), Shares()
    if P is not None:
        result, messages = _of_rank(result, options, equality, shares)
    elif options["is_proved"]:
        result = proved(result, equality)
    if save is not None:
        save_program(result, save, M)
    if values is not None:
        save_golden(result, values, *golden_inputs(M, loss, options))
    if latex is not None:
        write_text(latex, document(program_latex(result, is_opened=options["is_opened"])), "LaTeX")
    if as_json:
        echo_json(as_dictionary(with_separate_exchange(result)) | ({} if P is None else {"messages": messages}))
    elif latex != STANDARD_OUTPUT:
        echo(result.text(is_opened=options["is_opened"]))
        if is_fused and (parts := fused(recorded, result)):
            echo("\nfused: " + "; ".join(f"{name} in {', '.join(of)}" for name, of in parts.items()))
        if P is not None:
            n, N = result.inputs["T"].shape[0], options["batch_size"]
            total = sum(message["bytes"] for message in messages)
            rows = [[f"{x['operation']} of {', '.join(x['carries'])}", f"{x['bytes']:,}"] for x in messages]
            title = f"{len(messages)} message{'' if len(messages) == 1 else 's'} of {total:,} bytes per step"
            sent = Table(title, ["message", "bytes"], rows).text() if messages else "nothing is sent"
            echo(f"\nrank {options['rank']} of {P} has {n:d} of {N} examples; {sent}")
        if options["is_proved"]:
            echo(f"\n{equality}" + (f"\n{shares}" if P is not None else ""))
    if equality.unproved or (options["is_proved"] and shares.unproved):
        raise click.exceptions.Exit(1)


def golden_inputs(M: MultilayerPerceptron, loss: LossFunction | None, options: dict[str, Any]) -> tuple[State, State]:
    """The state after two steps, so that nothing of it is 0, and the inputs of the next."""
    N, rng = options["batch_size"], np.random.default_rng(options["seed"])
    X, T = (A.astype(M.dtype) for A in random_examples(M, loss or default_loss(M), N, rng))
    state, eta = M.state(), M.scalar(RATE)
    if loss is None:
        return state, {"X": X}
    step = make_step(M, loss, clip_norm=options["clip"])
    for _ in range(2):
        state = step(state, *(A[rng.permutation(N)] for A in (X, T)), eta)
    return state, {"X": X, "T": T, "eta": eta}


def _of_rank(
    program: Program, options: dict[str, Any], equality: Equality, shares: Shares
) -> tuple[Program, list[dict[str, Any]]]:
    """The program of a rank, what it exchanges with the others in a step, and what is proved of both."""
    size, text = options["ranks"], options["placements"]
    if text is None or text == "optimizer":
        placements = (data_parallel if text is None else shared_optimizer)(program, size)
    else:  # a list such as 1.W=rows
        known, found = {axis.value: axis for axis in AXES}, {}
        for item in text.split(";"):
            name, _, axis = (part.strip() for part in item.partition("="))
            if axis not in known or name in found:
                raise ValueError(f"--placements: {item!r}: expected optimizer, or each NAME=rows or NAME=columns once")
            found[name] = known[axis]
        placements = with_optimizers(program, found)
    own = sharded(program, placements, options["rank"], size, shares.prove)
    executed = executable(own)
    printer = Printer(executed)
    messages = [
        {"operation": x.operation, "carries": [printer.operand(A, "sum") for A in x.matrices], "bytes": x.nbytes}
        for x in traffic(executed)
        if size > 1
    ]
    if options["is_proved"]:
        return proved(own, equality), messages
    return own if options["as_recorded"] else optimized(own), messages
