"""The files of a command: an option or argument that names one says whether it is read or written.

`Command` knows them all before it runs, and refuses what would destroy something or could not be written.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from matgrad.cli.renamed import with_renaming
from matgrad.distributed import is_first
from matgrad.foundation.writing import atomic_write, replaceable
from matgrad.storage.models import check_ending

STANDARD_OUTPUT = Path("-")


class FileType(click.Path):
    """The name of a file or a folder, which is not empty; what it is for, the classes below say."""

    def __init__(self, *, readable: bool = True) -> None:
        super().__init__(path_type=Path, readable=readable)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path."""
        if not str(value) or "\0" in str(value):
            self.fail(f"expected the name of a file or folder, found {str(value)!r}.", param, ctx)
        return super().convert(value, param, ctx)


class Reads(FileType):
    """A file that is read, or a folder of which the files with names of these patterns are read."""

    def __init__(self, *patterns: str) -> None:
        super().__init__()
        self.patterns = patterns

    def files(self, path: Path) -> list[Path]:
        """The files that are read; the path itself if it is no folder."""
        if not path.is_dir():
            return [path]
        return [file for pattern in self.patterns for file in path.glob(pattern)]


class ReadsFiles(Reads):
    """A file that is read, or two of them with a semicolon between, for training and testing."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The paths."""
        names = str(value).split(";")
        if len(names) > 2:
            self.fail(f"expected one file or two, found {len(names)}: {value}", param, ctx)
        return tuple(super(ReadsFiles, self).convert(name.strip(), param, ctx) for name in names)


class Writes(FileType):
    """A file that is written, with one of these endings, if any; if `prints`, the name - stands for standard output."""

    def __init__(self, *endings: str, prints: bool = False) -> None:
        super().__init__(readable=False)
        self.endings, self.prints = endings, prints

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path."""
        if not isinstance(self, WritesFolder) and str(value).endswith(("/", "/.")):
            self.fail(f"expected the name of a file, found that of a folder: {value}", param, ctx)
        if self.endings and Path(value).suffix not in self.endings:
            self.fail(f"expected a name that ends in {' or '.join(self.endings)}, found {str(value)!r}.", param, ctx)
        return super().convert(value, param, ctx)

    def files(self, path: Path) -> list[Path]:
        """The file that is written, unless it is printed."""
        return [] if self.prints and path == STANDARD_OUTPUT else [path]

    def check(self, path: Path, name: str, overwrite: bool) -> None:
        """Refuse what could not be written."""
        for file in self.files(path):
            _check_file(file, name)


class WritesFolder(Writes):
    """A folder, new or not, in which files with these names are written; if `keeps`, none may be there yet.

    A name such as epoch_*.png stands for all that are there. The `hint` ends the message for those that are. Where it
    `grows` during a run, a resumed run goes on with the files that it has written there.
    """

    def __init__(self, *names: str, keeps: bool = True, grows: bool = False, hint: str = "") -> None:
        super().__init__()
        self.names, self.keeps, self.grows, self.hint = names, keeps, grows, hint

    def files(self, path: Path) -> list[Path]:
        """The folder, and the files that are written."""
        return [path, *(file for name in self.names for file in (path.glob(name) if "*" in name else [path / name]))]

    def check(self, path: Path, name: str, overwrite: bool) -> None:
        """Refuse a folder in which the files could not be written or, unless told to overwrite, exist."""
        _, *files = self.files(path)
        if path.exists() and not path.is_dir():
            raise ValueError(f"{name}: expected a folder, found a file")
        if not path.is_dir():
            return _check_file(path, name)  # whether it can be made
        for file in files:
            if self.keeps and not overwrite and os.path.lexists(file):
                raise ValueError(f"{name}: has {file.name} already; expected another folder, or --overwrite{self.hint}")
            _check_file(file, f"{name}: {file.name}")


MNIST = ("*-ubyte", "*-ubyte.gz")
CIFAR10 = ("*batch*", "*/*batch*", "*.tar.gz")


class WritesModel(Writes):
    """A model file, whose name does not end as those of other tools do."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path."""
        try:
            check_ending(path := super().convert(value, param, ctx))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return path


READS = Reads()
WRITES = Writes()
WRITES_MODEL = WritesModel()


class _WithHelp(click.Command):
    """A command that shows its help for -h and --help, whichever context was made for it first."""

    def get_help_option_names(self, ctx: click.Context) -> list[str]:
        return ["-h", "--help"]


class Command(_WithHelp):
    """A command that checks its files before it runs."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line; an error names the new spelling of an option that had another."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            raise with_renaming(error) from None

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, if nothing that it reads is written, and nothing is written twice; rank 0 writes."""
        if is_first():
            self.check(ctx)
        return super().invoke(ctx)

    def check(self, ctx: click.Context) -> None:
        """Refuse files that the command could not write, or should not."""
        is_resumed = ctx.params.get("resume") is not None
        known = [name for name in ctx.params if ctx.get_parameter_source(name) is ParameterSource.DEFAULT_MAP]
        check_files(self, ctx.params, known if is_resumed else ())


class CommandGroup(_WithHelp, click.Group):
    """A group of such commands."""

    command_class = Command


@dataclass(frozen=True)
class _File:
    """A file of a command: the option that names it, and all by which it can be told from others."""

    name: str
    keys: frozenset[Any]

    @classmethod
    def of(cls, name: str, path: Path) -> _File:
        """The file at a path: known by its real path and, where it exists, by device and inode."""
        keys: set[Any] = {os.path.realpath(path)}
        with suppress(OSError):
            status = path.stat()
            keys.add((status.st_dev, status.st_ino))
        return cls(name, frozenset(keys))


def check_files(command: click.Command, values: dict[str, Any], resumed: Collection[str] = ()) -> None:
    """Refuse, with a ValueError, files that could not be written, that are read too, or that are one file.

    `resumed` are the names of options that a resumed run had from the start.
    """
    known = [path for _, path, _ in _paths(command, {name: values[name] for name in resumed})]
    for kind, path, name in _paths(command, values):
        if isinstance(kind, Writes):
            is_own = isinstance(kind, WritesFolder) and kind.grows and path in known
            kind.check(path, name, is_own or bool(values.get("overwrite")))
    others = _standard_streams()
    for kind, path, name in _paths(command, values):
        if isinstance(kind, Reads):
            others += [_File.of(f"{name}, which is read", file) for file in kind.files(path)]
    for kind, path, name in _paths(command, values):
        if isinstance(kind, Writes):
            written = [_File.of(name, file) for file in kind.files(path)]
            for other in others:
                if any(file.keys & other.keys for file in written):
                    raise ValueError(f"{name}: the same file as {other.name}; expected another one")
            others += written


def _paths(command: click.Command, values: dict[str, Any]) -> Iterator[tuple[FileType, Path, str]]:
    """Every file or folder that a command is given, with its type and what messages call it."""
    for parameter in command.params:
        if isinstance(parameter.type, FileType):
            value = values.get(str(parameter.name))
            for item in value if isinstance(value, tuple) else () if value is None else (value,):
                flag = parameter.opts[0] if isinstance(parameter, click.Option) else parameter.human_readable_name
                path = Path(item)  # which may have settings
                yield parameter.type, path, f"{flag} {path}"


def _standard_streams() -> list[_File]:
    """Standard output and standard error, where they go to a file."""
    found = []
    for handle, name in ((1, "standard output"), (2, "standard error")):
        with suppress(OSError):  # it is closed
            status = os.fstat(handle)
            if stat.S_ISREG(status.st_mode):
                found.append(_File(name, frozenset([(status.st_dev, status.st_ino)])))
    return found


def _check_file(path: Path, name: str) -> None:
    """Refuse a file that could not be written, or a folder that could not be made."""
    try:
        folder = replaceable(path).parent
        if not folder.is_dir():
            raise ValueError(f"{name}: the folder {folder} does not exist")
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(f"{name}: cannot be written ({error.strerror or error})") from None


def write_latex(path: Path, text: str) -> None:
    """Write a LaTeX document, or print it if the name is -."""
    if path == STANDARD_OUTPUT:
        click.echo(text, nl=False)
        return
    with atomic_write(path) as file:
        file.write(text.encode())
    click.echo(f"LaTeX in {path}", err=True)
