"""Options for the columns of a table."""

from __future__ import annotations

import csv
from typing import Any

import click

from matgrad.cli.groups import all_of, option
from matgrad.datasets.tables import TASKS

# what a specification of features may have, and the arguments of `datasets.table`
KEYS = {
    "columns": "columns",
    "drop": "drop_columns",
    "categorical": "categorical",
    "missing": "missing",
    "unknown": "unknown",
}

target_options = all_of(
    option("Data", "--target", metavar="COLUMN", help="Its target: a name, or a number from 0.  [default: last]"),
    option("Data", "--task", type=click.Choice(TASKS), help="[default: guessed from the targets]"),
)

features_option = option(
    "Data",
    "--features",
    metavar="SPEC",
    help='Columns of the table: "drop=id,name; categorical=auto; missing=median; unknown=zero". '
    "Keys: columns or drop; categorical; missing: error, drop or median; unknown: error or zero.",
)


def parse_features(text: str) -> dict[str, Any]:
    """The arguments of `datasets.table` in a specification such as ``drop=id,name; missing=median``."""
    found: dict[str, Any] = {}
    for item in text.split(";"):
        key, _, value = (part.strip() for part in item.partition("="))
        if key not in KEYS or KEYS[key] in found:
            problem = "is there twice" if key in KEYS else f"is unknown; known: {', '.join(KEYS)}"
            raise ValueError(f"--features {text!r}: {key!r} {problem}")
        columns = [name.strip() for name in next(csv.reader([value], skipinitialspace=True), [])]
        if not columns or "" in columns:
            raise ValueError(f"--features {text!r}: {key}: found {value!r}, expected names separated by commas")
        is_list = key in ("columns", "drop") or (key == "categorical" and value != "auto")
        found[KEYS[key]] = columns if is_list else value
    if {"columns", "drop_columns"} <= found.keys():
        raise ValueError(f"--features {text!r}: columns and drop: expected one of them")
    return found


def given_table_options(options: dict[str, Any]) -> dict[str, Any]:
    """The options for tables that are given, as arguments of `datasets.table`."""
    given = {name: options[name] for name in ("target", "task") if options[name] is not None}
    return given | ({} if options.get("features") is None else parse_features(options["features"]))


def check_table_options(options: dict[str, Any], source: str | None) -> None:
    """Raise if there are options for tables and the data is not in one; svmlight files have a task too."""
    names = {"table": (), "svmlight": ("target", "features")}.get(source or "", ("target", "task", "features"))
    if given := [flag(name) for name in names if options.get(name) is not None]:
        raise ValueError(f"{' and '.join(given)} need{'s' if len(given) == 1 else ''} --table")


def flag(name: str) -> str:
    """The option on the command line."""
    return f"--{name.replace('_', '-')}"
