"""`matgrad data`: data sets that are downloaded."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from matgrad.cli.commands import Command, FileType, echo
from matgrad.datasets import download
from matgrad.foundation.writing import visible


@click.group()
def data() -> None:
    """Download data sets."""


@data.command(cls=Command)
@click.argument("name", type=click.Choice(sorted(download.SOURCES)))
@click.argument("directory", type=FileType(), required=False)
@click.option("--mirror", multiple=True, metavar="URL", help="Download from here instead. Repeatable.")
@click.option("--timeout", type=click.FloatRange(0.001, 86400), default=30, show_default=True, help="How long to wait.")
@click.option("--quiet", is_flag=True, help="Do not show progress.")
def get(name: str, directory: Path | None, mirror: tuple[str, ...], timeout: float, quiet: bool) -> None:
    """Download the data set NAME into DIRECTORY, which is NAME by default.

    An interrupted download resumes where it stopped. Checksums are verified.
    """
    folder, shown, is_terminal = directory or Path(name), set(), sys.stderr.isatty()

    def progress(done: int, total: int | None, file: str) -> None:
        percent = 100 * done // total if total else 0
        if not quiet and (file, percent) not in shown and (is_terminal or percent in (0, 100)):
            shown.add((file, percent))
            end = "\r" if is_terminal and percent < 100 else "\n"
            click.echo(f"{visible(file)}  {done / 1e6:.1f} MB  {percent} %{end}", nl=False, err=True)

    download.get(name, folder, mirrors=list(mirror) or None, progress=progress, timeout=timeout)
    echo(f"{name} is in {folder}; use it with: matgrad train --{name} {folder}")
