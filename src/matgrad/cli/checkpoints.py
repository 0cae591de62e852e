"""The options `--checkpoint` and `--resume`: runs that survive a crash."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import click
from click.core import ParameterSource

from matgrad.callbacks import Checkpoints
from matgrad.callbacks.checkpoints import parse_interval
from matgrad.cli.files import FileType, Reads
from matgrad.cli.groups import GroupedOption, all_of, option
from matgrad.cli.options import as_given
from matgrad.cli.renamed import renaming
from matgrad.cli.settings import FileWithSettings, ReadsWithSettings, Settings, WritesFolderWithSettings
from matgrad.storage.checkpoints import BEST, FILES, Checkpoint, find_checkpoint


def _interval(text: str) -> str:
    """A number of epochs, such as 5, or of steps, such as 500s. Raise ValueError if it is neither."""
    parse_interval(text)
    return text


def _keep(text: str) -> int:
    """A number of checkpoints. Raise ValueError if it is not a positive integer."""
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"keep: expected a positive integer, found {text!r}")
    return int(text)


RESUMED = "matgrad.resumed"  # in a context: the checkpoint from which the run is resumed
BOUND = ("Model", "Data", "Training", "Sparsity")  # groups of options that a run keeps
FREE, ALSO_BOUND = ("epochs", "learning_rate"), ("dtype",)
OWN = ("checkpoint", "resume")
SETTINGS: Settings = {"every": _interval, "keep": _keep}  # of --checkpoint and --resume
NOT_KEPT = ("resume", "checkpoint", "config", "overwrite", "quiet", "as_json", "show")  # of one command


def _resume(ctx: click.Context, parameter: click.Parameter, value: FileWithSettings | None) -> FileWithSettings | None:
    """Use the configuration in a checkpoint as the defaults of the options."""
    if value is None:
        return None
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_: click.echo(f"note: {message}", err=True)
        ctx.meta[RESUMED] = checkpoint = find_checkpoint(value.path)
    values = configuration_of(checkpoint)
    options = {p.name: p for p in ctx.command.params}
    if unknown := [name for name in values if name not in options]:
        text = renaming(unknown[0]) or f"unknown option {unknown[0]!r} in its configuration"
        raise ValueError(f"{checkpoint.path}: {text}")
    given = {name: as_given(x, options[name].multiple) for name, x in values.items() if x is not None}
    ctx.default_map = {**(ctx.default_map or {}), **given}
    return value


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
        type=WritesFolderWithSettings(FILES, BEST, known=SETTINGS, hint="; --resume continues it"),
        metavar="DIR",
        help='Write checkpoints: the newest and the best. "DIR, every=5, keep=3"; every=500s: steps.',
    ),
    option(
        "Training",
        "--resume",
        type=ReadsWithSettings(FILES, BEST, known=SETTINGS),
        metavar="PATH",
        is_eager=True,
        callback=_resume,
        help="Resume a run with its options, from a folder or a file; --epochs, --learning-rate, data paths, output "
        "and engine may differ.",
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
        raise ValueError("--config and --resume: a resumed run has the options of its checkpoint")
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
    """Whether a resumed run must have the same value of an option; data are compared by their hash."""
    group = parameter.group if isinstance(parameter, GroupedOption) else "Other"
    is_data = group == "Data" and isinstance(parameter.type, Reads)
    return parameter.name in ALSO_BOUND or (group in BOUND and parameter.name not in (*FREE, *OWN) and not is_data)


def plain_option(parameter: click.Parameter, value: Any) -> Any:
    """The value of an option as JSON can hold it; files have their whole path."""
    if isinstance(value, tuple | list):
        return [plain_option(parameter, item) for item in value]
    if isinstance(value, FileWithSettings):
        return value.absolute()
    return os.path.abspath(value) if isinstance(parameter.type, FileType) and value is not None else value


def kept_options(command: click.Command, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a run that its checkpoints keep, as JSON can hold them."""
    return {str(p.name): plain_option(p, options[str(p.name)]) for p in command.params if p.name not in NOT_KEPT}


def checkpoints(
    options: Mapping[str, Any], resumed: Checkpoint | None, sha256: Callable[[], str]
) -> Checkpoints | None:
    """The callback that the options ask for; the configuration and the hash of the data are kept in every file.

    A resumed run writes to the folder that it was resumed from, with the settings that it had.
    """
    value, is_new = options["checkpoint"] or options["resume"], options["checkpoint"] is not None
    if value is None or not (is_new or value.path.is_dir()):
        return None
    before = {} if resumed is None else dict(resumed.record.get("settings", {}))
    settings = before | (options["resume"].settings if resumed is not None else {}) | value.settings
    return Checkpoints(
        value.path,
        **{name: SETTINGS[name](text) for name, text in settings.items()},
        overwrite=is_new and options["overwrite"],
        record={
            "configuration": kept_options(click.get_current_context().command, options),
            "settings": settings,
            "sha256": sha256(),
        },
    )
