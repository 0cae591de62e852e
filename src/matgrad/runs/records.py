"""The records and logs of runs, as read from untrusted files; runs beside each other in a table, and drawn."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matgrad.callbacks.statistics import MEASURES, measure_and_part
from matgrad.foundation.files import conform, naming, parse_json, read_text
from matgrad.foundation.limits import JSON, LOG, LOG_VALUES, check_count
from matgrad.foundation.writing import Table, visible
from matgrad.inspection.figures import COLOURS, GREY, grid, log_scale, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RECORD = "run.json"

Row = dict[str, float | None]  # the numbers of an epoch, by name; those that are not finite are None


@dataclass
class Data:
    """What a record says of the data."""

    name: str


@dataclass
class Record:
    """What is read of a run.json, which has more."""

    started: str
    seconds: float
    seed: int
    data: Data
    model: dict[str, str]
    configuration: dict[str, Any]
    epochs: list[dict[str, Any]]
    results: dict[str, float | None]


@dataclass(frozen=True)
class Run:
    """A run: where it was found, its epochs and, unless it was read from a log, its record."""

    path: Path
    rows: list[Row]
    record: Record | None = None

    def values(self, name: str) -> list[tuple[float, float]]:
        """Pairs of an epoch and its value; nan where that is missing or not finite."""
        pairs = [(row["epoch"], row.get(name)) for row in self.rows]
        return [(epoch, math.nan if x is None else x) for epoch, x in pairs if epoch is not None]


def read_run(path: Path) -> Run:
    """The run in a folder with a run.json, in such a file, or in a log."""
    file = path / RECORD if path.is_dir() else path
    if file.suffix in READERS:
        return Run(path, read_text(file, lambda text: _rows(READERS[file.suffix](text)), LOG))
    record = read_text(file, lambda text: conform(parse_json(text), Record), JSON)
    with naming(file):
        return Run(path, _rows(enumerate(record.epochs, 1)), record)


# -- rows: the number of a line, and its values by name -------------------------------------------


def _json_lines(text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(io.StringIO(text), 1):
        if line.strip():
            with naming(f"line {number}"):
                yield number, conform(parse_json(line), dict[str, Any])


def _csv_lines(text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    lines = csv.reader(io.StringIO(text), strict=True)
    try:
        header = next(lines, [])
        if len(set(header)) < len(header):
            raise ValueError("found two columns with the same name")
        for fields in filter(None, lines):
            if len(fields) != len(header):
                raise ValueError(f"found {len(fields)} columns, expected {len(header)}")
            yield lines.line_num, dict(zip(header, fields, strict=True))
    except (ValueError, csv.Error) as error:
        raise ValueError(f"line {lines.line_num}: {error}") from None


READERS = {".jsonl": _json_lines, ".csv": _csv_lines}  # of logs, by the ending of a file


def _rows(lines: Iterable[tuple[int, dict[str, Any]]]) -> list[Row]:
    """The numbers of each line, after a check that they are those of an epoch after that of the line before."""
    rows: list[Row] = []
    count, last = 0, 0.0
    for number, line in lines:
        row: Row = {}
        for name, value in line.items():
            with suppress(ValueError, TypeError, OverflowError):  # a table, or a word
                x = math.nan if value is None else float(value)
                row[name] = x if math.isfinite(x) else None
        epoch = row.get("epoch")
        if epoch is None or epoch <= last:
            raise ValueError(f"line {number}: expected an epoch after {last:g}, found {line.get('epoch')!r:.40}")
        last, count = epoch, count + len(line)
        check_count(count, LOG_VALUES, "epochs", "values")
        rows.append(row)
    return rows


# -- runs beside each other ------------------------------------------------------------------------


Summary = dict[str, Any]  # of a run: its values by name; None is unknown

MODEL, OPTION = 36, 24  # characters of a model and of the value of an option that a table shows
KEYS = ("name", "started", "data", "epochs", *MEASURES, *(f"best_{name}" for name in MEASURES), "seconds", "seed")
HIGH = ("accuracy", "best_accuracy")  # of which the largest come first


def compare(runs: Sequence[Run], folder: Path, ignored: Collection[str | None]) -> list[Summary]:
    """What is known of each run; `options` has those of its options, but the ignored ones, that are not all equal."""
    records = [(run, run.record) for run in runs if run.record is not None]
    names = dict.fromkeys(name for _, record in records for name in record.configuration if name not in ignored)
    spelled = {name: {json.dumps(record.configuration.get(name)) for _, record in records} for name in names}
    differing = [name for name, values in spelled.items() if len(values) > 1]
    rows: list[Summary] = []
    for run, record in records:
        place = run.path.parent.relative_to(folder)
        row: Summary = {"name": str(place) if place.parts else folder.resolve().name, "started": record.started}
        row |= {"data": record.data.name, **{name: record.model.get(name) for name in ("layers", "sizes")}}
        row["epochs"] = len(run.rows)
        for measure in MEASURES:
            values = [x for r in run.rows if (x := r.get(f"test_{measure}")) is not None]
            row[measure] = record.results.get(f"test_{measure}")
            row[f"best_{measure}"] = (max if measure in HIGH else min)(values, default=None)
        chosen = {name: record.configuration.get(name) for name in differing}
        rows.append(row | {"seconds": record.seconds, "seed": record.seed, "options": chosen})
    return rows


def sorted_by(key: str, rows: Sequence[Summary]) -> list[Summary]:
    """The rows in the order of a column, best first; those without a value come last."""
    known = [row for row in rows if row[key] is not None]
    return [*sorted(known, key=lambda row: row[key], reverse=key in HIGH), *(row for row in rows if row[key] is None)]


def table(rows: Sequence[Summary]) -> Table:
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


# -- the picture of runs ---------------------------------------------------------------------------


LINES: dict[str | None, Any] = {"training": "-", "validation": "--", "test": ":", None: "-"}  # by the part of the data
RATIO = 20  # of the largest to the smallest value: from here on, a scale is logarithmic
MARKED = 10  # epochs; the values of runs with more have no markers
LEGEND = 30  # names of runs
PANELS = {  # what a panel shows, by its title
    "loss": "loss",
    "accuracy": "accuracy",
    "perplexity": "perplexity",
    "root mean squared error": "rmse",
    "learning rate": "learning_rate",
    "training time (s)": "seconds",
}


def runs_figure(runs: Sequence[Run]) -> Figure:
    """A panel per measure; a colour per run, a line style per part of the data."""
    if not any(run.rows for run in runs):
        raise ValueError(f"{runs[0].path}: found no epochs, expected at least one")
    panels = {title: measure for title, measure in PANELS.items() if any(_tells(run, measure) for run in runs)}
    rows = -(-len(panels) // 2)
    figure, axes = new_figure(10.5, 0.8 + 2.9 * rows, min(len(panels), 2), rows=rows)
    for ax in axes[len(panels) :]:
        ax.remove()
    for ax, (title, measure) in zip(axes, panels.items(), strict=False):
        _draw(ax, measure, runs)
        ax.set(title=title, xlabel="epoch")
    _legend(figure, runs, {part for run in runs for measure in panels.values() for part in _names(run, measure)})
    return figure


def _names(run: Run, measure: str) -> dict[str | None, str]:
    """The names of the values that a run has of a measure, by the part of the data."""
    found = {name: measure_and_part(name) for row in run.rows for name, x in row.items() if x is not None}
    return {part: name for name, (other, part) in found.items() if other == measure and part in LINES}


def _tells(run: Run, measure: str) -> bool:
    """Whether a run has values of a measure to show; a constant learning rate is not."""
    names = _names(run, measure).values()
    return any(measure != "learning_rate" or len({x for _, x in run.values(name)}) > 1 for name in names)


def _draw(ax: Axes, measure: str, runs: Sequence[Run]) -> None:
    """The lines of a measure: accuracies at their own scale, times added up, and all else from 0 or logarithmic."""
    from matplotlib.ticker import MaxNLocator

    finite: list[float] = []
    for run, colour in zip(runs, colours(len(runs)), strict=True):
        for part, name in _names(run, measure).items():
            xs, ys = map(list, zip(*run.values(name), strict=True))
            ys = list(accumulate(ys)) if measure == "seconds" else ys
            marker = "o" if len(xs) <= MARKED else ""
            ax.plot(xs, ys, LINES[part], color=colour, marker=marker, markersize=3, linewidth=1.4, alpha=0.9)
            finite += filter(math.isfinite, ys)
    if measure not in ("accuracy", "seconds") and min(finite) > 0 and max(finite) > RATIO * min(finite):
        log_scale(ax)
    elif measure != "accuracy" and min(finite) >= 0:
        ax.set_ylim(bottom=0)
    grid(ax)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))


def colours(count: int) -> list[str]:
    """A colour per run, each another one."""
    if count < len(COLOURS):
        return [COLOURS[4], *(c for c in COLOURS[1:] if c != COLOURS[4])][:count]
    import matplotlib as mpl
    from matplotlib.colors import to_hex

    return [to_hex(mpl.colormaps["turbo"](i / (count - 1))) for i in range(count)]


def _legend(figure: Figure, runs: Sequence[Run], parts: set[str | None]) -> None:
    """The runs by colour, and the parts of the data by line style."""
    from matplotlib.lines import Line2D

    pairs = zip(labels([run.path for run in runs]), colours(len(runs)), strict=True)
    handles = [Line2D([], [], color=colour, label=label, linewidth=2) for label, colour in pairs][:LEGEND]
    if len(runs) > LEGEND:
        handles.append(Line2D([], [], color="none", label=f"and {len(runs) - LEGEND} more"))
    styles = [Line2D([], [], color=GREY, linestyle=LINES[p], label=p) for p in LINES if p is not None and p in parts]
    figure.legend(handles=[*handles, *styles], loc="outside right upper", frameon=False, fontsize=8.5)


def labels(paths: Sequence[Path]) -> list[str]:
    """A short name per run: that of its folder or file; the whole path if another run has the same name."""
    short = [path.parent.name or path.name if path.name == RECORD else path.name for path in paths]
    names = [name if short.count(name) == 1 else str(path) for name, path in zip(short, paths, strict=True)]
    return [visible(name).replace("$", r"\$") for name in names]
