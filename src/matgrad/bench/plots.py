"""The record of a benchmark as a picture, drawn with matplotlib."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matgrad.bench.picture import COLOURS, GREY, footnote, log_scales, new_figure
from matgrad.bench.sparse_plots import sparse_figure
from matgrad.bench.table import Record
from matgrad.foundation.files import atomic_write

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "svg.hashsalt": "matgrad",  # the same picture is the same file
}
LABEL = {"facecolor": "white", "edgecolor": "none", "pad": 0.8, "alpha": 0.85}


def check_matplotlib() -> None:
    """Refuse to go on without matplotlib."""
    if find_spec("matplotlib") is None:
        raise ModuleNotFoundError("plots need matplotlib, which is not installed: pip install 'matgrad[plot]'")


def draw(record: Record, folder: Path) -> list[Path]:
    """Write plot.png and plot.svg."""
    check_matplotlib()
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    with mpl.rc_context(STYLE):
        figure = KINDS[record["kind"]](record)
        FigureCanvasAgg(figure)
        paths = [folder / "plot.png", folder / "plot.svg"]
        for path, metadata in zip(paths, ({"Software": None}, {"Date": None, "Creator": None}), strict=True):
            with atomic_write(path) as file:
                figure.savefig(file, format=path.suffix[1:], dpi=160, metadata=metadata, facecolor="white")
    return paths


# -- the paper's experiments --------------------------------------------------------------------


def paper_figure(record: Record) -> Figure:
    """One panel an experiment: the seconds of every tool as bars, its rounds as dots."""
    experiments = record["experiments"]
    rows = max(len(experiment["tools"]) for experiment in experiments)
    figure, axes = new_figure(1.2 + 5.4 * len(experiments), 1.5 + 0.36 * max(rows, 3), len(experiments))
    for ax, experiment in zip(axes, experiments, strict=True):
        _bars(ax, experiment)
    footnote(figure, record, "; × is the ratio to native PyTorch")
    return figure


def _bars(ax: Axes, experiment: Record) -> None:
    """The panel of one experiment."""
    tools = experiment["tools"]
    longest = max((max(row["seconds"]) for row in tools), default=1.0)
    for y, row in enumerate(tools):
        colour = COLOURS.get(row["framework"], GREY)
        look: dict[str, Any] = {"facecolor": colour}
        if row["kind"] != "compiled":
            look = {"facecolor": "white", "hatch": "////"} if row["kind"] == "baseline" else look | {"alpha": 0.35}
        ax.barh(y, row["median"], height=0.68, edgecolor=colour, linewidth=1, **look)
        ax.plot(row["seconds"], [y] * len(row["seconds"]), "|", color="black", markersize=6, markeredgewidth=0.8)
        ratio = row["ratios"]["reference"]
        label = f"{row['median']:.3g} s" + ("" if ratio is None else f"  ×{ratio['median']:.2f}")
        ax.text(max(row["seconds"]) + 0.015 * longest, y, label, va="center", fontsize=8.5, bbox=LABEL)
        if ratio is None and row["tool"] == "pytorch":
            ax.axvline(row["median"], color=colour, linewidth=1, linestyle="--", zorder=0)
    ax.set_yticks(range(len(tools)), [row["title"] for row in tools])
    ax.invert_yaxis()
    ax.tick_params(axis="y", length=0)
    ax.set_xlim(0, 1.33 * longest)
    duration = "one epoch" if experiment["is_whole_epoch"] else f"{experiment['steps']} steps"
    ax.set_xlabel(f"seconds for {duration}")
    generated = " (generated data)" if experiment["data"]["is_generated"] else ""
    ax.set_title(f"{experiment['title']}{generated}")


# -- cost ---------------------------------------------------------------------------------------


def cost_figure(record: Record) -> Figure:
    """One panel an axis: microseconds an example, on logarithmic scales."""
    curves = record["curves"]
    figure, axes = new_figure(1.5 + 5 * len(curves), 4.6, len(curves), sharey=True)
    for ax, curve in zip(axes, curves, strict=True):
        _lines(ax, curve, record["tools"])
    axes[0].set_ylabel("µs an example")
    footnote(figure, record)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper", frameon=False, fontsize=8.5)
    return figure


def _lines(ax: Axes, curve: Record, tools: Record) -> None:
    """The panel of one axis."""
    looks = {"baseline": "--", "compiled": "-", "eager": ":"}
    for name, tool in tools.items():
        points = [(p["value"], 1e6 * p["tools"][name]["per_example"]) for p in curve["points"] if name in p["tools"]]
        colour = COLOURS.get(tool["framework"], GREY)
        marker = "o" if tool["kind"] == "compiled" else "s" if tool["kind"] == "baseline" else "."
        xs, ys = zip(*points, strict=True) if points else ((), ())
        look = {"linestyle": looks[tool["kind"]], "marker": marker, "color": colour, "label": tool["title"]}
        ax.plot(xs, ys, markersize=4, linewidth=1.4, **look)
    values = [point["value"] for point in curve["points"]]
    log_scales(ax, values)
    ax.set_xlabel(curve["title"])
    fixed = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in curve["fixed"].items())
    ax.set_title(f"{curve['title']} ({fixed})")


KINDS: dict[str, Callable[[Record], Figure]] = {
    "paper": paper_figure,
    "native": paper_figure,
    "cost": cost_figure,
    "sparse": sparse_figure,
}
