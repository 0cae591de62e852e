"""`matgrad compare`: values that other kernels have computed, and the golden ones of `matgrad program --values`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from matgrad.cli.commands import READS, Command, echo, echo_json, json_option
from matgrad.storage.golden import Compared, compared


@click.command(cls=Command, short_help="Compare the values of other kernels with those of a program.")
@click.argument("mine", type=READS)
@click.argument("golden", type=READS)
@json_option
def compare(mine: Path, golden: Path, as_json: bool) -> None:
    """Compare the values in MINE, an npz or safetensors file, with the program in GOLDEN, of `program --values`.

    MINE has some or all values of the program by their names in GOLDEN, in float32 or float64. Each must be what
    follows, by its equation, from the values before it in MINE, but for rounding; what MINE lacks is computed. So the
    first value that is wrong is where the fault is. The exit status is 1 if a value is out of its bound.
    """
    rows = compared(mine, golden)
    if as_json:
        echo_json([asdict(row) for row in rows])
    else:
        echo("\n".join([*(told(row) for row in rows if not row.is_right), summary(rows)]))
    if not all(row.is_right for row in rows):
        raise click.exceptions.Exit(1)


def told(row: Compared) -> str:
    """What is wrong with a value."""
    place = f" in {row.where}" if row.place else ""
    values = f"found {row.found:.9g}, expected {row.expected:.9g}"
    off = f"{row.error:.3g} units in the last place instead of at most {row.bound:.3g}"
    return f"{row.name}: WRONG{place}: {values}: {off}\n  {row.equation or 'given'}: {row.text}"


def summary(rows: list[Compared]) -> str:
    """How many values are right, and which comes closest to its bound."""
    right = [row for row in rows if row.is_right]
    lines = [f"{len(right)} of {len(rows)} values are within their bounds"]
    if inexact := [row for row in right if 0 < row.error and row.bound < float("inf")]:
        worst = max(inexact, key=lambda row: row.error / row.bound)
        lines += [f"the closest is {worst.name}: {worst.error:.3g} units in the last place, at most {worst.bound:.3g}"]
    if unbounded := sum(row.unbounded for row in rows):
        lines += [f"{unbounded} elements have no bound: values that they follow from are missing, or not finite"]
    return "; ".join(lines)
