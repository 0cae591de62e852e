"""The features of a table: which columns become X, the categories of words, and what stands for missing values."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from matgrad.datasets.dataset import DataError
from matgrad.datasets.table_file import Table, naming
from matgrad.foundation.limits import check_bytes, limit_from
from matgrad.foundation.plain_values import conform

MISSING_RULES = ("error", "drop", "median")
UNKNOWN_RULES = ("error", "zero")


@dataclass(frozen=True)
class Column:
    """A column of a table: a column of numbers in X or, with categories, a column of 0 and 1 for each of them.

    `position` is that in the training table, from 0, `name` its name there, and `fill` replaces missing values.
    """

    position: int
    name: str | None = None
    categories: tuple[str, ...] | None = None
    fill: float | str | None = None

    @property
    def size(self) -> int:
        """The number of columns of X."""
        return 1 if self.categories is None else len(self.categories)

    @property
    def is_valid(self) -> bool:
        """Whether the categories differ and the fill is one of them or, without categories, a finite number."""
        if self.categories is None:
            return self.fill is None or (isinstance(self.fill, float) and math.isfinite(self.fill))
        return 0 < len(set(self.categories)) == len(self.categories) and self.fill in (None, *self.categories)

    def __str__(self) -> str:
        title = f"column {self.position + 1}" if self.name is None else self.name
        return title if self.categories is None else f"{title} ({_listed(self.categories)})"


@dataclass(frozen=True)
class Features:
    """The columns that become X, in the order of the training table, which had `width` columns, and its target.

    A missing value is an error (missing='error'), its row is dropped ('drop'), or it is replaced by the median of
    the numbers or by the most frequent category ('median'). A category that the training rows lack is an error
    (unknown='error') or becomes a row of zeros ('zero').
    """

    columns: tuple[Column, ...]
    width: int
    target: Column
    missing: str = "error"
    unknown: str = "error"

    @classmethod
    def learned(
        cls,
        table: Table,
        rows: np.ndarray,
        positions: Sequence[int],
        categorical: str | Sequence[str | int],
        missing: str,
        unknown: str,
    ) -> Features:
        """The features at some positions of a table, with categories and medians of some of its rows."""
        target = table.target or 0
        if table.names is not None:
            counts = Counter(table.names[j] for j in (*positions, target))
            if twice := [name for name, count in counts.items() if count > 1]:
                raise DataError(f"{table.source}: there are several columns {twice[0]!r}; rename or drop them")
        if isinstance(categorical, str):
            words = [j for j in positions if has_categories(table, j)]
        else:
            words = [table.position(x) for x in categorical]
        if other := [j for j in words if j not in positions]:
            raise DataError(f"{table.source}: {table.title(other[0])} is categorical, but not one of the features")
        columns = tuple(_learned(table, rows, j, j in words, missing) for j in positions)
        return cls(columns, table.width, Column(target, table.name(target)), missing, unknown)

    @property
    def size(self) -> int:
        """D, the number of columns of X."""
        return sum(column.size for column in self.columns)

    @property
    def names(self) -> frozenset[str]:
        """The names of the columns; none if there was no header."""
        return frozenset(column.name for column in self.columns if column.name is not None)

    def locate(self, table: Table) -> list[int]:
        """The positions of the columns in a table: by name or, where one of both has no names, by position."""
        if table.names is not None and self.names:
            names = [str(column.name) for column in self.columns]
            if absent := [name for name in names if name not in table.names]:
                what = f"column{'s' if len(absent) > 1 else ''} {', '.join(map(repr, absent[:20]))}"
                raise DataError(f"{table.source}: no {what}, which the features need; found {_listed(table.names)}")
            positions = [table.position(name) for name in names]
            if table.target in positions:
                raise DataError(
                    f"{table.source}: {table.title(table.target)} is the target, but also one of the features"
                )
            return positions
        own = [column.position for column in self.columns]
        if table.width == self.width and table.target in (None, self.target.position):
            return own
        others = [j for j in range(table.width) if j != table.target]
        if len(others) == len(own):
            return others
        raise DataError(
            f"{table.source}: found {table.width} columns, expected the {len(own)} features of the model, "
            f"or {self.width} columns as in the training data"
        )

    def notes(self, table: Table, positions: Sequence[int]) -> list[str]:
        """What the user should know of a table whose columns at some positions are the features."""
        used = {*positions, table.target}
        ignored = [table.name(j) or f"column {j + 1}" for j in range(table.width) if j not in used]
        notes = [f"ignored columns: {_listed(ignored)}"] if ignored else []
        if dropped := len(table) - len(usable_rows(table, positions, self.missing)):
            notes.append(f"dropped: {dropped} of {len(table)} rows, which have missing values")
        if self.names and table.names is None:
            notes.append("no header: the columns are taken by position")
        for column, j in zip(self.columns, positions, strict=True):
            if column.categories is not None and self.unknown == "zero":
                codes, words = table.words(j)
                names = set(map(naming(column.categories), (words[k] for k in np.unique(codes[codes >= 0]))))
                if unknown := sorted(names - {*column.categories}):
                    notes.append(f"{table.title(j)}: unknown categories become zeros ({_listed(unknown)})")
        return notes

    def encode(self, table: Table, positions: Sequence[int], rows: np.ndarray) -> np.ndarray:
        """The float32 N×D matrix X of some rows of a table, whose columns at the positions are the features."""
        what = f"{table.source}: {len(rows)} rows with {self.size} features, one per category"
        check_bytes(4 * len(rows) * self.size, what, limit_from(sum(column.nbytes for column in table.columns)))
        X, first = np.zeros((len(rows), self.size), np.float32), 0
        for column, j in zip(self.columns, positions, strict=True):
            if column.categories is None:
                X[:, first] = _numbers(column, table, j, rows)
            else:
                k = self._categories(column, table, j, rows)
                X[np.flatnonzero(k >= 0), first + k[k >= 0]] = 1
            first += column.size
        return X

    def _categories(self, column: Column, table: Table, j: int, rows: np.ndarray) -> np.ndarray:
        """The index of the category of each row, -1 for unknown ones if these are allowed."""
        index = {name: k for k, name in enumerate(column.categories or ())}
        codes, words = table.words(j)
        codes, names = codes[rows], [*map(naming(index), words), str(column.fill)]  # the fill at code -1
        if column.fill is None:
            _check_complete(table, j, rows, codes)
        k = np.array([index.get(name, -1) for name in names])[codes]
        if self.unknown == "error" and (k < 0).any():
            i = int(np.argmax(k < 0))
            known = f"one of the categories {_listed(list(index))} of the training data"
            hint = "train with --features \"unknown=zero\" (in Python, unknown='zero') to allow others"
            raise DataError(f"{table.place(rows[i], j)}: found {names[codes[i]]!r}, expected {known}; {hint}")
        return k

    # -- in files -----------------------------------------------------------------------------
    def as_json(self) -> dict[str, Any]:
        """The features as values that JSON can hold."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Any) -> Features:
        """The features that `as_json` describes, after a check."""
        try:
            features = conform(value, cls)
        except ValueError as error:
            raise ValueError(f"the features are damaged ({error})") from None
        columns, target = features.columns, features.target
        names, positions = [column.name for column in columns], [column.position for column in columns]
        valid = {
            "columns": columns and positions == sorted(set(positions)) and all(column.is_valid for column in columns),
            "names": set(names) == {None} or (None not in names and len(set(names)) == len(names)),
            "width": 0 <= min([*positions, target.position]) <= max([*positions, target.position]) < features.width,
            "target": target.position not in positions and target.categories is None,
            "missing": features.missing in MISSING_RULES,
            "unknown": features.unknown in UNKNOWN_RULES,
        }
        if wrong := [name for name, is_valid in valid.items() if not is_valid]:
            raise ValueError(f"the features are damaged: unexpected {wrong[0]}")
        return features

    def summary(self) -> dict[str, str]:
        """The features in words, to be printed."""
        rules = {"missing": self.missing, "unknown": self.unknown}
        return {"features": ", ".join(map(str, self.columns)), "target": str(self.target)} | rules


def usable_rows(table: Table, positions: Sequence[int], missing: str) -> np.ndarray:
    """The rows of a table that are used: all or, if rows with missing values are dropped, the complete ones."""
    is_usable = np.ones(len(table), bool)
    if missing == "drop":
        for j in positions if table.target is None else (*positions, table.target):
            is_usable &= table.words(j)[0] >= 0
    return np.flatnonzero(is_usable)


def has_categories(table: Table, j: int) -> bool:
    """Whether a column has words and no numbers; raise if it has both."""
    if table.is_text(j):
        return True
    x = table.numbers(j)
    if not np.isnan(x).any():
        return False
    is_word = np.isnan(x) & (table.words(j)[0] >= 0)
    if is_word.any() and not np.isnan(x).all():
        row = int(np.argmax(is_word))
        hint = "name the column as categorical if both are categories"
        raise DataError(f"{table.place(row, j)}: found {_word(table, row, j)!r} in a column with numbers; {hint}")
    return bool(is_word.any())


def _learned(table: Table, rows: np.ndarray, j: int, is_categorical: bool, missing: str) -> Column:
    """A column with its categories and its fill, from some rows of a table."""
    if is_categorical:
        codes, words = table.words(j)
        found = Counter(codes[rows][codes[rows] >= 0].tolist())
        name_of, counts = naming([words[k] for k in found]), Counter[str]()
        for k, count in found.items():
            counts[name_of(words[k])] += count
        if not counts:
            raise DataError(f"{table.source}, {table.title(j)}: all values of the training part are missing")
        categories = tuple(sorted(counts))
        fill = max(categories, key=lambda name: counts[name]) if missing == "median" else None
        return Column(j, table.name(j), categories, fill)
    if missing != "median":
        return Column(j, table.name(j))
    x = table.numbers(j)[rows]
    if np.isnan(x).all():
        raise DataError(f"{table.source}, {table.title(j)}: found no number in the training part, expected some")
    return Column(j, table.name(j), None, float(np.nanmedian(x)))


def _numbers(column: Column, table: Table, j: int, rows: np.ndarray) -> np.ndarray:
    """The numbers of some rows, with the fill in place of missing ones."""
    x = table.numbers(j)[rows]
    if not np.isnan(x).any():
        return x
    codes = table.words(j)[0][rows]
    if (is_word := np.isnan(x) & (codes >= 0)).any():
        row = int(rows[np.argmax(is_word)])
        hint = "for categories, give --features \"categorical=auto\" (in Python, categorical='auto')"
        if row == 0 and table.names is None:
            hint = "if this line is a header, say so"
        raise DataError(f"{table.place(row, j)}: found {_word(table, row, j)!r}, expected a finite number; {hint}")
    if column.fill is None:
        _check_complete(table, j, rows, codes)
    else:
        x[codes < 0] = column.fill
    return x


def _check_complete(table: Table, j: int, rows: np.ndarray, codes: np.ndarray) -> None:
    """Raise if a value is missing, whose code is then -1."""
    if (codes < 0).any():
        hint = "train with --features \"missing=median\" (in Python, missing='median') to replace it"
        raise DataError(f"{table.place(rows[np.argmax(codes < 0)], j)}: missing value; {hint}")


def _word(table: Table, row: int, j: int) -> str:
    """A value that is not missing, in messages."""
    codes, words = table.words(j)
    return words[codes[row]][:100]


def _listed(names: Sequence[str]) -> str:
    """The first names, for messages."""
    return ", ".join(names[:10]) + (", …" if len(names) > 10 else "")
