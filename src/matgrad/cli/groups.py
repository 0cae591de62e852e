"""Options under headings: each option of a long command names the group in which `--help` shows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar, get_args

import click

from matgrad.cli.files import Command

F = TypeVar("F", bound=Callable[..., Any])

Group = Literal["Model", "Data", "Training", "Sparsity", "Output", "Engine", "Other"]
GROUPS: tuple[Group, ...] = get_args(Group)  # in the order of the headings


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
    return click.option(*names, cls=GroupedOption, group=group, show_default="default" in settings, **settings)


def all_of(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Several options as one decorator, in the order given."""

    def decorate(command: F) -> F:
        for add in reversed(options):
            command = add(command)
        return command

    return decorate


class GroupedCommand(Command):
    """A command whose help shows its options by group."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options of each group under its heading; --help is in the group Other."""
        rows: dict[str, list[tuple[str, str]]] = {group: [] for group in GROUPS}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                rows[getattr(parameter, "group", "Other")].append(record)
        for group, records in rows.items():
            if records:
                with formatter.section(group):
                    formatter.write_dl(records, col_max=24)
