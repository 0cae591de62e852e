"""The group of commands, and what happens to errors: one clear line, exit status 2, no traceback."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

import matgrad
from matgrad.cli.bench import bench
from matgrad.cli.commands import Command, as_click_error, echo
from matgrad.cli.evaluate import evaluate, predict
from matgrad.cli.explain import explain
from matgrad.cli.files import FileType
from matgrad.cli.inspect import convert, info, inspect, pictures_command
from matgrad.cli.program import program
from matgrad.cli.prove import prove
from matgrad.cli.runs import plot, runs_command
from matgrad.cli.sample import sample
from matgrad.cli.train import train
from matgrad.cli.verify import check, derive, verify
from matgrad.datasets import download
from matgrad.foundation.writing import visible


class Commands(click.Group):
    """A group that turns the package's own errors into one line."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; bad input ends it with exit status 2."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            echo("interrupted", err=True)
            raise click.exceptions.Exit(130) from None
        except Exception as error:
            if (shown := as_click_error(error)) in (None, error):
                raise
            raise shown from error

    def main(self, *arguments: Any, **options: Any) -> Any:
        """Run the command line; print ? for what a terminal lacks, and nothing where standard output is closed."""
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if stream is None:
                setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 (for the rest of the process)
            elif hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="replace")
        return super().main(*arguments, **options)


COMMANDS: list[click.Command] = [train, evaluate, predict, sample, explain, convert, plot, runs_command, check, verify]
COMMANDS += [derive, prove, program, bench, inspect, pictures_command, info]
SETTINGS = {"max_content_width": 100, "help_option_names": ["-h", "--help"]}


@click.group(cls=Commands, commands=COMMANDS, context_settings=SETTINGS)
@click.version_option(matgrad.__version__, prog_name="matgrad")
def main() -> None:
    """Multilayer perceptrons in batch matrix form.

    Without options, `matgrad train` trains on embedded handwritten digits. `matgrad COMMAND --help`
    explains the options of a command.
    """


@main.command(cls=Command)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that completes matgrad's options in SHELL.

    For bash: eval "$(matgrad completion bash)", for example in ~/.bashrc.
    """
    from click.shell_completion import shell_complete

    shell_complete(main, {}, "matgrad", "_MATGRAD_COMPLETE", f"{shell}_source")


@main.group()
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
