"""Options that come from files: a configuration file of the user, the record of a run, or a checkpoint.

What a user wrote may name files and plugins, as the command line may. A record or a checkpoint may come from a
stranger: it says what is trained and how, but names no file that is read or written, and no code that is run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from matgrad.cli.commands import echo, option, renaming
from matgrad.cli.files import READS, FileType, Reads, Writes
from matgrad.cli.options import LOADED, flag
from matgrad.foundation.files import conform, naming, read_plain_values
from matgrad.specifications.origins import Origin, Plugin, check_plugin

Value = bool | int | float | str | None  # of an option in a file, which may also have lists of them

OF_USER = "matgrad.configuration"  # in a context: the options in the user's configuration file
OF_RUN = "matgrad.run"  # the path of a record or a checkpoint, and what it says of files by the names of options
REPEATED = "matgrad.repeated"  # the record that --config repeats, and the hash of its data
OF_COMMAND = ("resume", "checkpoint", "config", "overwrite", "quiet", "as_json", "show")  # not of the run
STARTS = ("load_weights", "supports")  # the files that a model starts from, which a checkpoint does not need


def _configuration(ctx: click.Context, parameter: click.Parameter, path: Path | None) -> Path | None:
    """Use the values in a configuration file or a record as the defaults of the options."""
    if path is None:
        return None
    if not isinstance(content := read_plain_values(path), dict):
        raise ValueError(f"{path}: expected options with their values, found {type(content).__name__}")
    if isinstance(content.get("configuration"), dict):  # the record of a run, which is repeated
        data = content.get("data")
        ctx.meta[REPEATED] = (path, data.get("sha256") if isinstance(data, dict) else None)
        use_run(ctx, content["configuration"], path, content.get("plugins", []))
    else:
        ctx.meta[OF_USER] = found = _defaults(ctx, content, path)
        ctx.default_map = {**(ctx.default_map or {}), **found}
    return path


CONFIG = "TOML, YAML or JSON with values of options, or the run.json of a run, to repeat it."
config_option = option(
    "Options", "--config", type=READS, metavar="FILE", is_eager=True, callback=_configuration, help=CONFIG
)


def use_run(ctx: click.Context, values: Mapping[str, Any], path: Path, plugins: Any) -> None:
    """Use what a record or a checkpoint says of a run as defaults, but for files and what belongs to one command."""
    found = {name: x for name, x in _defaults(ctx, values, path).items() if name not in OF_COMMAND}
    files = {name: x for name, x in found.items() if x and isinstance(_option(ctx, name).type, FileType)}
    with naming(path):
        ctx.meta[OF_RUN] = path, files, conform(plugins, list[Origin])
    kept = {name: x for name, x in found.items() if not isinstance(_option(ctx, name).type, FileType)}
    ctx.default_map = {**kept, **(ctx.default_map or {})}


def check_run(options: Mapping[str, Any]) -> None:
    """Raise unless the files and plugins that the run in a record or a checkpoint needs are named again."""
    ctx = click.get_current_context()
    path, files, plugins = ctx.meta.get(OF_RUN, (None, {}, []))
    loaded: list[Plugin] = ctx.meta.get(LOADED, [])
    with naming(path or ""):
        for origin in plugins:
            known = [x for x in loaded if x.path.name == origin["plugin"] or x.sha256 == origin["sha256"]]
            check_plugin(origin, known, "the run has definitions")
    has_data = any(options[str(p.name)] for p in ctx.command.params if _is_data(p))
    unnamed = {name: f"the run had {flag(name)} {value!r:.200}" for name, value in files.items() if not options[name]}
    for name, problem in unnamed.items():
        if not has_data if _is_data(_option(ctx, name)) else name in STARTS and options["resume"] is None:
            raise ValueError(f"{path}: {problem}; name it again, since a file of a run names no files")
    for name, problem in unnamed.items():
        if isinstance(_option(ctx, name).type, Writes):
            echo(f"note: {path}: {problem}, which is only written if it is named again", err=True)


def is_of_user(ctx: click.Context, name: str) -> bool:
    """Whether an option is on the command line or in a configuration file of the user."""
    source = ctx.get_parameter_source(name)
    return source in (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT) or name in ctx.meta.get(OF_USER, {})


def recorded(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a run as JSON can hold them; paths are strings."""
    return {name: plain(value) for name, value in options.items() if name not in OF_COMMAND}


def recorded_plugins() -> list[Origin]:
    """What a file of this run keeps of its plugins."""
    loaded: Iterable[Plugin] = click.get_current_context().meta.get(LOADED, [])
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
