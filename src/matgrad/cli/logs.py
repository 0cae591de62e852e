"""The option `--log` of `matgrad train`: JSON lines, CSV and TensorBoard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from matgrad.callbacks import Callback, Log, TensorBoard
from matgrad.callbacks.logging import EVENTS, SUFFIXES
from matgrad.cli.files import Writes, WritesFolder
from matgrad.cli.groups import option


class WritesLog(WritesFolder):
    """A log file with a known ending, or a folder for TensorBoard, whose name has no ending."""

    def __init__(self) -> None:
        super().__init__(EVENTS, grows=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path."""
        path = super().convert(value, param, ctx)
        if path.suffix not in (*SUFFIXES, "") and not str(value).endswith("/"):
            known = " or ".join(SUFFIXES)
            self.fail(
                f"expected a name that ends in {known}, or a folder for TensorBoard, found {value!r}.", param, ctx
            )
        if _is_file(path) and str(value).endswith(("/", "/.")):
            self.fail(f"expected the name of a file, found that of a folder: {value}", param, ctx)
        return path

    def files(self, path: Path) -> list[Path]:
        """The file, or the folder and the event files in it."""
        return [path] if _is_file(path) else super().files(path)

    def check(self, path: Path, name: str, overwrite: bool) -> None:
        """Raise if it cannot be written; a folder may have no event files yet."""
        if _is_file(path):
            Writes().check(path, name, overwrite)
        else:
            super().check(path, name, overwrite)


log_option = option(
    "Output",
    "--log",
    type=WritesLog(),
    multiple=True,
    metavar="PATH",
    help="Write a row per epoch to PATH.jsonl, PATH.csv, or a folder for TensorBoard. Repeatable.",
)


def logs(options: dict[str, Any]) -> list[Callback]:
    """The callbacks that the options ask for."""
    return [Log(path) if _is_file(path) else TensorBoard(path) for path in options["log"]]


def _is_file(path: Path) -> bool:
    """Whether a log is a file, and not a folder for TensorBoard."""
    return path.suffix in SUFFIXES
