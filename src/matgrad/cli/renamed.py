"""Options that have a new spelling: using an old one is an error that says the new one."""

from __future__ import annotations

import click

# the option as it was: what to write now. Found on a command line or in a configuration file, it is an error.
RENAMED: dict[str, str] = {
    "--processes": "torchrun --nproc-per-node N -m matgrad train …",
    "--max-restarts": "torchrun --max-restarts N -m matgrad train … --checkpoint DIR",
    "--timeout": "mg.distributed.start(timeout=…) in a script",
    "--csv": "--table FILE",
    "--columns": '--features "columns=NAMES"',
    "--drop-columns": '--features "drop=NAMES"',
    "--categorical": '--features "categorical=NAMES"',
    "--missing": '--features "missing=RULE"',
    "--unknown": '--features "unknown=RULE"',
    "--features": "--table FILE",  # of matgrad predict
    "--svmlight-test": '--svmlight "TRAIN;TEST"',
    "--dataset-size": '--generate-dataset "NAME(SIZE)"',
}


def renaming(option: str) -> str | None:
    """What a message says of an option that has a new spelling; None of one that has not."""
    flag = "--" + option.removeprefix("--").replace("_", "-")
    return f"{flag} is gone: use {RENAMED[flag]}" if flag in RENAMED else None


def with_renaming(error: click.NoSuchOption) -> click.UsageError:
    """The error for an unknown option, which says the new spelling if it has one."""
    text = renaming(error.option_name)
    return error if text is None else click.UsageError(text, error.ctx)
