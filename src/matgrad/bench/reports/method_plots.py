"""The picture of the methods of sparse training: accuracy and time against the density, with the spread over seeds."""

from __future__ import annotations

from statistics import mean
from textwrap import fill
from typing import TYPE_CHECKING, Any

from matgrad.bench.measuring.method_worker import PYTORCH
from matgrad.bench.reports.method_tables import TABLES, points
from matgrad.bench.reports.record import Record
from matgrad.inspection.figures import COLOURS, GREY, grid, legend, log_scale, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANELS = {"test accuracy": "linear", "seconds of training": "log", "FLOPs ÷ those of dense training": "log"}


def methods_figure(record: Record) -> Figure:
    """A column per data set; rows for accuracy, seconds and operations: means, and shaded from smallest to largest."""
    names = [name for name in record["data"] if any(run["data"] == name for run in record["runs"])]
    if not names:
        raise ValueError("the record has no runs to draw")
    figure, axes = new_figure(1.8 + 4.4 * len(names), 9, len(names), rows=len(PANELS))
    for i, name in enumerate(names):
        column = axes[i :: len(names)]
        for ax, (title, scale) in zip(column, PANELS.items(), strict=True):
            _panel(ax, record, points(record, name, TABLES[title][0]), scale)
        column[0].set_title(record["data"][name]["title"])
        column[-1].set_xlabel("density")
    for ax, title in zip(axes[:: len(names)], PANELS, strict=True):
        ax.set_ylabel(title)
    legend(figure, axes)
    figure.supxlabel(fill(_footnote(record), 45 + 70 * len(names)), fontsize=8, color=GREY)
    return figure


def _panel(ax: Axes, record: Record, found: dict[str, dict[float, list[float]]], scale: str) -> None:
    """A line per method; what is dense has only one density, and is drawn across."""
    densities = sorted({d for row in found.values() for d in row if d < 1})
    order = {method: i for i, method in enumerate(record["options"]["methods"])}
    ends = (densities[0], densities[-1]) if densities else (0.5, 1.0)
    for method, row in found.items():
        is_across = set(row) == {1.0}
        xs = list(ends) if is_across else sorted(row)
        values = [row[1.0]] * 2 if is_across else [row[x] for x in xs]
        i = order.get(method, len(order))
        colour, line = COLOURS[i % len(COLOURS)], "--" if method in PYTORCH else "-"
        look: Any = {"color": colour, "linestyle": line, "marker": "" if is_across else "o", "markersize": 4}
        ax.plot(xs, [mean(v) for v in values], label=method, **look)
        lowest, highest = [min(v) for v in values], [max(v) for v in values]
        ax.fill_between(xs, lowest, highest, color=colour, alpha=0.15, linewidth=0)
    ax.set_xscale("log")
    ax.set_xticks(densities, [f"{d:g}" for d in densities])
    ax.minorticks_off()
    if scale == "log":
        log_scale(ax)
    grid(ax)


def _footnote(record: Record) -> str:
    machine, options = record["machine"], record["options"]
    jobs = max((run["jobs"] for run in record["runs"]), default=1)
    text = f"{machine['processor']}, {machine['threads']} threads per run; {options['epochs']} epochs; "
    text += "means, and smallest to largest of the seeds"
    return text + (f"; {jobs} runs at a time, so that seconds are not comparable" if jobs > 1 else "")
