"""Tables in CSV files: numbers in columns, and a target column with classes or numbers."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from matgrad.datasets.csv_file import MISSING, Table, parse_number, read_table
from matgrad.datasets.dataset import DataError, Dataset, hold_out

TASKS = ("classification", "regression")
MAX_INTEGER_CLASSES = 20  # more different integers are taken for numbers


@dataclass(frozen=True)
class _Target:
    """The target column: its name in messages, and the names of its classes (None: numbers)."""

    title: str
    class_names: tuple[str, ...] | None


def csv(
    file: str | os.PathLike[str],
    *,
    test: str | os.PathLike[str] | None = None,
    target: str | int | None = None,
    header: bool | None = None,
    delimiter: str | None = None,
    task: str | None = None,
    test_fraction: float = 0.2,
    seed: int = 0,
) -> Dataset:
    """The data set in a CSV file: one example per line, its target in the column `target` (default: the last).

    `target` is a name in the header or a position from 0 (from the end if negative). Test examples come
    from the file `test`, or are a `test_fraction` of the lines, drawn with `seed`. Without `header`, the
    first line is taken for a header if none of its fields, except perhaps the target, is a number. Without
    `delimiter`, it is the comma, semicolon or tab that divides the first lines best. Without `task`
    (classification or regression), the targets are classes if one of them is not a number, or if all are
    integers, at most 20 different ones, each occurring twice on average. The classes are the sorted names.
    The `notes` of the data set say what was decided.
    """
    if task is not None and task not in TASKS:
        raise DataError(f"unknown task {task!r}; known: {', '.join(TASKS)}")
    table = read_table(Path(file), -1 if target is None else target, header, delimiter)
    goal = _target(table, task)
    notes = [*table.notes, _describe(goal)]
    X, T = table.X, _targets(table, goal)
    if test is None:
        train, held = hold_out(len(X), test_fraction, seed, str(file))
        parts = X[train], T[train], X[held], T[held]
        notes.append(f"test examples: {len(held)} of {len(X)} lines, drawn with seed {seed}")
    else:
        other = read_table(Path(test), table.target, table.header is not None, table.delimiter, table.width)
        _check_same_header(table, other)
        parts = X, T, other.X, _targets(other, goal)
        notes.append(f"test examples: {len(other.X)} lines of {test}")
    names = goal.class_names
    classes = None if names is None else len(names)
    return Dataset.checked(
        Path(file).name.split(".")[0], *parts, source=str(file), classes=classes, class_names=names, notes=tuple(notes)
    )


def csv_features(
    file: str | os.PathLike[str], *, header: bool | None = None, delimiter: str | None = None
) -> np.ndarray:
    """The float32 N×D matrix of a CSV file that has examples without targets: every column has numbers."""
    return read_table(Path(file), None, header, delimiter).X.astype(np.float32)


def _target(table: Table, task: str | None) -> _Target:
    """What the target column has, by the task or, without one, by its fields."""
    _check_present(table)
    values = [parse_number(field) for field in table.targets]
    integers = all(value is not None and value.is_integer() for value in values)
    if task is None:
        different = len(set(values))
        few = integers and different <= MAX_INTEGER_CLASSES and 2 * different <= len(values)
        task = "classification" if None in values or few else "regression"
    title = table.target_title
    if task == "regression":
        return _Target(title, None)
    if integers:
        return _Target(title, tuple(str(int(v)) for v in sorted({v for v in values if v is not None})))
    return _Target(title, tuple(sorted(set(table.targets))))


def _describe(goal: _Target) -> str:
    """One line that says how the target column was understood."""
    if goal.class_names is None:
        return f"target {goal.title}: numbers (regression)"
    shown = ", ".join(goal.class_names[:10]) + (", …" if len(goal.class_names) > 10 else "")
    return f"target {goal.title}: {len(goal.class_names)} classes ({shown})"


def _check_present(table: Table) -> None:
    """Refuse a target that is missing."""
    for line, field in zip(table.lines, table.targets, strict=True):
        if field.lower() in MISSING:
            raise DataError(f"{table.target_in(line)}: missing value ({field!r}), expected a target")


def _targets(table: Table, goal: _Target) -> np.ndarray:
    """The class index of each line, or its number as an N×1 matrix."""
    _check_present(table)
    if goal.class_names is None:
        numbers = _each(table, parse_number, "a finite number")
        return np.array(numbers, dtype=np.float64).reshape(-1, 1)
    index = {name: i for i, name in enumerate(goal.class_names)}

    def class_of(field: str) -> int | None:
        value = parse_number(field)
        name = str(int(value)) if value is not None and value.is_integer() else field
        return index.get(name, index.get(field))

    return np.array(_each(table, class_of, f"one of the {len(index)} classes of the training data"), dtype=np.int64)


def _each(table: Table, f: Callable[[str], float | None], expected: str) -> list[float]:
    """f of every target, after a check that it is not None."""
    results = []
    for line, field in zip(table.lines, table.targets, strict=True):
        value = f(field)
        if value is None:
            raise DataError(f"{table.target_in(line)}: found {field!r}, expected {expected}")
        results.append(value)
    return results


def _check_same_header(table: Table, other: Table) -> None:
    """Refuse a test file whose column names differ from those of the training file."""
    if table.header != other.header:
        pairs = zip(table.header or [], other.header or [], strict=True)
        j, (a, b) = next((j, pair) for j, pair in enumerate(pairs) if pair[0] != pair[1])
        raise DataError(f"{other.path}: column {j + 1} is {b!r}, expected {a!r} as in {table.path}")
