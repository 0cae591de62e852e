"""Data sets from tables: features in columns, and a target column with classes or numbers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from matgrad.datasets.dataset import Dataset, hold_out
from matgrad.datasets.features import MISSING_RULES, UNKNOWN_RULES, Column, Features, Missing, Unknown
from matgrad.datasets.table_file import Source, Table, listed, named, number, read_table
from matgrad.specifications.parsing import lookup

TASKS = ("classification", "regression")
MAX_INTEGER_CLASSES = 20  # more different integers are taken for numbers
MAX_RARE_CLASSES = 1000  # if there are more, each must occur twice on average

Columns = Sequence[str | int]


def table(
    source: Source,
    *,
    test: Source | None = None,
    target: str | int | None = None,
    header: bool | None = None,
    delimiter: str | None = None,
    task: str | None = None,
    test_fraction: float = 0.2,
    seed: int = 0,
    columns: Columns | None = None,
    drop_columns: Columns = (),
    categorical: str | Columns = (),
    missing: Missing = "error",
    unknown: Unknown = "error",
    like: Features | None = None,
    dtype: str = "float32",
) -> Dataset:
    """The data set in a table: one example per row, its target in the column `target` (default: the last).

    `source` is a CSV, Parquet or Arrow (Feather) file, recognized by its content, or a data frame of pandas or polars
    or a table of Arrow. A column is given by its name or its position from 0 (from the end if negative). Test examples
    come from the source `test`, or are a `test_fraction` of the rows, drawn with `seed`. Without `task`
    (classification or regression), the targets are classes if one of them is not a number, or if all are integers,
    at most 20 different ones, each occurring twice on average. The classes are the sorted names; 1 and 1.0 are one
    class, or one category, if all are numbers without leading zeros, else different spellings differ. The `notes` of
    the data set say what was decided. Of a CSV file, the first line is a header if none of its fields, except perhaps
    the target, is a number, unless `header` says so, and the `delimiter` is by default the comma, semicolon or tab
    that divides the first lines best.

    The features are the other columns, or only `columns`, without `drop_columns`. The `categorical` ones (a list,
    or 'auto': those with words instead of numbers) have one column of 0 and 1 per category. `missing` and `unknown`
    say what is done with missing values and unknown categories; see `Features`. Categories and medians are those
    of the training examples. With `like`, the features of another data set or of a model (`M.features`), all this
    is as it was there, and the columns are found by their names.
    """
    if like is not None and (columns, *drop_columns, *categorical, missing, unknown) != (None, "error", "error"):
        raise ValueError("like: expected no other choice of features beside it")
    lookup(task or TASKS[0], dict.fromkeys(TASKS), "task")
    lookup(missing, dict.fromkeys(MISSING_RULES), "missing")
    lookup(unknown, dict.fromkeys(UNKNOWN_RULES), "unknown")
    for name, given in (("columns", columns), ("drop_columns", drop_columns), ("categorical", categorical)):
        if isinstance(given, str) and (name, given) != ("categorical", "auto"):
            raise ValueError(f"{name}: found the string {given!r}, expected a list of columns")

    content = read_table(source, _wanted(target, like), header, delimiter, () if like is None else like.names)
    features = like or replace(_chosen(content, columns, drop_columns, categorical), missing=missing, unknown=unknown)
    rows = features.usable_rows(content)
    class_names = _class_names(content, rows, task)
    notes = [*content.notes, f"target {content.title(content.target or 0)}: {described(class_names)}"]
    if test is None:
        other = content
        kept, held = (rows[part] for part in hold_out(len(rows), test_fraction, seed, content.source))
        notes.append(f"test examples: {len(held)} of {len(rows)} rows, drawn with seed {seed}")
    else:
        other = read_table(test, _wanted(None, features), content.names[0] is not None, content.delimiter)
        kept, held = rows, features.usable_rows(other)
        notes.append(f"test examples: {len(held)} rows of {other.source}")
    if like is None:
        features = features.learn(content, kept)
        notes += [f"categories of {column}" for column in features.columns if column.categories is not None]
    notes += features.notes(content) + (features.notes(other) if other is not content else [])
    target_column = replace(features.target, categories=class_names)
    arrays = []
    for part, used in ((content, kept), (other, held)):
        arrays += [features.encode(part, used, dtype), target_column.encode(part, part.target or 0, used)]
    return Dataset.checked(
        Path(source).name.split(".")[0] if isinstance(source, str | os.PathLike) else "table",
        *arrays,
        source=content.source,
        classes=None if class_names is None else len(class_names),
        class_names=class_names,
        dtype=dtype,
        notes=tuple(notes),
        features=features,
    )


def table_features(
    source: Source,
    *,
    header: bool | None = None,
    delimiter: str | None = None,
    like: Features | None = None,
    dtype: str = "float32",
) -> np.ndarray:
    """The N×D matrix of a table that has examples without targets: every column has numbers.

    With `like`, the features of a data set or of a model (`M.features`), it has the columns of the same names,
    in whatever order they are, encoded as they were there; other columns are ignored.
    """
    return read_features(source, header, delimiter, like, dtype)[0]


def read_features(
    source: Source,
    header: bool | None = None,
    delimiter: str | None = None,
    like: Features | None = None,
    dtype: str = "float32",
) -> tuple[np.ndarray, list[str]]:
    """The matrix that `table_features` returns, and notes on how its columns were found."""
    content = read_table(source, None, header, delimiter, () if like is None else like.names)
    if like is None:
        columns = tuple(Column(j, content.names[j]) for j in range(content.width))
        like = Features(columns, content.width, Column(content.width))
    notes = [] if content.delimiter is not None else list(content.notes)
    return like.encode(content, np.arange(len(content)), dtype), notes + like.notes(content)


def described(class_names: tuple[str, ...] | None) -> str:
    """The targets in words."""
    return "numbers (regression)" if class_names is None else f"{len(class_names)} classes ({listed(class_names)})"


def are_few_integers(x: np.ndarray, most: int) -> bool:
    """Whether numbers may be classes: integers, at most `most` different ones, each occurring twice on average."""
    found = np.unique(x)
    return bool((found == np.floor(found)).all()) and len(found) <= min(most, len(x) // 2)


def _wanted(target: str | int | None, like: Features | None) -> str | int:
    """The target column: the given one, that of other features, or the last."""
    if target is None and like is not None:
        return like.target.position if like.target.name is None else like.target.name
    return -1 if target is None else target


def _chosen(content: Table, columns: Columns | None, dropped: Columns, categorical: str | Columns) -> Features:
    """The features that are chosen, in the order of the table; their categories are not known yet."""
    target = content.target or 0
    kept, left = ([content.position(x) for x in given or ()] for given in (columns, dropped))
    if target in (*kept, *left):
        raise ValueError(f"{content.source}: {content.title(target)} is the target, but one of columns or drop_columns")
    chosen = sorted({*(range(content.width) if columns is None else kept)} - {target, *left})
    if not chosen:
        raise ValueError(f"{content.source}: found no features, expected a column besides the target and dropped ones")
    if isinstance(categorical, str):
        words = [j for j in chosen if _has_words(content, j)]
    else:
        words = [content.position(x) for x in categorical]
    if others := [j for j in words if j not in chosen]:
        raise ValueError(f"{content.source}: {content.title(others[0])} is categorical, but not one of the features")
    features = tuple(Column(j, content.names[j], () if j in words else None) for j in chosen)
    return Features(features, content.width, Column(target, content.names[target]))


def _has_words(content: Table, j: int) -> bool:
    """Whether a column has strings or, in a CSV file, words; raise if it has words and numbers."""
    import pyarrow as pa

    is_string = pa.types.is_large_string(content.columns[j].type)
    if content.delimiter is None or not is_string:
        return is_string
    is_number = ~np.isnan(content.numbers(j))
    is_word = ~is_number & ~content.is_missing(j)
    if is_number.any():
        expected = "a number as in other rows, or a column that is named as categorical"
        content.check(j, np.arange(len(content)), ~is_word, expected)
    return bool(is_word.any())


def _class_names(content: Table, rows: np.ndarray, task: str | None) -> tuple[str, ...] | None:
    """The names of the classes in the target column; None if the task is a regression."""
    target = content.target or 0
    content.check(target, rows, ~content.is_missing(target)[rows], "a target")
    if task is None:
        x = content.numbers(target)[rows]
        is_classification = bool(np.isnan(x).any()) or are_few_integers(x, MAX_INTEGER_CLASSES)
        task = "classification" if is_classification else "regression"
    if task == "regression":
        return None
    words = content.words(target).take(rows).unique()
    names = named(words, words.to_pylist()).unique().to_pylist()
    if len(names) > max(MAX_RARE_CLASSES, len(rows) // 2):
        found = f"{len(names)} different targets in {len(rows)} rows"
        expected = "classes with two rows each on average, or numbers for a regression"
        raise ValueError(f"{content.source}, {content.title(target)}: found {found}, expected {expected}")
    are_words = any(number(name) is None for name in names)
    return tuple(sorted(names) if are_words else sorted(names, key=lambda name: number(name) or 0))
