"""Options that come from files: a configuration file of the user, the record of a run, or a checkpoint (`--resume`).

What a user wrote may name files and plugins, as the command line may. A record or a checkpoint may be untrusted:
it says what is trained and how, but names no file that is read or written, and no code that is run.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import click
from click.core import ParameterSource

from matgrad.callbacks import Checkpoints
from matgrad.cli.commands import READS, FileType, Reads, Settings, Writes, all_of, echo, option, renaming, warnings_to
from matgrad.cli.options import LOADED, flag
from matgrad.foundation.files import conform, naming, read_plain_values
from matgrad.specifications.origins import Origin, Plugin, check_plugin
from matgrad.specifications.parsing import lookup, parse_numbers
from matgrad.storage.checkpoints import BEST, FILES, Checkpoint, find_checkpoint

Value = bool | int | float | str | None  # of an option in a file, which may also have lists of them

OF_USER, OF_RUN = "matgrad.configuration", "matgrad.run"  # in a context: options in the user's file, and a `SavedRun`
OF_COMMAND = ("resume", "checkpoint", "config", "overwrite", "quiet", "as_json", "show")  # not of the run
STARTS = ("load_weights", "supports")  # the files that a model starts from, which a checkpoint does not need


class SavedRun(NamedTuple):
    """What a record or a checkpoint says of a run."""

    path: Path
    options: dict[str, Any]
    files: dict[str, Any]  # the options that named files
    plugins: list[Origin]
    sha256: Any  # of the data
    checkpoint: Checkpoint | None = None


def _configuration(ctx: click.Context, parameter: click.Parameter, path: Path | None) -> Path | None:
    """Use the values in a configuration file or a record as the defaults of the options."""
    if path is None:
        return None
    if not isinstance(content := read_plain_values(path), dict):
        raise ValueError(f"{path}: expected options with their values, found {type(content).__name__}")
    if isinstance(content.get("configuration"), dict):  # the record of a run, which is repeated
        data = content.get("data")
        _use_run(ctx, path, content, data.get("sha256") if isinstance(data, dict) else None)
    else:
        ctx.meta[OF_USER] = found = _defaults(ctx, content, path)
        ctx.default_map = {**(ctx.default_map or {}), **found}
    return path


def _resume(ctx: click.Context, parameter: click.Parameter, value: Path | None) -> Path | None:
    """Use the configuration in a checkpoint as the defaults of the options."""
    if value is not None:
        with warnings_to(lambda message: echo(f"note: {message}", err=True)):
            resume(ctx, find_checkpoint(READ.split(value)[0]))
    return value


def resume(ctx: click.Context, checkpoint: Checkpoint) -> None:
    """Let the run of a command resume a checkpoint."""
    if not isinstance(checkpoint.record.get("configuration"), dict):
        raise ValueError(f"{checkpoint.path}: not written by `matgrad train`; use M.fit(…, resume=…)")
    _use_run(ctx, checkpoint.path, checkpoint.record, checkpoint.record.get("sha256"), checkpoint)


def _use_run(ctx: click.Context, path: Path, record: Mapping[str, Any], *others: Any) -> None:
    """Use what a record or a checkpoint says of a run as defaults, but for files and what belongs to one command."""
    if OF_RUN in ctx.meta:
        raise ValueError("--resume and --config with the record of a run: expected one of them")
    values = record["configuration"]
    found = {name: x for name, x in _defaults(ctx, values, path).items() if name not in OF_COMMAND}
    files = {name: x for name, x in found.items() if isinstance(_option(ctx, name).type, FileType)}
    with naming(path):
        plugins = conform(record.get("plugins", []), list[Origin])
    ctx.meta[OF_RUN] = SavedRun(path, values, {name: x for name, x in files.items() if x}, plugins, *others)
    ctx.default_map = {**{name: x for name, x in found.items() if name not in files}, **(ctx.default_map or {})}


def saved_run(options: Mapping[str, Any]) -> SavedRun | None:
    """The run that is resumed or repeated, after a check of the user's options.

    They name the files and plugins that it needs and, if it is resumed, contradict nothing that it is.
    """
    ctx = click.get_current_context()
    if (run := ctx.meta.get(OF_RUN)) is None:
        return None
    loaded: list[Plugin] = ctx.meta.get(LOADED, [])
    with naming(run.path):
        for origin in run.plugins:
            known = [x for x in loaded if x.path.name == origin["plugin"] or x.sha256 == origin["sha256"]]
            check_plugin(origin, known, "the run has definitions")
    has_data = any(options[str(p.name)] for p in ctx.command.params if _is_data(p))
    unnamed = {name: f"the run had {flag(name)} {x!r:.200}" for name, x in run.files.items() if not options[name]}
    for name, problem in unnamed.items():
        if not has_data if _is_data(_option(ctx, name)) else name in STARTS and run.checkpoint is None:
            raise ValueError(f"{run.path}: {problem}; name it again, since a file of a run names no files")
    for name, problem in unnamed.items():
        if isinstance(_option(ctx, name).type, Writes):
            echo(f"note: {run.path}: {problem}, which is only written if it is named again", err=True)
    for parameter in ctx.command.params if run.checkpoint is not None else ():
        name, group = str(parameter.name), getattr(parameter, "group", "Options")
        is_free = isinstance(parameter.type, FileType) or name in FREE or (group in FREE_GROUPS and name != "dtype")
        if _is_of_user(ctx, name) and not is_free and plain(options[name]) != run.options.get(name):
            given = f"{flag(name)} {options[name]} and --resume {options['resume']}"
            raise ValueError(f"{given} contradict each other: the run has {flag(name)} {run.options.get(name)!r}")
    return run


def _is_of_user(ctx: click.Context, name: str) -> bool:
    """Whether an option is on the command line or in a configuration file of the user."""
    source = ctx.get_parameter_source(name)
    return source in (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT) or name in ctx.meta.get(OF_USER, {})


def recorded(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a run as JSON can hold them; paths are strings."""
    return {name: plain(value) for name, value in options.items() if name not in OF_COMMAND}


def recorded_plugins() -> list[Origin]:
    """What a file of this run keeps of its plugins."""
    loaded: list[Plugin] = click.get_current_context().meta.get(LOADED, [])
    return [plugin.origin for plugin in loaded]


def plain(value: Any) -> Any:
    """The value of an option as JSON can hold it."""
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def _is_data(parameter: click.Parameter) -> bool:
    return getattr(parameter, "group", "") == "Data" and isinstance(parameter.type, Reads)


def _option(ctx: click.Context, name: str) -> click.Parameter:
    return next(p for p in ctx.command.params if p.name == name)


def _defaults(ctx: click.Context, values: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The values of options in a file, by their names; None, and the value by default, are left out."""
    options = [p for p in ctx.command.params if isinstance(p, click.Option)]
    known = {name: p for p in options for name in (p.opts[-1].removeprefix("--").replace("-", "_"), str(p.name))}
    found: dict[str, Any] = {}
    for key, value in values.items():
        name, items = str(key).replace("-", "_"), value if isinstance(value, list) else [value]
        if wrong := [x for x in (key, *items) if not isinstance(x, Value)]:
            kind = type(wrong[0]).__name__
            raise ValueError(f"{path}: {str(key)!r}: expected a number, a word or a list of them, found {kind}")
        if name == "config" or value is None:
            continue  # so that the configuration of a run can be used as it is
        if (option := known.get(name)) is None:
            unknown = f"unknown option {str(key)!r}; known: {', '.join(sorted(known))}"
            raise ValueError(f"{path}: {renaming(flag(name)) or unknown}")
        if isinstance(value, bool) and not option.is_flag:
            raise ValueError(f"{path}: {key}: got a boolean, {value}, expected a number or a word in quotes")
        words = [str(item) for item in items]
        given = value if isinstance(value, bool) else words if option.multiple else ";".join(words)
        if str(given) != str(option.default):
            found[str(option.name)] = given
    return found


SETTINGS: Settings = {"every": str, "keep": lambda text: parse_numbers(text, "keep")[0]}
WRITTEN, READ = Writes(names=(FILES, BEST), settings=SETTINGS), Reads(FILES, BEST, settings=SETTINGS)
FREE_GROUPS, FREE = ("Output", "Engine", "Options"), ("epochs", "learning_rate", *OF_COMMAND)  # of a resumed run

CONFIG = "TOML, YAML or JSON with values of options, or the run.json of a run, to repeat it."
config_option = option(
    "Options", "--config", type=READS, metavar="FILE", is_eager=True, callback=_configuration, help=CONFIG
)
CHECKPOINT = 'Write checkpoints: the newest and the best. "DIR, every=5, keep=3"; every=500s: steps.'
RESUME = "Resume a run with its options, but name its files again; --epochs, output and engine may differ."
checkpoint_options = all_of(
    option("Training", "--checkpoint", type=WRITTEN, metavar="DIR", help=CHECKPOINT),
    option("Training", "--resume", type=READ, metavar="PATH", is_eager=True, callback=_resume, help=RESUME),
)


def checkpoints(options: Mapping[str, Any], resumed: Checkpoint | None, sha256: str) -> Checkpoints | None:
    """The callback that the options ask for; the configuration and the hash of the data are kept in every file.

    A resumed run writes to the folder that it was resumed from, with the settings that it had.
    """
    settings: dict[str, Any] = {}
    if resumed is not None:
        with naming(resumed.path):
            known = conform(resumed.record.get("settings", {}), dict[str, str | int])
            settings = {name: lookup(name, SETTINGS, "setting")(str(value)) for name, value in known.items()}
    folder, is_new = None, options["checkpoint"] is not None
    for option_type, name in ((READ, "resume"), (WRITTEN, "checkpoint")):
        if options[name] is not None:
            folder, given = option_type.split(options[name])
            settings |= given
    if folder is None or not (is_new or folder.is_dir()):
        return None
    record = {"configuration": recorded(options), "plugins": recorded_plugins(), "settings": settings, "sha256": sha256}
    return Checkpoints(folder, **settings, overwrite=is_new and options["overwrite"], record=record)
