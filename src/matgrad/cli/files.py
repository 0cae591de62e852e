"""The files of a command: the type of an option or argument says whether it is read or written."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from matgrad.foundation.writing import atomic_write, replaceable, visible
from matgrad.specifications.parsing import lookup

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
