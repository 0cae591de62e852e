"""The options `--checkpoint`, `--every`, `--keep` and `--resume`: runs that survive a crash."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from matgrad.callbacks import Checkpoints
from matgrad.callbacks.checkpoints import parse_interval
from matgrad.cli.files import FileType, Reads, WritesFolder
from matgrad.cli.groups import GroupedOption, all_of, option
from matgrad.cli.options import COUNT, as_given
from matgrad.storage.checkpoints import BEST, FILES, Checkpoint, find_checkpoint

RESUMED = "matgrad.resumed"  # in a context: the checkpoint from which the run goes on
BOUND = ("Model", "Data", "Training", "Sparsity")  # groups of options that a run keeps
FREE, ALSO_BOUND = ("epochs", "learning_rate"), ("dtype",)
EVERY, KEEP = "1", 3  # defaults
OWN = ("checkpoint", "every", "keep", "resume")
NOT_KEPT = ("resume", "checkpoint", "config", "overwrite", "quiet", "as_json", "info", "debug")  # of one command


class Interval(click.ParamType):
    """A number of epochs, such as 5, or of steps, such as 500s."""

    name = "interval"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The string, if it is one."""
        try:
            parse_interval(value)
        except ValueError as error:
            self.fail(str(error).removeprefix("every: "), param, ctx)
        return str(value)


def _resume(ctx: click.Context, parameter: click.Parameter, path: Path | None) -> Path | None:
    """Use the configuration in a checkpoint as the defaults of the options."""
    if path is None:
        return None
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_: click.echo(f"note: {message}", err=True)
        ctx.meta[RESUMED] = checkpoint = find_checkpoint(path)
    values = configuration_of(checkpoint)
    options = {p.name: p for p in ctx.command.params}
    if unknown := [name for name in values if name not in options]:
        raise ValueError(f"{checkpoint.path}: unknown option {unknown[0]!r} in its configuration")
    given = {name: as_given(x, options[name].multiple) for name, x in values.items() if x is not None}
    ctx.default_map = {**(ctx.default_map or {}), **given}
    return path


def configuration_of(checkpoint: Checkpoint) -> dict[str, Any]:
    """The options of the run that wrote a checkpoint."""
    values = checkpoint.record.get("configuration")
    if not isinstance(values, dict):
        raise ValueError(f"{checkpoint.path}: not written by `matgrad train`; use M.fit(…, resume=…)")
    return values


checkpoint_options = all_of(
    option(
        "Training",
        "--checkpoint",
        type=WritesFolder(FILES, BEST, hint="; --resume goes on from there"),
        metavar="DIR",
        help="Write checkpoints to this folder: the newest, and the best by validation loss. --resume DIR goes on from "
        "them after a crash.",
    ),
    option(
        "Training",
        "--every",
        type=Interval(),
        default=EVERY,
        metavar="N",
        help="Epochs between two checkpoints, or steps with a suffix: 500s.",
    ),
    option(
        "Training", "--keep", type=COUNT, default=KEEP, metavar="N", help="How many of the newest checkpoints to keep."
    ),
    option(
        "Training",
        "--resume",
        type=Reads(FILES, BEST),
        metavar="PATH",
        is_eager=True,
        callback=_resume,
        help="Go on from the newest good checkpoint in a folder, or from one file, with the options of that run. Only "
        "--epochs, --learning-rate, where the data are, and the options for output and engine may be others.",
    ),
)


def checkpoint_of(options: Mapping[str, Any]) -> Checkpoint | None:
    """The checkpoint of --resume, after a check that the command line does not contradict its configuration."""
    if options["resume"] is None:
        return None
    ctx = click.get_current_context()
    checkpoint: Checkpoint = ctx.meta[RESUMED]
    known = configuration_of(checkpoint)
    if options["config"] is not None:
        raise ValueError("--config and --resume: a run that goes on has the options of its checkpoint")
    for parameter in ctx.command.params:
        name = str(parameter.name)
        is_given = ctx.get_parameter_source(name) in (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)
        if is_given and _is_bound(parameter) and plain_option(parameter, options[name]) != known.get(name):
            flag = parameter.opts[0]
            raise ValueError(
                f"{flag} {options[name]} and --resume {options['resume']} contradict each other: the run has "
                f"{flag} {known.get(name)}"
            )
    return checkpoint


def _is_bound(parameter: click.Parameter) -> bool:
    """Whether a run that goes on must have the same value of an option; data are compared by their hash."""
    group = parameter.group if isinstance(parameter, GroupedOption) else "Other"
    is_data = group == "Data" and isinstance(parameter.type, Reads)
    return parameter.name in ALSO_BOUND or (group in BOUND and parameter.name not in (*FREE, *OWN) and not is_data)


def plain_option(parameter: click.Parameter, value: Any) -> Any:
    """The value of an option as JSON can hold it; files have their whole path."""
    if isinstance(value, tuple | list):
        return [plain_option(parameter, item) for item in value]
    return os.path.abspath(value) if isinstance(parameter.type, FileType) and value is not None else value


def kept_options(command: click.Command, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a run that its checkpoints keep, as JSON can hold them."""
    return {str(p.name): plain_option(p, options[str(p.name)]) for p in command.params if p.name not in NOT_KEPT}


def checkpoints(options: Mapping[str, Any], sha256: Callable[[], str]) -> Checkpoints | None:
    """The callback that the options ask for; the configuration and the hash of the data are kept in every file."""
    resumed = options["resume"] if options["resume"] is not None and options["resume"].is_dir() else None
    folder, is_new = options["checkpoint"] or resumed, options["checkpoint"] is not None
    if folder is None:
        for name, default in (("every", EVERY), ("keep", KEEP)):
            if options["resume"] is None and options[name] != default:
                raise ValueError(f"--{name} needs --checkpoint DIR")
        return None
    kept = kept_options(click.get_current_context().command, options)
    return Checkpoints(
        folder,
        options["every"],
        options["keep"],
        overwrite=is_new and options["overwrite"],
        record={"configuration": kept, "sha256": sha256()},
    )
