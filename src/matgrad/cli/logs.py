"""The options of `matgrad train` for logs: JSON lines, CSV and TensorBoard."""

from __future__ import annotations

from typing import Any

from matgrad.callbacks import Callback, Log, TensorBoard
from matgrad.callbacks.logging import EVENTS, FORMATS
from matgrad.cli.files import Writes, WritesFolder
from matgrad.cli.groups import all_of, option

log_options = all_of(
    option(
        "Output",
        "--log",
        type=Writes(*FORMATS),
        multiple=True,
        metavar="FILE",
        help="Write a line to this file as each epoch ends: JSON to FILE.jsonl, CSV to FILE.csv. May be repeated.",
    ),
    option(
        "Output",
        "--tensorboard",
        type=WritesFolder(EVENTS, grows=True),
        metavar="DIR",
        help="Write an event file for TensorBoard to this folder as each epoch ends. Needs tensorboard.",
    ),
)


def logs(options: dict[str, Any]) -> list[Callback]:
    """The callbacks that the options ask for."""
    folder = options["tensorboard"]
    return [*map(Log, options["log"]), *([] if folder is None else [TensorBoard(folder)])]
