"""What all commands share: options under headings, checks of files before a command runs, JSON and errors."""

from __future__ import annotations

import os
import re
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

import click

from matgrad.distributed import is_first
from matgrad.foundation.limits import is_out_of_memory
from matgrad.foundation.writing import as_json, atomic_write, replaceable, visible
from matgrad.specifications.parsing import lookup

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
    return lambda command: reduce(lambda found, add: add(found), reversed(options), command)


# -- files: the type of an option or argument says whether it is read or written ------------------

Settings = Mapping[str, Callable[[str], Any]]  # by name, the function that reads the value, or raises ValueError

STANDARD_OUTPUT = Path("-")


class FileType(click.Path):
    """The name of a file or a folder, which `settings` may follow, as in ``DIR, every=5, keep=3``."""

    def __init__(self, *names: str, settings: Settings | None = None) -> None:
        super().__init__(path_type=Path, readable=False)
        self.names, self.settings = names, settings or {}  # the names or patterns of the files in a folder

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path, with its settings."""
        try:
            self.split(value)
        except ValueError as error:
            self.fail(f"{error}.", param, ctx)
        return super().convert(value, param, ctx)

    def split(self, value: str | Path) -> tuple[Path, dict[str, Any]]:
        """The path alone, and the values of its settings. Raise ValueError if it has none, or unknown ones."""
        first, *items = re.split(r",\s*(?=\w+\s*=)", str(value)) if self.settings else [str(value)]
        if not first.strip() or "\0" in first:
            raise ValueError(f"expected the name of a file or folder, found {first!r}")
        pairs = [[part.strip() for part in item.split("=", 1)] for item in items]
        return Path(first.strip()), {name: lookup(name, self.settings, "setting")(text) for name, text in pairs}

    def files(self, path: Path) -> list[Path]:
        """The file or, of a folder, those of its files that are read."""
        return [file for name in self.names for file in path.glob(name)] if path.is_dir() else [path]


class Reads(FileType):
    """A file that is read, or a folder of which the files with these names or patterns are read."""


class ReadsFiles(Reads):
    """A file that is read, or two of them with a semicolon between, for training and testing."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The paths."""
        if len(names := str(value).split(";")) > 2:
            self.fail(f"expected one file or two, found {len(names)}: {value}", param, ctx)
        return tuple(super(ReadsFiles, self).convert(name.strip(), param, ctx) for name in names)


class Writes(FileType):
    """A file that is written, with one of these endings, if any; if `prints`, - stands for standard output.

    With `names` it is a folder in which files with these names or patterns are written, unless it has an ending.
    """

    def __init__(
        self, *endings: str, names: tuple[str, ...] = (), prints: bool = False, settings: Settings | None = None
    ) -> None:
        super().__init__(*names, settings=settings)
        self.endings, self.prints = endings, prints

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path."""
        path, expected = super().convert(value, param, ctx), " or ".join(self.endings)
        is_plain_folder = self.names and (not path.suffix or str(value).endswith("/"))
        is_printed = self.prints and path == STANDARD_OUTPUT
        if self.endings and path.suffix not in self.endings and not is_plain_folder and not is_printed:
            expected += ", or a folder" if self.names else ""
            self.fail(f"expected a name that ends in {expected}, found {str(value)!r}.", param, ctx)
        return path

    def files(self, path: Path) -> list[Path]:
        """The file, unless it is printed, or the folder and what is written in it."""
        if self.prints and path == STANDARD_OUTPUT:
            return []
        names = self.names if path.suffix not in self.endings else ()
        return [path, *(file for name in names for file in (path.glob(name) if "*" in name else [path / name]))]

    def check(self, path: Path, name: str, overwrite: bool, remedies: str) -> None:
        """Raise if the files cannot be written or, in a folder and without overwriting, exist."""
        files = self.files(path)
        if self.names and path.suffix not in self.endings:
            if path.exists() and not path.is_dir():
                raise ValueError(f"{name}: expected a folder, found a file")
            files = files[1:] if path.is_dir() else [path]
            if not overwrite and (found := next(filter(os.path.lexists, files), None)):
                raise ValueError(f"{name}: has {found.name} already; expected another folder, {remedies}")
        for file in files:
            what = name if file == path else f"{name}: {file.name}"
            try:
                folder = replaceable(file).parent
                if not folder.is_dir():
                    raise ValueError(f"{what}: the folder {folder} does not exist")
                with tempfile.TemporaryFile(dir=folder):
                    pass
            except OSError as error:
                raise ValueError(f"{what}: cannot be written ({error.strerror or error})") from None


READS, WRITES = Reads(), Writes()


def write_text(path: Path, text: str, what: str) -> None:
    """Write a string to a file, or print it if the name is -."""
    if path == STANDARD_OUTPUT:
        click.echo(text, nl=False)
        return
    with atomic_write(path) as file:
        file.write(text.encode())
    click.echo(f"{what} in {visible(path)}", err=True)


# -- commands -----------------------------------------------------------------------------------

json_option = option("Output", "--json", "as_json", is_flag=True, help="Print as JSON, and nothing else.")
latex_option = option(
    "Output", "--latex", type=Writes(prints=True), metavar="FILE", help="Write a LaTeX document; - prints it alone."
)


def echo(text: object, *, nl: bool = True, err: bool = False) -> None:
    """Print text; what could command the terminal is visible."""
    click.echo(visible(text, kept="\n\t"), nl=nl, err=err)


def echo_wrong(text: object) -> None:
    """Print what is wrong, in red on a terminal."""
    click.secho(visible(text, kept="\n\t"), fg="red")


def echo_json(value: Any) -> None:
    """Print a value as JSON."""
    click.echo(as_json(value))


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
            raise click.UsageError(renaming(error.option_name) or error.format_message(), ctx) from None

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
        """Run the command, unless a file cannot be written, is read too, or is written twice, which rank 0 checks."""
        used: dict[str, str] = {}  # what each real path is used for
        remedies = " or ".join(f"--{name}" for name in ("overwrite", "resume") if name in ctx.params)
        for parameter in sorted(self.params, key=lambda p: isinstance(p.type, Writes)) if is_first() else ():
            kind, value = parameter.type, ctx.params.get(str(parameter.name))
            if not isinstance(kind, FileType) or value is None:
                continue
            flag = parameter.opts[0] if isinstance(parameter, click.Option) else parameter.human_readable_name
            for item in value if isinstance(value, tuple) else (value,):
                path, _ = kind.split(item)
                name, files = f"{flag} {path}", {os.path.realpath(file) for file in kind.files(path)}
                if isinstance(kind, Writes):
                    kind.check(path, name, bool(ctx.params.get("overwrite")), remedies)
                    if twice := used.keys() & files:
                        raise ValueError(f"{name}: the same file as {used[twice.pop()]}; expected another one")
                used |= dict.fromkeys(files, name if isinstance(kind, Writes) else f"{name}, which is read")
        return super().invoke(ctx)


def as_click_error(error: BaseException) -> click.ClickException | None:
    """The error as one that is printed in one line; None if it is a bug, or none of ours."""
    if isinstance(error, click.ClickException):
        vars(error)["message"] = visible(error.message, kept="\n\t")
        return error
    if is_out_of_memory(error):
        return click.UsageError(visible(str(error).partition("\n")[0]), ctx=None)
    is_ours = isinstance(error, BAD_INPUT) and not isinstance(error, BrokenPipeError)  # the reader of a pipe is gone
    text = visible(" ".join(str(error).split("\n"))) or type(error).__name__
    return click.UsageError(text, ctx=None) if is_ours else None


# -- options that have a new spelling ---------------------------------------------------------------

TOPOLOGY = '--sparse-training "Topology(Magnitude(0.3), grow=Random, weights=Xavier, every=100)"'
RENAMED: dict[str, str] = {  # what was written, and what to write now
    old: new
    for spellings, new in {
        "--processes": "torchrun --nproc-per-node N -m matgrad train …",
        "--max-restarts": "torchrun --max-restarts N -m matgrad train … --checkpoint DIR",
        "--timeout": "mg.distributed.start(timeout=…) in a script",
        "--csv --features": "--table FILE",  # --features of matgrad predict
        "--columns --drop-columns --categorical": '--features "columns=NAMES; drop=NAMES; categorical=NAMES"',
        "--missing --unknown": '--features "missing=RULE; unknown=RULE"',
        "--svmlight-test": '--svmlight "TRAIN;TEST"',
        "--dataset-size": '--generate-dataset "NAME(SIZE)"',
        "--prune --grow --grow-weights": TOPOLOGY,
        "--update-every --update-until": '--sparse-training "RigL(0.3, every=100, until=0.75)"',
        "--drop-decay --regrow": '--sparse-training "RigL(0.3, decay=cosine, regrow=True)"',
        "--overall-density --density-power": '--densities "ER(0.05, power=1)"',
        "--weight-decay --l1": '--optimizers "Adam(weight_decay=1e-4, l1=1e-4)"',
        "--every --keep": '--checkpoint "DIR, every=100, keep=3"',
        "--tensorboard": "--log DIR",
        "--picture-epochs --picture-shape": '--pictures "DIR, epochs=0,5,10, shape=28x28"',
        "--no-statistics": "--statistics none",
        "--accounting": "--statistics costs",
        "--info": "--show parameters",
        "--debug": "--show batches",
        "--precision --edgeitems": '--show "parameters, precision=4, edgeitems=3"',
    }.items()
    for old in spellings.split()
}


def renaming(spelling: str) -> str | None:
    """The message for an option that was removed; None for another one."""
    return f"{spelling} is gone: use {RENAMED[spelling]}" if spelling in RENAMED else None
