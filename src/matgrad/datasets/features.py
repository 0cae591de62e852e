"""The features of a table: which columns become X, the categories of words, and what replaces missing values."""

from __future__ import annotations

from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any, Literal, get_args

import numpy as np

from matgrad.datasets.table_file import Table, listed, named
from matgrad.foundation.files import conform, naming
from matgrad.foundation.limits import check_bytes, limit_from

Missing = Literal["error", "drop", "median"]
Unknown = Literal["error", "zero"]
MISSING_RULES, UNKNOWN_RULES = get_args(Missing), get_args(Unknown)


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
        """Whether the categories differ and the fill is one of them or, without categories, a number."""
        if self.categories is None:
            return self.fill is None or isinstance(self.fill, float)
        return 0 < len(set(self.categories)) == len(self.categories) and self.fill in (None, *self.categories)

    def __str__(self) -> str:
        title = f"column {self.position + 1}" if self.name is None else self.name
        return title if self.categories is None else f"{title} ({listed(self.categories)})"

    def learn(self, table: Table, rows: np.ndarray, is_filled: bool) -> Column:
        """The column with the categories of some rows of a table and, if missing values are filled, the fill."""
        if self.categories is None and not is_filled:
            return self
        j = self.position
        present = rows[~table.is_missing(j)[rows]]
        if not len(present):
            raise ValueError(f"{table.source}, {table.title(j)}: found no values in the training part, expected some")
        if self.categories is None:
            return replace(self, fill=float(np.median(self.encode(table, j, present))))
        words = table.words(j).take(present)
        counted = named(words, words.unique().to_pylist()).value_counts().to_pylist()
        counts = {entry["values"]: entry["counts"] for entry in sorted(counted, key=itemgetter("values"))}
        return replace(self, categories=tuple(counts), fill=max(counts, key=counts.__getitem__) if is_filled else None)

    def encode(self, table: Table, j: int, rows: np.ndarray, unknown: str = "error") -> np.ndarray:
        """The numbers in some rows of column j, or the indices of their categories: -1 if unknown='zero' allows it."""
        import pyarrow as pa
        import pyarrow.compute as pc

        is_missing, is_feature = table.is_missing(j)[rows], j != table.target
        if self.categories is None:
            x = table.numbers(j)[rows]
            x = x if self.fill is None else np.where(is_missing, self.fill, x)
            hint = "; for categories, give --features \"categorical=auto\" (in Python, categorical='auto')"
            table.check(j, rows, ~np.isnan(x), "a finite number" + hint * is_feature)
            return x
        words = table.words(j).take(rows)
        words = named(words if self.fill is None else words.fill_null(self.fill), self.categories)
        k = pc.index_in(words, pa.array(self.categories, pa.large_string())).fill_null(-1).to_numpy()
        hint = "; train with --features \"unknown=zero\" (in Python, unknown='zero') to allow others"
        known = f"one of {listed(self.categories)}, as in the training data"
        table.check(j, rows, (k >= 0) | ((unknown == "zero") & ~is_missing), known + hint * is_feature)
        return k


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
    missing: Missing = "error"
    unknown: Unknown = "error"

    @property
    def size(self) -> int:
        """D, the number of columns of X."""
        return sum(column.size for column in self.columns)

    @property
    def names(self) -> list[str]:
        """The names of the columns; none if there was no header."""
        return [column.name for column in self.columns if column.name is not None]

    def learn(self, table: Table, rows: np.ndarray) -> Features:
        """The features with categories and medians of some rows of the training table."""
        return replace(self, columns=tuple(c.learn(table, rows, self.missing == "median") for c in self.columns))

    def locate(self, table: Table) -> list[int]:
        """The positions of the columns in a table: by name or, where one of both has no names, by position."""
        positions = [column.position for column in self.columns]
        if table.names[0] is not None and self.names:
            if absent := [name for name in self.names if name not in table.names]:
                needed = f"no column {listed(map(repr, absent))}, which the features need"
                raise ValueError(f"{table.source}: {needed}; found {listed(map(str, table.names))}")
            positions = [table.position(name) for name in self.names]
        elif table.width != self.width or table.target not in (None, self.target.position):
            others = [j for j in range(table.width) if j != table.target]
            if len(others) != len(positions):
                expected = f"the {len(positions)} features of the model, or {self.width} columns as in training"
                raise ValueError(f"{table.source}: found {table.width} columns, expected {expected}")
            positions = others
        if table.target in positions:
            raise ValueError(f"{table.source}: {table.title(table.target)} is the target, but also one of the features")
        return positions

    def usable_rows(self, table: Table) -> np.ndarray:
        """The rows of a table that are used: all or, if rows with missing values are dropped, the complete ones."""
        is_usable = np.ones(len(table), bool)
        if self.missing == "drop":
            for j in (*self.locate(table), table.target):
                is_usable &= True if j is None else ~table.is_missing(j)
        return np.flatnonzero(is_usable)

    def encode(self, table: Table, rows: np.ndarray, dtype: str = "float32") -> np.ndarray:
        """The N×D matrix X of some rows of a table."""
        what = f"{table.source}: {len(rows)} rows with {self.size} features, one per category"
        check_bytes(
            np.dtype(dtype).itemsize * len(rows) * self.size,
            what,
            limit_from(sum(column.nbytes for column in table.columns)),
        )
        X, first = np.zeros((len(rows), self.size), dtype), 0
        for column, j in zip(self.columns, self.locate(table), strict=True):
            values = column.encode(table, j, rows, self.unknown)
            if column.categories is None:
                X[:, first] = values
            else:
                known = np.flatnonzero(values >= 0)
                X[known, first + values[known]] = 1
            first += column.size
        return X

    def notes(self, table: Table) -> list[str]:
        """What the user should know of a table whose columns are the features."""
        positions = self.locate(table)
        others = [j for j in range(table.width) if j not in (*positions, table.target)]
        notes = [f"ignored columns: {listed(table.names[j] or f'column {j + 1}' for j in others)}"] if others else []
        if dropped := len(table) - len(self.usable_rows(table)):
            notes.append(f"dropped: {dropped} of {len(table)} rows, which have missing values")
        if self.names and table.names[0] is None:
            notes.append("no header: the columns are taken by position")
        for column, j in zip(self.columns, positions, strict=True):
            if column.categories is not None and self.unknown == "zero":
                found = named(table.words(j).drop_null(), column.categories).unique().to_pylist()
                if unknown := sorted({*found} - {*column.categories}):
                    notes.append(f"{table.title(j)}: unknown categories become zeros ({listed(unknown)})")
        return notes

    @classmethod
    def from_json(cls, value: Any) -> Features:
        """The features that `asdict` makes such a value of, after a check."""
        with naming("the features are damaged"):
            features = conform(value, cls)
        columns, target = features.columns, features.target
        names, positions = [column.name for column in columns], [column.position for column in columns]
        is_valid = (
            *(columns and positions == sorted(set(positions)), all(column.is_valid for column in columns)),
            *(target.position not in positions, target.categories is None),
            0 <= min([*positions, target.position]) <= max([*positions, target.position]) < features.width,
            set(names) == {None} or (None not in names and len(set(names)) == len(names)),
        )
        if not all(is_valid):
            raise ValueError("the features are damaged: its columns do not fit each other")
        return features

    def summary(self) -> dict[str, str]:
        """The features in words, to be printed."""
        rules = {"missing": self.missing, "unknown": self.unknown}
        return {"features": ", ".join(map(str, self.columns)), "target": str(self.target)} | rules
