"""Runs beside each other, in a table."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from matgrad.callbacks.statistics import MEASURES
from matgrad.foundation.writing import Table
from matgrad.runs.reading import Run

Row = dict[str, Any]  # of a run: its values by name; None is unknown

MODEL, OPTION = 36, 24  # characters of a model and of the value of an option that a table shows
KEYS = ("name", "started", "data", "epochs", *MEASURES, *(f"best_{name}" for name in MEASURES), "seconds", "seed")
HIGH = ("accuracy", "best_accuracy")  # of which the largest come first


def compare(runs: Sequence[Run], folder: Path, ignored: Collection[str | None]) -> list[Row]:
    """What is known of each run; `options` has those of its options, but the ignored ones, that are not all equal."""
    records = [(run, run.record) for run in runs if run.record is not None]
    names = dict.fromkeys(name for _, record in records for name in record.configuration if name not in ignored)
    spelled = {name: {json.dumps(record.configuration.get(name)) for _, record in records} for name in names}
    differing = [name for name, values in spelled.items() if len(values) > 1]
    rows: list[Row] = []
    for run, record in records:
        place = run.path.parent.relative_to(folder)
        row: Row = {"name": str(place) if place.parts else folder.resolve().name, "started": record.started}
        row |= {"data": record.data.name, **{name: record.model.get(name) for name in ("layers", "sizes")}}
        row["epochs"] = len(run.rows)
        for measure in MEASURES:
            values = [x for r in run.rows if (x := r.get(f"test_{measure}")) is not None]
            row[measure] = record.results.get(f"test_{measure}")
            row[f"best_{measure}"] = (max if measure in HIGH else min)(values, default=None)
        chosen = {name: record.configuration.get(name) for name in differing}
        rows.append(row | {"seconds": record.seconds, "seed": record.seed, "options": chosen})
    return rows


def sorted_by(key: str, rows: Sequence[Row]) -> list[Row]:
    """The rows in the order of a column, best first; those without a value come last."""
    known = [row for row in rows if row[key] is not None]
    return [*sorted(known, key=lambda row: row[key], reverse=key in HIGH), *(row for row in rows if row[key] is None)]


def table(rows: Sequence[Row]) -> Table:
    """The rows for people; measures that no run has are left out."""
    shown = [name for name in MEASURES if any(row[name] is not None for row in rows)]
    measures = {f"test {name}": name for name in shown} | {f"best {name}": f"best_{name}" for name in shown}
    headings = ["run", "started", "data", "model", "epochs", *measures, "seconds", "seed", "options that differ"]
    lines = []
    for row in rows:
        model = f"{row['layers'] or '?'} {row['sizes'] or ''}"
        started = row["started"][:16].replace("T", " ")
        numbers = ["" if row[name] is None else f"{row[name]:.4f}" for name in measures.values()]
        given = {name: value for name, value in row["options"].items() if value is not None}
        words = (value if isinstance(value, str) else json.dumps(value) for value in given.values())
        options = " ".join(f"{name}={_cut(word, OPTION)}" for name, word in zip(given, words, strict=True))
        cells = [row["name"], started, row["data"], _cut(model, MODEL), f"{row['epochs']}", *numbers]
        lines.append([*cells, f"{row['seconds']:.1f}", f"{row['seed']}", options])
    return Table(f"{len(rows)} runs" if len(rows) > 1 else "1 run", headings, lines)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"
