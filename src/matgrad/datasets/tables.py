"""Tables in CSV files: features in columns, and a target column with classes or numbers."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from matgrad.datasets.csv_file import Table, are_numbers, is_missing, naming, parse_number, read_table
from matgrad.datasets.dataset import DataError, Dataset, hold_out
from matgrad.datasets.features import MISSING_RULES, UNKNOWN_RULES, Column, Features, has_categories, usable_rows

TASKS = ("classification", "regression")
MAX_INTEGER_CLASSES = 20  # more different integers are taken for numbers
MAX_RARE_CLASSES = 1000  # if there are more, each must occur twice on average

File = str | os.PathLike[str]


def csv(
    file: File,
    *,
    test: File | None = None,
    target: str | int | None = None,
    header: bool | None = None,
    delimiter: str | None = None,
    task: str | None = None,
    test_fraction: float = 0.2,
    seed: int = 0,
    columns: Sequence[str | int] | None = None,
    drop_columns: Sequence[str | int] = (),
    categorical: str | Sequence[str | int] = (),
    missing: str = "error",
    unknown: str = "error",
    like: Features | None = None,
) -> Dataset:
    """The data set in a CSV file: one example per line, its target in the column `target` (default: the last).

    A column is given by its name in the header or its position from 0 (from the end if negative). Test examples
    come from the file `test`, or are a `test_fraction` of the lines, drawn with `seed`. Without `header`, the
    first line is taken for a header if none of its fields, except perhaps the target, is a number. Without
    `delimiter`, it is the comma, semicolon or tab that divides the first lines best. Without `task`
    (classification or regression), the targets are classes if one of them is not a number, or if all are
    integers, at most 20 different ones, each occurring twice on average. The classes are the sorted names; 1 and 1.0
    are one class, or one category, if all are numbers without leading zeros, else different spellings differ.
    The `notes` of the data set say what was decided.

    The features are the other columns, or only `columns`, without `drop_columns`. The `categorical` ones (a list,
    or 'auto': those with words instead of numbers) have one column of 0 and 1 per category. `missing` and `unknown`
    say what is done with missing values and unknown categories; see `Features`. Categories and medians are those
    of the training examples. With `like`, the features of another data set or of a model (`M.features`), all this
    is as it was there, and the columns are found by their names.
    """
    if task is not None and task not in TASKS:
        raise DataError(f"unknown task {task!r}; known: {', '.join(TASKS)}")
    selection = _Selection(columns, drop_columns, categorical, missing, unknown)
    if like is not None and selection != _Selection():
        raise DataError("like: expected no other choice of features beside it")
    names, spelled = ((), selection.spelled) if like is None else (like.names, like.spelled)
    table = read_table(Path(file), _wanted(target, like), header, delimiter, names, spelled)
    positions = selection.positions(table) if like is None else like.locate(table)
    whole = _Part(table, positions, usable_rows(table, positions, missing if like is None else like.missing))
    goal = _target(whole, task)
    train, held = (whole, whole) if test is not None else whole.split(test_fraction, seed)
    features = selection.learned(train) if like is None else like
    notes = [*table.notes, str(goal)]
    if test is None:
        notes.append(f"test examples: {len(held.rows)} of {len(whole.rows)} lines, drawn with seed {seed}")
    else:
        held = _second_part(Path(test), table, features)
        notes += [f"test examples: {len(held.rows)} lines of {test}", *features.notes(held.table, held.positions)]
    if like is None:
        notes += [f"categories of {column}" for column in features.columns if column.categories is not None]
    return Dataset.checked(
        Path(file).name.split(".")[0],
        *train.arrays(features, goal),
        *held.arrays(features, goal),
        source=str(file),
        classes=None if goal.class_names is None else len(goal.class_names),
        class_names=goal.class_names,
        notes=(*notes, *features.notes(table, positions)),
        features=features,
    )


def csv_features(
    file: File, *, header: bool | None = None, delimiter: str | None = None, like: Features | None = None
) -> np.ndarray:
    """The float32 N×D matrix of a CSV file that has examples without targets: every column has numbers.

    With `like`, the features of a data set or of a model (`M.features`), it has the columns of the same names,
    in whatever order they are, encoded as they were there; other columns are ignored.
    """
    return read_features(file, header=header, delimiter=delimiter, like=like)[0]


def read_features(
    file: File, *, header: bool | None = None, delimiter: str | None = None, like: Features | None = None
) -> tuple[np.ndarray, list[str]]:
    """The matrix that `csv_features` returns, and notes on how its columns were found."""
    if like is None:
        table = read_table(Path(file), None, header, delimiter)
        columns = tuple(Column(j, table.name(j)) for j in range(table.width))
        like, positions = Features(columns, table.width, Column(table.width)), list(range(table.width))
    else:
        table = read_table(Path(file), None, header, delimiter, like.names, like.spelled)
        positions = like.locate(table)
    return like.encode(table, positions, np.arange(len(table.lines))), like.notes(table, positions)


@dataclass(frozen=True)
class _Target:
    """The target column: its name in messages, and the names of its classes (None: numbers)."""

    title: str
    class_names: tuple[str, ...] | None

    def __str__(self) -> str:
        if self.class_names is None:
            return f"target {self.title}: numbers (regression)"
        shown = ", ".join(self.class_names[:10]) + (", …" if len(self.class_names) > 10 else "")
        return f"target {self.title}: {len(self.class_names)} classes ({shown})"


@dataclass(frozen=True, eq=False)
class _Part:
    """Some rows of a table whose columns at some positions are the features."""

    table: Table
    positions: list[int]
    rows: np.ndarray

    def split(self, fraction: float, seed: int) -> tuple[_Part, _Part]:
        """The part without a fraction of its rows, and the part with these."""
        kept, held = hold_out(len(self.rows), fraction, seed, str(self.table.path))
        return replace(self, rows=self.rows[kept]), replace(self, rows=self.rows[held])

    def targets(self) -> list[str]:
        """The fields of the target column, after a check that none is missing."""
        fields = [self.table.targets[row] for row in self.rows.tolist()]
        for row, field in zip(self.rows.tolist(), fields, strict=True):
            if is_missing(field):
                raise DataError(f"{self.target_in(row)}: missing value ({field!r}), expected a target")
        return fields

    def target_in(self, row: int) -> str:
        """The target of a row in messages."""
        return self.table.place(row, self.table.target or 0)

    def arrays(self, features: Features, goal: _Target) -> tuple[np.ndarray, np.ndarray]:
        """X, and the class index of each row, or its number as an N×1 matrix."""
        return features.encode(self.table, self.positions, self.rows), _targets(self, goal)


@dataclass(frozen=True)
class _Selection:
    """Which columns of a table are features, and what is done with words and missing values; see `csv`."""

    columns: Sequence[str | int] | None = None
    drop_columns: Sequence[str | int] = ()
    categorical: str | Sequence[str | int] = ()
    missing: str = "error"
    unknown: str = "error"

    def __post_init__(self) -> None:
        for name, known in (("missing", MISSING_RULES), ("unknown", UNKNOWN_RULES)):
            if (found := getattr(self, name)) not in known:
                raise DataError(f"{name}: found {found!r}, expected one of {', '.join(known)}")
        for name in ("columns", "drop_columns", "categorical"):
            found = getattr(self, name)
            if isinstance(found, str) and (name, found) != ("categorical", "auto"):
                raise DataError(f"{name}: found the string {found!r}, expected a list of columns")

    def positions(self, table: Table) -> list[int]:
        """The positions of the features, in the order of the file."""
        given = {name: [table.position(x) for x in getattr(self, name) or ()] for name in ("columns", "drop_columns")}
        for name, found in given.items():
            if table.target in found:
                raise DataError(f"{table.path}: {table.title(table.target or 0)} is the target, but one of {name}")
        chosen = range(table.width) if self.columns is None else given["columns"]
        positions = sorted({*chosen} - {table.target, *given["drop_columns"]})
        if not positions:
            raise DataError(f"{table.path}: found no features, expected a column besides the target and dropped ones")
        return positions

    def spelled(self, table: Table) -> list[int]:
        """The positions of the columns that are known to have categories before the lines are read."""
        return [] if self.categorical == "auto" else [table.position(x) for x in self.categorical]

    def learned(self, train: _Part) -> Features:
        """The features of the training part."""
        table, positions = train.table, train.positions
        is_auto = self.categorical == "auto"
        words = [j for j in positions if has_categories(table, j)] if is_auto else self.spelled(table)
        if other := [j for j in words if j not in positions]:
            raise DataError(f"{table.path}: {table.title(other[0])} is categorical, but not one of the features")
        return Features.of(table, train.rows, positions, words, self.missing, self.unknown)


def _wanted(target: str | int | None, like: Features | None) -> str | int:
    """The target column: the given one, that of other features, or the last."""
    if target is None and like is not None:
        return like.target.position if like.target.name is None else like.target.name
    return -1 if target is None else target


def _second_part(path: Path, table: Table, features: Features) -> _Part:
    """The test file that belongs to a training file."""
    is_headed = table.header is not None
    other = read_table(path, _wanted(None, features), is_headed, table.delimiter, spelled=features.spelled)
    positions = features.locate(other)
    return _Part(other, positions, usable_rows(other, positions, features.missing))


def _target(part: _Part, task: str | None) -> _Target:
    """What the target column has, by the task or, without one, by its fields."""
    fields = part.targets()
    values = [parse_number(field) for field in fields]
    numbers = {value for value in values if value is not None}
    if task is None:
        integers = None not in values and all(value.is_integer() for value in numbers)
        few = integers and len(numbers) <= MAX_INTEGER_CLASSES and 2 * len(numbers) <= len(values)
        task = "classification" if None in values or few else "regression"
    title = part.table.title(part.table.target or 0)
    if task == "regression":
        return _Target(title, None)
    names = set(map(naming(fields), fields))
    if len(names) > max(MAX_RARE_CLASSES, len(fields) // 2):
        raise DataError(
            f"{part.table.path}, {title}: found {len(names)} different targets in {len(fields)} lines, expected "
            "classes with two lines each on average, or numbers for a regression"
        )
    return _Target(title, tuple(sorted(names, key=(lambda name: (float(name), name)) if are_numbers(names) else None)))


def _targets(part: _Part, goal: _Target) -> np.ndarray:
    """The class index of each row, or its number as an N×1 matrix."""
    if goal.class_names is None:
        return np.array(_each(part, parse_number, "a finite number"), dtype=np.float64).reshape(-1, 1)
    index, name_of = {name: k for k, name in enumerate(goal.class_names)}, naming(goal.class_names)
    expected = f"one of the {len(index)} classes of the training data"
    return np.array(_each(part, lambda field: index.get(name_of(field)), expected), dtype=np.int64)


def _each(part: _Part, f: Callable[[str], float | None], expected: str) -> list[float]:
    """f of every target, after a check that it is not None."""
    results = []
    for row, field in zip(part.rows.tolist(), part.targets(), strict=True):
        value = f(field)
        if value is None:
            raise DataError(f"{part.target_in(row)}: found {field!r}, expected {expected}")
        results.append(value)
    return results
