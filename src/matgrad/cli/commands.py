"""What all commands share: options under headings, checks of files before a command runs, JSON and errors."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

import click
from click.core import ParameterSource

from matgrad.cli.files import FileType, Reads, Writes
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


class Command(click.Command):
    """A command that checks its files before it runs, and whose help shows its options by group."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line; an error names the new spelling of what had another."""
        try:
            if args and (text := renaming(f"{self.name} {args[0]}")):
                raise click.UsageError(text, ctx)
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            text = renaming(error.option_name)
            raise error if text is None else click.UsageError(text, ctx) from None

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options of each group under its heading."""
        rows: dict[str, list[tuple[str, str]]] = {group: [] for group in GROUPS}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
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
        files, overwrite = list(_files(ctx)), bool(ctx.params.get("overwrite"))
        remedies = " or ".join(f"--{name}" for name in ("overwrite", "resume") if name in ctx.params)
        for parameter, path, name in files:
            if isinstance(parameter.type, Reads):
                used |= {os.path.realpath(file): f"{name}, which is read" for file in parameter.type.files(path)}
        for parameter, path, name in files:
            if isinstance(parameter.type, Writes):
                parameter.type.check(path, name, overwrite or _is_continued(ctx, parameter), remedies)
                written = {os.path.realpath(file): name for file in parameter.type.files(path)}
                if twice := used.keys() & written.keys():
                    raise ValueError(f"{name}: the same file as {used[twice.pop()]}; expected another one")
                used |= written


def _files(ctx: click.Context) -> Iterator[tuple[click.Parameter, Path, str]]:
    """Every file or folder that a command is given, with its parameter and its name in messages."""
    for parameter in ctx.command.params:
        if isinstance(parameter.type, FileType):
            value = ctx.params.get(str(parameter.name))
            flag = parameter.opts[0] if isinstance(parameter, click.Option) else parameter.human_readable_name
            for item in value if isinstance(value, tuple) else () if value is None else (value,):
                path, _ = parameter.type.split(item)
                yield parameter, path, f"{flag} {path}"


def _is_continued(ctx: click.Context, parameter: click.Parameter) -> bool:
    """Whether a resumed run has written to this file or folder from the start."""
    is_own = ctx.get_parameter_source(str(parameter.name)) is ParameterSource.DEFAULT_MAP
    return ctx.params.get("resume") is not None and is_own


def as_click_error(error: BaseException) -> click.ClickException | None:
    """The error as one that is printed in one line; None if it is a bug, or none of ours."""
    if isinstance(error, click.ClickException):
        return error
    if is_out_of_memory(error):
        return click.UsageError(str(error).partition("\n")[0], ctx=None)
    if isinstance(error, BAD_INPUT) and not isinstance(error, BrokenPipeError):  # the reader of a pipe is gone
        return click.UsageError(" ".join(str(error).splitlines()) or type(error).__name__, ctx=None)
    return None
