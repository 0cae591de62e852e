"""The option `--show`: matrices that are printed, and how."""

from __future__ import annotations

from typing import Any

import click
import numpy as np

WORDS = ("parameters", "batches")
SETTINGS = {"precision": 4, "edgeitems": 3}  # and their defaults


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
    words, settings = set(), dict(SETTINGS)
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, _, number = (part.strip() for part in item.partition("="))
        if item in WORDS:
            words.add(item)
        elif name in SETTINGS and number.isdecimal() and 0 < int(number) <= 1000:
            settings[name] = int(number)
        else:
            known = ", ".join([*WORDS, *(f"{name}=N" for name in SETTINGS)])
            raise ValueError(f"expected a list of {known}, found {item!r}")
    return words, settings
