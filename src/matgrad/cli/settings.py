"""Values with settings: as in ``--checkpoint "DIR, every=5, keep=3"``, and ``--show "parameters, precision=6"``."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import numpy as np

from matgrad.cli.files import FileType, Reads, WritesFolder

Settings = Mapping[str, Callable[[str], Any]]  # by name, the function that reads the value, or raises ValueError


@dataclass(frozen=True)
class FileWithSettings:
    """The name of a file or folder, and the settings that follow it."""

    path: Path
    settings: dict[str, str] = field(default_factory=dict)

    def __fspath__(self) -> str:
        return str(self.path)

    def __str__(self) -> str:
        return ", ".join([str(self.path), *(f"{name}={value}" for name, value in self.settings.items())])

    def absolute(self) -> str:
        """The same as a string, with the whole path."""
        return str(FileWithSettings(Path(os.path.abspath(self.path)), self.settings))


def split_settings(text: str, known: Iterable[str]) -> tuple[str, dict[str, str]]:
    """'first' and {'every': '5', 'epochs': '0,5'} of ``first, every=5, epochs=0,5``, if both names are known."""
    first, *items = re.split(rf",\s*(?=(?:{'|'.join(known)})\s*=)", text)
    pairs = [item.partition("=") for item in items]
    settings = {name.strip(): value.strip() for name, _, value in pairs}
    if len(settings) < len(items):
        raise ValueError(f"{text!r} has a setting twice")
    if unknown := re.search(r",\s*(\w+)\s*=", first):
        raise ValueError(f"unknown setting {unknown[1]!r}; known: {', '.join(known)}")
    return first.strip(), settings


class WithSettings(FileType):
    """A file or folder with settings."""

    def __init__(self, *names: str, known: Settings, **options: Any) -> None:
        super().__init__(*names, **options)  # of the class that this one is mixed into
        self.known = known

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The file with its settings, checked."""
        if isinstance(value, FileWithSettings):
            return value
        try:
            path, settings = split_settings(str(value), self.known)
            for name, text in settings.items():
                self.known[name](text)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return FileWithSettings(super().convert(path, param, ctx), settings)


class ReadsWithSettings(WithSettings, Reads):
    """A file or folder that is read, with settings."""


class WritesFolderWithSettings(WithSettings, WritesFolder):
    """A folder in which files are written, with settings."""


# -- matrices that are printed, and how ------------------------------------------------------------

SHOWN = ("parameters", "batches")
SHOWN_SETTINGS = {"precision": 4, "edgeitems": 3}  # and their defaults


class Show(click.ParamType):
    """A list such as ``parameters, batches, precision=6``."""

    name = "list"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The string, if it is one."""
        try:
            _parsed(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return value


def shown(text: str | None) -> set[str]:
    """What is to be printed; sets how NumPy prints matrices."""
    words, settings = _parsed(text or "")
    np.set_printoptions(**settings, threshold=100)  # type: ignore[arg-type]
    return words


def _parsed(text: str) -> tuple[set[str], dict[str, int]]:
    """The words and the settings of a list."""
    words, settings = set(), dict(SHOWN_SETTINGS)
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, _, number = (part.strip() for part in item.partition("="))
        if item in SHOWN:
            words.add(item)
        elif name in SHOWN_SETTINGS and number.isdecimal() and 0 < int(number) <= 1000:
            settings[name] = int(number)
        else:
            known = ", ".join([*SHOWN, *(f"{name}=N" for name in SHOWN_SETTINGS)])
            raise ValueError(f"expected a list of {known}, found {item!r}")
    return words, settings
