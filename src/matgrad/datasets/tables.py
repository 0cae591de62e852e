"""Data sets from tables: features in columns, and a target column with classes or numbers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from matgrad.datasets.dataset import DataError, Dataset, hold_out
from matgrad.datasets.features import MISSING_RULES, UNKNOWN_RULES, Column, Features, usable_rows
from matgrad.datasets.table_file import Source, Table, are_numbers, naming, read_table

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
    missing: str = "error",
    unknown: str = "error",
    like: Features | None = None,
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
        raise DataError("like: expected no other choice of features beside it")
    _check_choice("task", task, (None, *TASKS))
    _check_choice("missing", missing, MISSING_RULES)
    _check_choice("unknown", unknown, UNKNOWN_RULES)
    for name, given in (("columns", columns), ("drop_columns", drop_columns), ("categorical", categorical)):
        if isinstance(given, str) and (name, given) != ("categorical", "auto"):
            raise DataError(f"{name}: found the string {given!r}, expected a list of columns")

    content = read_table(source, _wanted(target, like), header, delimiter, () if like is None else like.names)
    positions = _chosen(content, columns, drop_columns) if like is None else like.locate(content)
    rows = usable_rows(content, positions, missing if like is None else like.missing)
    class_names = _class_names(content, rows, task)
    kept = held = rows
    if test is None:
        kept, held = (rows[part] for part in hold_out(len(rows), test_fraction, seed, content.source))
    features = like or Features.learned(content, kept, positions, categorical, missing, unknown)
    notes = [*content.notes, f"target {content.title(content.target or 0)}: {described(class_names)}"]
    other, other_positions = content, positions
    if test is None:
        notes.append(f"test examples: {len(held)} of {len(rows)} rows, drawn with seed {seed}")
    else:
        other = read_table(test, _wanted(None, features), content.names is not None, content.delimiter)
        other_positions = features.locate(other)
        held = usable_rows(other, other_positions, features.missing)
        notes += [f"test examples: {len(held)} rows of {other.source}", *features.notes(other, other_positions)]
    if like is None:
        notes += [f"categories of {column}" for column in features.columns if column.categories is not None]
    return Dataset.checked(
        Path(source).name.split(".")[0] if isinstance(source, str | os.PathLike) else "table",
        features.encode(content, positions, kept),
        _targets(content, kept, class_names),
        features.encode(other, other_positions, held),
        _targets(other, held, class_names),
        source=content.source,
        classes=None if class_names is None else len(class_names),
        class_names=class_names,
        notes=(*notes, *features.notes(content, positions)),
        features=features,
    )


def table_features(
    source: Source, *, header: bool | None = None, delimiter: str | None = None, like: Features | None = None
) -> np.ndarray:
    """The float32 N×D matrix of a table that has examples without targets: every column has numbers.

    With `like`, the features of a data set or of a model (`M.features`), it has the columns of the same names,
    in whatever order they are, encoded as they were there; other columns are ignored.
    """
    return read_features(source, header=header, delimiter=delimiter, like=like)[0]


def read_features(
    source: Source, *, header: bool | None = None, delimiter: str | None = None, like: Features | None = None
) -> tuple[np.ndarray, list[str]]:
    """The matrix that `table_features` returns, and notes on how its columns were found."""
    content = read_table(source, None, header, delimiter, () if like is None else like.names)
    if like is None:
        columns = tuple(Column(j, content.name(j)) for j in range(content.width))
        like, positions = Features(columns, content.width, Column(content.width)), list(range(content.width))
    else:
        positions = like.locate(content)
    notes = [note for note in content.notes if content.delimiter is None]
    return like.encode(content, positions, np.arange(len(content))), notes + like.notes(content, positions)


def described(class_names: tuple[str, ...] | None) -> str:
    """The targets in words."""
    if class_names is None:
        return "numbers (regression)"
    shown = ", ".join(class_names[:10]) + (", …" if len(class_names) > 10 else "")
    return f"{len(class_names)} classes ({shown})"


def _check_choice(name: str, found: str | None, known: Sequence[str | None]) -> None:
    if found not in known:
        raise DataError(f"unknown {name} {found!r}; known: {', '.join(filter(None, known))}")


def _wanted(target: str | int | None, like: Features | None) -> str | int:
    """The target column: the given one, that of other features, or the last."""
    if target is None and like is not None:
        return like.target.position if like.target.name is None else like.target.name
    return -1 if target is None else target


def _chosen(content: Table, columns: Columns | None, dropped: Columns) -> list[int]:
    """The positions of the features, in the order of the table."""
    given = {"columns": columns or (), "drop_columns": dropped}
    found = {name: [content.position(x) for x in items] for name, items in given.items()}
    for name, positions in found.items():
        if content.target in positions:
            raise DataError(f"{content.source}: {content.title(content.target)} is the target, but one of {name}")
    chosen = range(content.width) if columns is None else found["columns"]
    if not (positions := sorted({*chosen} - {content.target, *found["drop_columns"]})):
        raise DataError(f"{content.source}: found no features, expected a column besides the target and dropped ones")
    return positions


def _class_names(content: Table, rows: np.ndarray, task: str | None) -> tuple[str, ...] | None:
    """The names of the classes in the target column; None if the task is a regression."""
    x, codes, words = _target_values(content, rows)
    if task is None:
        numbers = np.unique(x)
        integers = not np.isnan(x).any() and bool((numbers == np.floor(numbers)).all())
        few = integers and len(numbers) <= MAX_INTEGER_CLASSES and 2 * len(numbers) <= len(rows)
        task = "classification" if np.isnan(x).any() or few else "regression"
    if task == "regression":
        return None
    used = [words[k] for k in np.unique(codes)]
    names = set(map(naming(used), used))
    if len(names) > max(MAX_RARE_CLASSES, len(rows) // 2):
        raise DataError(
            f"{content.source}, {content.title(content.target or 0)}: found {len(names)} different targets in "
            f"{len(rows)} rows, expected classes with two rows each on average, or numbers for a regression"
        )
    return tuple(sorted(names, key=(lambda name: (float(name), name)) if are_numbers(names) else None))


def _targets(content: Table, rows: np.ndarray, class_names: tuple[str, ...] | None) -> np.ndarray:
    """The class index of each row, or its number as an N×1 matrix."""
    x, codes, words = _target_values(content, rows)
    is_wrong, expected = np.isnan(x), "a finite number"
    if class_names is not None:
        index, name_of = {name: k for k, name in enumerate(class_names)}, naming(class_names)
        x = np.array([index.get(name_of(word), -1) for word in words], np.int64)[codes]
        is_wrong, expected = x < 0, f"one of the {len(index)} classes of the training data"
    if is_wrong.any():
        i = int(np.argmax(is_wrong))
        place = content.place(rows[i], content.target or 0)
        raise DataError(f"{place}: found {words[codes[i]]!r}, expected {expected}")
    return x.reshape(-1, 1) if class_names is None else x


def _target_values(content: Table, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """The target column in some rows: numbers, NaN where it has words, and codes and words; none may be missing."""
    target = content.target or 0
    codes, words = content.words(target)
    if (codes[rows] < 0).any():
        row = rows[np.argmax(codes[rows] < 0)]
        raise DataError(f"{content.place(row, target)}: missing value, expected a target")
    return content.numbers(target)[rows], codes[rows], words
