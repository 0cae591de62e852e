"""`matgrad verify`: what every judge says of every equation, on the code that runs."""

from __future__ import annotations

import sys
import time
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from matgrad.backends import get_backend
from matgrad.cli.commands import Command, echo_columns, echo_json, json_option, option
from matgrad.cli.files import WRITES, write_text
from matgrad.cli.options import plugin_option

if TYPE_CHECKING:
    from matgrad.inspection.verdicts import Check

ALL_SIZES = "all sizes"
MEANING = (
    "proved: for all sizes of 1 or more, and all real numbers for which both sides are defined, except where a "
    "condition such as x ≥ 0, or a maximum, changes"
)


@click.command(cls=Command, short_help="Check every equation.")
@option("Options", "--layer", multiple=True, metavar="NAME", help="Only this layer, loss, optimizer … Repeatable.")
@option("Options", "--quick", is_flag=True, help="Only a selection, which takes seconds.")
@option("Options", "--all-sizes", is_flag=True, help="Only prove the equations for all sizes N, D and K.")
@option("Options", "--explain", metavar="NAME", help="With --all-sizes: print a derivation, such as SoftmaxLayer.DZ.")
@option("Output", "--latex", type=WRITES, metavar="FILE", help="Write the equations as a LaTeX document.")
@json_option
@plugin_option
def verify(
    layer: tuple[str, ...], quick: bool, all_sizes: bool, latex: Path | None, as_json: bool, **more: Any
) -> None:
    """Judge every equation by index notation for all sizes, by SymPy and in numbers, on the classes that train.

    Checks every layer, loss, activation function, softmax function and optimizer, and the lemmas and derivations of the
    paper: values against definitions, gradients against derivatives. There is one line for each equation, with
    what each judge says and, in brackets, in how many settings. If an equation is wrong, it says where, and the exit
    status is 1. What has nothing to be compared with, such as the feedforward of your own layer, is listed.

    With --all-sizes, there are only proofs for all sizes, in seconds and without SymPy, and an equation is proved or
    not; the exit status is 1 if one is not. Optimizers are not included. With --explain, the proof of one equation
    is printed in steps, each with its rule; --layer says for which layer or activation function, if there are several.
    """
    from matgrad.judges.suite import JUDGES, cases, explain, validated_equations

    if more["explain"] is not None:
        if quick or as_json or not all_sizes:
            raise click.UsageError("--explain goes with --all-sizes, and with --layer, --latex and --plugin alone")
        explanation = explain(more["explain"], layer)
        click.echo(f"{explanation}\n{MEANING}")
        if latex is not None:
            write_text(latex, explanation.latex(), "LaTeX")
        return
    if not all_sizes:
        get_backend("sympy")  # says what to install if SymPy is missing
    start = time.perf_counter()
    chosen = cases(layer, quick=quick, judges=[ALL_SIZES] if all_sizes else JUDGES)
    judges = list(dict.fromkeys(case.judge for case in chosen))
    is_silent = as_json or not sys.stderr.isatty()
    progress: dict[str, Any] = {"file": sys.stderr, "item_show_func": lambda case: case.name if case else ""}
    with nullcontext(chosen) if is_silent else click.progressbar(chosen, **progress) as running:
        checks = [(case.judge, check) for case in running for check in case.run()]
    judged = {judge: [check.ok for other, check in checks if other == judge and not check.note] for judge in judges}
    if not any(judged.values()):
        raise ValueError(f"no equation was checked: {', '.join(layer) or 'nothing was selected'}")
    not_proved = judged.get(ALL_SIZES, []).count(False)
    wrong = sum(found.count(False) for found in judged.values()) - not_proved
    if as_json:
        rows = [asdict(check) | {"judge": judge} for judge, check in checks]
        echo_json({"checks": rows, "wrong": wrong, "not_proved": not_proved})
    else:
        _print(checks, judges)
        for judge, found in judged.items():
            click.echo(f"{judge}: {sum(found)} of {len(found)} {'proved' if judge == ALL_SIZES else 'right'}")
        click.echo(f"in {time.perf_counter() - start:.0f} s")
        if ALL_SIZES in judges:
            click.echo(MEANING)
    if latex is not None:
        shown = (check for judge, check in checks if all_sizes or judge != ALL_SIZES)
        write_text(latex, validated_equations(shown), "LaTeX")
    if wrong or (all_sizes and not_proved):
        raise click.exceptions.Exit(1)


def _print(checks: list[tuple[str, Check]], judges: list[str]) -> None:
    """One line for each equation, with its verdicts, and what is wrong, not proved or not compared."""
    equations: dict[tuple[str, str], list[tuple[str, Check]]] = {}
    for judge, check in checks:
        equations.setdefault((check.name, check.location), []).append((judge, check))
    rows = [("equation", "source", "paper", *judges)]
    for key, found in equations.items():
        verdicts = []
        for judge in judges:
            own = [x.ok for other, x in found if other == judge and not x.note]
            right, wrong = ("proved", "NOT PROVED") if judge == ALL_SIZES else ("right", "WRONG")
            count = f" ({len(own)})" if len(own) > 1 else ""
            verdicts.append(f"{right if all(own) else wrong}{count}" if own else "-")
        rows.append((*key, next((x.label for _, x in found if x.label), ""), *verdicts))
    echo_columns(rows)
    messages = [check.message for _, check in checks if not check.ok]
    messages += [f"note: {x.name} {x.location}: {x.note}" for _, x in checks if x.note]
    for text in (*dict.fromkeys(messages), ""):
        click.echo(f"\n{text}" if text else "")
