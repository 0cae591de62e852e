"""The files of a command: the type of an option or argument says whether it is read or written.

`Command` checks them all before it runs: nothing that is read is overwritten, and everything can be written.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from matgrad.cli.renamed import with_renaming
from matgrad.distributed import is_first
from matgrad.foundation.writing import atomic_write, replaceable
from matgrad.storage.models import check_ending

STANDARD_OUTPUT = Path("-")
MNIST = ("*-ubyte", "*-ubyte.gz")
CIFAR10 = ("*batch*", "*/*batch*", "*.tar.gz")


class FileType(click.Path):
    """The name of a file or a folder."""

    def __init__(self) -> None:
        super().__init__(path_type=Path, readable=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path."""
        if not str(value) or "\0" in str(value):
            self.fail(f"expected the name of a file or folder, found {str(value)!r}.", param, ctx)
        return super().convert(value, param, ctx)


class Reads(FileType):
    """A file that is read, or a folder of which the files that match these patterns are read."""

    def __init__(self, *patterns: str) -> None:
        super().__init__()
        self.patterns = patterns

    def files(self, path: Path) -> list[Path]:
        """The files that are read."""
        return [file for pattern in self.patterns for file in path.glob(pattern)] if path.is_dir() else [path]


class ReadsFiles(Reads):
    """A file that is read, or two of them with a semicolon between, for training and testing."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The paths."""
        names = str(value).split(";")
        if len(names) > 2:
            self.fail(f"expected one file or two, found {len(names)}: {value}", param, ctx)
        return tuple(super(ReadsFiles, self).convert(name.strip(), param, ctx) for name in names)


class Writes(FileType):
    """A file that is written, with one of these endings, if any; if `prints`, - stands for standard output."""

    def __init__(self, *endings: str, prints: bool = False) -> None:
        super().__init__()
        self.endings, self.prints = endings, prints

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path."""
        if self.endings and Path(value).suffix not in self.endings:
            self.fail(f"expected a name that ends in {' or '.join(self.endings)}, found {str(value)!r}.", param, ctx)
        return super().convert(value, param, ctx)

    def files(self, path: Path) -> list[Path]:
        """The file that is written, unless it is printed."""
        return [] if self.prints and path == STANDARD_OUTPUT else [path]

    def check(self, path: Path, name: str, overwrite: bool) -> None:
        """Raise if the file cannot be written."""
        for file in self.files(path):
            _check_writable(file, name)


class WritesFolder(Writes):
    """A folder in which files with these names or patterns are written; if `keeps`, none of them may exist yet.

    The `hint` ends the message for those that do. If the folder `grows` during a run, a resumed run appends to it.
    """

    def __init__(self, *names: str, keeps: bool = True, grows: bool = False, hint: str = "") -> None:
        super().__init__()
        self.names, self.keeps, self.grows, self.hint = names, keeps, grows, hint

    def files(self, path: Path) -> list[Path]:
        """The folder, and the files that are written."""
        return [path, *(file for name in self.names for file in (path.glob(name) if "*" in name else [path / name]))]

    def check(self, path: Path, name: str, overwrite: bool) -> None:
        """Raise if the files cannot be written or, without overwriting, exist."""
        if not path.is_dir():
            if path.exists():
                raise ValueError(f"{name}: expected a folder, found a file")
            return _check_writable(path, name)
        for file in self.files(path)[1:]:
            if self.keeps and not overwrite and file.exists():
                raise ValueError(f"{name}: has {file.name} already; expected another folder, or --overwrite{self.hint}")
            _check_writable(file, f"{name}: {file.name}")


class WritesModel(Writes):
    """A model file, whose name does not end as those of other tools do."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path."""
        check_ending(value)
        return super().convert(value, param, ctx)


READS, WRITES, WRITES_MODEL = Reads(), Writes(), WritesModel()


class _WithHelp(click.Command):
    """A command that shows its help for -h and --help."""

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
        """Run the command, after rank 0 has checked the files."""
        if is_first():
            self.check(ctx)
        return super().invoke(ctx)

    def check(self, ctx: click.Context) -> None:
        """Raise if a file cannot be written, is read too, or is written twice."""
        used: dict[str, str] = {}  # what each real path is used for
        files = list(_files(self, ctx.params))
        for kind, path, name in files:
            if isinstance(kind, Reads):
                used |= {os.path.realpath(file): f"{name}, which is read" for file in kind.files(path)}
        for kind, path, name in files:
            if isinstance(kind, Writes):
                kind.check(path, name, bool(ctx.params.get("overwrite")) or _is_continued(ctx, kind, path))
                written = {os.path.realpath(file): name for file in kind.files(path)}
                if twice := used.keys() & written.keys():
                    raise ValueError(f"{name}: the same file as {used[twice.pop()]}; expected another one")
                used |= written


class CommandGroup(_WithHelp, click.Group):
    """A group of such commands."""

    command_class = Command


def _is_continued(ctx: click.Context, kind: Writes, path: Path) -> bool:
    """Whether a resumed run has written to this folder from the start."""
    if ctx.params.get("resume") is None or not (isinstance(kind, WritesFolder) and kind.grows):
        return False
    known = [name for name in ctx.params if ctx.get_parameter_source(name) is ParameterSource.DEFAULT_MAP]
    return path in [found for _, found, _ in _files(ctx.command, {name: ctx.params[name] for name in known})]


def _files(command: click.Command, values: dict[str, Any]) -> Iterator[tuple[FileType, Path, str]]:
    """Every file or folder that a command is given, with its type and its name in messages."""
    for parameter in command.params:
        if isinstance(parameter.type, FileType):
            value = values.get(str(parameter.name))
            for item in value if isinstance(value, tuple) else () if value is None else (value,):
                flag = parameter.opts[0] if isinstance(parameter, click.Option) else parameter.human_readable_name
                path = Path(item)  # which may have settings
                yield parameter.type, path, f"{flag} {path}"


def _check_writable(path: Path, name: str) -> None:
    """Raise if a file cannot be written, or a folder cannot be made."""
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
