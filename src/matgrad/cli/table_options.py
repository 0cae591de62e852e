"""Options for the columns of a CSV file."""

from __future__ import annotations

import csv
from typing import Any

import click

from matgrad.cli.groups import all_of, option
from matgrad.datasets.features import MISSING_RULES, UNKNOWN_RULES
from matgrad.datasets.tables import TASKS

COLUMNS = "names, or numbers from 0, separated by commas"

target_options = all_of(
    option(
        "Data",
        "--target",
        metavar="COLUMN",
        help="The target column of the CSV file: a name, or a number from 0.  [default: last]",
    ),
    option(
        "Data",
        "--task",
        type=click.Choice(TASKS),
        help="The task of the CSV or svmlight file.  [default: guessed from its targets]",
    ),
)

feature_options = all_of(
    option("Data", "--columns", metavar="LIST", help=f"Use only these features of the CSV file: {COLUMNS}."),
    option("Data", "--drop-columns", metavar="LIST", help="Use all columns of the CSV file but these."),
    option(
        "Data",
        "--categorical",
        metavar="LIST",
        help="Columns of the CSV file with categories, each an input that is 0 or 1; auto: those without numbers.",
    ),
    option(
        "Data",
        "--missing",
        type=click.Choice(MISSING_RULES),
        help="Missing values of the CSV file: refuse them, drop their lines, or take the median of the column's "
        "training part, or its most frequent category.  [default: error]",
    ),
    option(
        "Data",
        "--unknown",
        type=click.Choice(UNKNOWN_RULES),
        help="Categories that are not in the training part: refuse them, or set all inputs of the column to 0.  "
        "[default: error]",
    ),
)

LISTS = ("columns", "drop_columns", "categorical")
FEATURES = (*LISTS, "missing", "unknown")
NAMES = ("target", "task", *FEATURES)


def given_table_options(options: dict[str, Any]) -> dict[str, Any]:
    """The options for tables that are given, as arguments of `datasets.csv`."""
    given = {name: options[name] for name in NAMES if options.get(name) is not None}
    return {name: _columns(name, value) if name in LISTS else value for name, value in given.items()}


def check_table_options(options: dict[str, Any], source: str | None) -> None:
    """Refuse options for tables if the data is not in a CSV file; svmlight files have a task too."""
    known = ("task",) if source == "svmlight" else ()
    if source != "csv" and (given := [flag(name) for name in given_table_options(options) if name not in known]):
        raise ValueError(f"{' and '.join(given)} need{'s' if len(given) == 1 else ''} --csv")
    if options.get("columns") is not None and options.get("drop_columns") is not None:
        raise ValueError("--columns and --drop-columns: expected one of them")


def flag(name: str) -> str:
    """The option on the command line."""
    return f"--{name.replace('_', '-')}"


def _columns(name: str, text: str) -> str | list[str]:
    """The columns in a list such as ``age, "income, net"``; semicolons separate them too, as in other lists."""
    if name == "categorical" and text == "auto":
        return text
    items = next(csv.reader([text], delimiter=";" if ";" in text else ",", skipinitialspace=True), [])
    columns = [item.strip() for item in items]
    if not columns or "" in columns:
        raise ValueError(f"{flag(name)}: found {text!r}, expected columns: {COLUMNS}")
    return columns
