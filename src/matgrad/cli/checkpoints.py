"""The options `--checkpoint` and `--resume`: runs that survive a crash."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from matgrad.callbacks import Checkpoints
from matgrad.cli.commands import all_of, echo, option, warnings_to
from matgrad.cli.files import Reads, Settings, Writes
from matgrad.cli.options import set_defaults
from matgrad.specifications.parsing import parse_numbers
from matgrad.storage.checkpoints import BEST, FILES, Checkpoint, find_checkpoint

RESUMED = "matgrad.resumed"  # in a context: the checkpoint from which the run is resumed
SETTINGS: Settings = {"every": str, "keep": lambda text: parse_numbers(text, "keep")[0]}
WRITTEN = Writes(names=(FILES, BEST), settings=SETTINGS)
READ = Reads(FILES, BEST, settings=SETTINGS)
NOT_KEPT = ("resume", "checkpoint", "config", "overwrite", "quiet", "as_json", "show")  # of one command
FREE_GROUPS, FREE = ("Output", "Engine", "Options"), ("epochs", "learning_rate", *NOT_KEPT)  # of a resumed run


def _resume(ctx: click.Context, parameter: click.Parameter, value: Path | None) -> Path | None:
    """Use the configuration in a checkpoint as the defaults of the options."""
    if value is not None:
        with warnings_to(lambda message: echo(f"note: {message}", err=True)):
            ctx.meta[RESUMED] = checkpoint = find_checkpoint(READ.split(value)[0])
        set_defaults(ctx, configuration_of(checkpoint), checkpoint.path)
    return value


def configuration_of(checkpoint: Checkpoint) -> dict[str, Any]:
    """The options of the run that wrote a checkpoint."""
    values = checkpoint.record.get("configuration")
    if not isinstance(values, dict):
        raise ValueError(f"{checkpoint.path}: not written by `matgrad train`; use M.fit(…, resume=…)")
    return values


CHECKPOINT = 'Write checkpoints: the newest and the best. "DIR, every=5, keep=3"; every=500s: steps.'
RESUME = "Resume a run with its options; --epochs, --learning-rate, data paths, output and engine may differ."
checkpoint_options = all_of(
    option("Training", "--checkpoint", type=WRITTEN, metavar="DIR", help=CHECKPOINT),
    option("Training", "--resume", type=READ, metavar="PATH", is_eager=True, callback=_resume, help=RESUME),
)


def checkpoint_of(options: Mapping[str, Any]) -> Checkpoint | None:
    """The checkpoint of --resume, after a check that the command line does not contradict its configuration."""
    if options["resume"] is None:
        return None
    if options["config"] is not None:
        raise ValueError("--config and --resume: a resumed run has the options of its checkpoint")
    ctx = click.get_current_context()
    known = configuration_of(ctx.meta[RESUMED])
    for parameter in ctx.command.params:
        name, flag, group = str(parameter.name), parameter.opts[0], getattr(parameter, "group", "Options")
        is_given = ctx.get_parameter_source(name) in (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)
        is_data = group == "Data" and isinstance(parameter.type, Reads)  # which are compared by their hash
        is_free = is_data or name in FREE or (group in FREE_GROUPS and name != "dtype")
        if is_given and not is_free and plain(options[name], os.path.abspath) != known.get(name):
            given = f"{flag} {options[name]} and --resume {options['resume']}"
            raise ValueError(f"{given} contradict each other: the run has {flag} {known.get(name)}")
    return ctx.meta[RESUMED]


def plain(value: Any, of_path: Callable[[Path], str] = str) -> Any:
    """The value of an option as JSON can hold it; paths become strings."""
    if isinstance(value, tuple | list):
        return [plain(item, of_path) for item in value]
    return of_path(value) if isinstance(value, Path) else value


def kept_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a run that its checkpoints keep, as JSON can hold them; files have their whole path."""
    return {name: plain(value, os.path.abspath) for name, value in options.items() if name not in NOT_KEPT}


def checkpoints(options: Mapping[str, Any], resumed: Checkpoint | None, sha256: str) -> Checkpoints | None:
    """The callback that the options ask for; the configuration and the hash of the data are kept in every file.

    A resumed run writes to the folder that it was resumed from, with the settings that it had.
    """
    settings: dict[str, Any] = {} if resumed is None else dict(resumed.record.get("settings", {}))
    folder, is_new = None, options["checkpoint"] is not None
    for option_type, name in ((READ, "resume"), (WRITTEN, "checkpoint")):
        if options[name] is not None:
            folder, given = option_type.split(options[name])
            settings |= given
    if folder is None or not (is_new or folder.is_dir()):
        return None
    return Checkpoints(
        folder,
        **{name: SETTINGS[name](str(value)) for name, value in settings.items()},
        overwrite=is_new and options["overwrite"],
        record={"configuration": kept_options(options), "settings": settings, "sha256": sha256},
    )
