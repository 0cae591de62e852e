"""The features of a table: which columns become X, the categories of words, and what stands for missing values."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from matgrad.datasets.csv_file import Table, is_missing, naming
from matgrad.datasets.dataset import DataError
from matgrad.foundation.limits import check_bytes, file_limit
from matgrad.foundation.plain_values import conform

MISSING_RULES = ("error", "drop", "median")
UNKNOWN_RULES = ("error", "zero")


@dataclass(frozen=True)
class Column:
    """A column of a table: a column of numbers in X or, with categories, a column of 0 and 1 for each of them.

    `position` is that in the training file, from 0, `name` that in its header, and `fill` replaces missing values.
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
    def is_sound(self) -> bool:
        """Whether the categories differ and the fill is one of them or, without categories, a finite number."""
        if self.categories is None:
            return self.fill is None or (isinstance(self.fill, float) and math.isfinite(self.fill))
        return 0 < len(set(self.categories)) == len(self.categories) and self.fill in (None, *self.categories)

    def __str__(self) -> str:
        title = f"column {self.position + 1}" if self.name is None else self.name
        return title if self.categories is None else f"{title} ({_listed(self.categories)})"


@dataclass(frozen=True)
class Features:
    """The columns that become X, in the order of the training file, which had `width` columns, and its target.

    A missing value is refused (missing='error'), its line is left out ('drop'), or it is replaced by the median of
    the numbers or by the most frequent category ('median'). A category that the training lines lack is refused
    (unknown='error') or becomes a row of zeros ('zero').
    """

    columns: tuple[Column, ...]
    width: int
    target: Column
    missing: str = "error"
    unknown: str = "error"

    @classmethod
    def of(
        cls,
        table: Table,
        rows: np.ndarray,
        positions: Sequence[int],
        words: Collection[int],
        missing: str,
        unknown: str,
    ) -> Features:
        """The features at some positions of a table, learned from some rows; those at `words` have categories."""
        target = 0 if table.target is None else table.target
        if table.header is not None:
            names = [table.header[j] for j in (*positions, target)]
            if twice := [name for name, count in Counter(names).items() if count > 1]:
                raise DataError(f"{table.path}: the header has several columns {twice[0]!r}; rename or drop them")
        columns = tuple(_learned(table, rows, j, j in words, missing) for j in sorted(positions))
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
        header = table.header
        if header is not None and self.names:
            names = [str(column.name) for column in self.columns]
            if absent := [name for name in names if name not in header]:
                what = f"column{'s' if len(absent) > 1 else ''} {', '.join(map(repr, absent[:20]))}"
                raise DataError(f"{table.path}: no {what}, which the features need; the header has {_listed(header)}")
            positions = [table.position(name) for name in names]
            if table.target in positions:
                raise DataError(
                    f"{table.path}: {table.title(table.target)} is the target, but also one of the features"
                )
            return positions
        own = [column.position for column in self.columns]
        if table.width == self.width and table.target in (None, self.target.position):
            return own
        others = [j for j in range(table.width) if j != table.target]
        if len(others) == len(own):
            return others
        raise DataError(
            f"{table.path}: found {table.width} columns, expected the {len(own)} features of the model, "
            f"or {self.width} columns as in the training file"
        )

    def spelled(self, table: Table) -> list[int]:
        """The positions of the columns with categories in a table."""
        columns = zip(self.columns, self.locate(table), strict=True)
        return [j for column, j in columns if column.categories is not None]

    def notes(self, table: Table, positions: Sequence[int]) -> list[str]:
        """What is to be known of a table whose columns at some positions are the features."""
        used = {*positions, table.target}
        ignored = [table.name(j) or f"column {j + 1}" for j in range(table.width) if j not in used]
        notes = [f"ignored columns: {_listed(ignored)}"] if ignored else []
        if dropped := len(table.lines) - len(usable_rows(table, positions, self.missing)):
            notes.append(f"dropped: {dropped} of {len(table.lines)} lines, which have missing values")
        if self.names and table.header is None:
            notes.append("no header: the columns are taken by position")
        for column, j in zip(self.columns, positions, strict=True):
            if column.categories is not None and self.unknown == "zero":
                name = naming(column.categories)
                if unknown := {name(label) for label in _labels(table, j) if label is not None} - {*column.categories}:
                    notes.append(f"{table.title(j)}: unknown categories become zeros ({_listed(sorted(unknown))})")
        return notes

    def encode(self, table: Table, positions: Sequence[int], rows: np.ndarray) -> np.ndarray:
        """The float32 N×D matrix X of some rows of a table, whose columns at the positions are the features."""
        what = f"{table.path}: {len(rows)} lines with {self.size} features, one per category"
        check_bytes(4 * len(rows) * self.size, what, file_limit(table.path))
        X = np.zeros((len(rows), self.size), np.float32)
        first, numbers = 0, list[tuple[int, int, Column]]()  # column of X, position, column
        for column, j in zip(self.columns, positions, strict=True):
            if column.categories is None:
                numbers.append((first, j, column))
            else:
                self._encode_categories(column, table, j, rows, X[:, first : first + column.size])
            first += column.size
        if numbers:
            to, at, columns = zip(*numbers, strict=True)
            X[:, to] = _filled(table, rows, at, columns)
        return X

    def _encode_categories(self, column: Column, table: Table, j: int, rows: np.ndarray, X: np.ndarray) -> None:
        """Set x_ik = 1 where row i has category k."""
        index = {name: k for k, name in enumerate(column.categories or ())}
        name_of, labels = naming(index), _labels(table, j)
        for i, row in enumerate(rows.tolist()):
            label = labels[row]
            name = column.fill if label is None else name_of(label)
            if name is None:
                _refuse_missing(table, row, j, "a category")
            elif name in index:
                X[i, index[str(name)]] = 1
            elif self.unknown == "error":
                known = f"one of the categories {_listed(list(index))} of the training data"
                hint = "train with --unknown zero (in Python, unknown='zero') to allow others"
                raise DataError(f"{table.place(row, j)}: found {name!r}, expected {known}; {hint}")

    # -- in files -----------------------------------------------------------------------------
    def as_json(self) -> dict[str, Any]:
        """The features as values that JSON can hold."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Any) -> Features:
        """The features that `as_json` describes, after a check that they are sound."""
        try:
            features = conform(value, cls)
        except ValueError as error:
            raise ValueError(f"the features are damaged ({error})") from None
        columns, target = features.columns, features.target
        names, positions = [column.name for column in columns], [column.position for column in columns]
        sound = {
            "columns": columns and positions == sorted(set(positions)) and all(column.is_sound for column in columns),
            "names": set(names) == {None} or (None not in names and len(set(names)) == len(names)),
            "width": 0 <= min([*positions, target.position]) <= max([*positions, target.position]) < features.width,
            "target": target.position not in positions and target.categories is None,
            "missing": features.missing in MISSING_RULES,
            "unknown": features.unknown in UNKNOWN_RULES,
        }
        if wrong := [name for name, is_sound in sound.items() if not is_sound]:
            raise ValueError(f"the features are damaged: unexpected {wrong[0]}")
        return features

    def summary(self) -> dict[str, str]:
        """The features in words, to be printed."""
        rules = {"missing": self.missing, "unknown": self.unknown}
        return {"features": ", ".join(map(str, self.columns)), "target": str(self.target)} | rules


def usable_rows(table: Table, positions: Sequence[int], missing: str) -> np.ndarray:
    """The rows of a table that are used: all or, if lines with missing values are dropped, the complete ones."""
    if missing != "drop":
        return np.arange(len(table.lines))
    is_incomplete = np.array([is_missing(field) for field in table.targets] or [False] * len(table.lines))
    for j in positions:
        is_incomplete |= table.is_missing(j)
    return np.flatnonzero(~is_incomplete)


def has_categories(table: Table, j: int) -> bool:
    """Whether a column has words and no numbers; one with both is refused."""
    words = {row: word for row, word in table.words.get(j, {}).items() if not is_missing(word)}
    if not words:
        return False
    if not np.isnan(table.X[:, j]).all():
        row = min(words)
        hint = "name the column in --categorical (in Python, categorical=[…]) if both are categories"
        raise DataError(f"{table.place(row, j)}: found {words[row]!r} in a column that also has numbers; {hint}")
    return True


def _learned(table: Table, rows: np.ndarray, j: int, has_words: bool, missing: str) -> Column:
    """A column with its categories and its fill, from some rows of a table."""
    title = f"{table.path}, {table.title(j)}"
    if has_words:
        all_labels = _labels(table, j)
        labels = [label for row in rows.tolist() if (label := all_labels[row]) is not None]
        if not labels:
            raise DataError(f"{title}: all values of the training part are missing")
        counts = Counter(map(naming(labels), labels))
        categories = tuple(sorted(counts))
        fill = max(categories, key=lambda name: counts[name]) if missing == "median" else None
        return Column(j, table.name(j), categories, fill)
    if missing != "median":
        return Column(j, table.name(j))
    x = table.X[rows, j]
    x = np.sort(x[~np.isnan(x)])
    if not len(x):
        raise DataError(f"{title}: found no number in the training part, expected some")
    return Column(j, table.name(j), None, float(x[(len(x) - 1) // 2] + x[len(x) // 2]) / 2)


def _labels(table: Table, j: int) -> list[str | None]:
    """The category of each line in a column as the file spells it, None where it is missing."""
    fields = table.spellings.get(j) or [table.word(i, j) for i in range(len(table.lines))]
    return [None if is_missing(field) else field for field in fields]


def _filled(table: Table, rows: np.ndarray, at: Sequence[int], columns: Sequence[Column]) -> np.ndarray:
    """The numbers of some rows and columns, with their fill in place of missing ones."""
    A = table.X[np.ix_(rows, np.array(at))]
    for i, k in np.argwhere(np.isnan(A)).tolist():
        row, j, fill = int(rows[i]), at[k], columns[k].fill
        word = table.word(row, j)
        if not is_missing(word):
            is_first = table.lines[row] == 1 and table.header is None
            hint = "if this line is a header, say so" if is_first else "for categories, give --categorical"
            also = "" if is_first else " (in Python, categorical='auto')"
            raise DataError(f"{table.place(row, j)}: found {word!r}, expected a finite number; {hint}{also}")
        if fill is None:
            _refuse_missing(table, row, j, "a number")
        A[i, k] = fill
    return A


def _refuse_missing(table: Table, row: int, j: int, expected: str) -> None:
    """Raise the error for a missing value."""
    hint = "train with --missing median (in Python, missing='median') to replace it"
    raise DataError(f"{table.place(row, j)}: missing value ({table.word(row, j)!r}), expected {expected}; {hint}")


def _listed(names: Sequence[str]) -> str:
    """The first names, for messages."""
    return ", ".join(names[:10]) + (", …" if len(names) > 10 else "")
