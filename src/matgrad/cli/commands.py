"""What all commands share: options under headings, checks of files before a command runs, JSON and errors."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

import click
from click.core import ParameterSource

from matgrad.cli.files import FileType, Writes
from matgrad.cli.renamed import renaming
from matgrad.distributed import is_first
from matgrad.foundation.limits import is_out_of_memory
from matgrad.foundation.writing import as_json

F = TypeVar("F", bound=Callable[..., Any])

Group = Literal["Model", "Data", "Training", "Sparsity", "Output", "Engine", "Options"]
GROUPS: tuple[Group, ...] = get_args(Group)  # in the order of the headings

# what the package raises for bad input; anything else is a bug and shows its traceback
BAD_INPUT = (ValueError, TypeError, OSError, ModuleNotFoundError, MemoryError, OverflowError, RecursionError)


class GroupedOption(click.Option):
    """An option that belongs to a group."""

    def __init__(self, *arguments: Any, group: Group, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.group = group

    def get_help_extra(self, ctx: click.Context) -> Any:
        """What the help says beside: the default, but no ranges."""
        extra = super().get_help_extra(ctx)
        extra.pop("range", None)
        return extra


def option(group: Group, *names: str, **settings: Any) -> Callable[[Any], Any]:
    """`click.option` in a group; its default, if it has one, is shown."""
    shown = settings.get("default") is not None
    return click.option(*names, cls=GroupedOption, group=group, show_default=shown, **settings)


def all_of(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Several options as one decorator, in the order given."""

    def decorate(command: F) -> F:
        for add in reversed(options):
            command = add(command)
        return command

    return decorate


json_option = option("Output", "--json", "as_json", is_flag=True, help="Print as JSON, and nothing else.")
latex_option = option(
    "Output", "--latex", type=Writes(prints=True), metavar="FILE", help="Write a LaTeX document; - prints it alone."
)


def echo_json(value: Any) -> None:
    """Print a value as JSON."""
    click.echo(as_json(value))


def echo_columns(lines: Sequence[Sequence[str]]) -> None:
    """Print lines of cells in columns, aligned on the left."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        click.echo("  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip())


@contextmanager
def warnings_to(say: Callable[[str], None]) -> Iterator[None]:
    """Warnings are lines that a function prints."""
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_: say(str(message))
        yield


class Command(click.Command):
    """A command that checks its files before it runs, and whose help shows its options by group."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line; an error names the new spelling of what had another."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            text = renaming(error.option_name)
            raise error if text is None else click.UsageError(text, ctx) from None

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options of each group under its heading."""
        rows: dict[str, list[tuple[str, str]]] = {group: [] for group in GROUPS}
        for parameter in self.get_params(ctx):
            if record := parameter.get_help_record(ctx):
                rows[getattr(parameter, "group", "Options")].append(record)
        for group, records in rows.items():
            if records:
                with formatter.section(group):
                    formatter.write_dl(records, col_max=24)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, after rank 0 has checked the files."""
        if is_first():
            self.check(ctx)
        return super().invoke(ctx)

    def check(self, ctx: click.Context) -> None:
        """Raise if a file cannot be written, is read too, or is written twice."""
        used: dict[str, str] = {}  # what each real path is used for
        remedies = " or ".join(f"--{name}" for name in ("overwrite", "resume") if name in ctx.params)
        for kind, path, name, is_default in sorted(_files(ctx), key=lambda found: isinstance(found[0], Writes)):
            if isinstance(kind, Writes):
                # a resumed run has written to the files of its own configuration from the start
                is_continued = is_default and ctx.params.get("resume") is not None
                kind.check(path, name, is_continued or bool(ctx.params.get("overwrite")), remedies)
            files = {os.path.realpath(file) for file in kind.files(path)}
            if isinstance(kind, Writes) and (twice := used.keys() & files):
                raise ValueError(f"{name}: the same file as {used[twice.pop()]}; expected another one")
            used |= dict.fromkeys(files, name if isinstance(kind, Writes) else f"{name}, which is read")


def _files(ctx: click.Context) -> Iterator[tuple[FileType, Path, str, bool]]:
    """Every file or folder that a command is given: its type, its name, also in messages, and if a file gave it."""
    for parameter in ctx.command.params:
        value, source = ctx.params.get(str(parameter.name)), ctx.get_parameter_source(str(parameter.name))
        if isinstance(parameter.type, FileType) and value is not None:
            flag = parameter.opts[0] if isinstance(parameter, click.Option) else parameter.human_readable_name
            for item in value if isinstance(value, tuple) else (value,):
                path, _ = parameter.type.split(item)
                yield parameter.type, path, f"{flag} {path}", source is ParameterSource.DEFAULT_MAP


def as_click_error(error: BaseException) -> click.ClickException | None:
    """The error as one that is printed in one line; None if it is a bug, or none of ours."""
    if isinstance(error, click.ClickException):
        return error
    if is_out_of_memory(error):
        return click.UsageError(str(error).partition("\n")[0], ctx=None)
    if isinstance(error, BAD_INPUT) and not isinstance(error, BrokenPipeError):  # the reader of a pipe is gone
        return click.UsageError(" ".join(str(error).splitlines()) or type(error).__name__, ctx=None)
    return None
