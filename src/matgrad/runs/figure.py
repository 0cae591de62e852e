"""The picture of one or many runs: loss, accuracy or error, learning rate and time of training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matgrad.callbacks.statistics import measure_and_part
from matgrad.foundation.writing import visible
from matgrad.inspection.figures import COLOURS, GREY, grid, log_scale, new_figure
from matgrad.runs.reading import RECORD, Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
    panels = {title: measure for title, measure in PANELS.items() if any(_names(run, measure) for run in runs)}
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
