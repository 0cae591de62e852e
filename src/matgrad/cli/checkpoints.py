"""The options `--checkpoint` and `--resume`: runs that survive a crash."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from matgrad.callbacks import Checkpoints
from matgrad.cli.commands import all_of, echo, option, warnings_to
from matgrad.cli.configuration import OF_COMMAND, is_of_user, plain, recorded, recorded_plugins, use_run
from matgrad.cli.files import FileType, Reads, Settings, Writes
from matgrad.specifications.parsing import parse_numbers
from matgrad.storage.checkpoints import BEST, FILES, Checkpoint, find_checkpoint

RESUMED = "matgrad.resumed"  # in a context: the checkpoint from which the run is resumed
SETTINGS: Settings = {"every": str, "keep": lambda text: parse_numbers(text, "keep")[0]}
WRITTEN = Writes(names=(FILES, BEST), settings=SETTINGS)
READ = Reads(FILES, BEST, settings=SETTINGS)
FREE_GROUPS, FREE = ("Output", "Engine", "Options"), ("epochs", "learning_rate", *OF_COMMAND)  # of a resumed run


def _resume(ctx: click.Context, parameter: click.Parameter, value: Path | None) -> Path | None:
    """Use the configuration in a checkpoint as the defaults of the options."""
    if value is not None:
        with warnings_to(lambda message: echo(f"note: {message}", err=True)):
            ctx.meta[RESUMED] = checkpoint = find_checkpoint(READ.split(value)[0])
        use_run(ctx, configuration_of(checkpoint), checkpoint.path, checkpoint.record.get("plugins", []))
    return value


def configuration_of(checkpoint: Checkpoint) -> dict[str, Any]:
    """The options of the run that wrote a checkpoint."""
    values = checkpoint.record.get("configuration")
    if not isinstance(values, dict):
        raise ValueError(f"{checkpoint.path}: not written by `matgrad train`; use M.fit(…, resume=…)")
    return values


CHECKPOINT = 'Write checkpoints: the newest and the best. "DIR, every=5, keep=3"; every=500s: steps.'
RESUME = "Resume a run with its options, but name its files again; --epochs, output and engine may differ."
checkpoint_options = all_of(
    option("Training", "--checkpoint", type=WRITTEN, metavar="DIR", help=CHECKPOINT),
    option("Training", "--resume", type=READ, metavar="PATH", is_eager=True, callback=_resume, help=RESUME),
)


def checkpoint_of(options: Mapping[str, Any]) -> Checkpoint | None:
    """The checkpoint of --resume, after a check that the options of the user do not contradict its configuration."""
    if options["resume"] is None:
        return None
    ctx = click.get_current_context()
    known = configuration_of(ctx.meta[RESUMED])
    for parameter in ctx.command.params:
        name, flag, group = str(parameter.name), parameter.opts[0], getattr(parameter, "group", "Options")
        is_free = isinstance(parameter.type, FileType) or name in FREE or (group in FREE_GROUPS and name != "dtype")
        if is_of_user(ctx, name) and not is_free and plain(options[name]) != known.get(name):
            given = f"{flag} {options[name]} and --resume {options['resume']}"
            raise ValueError(f"{given} contradict each other: the run has {flag} {known.get(name)!r}")
    return ctx.meta[RESUMED]


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
    record = {"configuration": recorded(options), "plugins": recorded_plugins()}
    return Checkpoints(
        folder,
        **{name: SETTINGS[name](str(value)) for name, value in settings.items()},
        overwrite=is_new and options["overwrite"],
        record={**record, "settings": settings, "sha256": sha256},
    )
