"""`matgrad verify`: checks every equation symbolically, on the code that runs."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from matgrad.backends import get_backend
from matgrad.cli.commands import Command, echo_json, json_option, option
from matgrad.cli.files import WRITES, write_text
from matgrad.cli.options import plugin_option

if TYPE_CHECKING:
    from matgrad.inspection.verdicts import Case, Check

COLUMNS = {"equation": 38, "source": 48, "paper": 40, "sizes": 34, "method": 11, "seconds": 7, "verdict": 7}  # widths
MEANING = (
    "proved: for all sizes of 1 or more, and all real numbers for which both sides are defined, except where a "
    "condition such as x ≥ 0, or a maximum, changes"
)


@click.command(cls=Command, short_help="Check every equation symbolically.")
@option("Options", "--layer", multiple=True, metavar="NAME", help="Only this layer, loss, optimizer … Repeatable.")
@option("Options", "--quick", is_flag=True, help="Only a selection, which takes seconds.")
@option("Options", "--all-sizes", is_flag=True, help="Prove the equations for all sizes N, D and K.")
@option("Options", "--explain", metavar="NAME", help="With --all-sizes: print a derivation, such as SoftmaxLayer.DZ.")
@option("Output", "--latex", type=WRITES, metavar="FILE", help="Write the equations as a LaTeX document.")
@json_option
@plugin_option
def verify(
    layer: tuple[str, ...], quick: bool, all_sizes: bool, latex: Path | None, as_json: bool, **more: Any
) -> None:
    """Run SymPy matrices through the classes that train, and compare with SymPy's own derivatives.

    Checks every layer, loss, activation function, softmax function and optimizer, also with numbers at several
    sizes, and the lemmas and derivations of the paper. If an equation is wrong, it says where, and the exit status
    is 1. What has nothing to be compared with, such as the feedforward of your own layer, is listed.

    With --all-sizes, matrices of symbolic sizes run through them instead, and an equation is proved or not; the exit
    status is 1 if one is not. Optimizers are not included. With --explain, the proof of one equation is printed in
    steps, each with its rule; --layer says for which layer or activation function, if there are several.
    """
    if more["explain"] is not None:
        if quick or as_json or not all_sizes:
            raise click.UsageError("--explain goes with --all-sizes, and with --layer, --latex and --plugin alone")
        from matgrad.proofs import suite as proofs

        explanation = proofs.explain(more["explain"], layer)
        click.echo(f"{explanation}\n{MEANING}")
        if latex is not None:
            write_text(latex, explanation.latex(), "LaTeX")
        return
    start, checks = time.perf_counter(), []
    right, wrong_word = ("proved", "NOT PROVED") if all_sizes else ("right", "WRONG")
    chosen = _cases(layer, quick, all_sizes)
    if not as_json:
        click.echo(_line(*COLUMNS))
    for x in _progress(chosen, silent=as_json):
        checks.append(x)
        if not as_json:
            verdict = "none" if x.note else right if x.ok else wrong_word
            click.echo(_line(x.name, x.location, x.label, x.sizes, x.method, f"{x.seconds:.2f}", verdict))
    wrong, judged = [x for x in checks if not x.ok], [x for x in checks if not x.note]
    if not judged:
        raise ValueError(f"no equation was checked: {', '.join(layer) or 'nothing was selected'}")
    if as_json:
        count = {"not_proved" if all_sizes else "wrong": len(wrong)}
        echo_json({"checks": [asdict(x) for x in checks]} | count)
    else:
        notes = (f"note: {x.name} {x.location}: {x.note}" for x in checks if x.note)
        for text in dict.fromkeys([*(x.message for x in wrong), *notes]):
            click.echo(f"\n{text}")
        seconds, verdict = time.perf_counter() - start, "proved for all sizes" if all_sizes else "right"
        click.echo(f"\n{len(judged) - len(wrong)} of {len(judged)} equations are {verdict}, in {seconds:.0f} s")
        if all_sizes:
            click.echo(MEANING)
    if latex is not None:
        from matgrad.symbolic.suite import validated_equations

        write_text(latex, validated_equations(checks), "LaTeX")
    if wrong:
        raise click.exceptions.Exit(1)


def _cases(only: tuple[str, ...], quick: bool, all_sizes: bool) -> Sequence[Case]:
    """The chosen cases of the verifier, or those of the proofs, which need no SymPy."""
    if all_sizes:
        from matgrad.proofs import suite as proofs

        return proofs.cases(only, quick=quick)
    get_backend("sympy")  # says what to install if SymPy is missing
    from matgrad.symbolic.suite import cases

    return cases(only, quick=quick)


def _progress(chosen: Sequence[Case], silent: bool) -> Iterator[Check]:
    """The verdicts of the cases, with a progress bar where standard error is a terminal."""
    bar: Any = nullcontext(chosen)
    if sys.stderr.isatty() and not silent:
        bar = click.progressbar(chosen, file=sys.stderr, item_show_func=lambda case: case.name if case else "")
    with bar as running:
        for case in running:
            yield from case.run()


def _line(*cells: str) -> str:
    return "  ".join(f"{cell:<{width}}" for cell, width in zip(cells, COLUMNS.values(), strict=True)).rstrip()
