"""The record of a benchmark as a picture, drawn with matplotlib."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matgrad.bench.reports.gpu_plots import gpu_figure
from matgrad.bench.reports.method_plots import methods_figure
from matgrad.bench.reports.record import Record
from matgrad.bench.tools.registry import SPARSE
from matgrad.inspection.figures import GREY, grid, legend, log_scale, new_figure, write_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {"PyTorch": "#d1495b", "NumPy": "#2e5eaa", "JAX": "#3d8b5f", "TensorFlow": "#d9822b", "C++": "#6a4c93"}
LABEL = {"facecolor": "white", "edgecolor": "none", "pad": 0.8, "alpha": 0.85}


def draw(record: Record, folder: Path) -> list[Path]:
    """Write plot.png and plot.svg."""
    paths = [folder / "plot.png", folder / "plot.svg"]
    write_figure(lambda: KINDS[record["kind"]](record), paths)
    return paths


# -- what the pictures share ----------------------------------------------------------------------


def _footnote(figure: Figure, record: Record, more: str = "") -> None:
    """What it was measured on, below the panels."""
    machine, options = record["machine"], record["options"]
    text = f"{machine['processor']}, {machine['threads']} threads, {options['dtype']}; "
    figure.supxlabel(f"{text}medians of {options['rounds']} interleaved rounds{more}", fontsize=8, color=GREY)


def _log_scales(ax: Axes, values: Sequence[float]) -> None:
    """Logarithmic scales, with a tick at each of the values."""
    ax.set_xscale("log")
    ax.set_xticks(values, [f"{value:g}" for value in values])
    log_scale(ax)
    grid(ax)


# -- the paper's experiments --------------------------------------------------------------------


def paper_figure(record: Record) -> Figure:
    """One panel per experiment: the seconds of each tool as a bar, its rounds as dots."""
    experiments = record["experiments"]
    rows = max(len(experiment["tools"]) for experiment in experiments)
    figure, axes = new_figure(1.2 + 5.4 * len(experiments), 1.5 + 0.36 * max(rows, 3), len(experiments))
    for ax, experiment in zip(axes, experiments, strict=True):
        _bars(ax, experiment)
    _footnote(figure, record, "; × is the ratio to native PyTorch")
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
    """One panel per axis: microseconds per example, on logarithmic scales."""
    curves = record["curves"]
    figure, axes = new_figure(1.5 + 5 * len(curves), 4.6, len(curves), sharey=True)
    for ax, curve in zip(axes, curves, strict=True):
        _lines(ax, curve, record["tools"])
    axes[0].set_ylabel("µs per example")
    _footnote(figure, record)
    legend(figure, axes[:1])
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
    _log_scales(ax, values)
    ax.set_xlabel(curve["title"])
    fixed = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in curve["fixed"].items())
    ax.set_title(f"{curve['title']} ({fixed})")


# -- sparse training ------------------------------------------------------------------------------

LOOKS = ("o-", "s--", "^:", "D-.", "v-")  # of the tools of one framework
Value = Callable[[Record, Record], float | None]  # what is plotted of a point and the row of a tool


def sparse_figure(record: Record) -> Figure:
    """Panels for the seconds, the memory, the cost of a weight and the batch size."""
    figure, axes = new_figure(11.5, 7.5, 2, rows=2)
    points, batches = record["points"], record["batches"]
    densities = [point["density"] for point in points]
    _panel(axes[0], record, "points", "density", lambda point, row: row["median"])
    _log_scales(axes[0], densities)
    axes[0].set(title=f"seconds for {record['steps']} steps", xlabel="density")
    _panel(axes[1], record, "points", "density", lambda point, row: _megabytes(row))
    _log_scales(axes[1], densities)
    axes[1].set(title="memory for model and training, MB", xlabel="density")
    _fit(axes[2], record)
    _panel(axes[3], record, "batches", "batch_size", lambda point, row: 1e6 * row["per_example"])
    _log_scales(axes[3], [point["batch_size"] for point in batches])
    axes[3].set(title=f"µs per example (density {batches[0]['density']:g})", xlabel="batch size")
    _footnote(figure, record)
    legend(figure, axes[:1])
    return figure


def _panel(ax: Axes, record: Record, key: str, x: str, value: Value) -> None:
    """One line per tool."""
    seen: dict[str, int] = {}
    for name, tool in record["tools"].items():
        look = LOOKS[seen.get(tool["framework"], 0) % len(LOOKS)]
        seen[tool["framework"]] = seen.get(tool["framework"], 0) + 1
        pairs = [
            (p[x], value(p, p["tools"][name])) for p in sorted(record[key], key=lambda p: p[x]) if name in p["tools"]
        ]
        known = [(a, b) for a, b in pairs if b]  # a logarithmic scale has no 0
        colour = COLOURS.get(tool["framework"], GREY)
        ax.plot([a for a, _ in known], [b for _, b in known], look, color=colour, label=tool["title"], markersize=4)


def _fit(ax: Axes, record: Record) -> None:
    """The fewest microseconds per step of matgrad against the number of weights, and the fitted line."""
    points, fit = [p for p in record["points"] if SPARSE in p["tools"]], record["fit"]
    nnz = sorted(p["nnz"] for p in points)
    pairs = [(p["nnz"], 1e6 * p["tools"][SPARSE]["best"] / p["steps"]) for p in points]
    ax.plot([x for x, _ in pairs], [y for _, y in pairs], "o", color=COLOURS["C++"], markersize=5)
    title = "µs per step at best"
    if fit is not None:
        steps = [nnz[0] * (nnz[-1] / nnz[0]) ** (i / 50) for i in range(51)]
        ax.plot(steps, [1e6 * (fit["step"] + fit["weight"] * n) for n in steps], "-", color=GREY, linewidth=1)
        title += f" ≈ {1e6 * fit['step']:.0f} + {1e3 * fit['weight'] * 1e6:.2f}·weights/1000"
    _log_scales(ax, nnz)
    ax.set_xticks(nnz, [f"{n / 1000:,.{0 if n >= 1e5 else 1}f}" for n in nnz])
    ax.set(title=title, xlabel="stored weights of matgrad C++, in thousands")


def _megabytes(row: Record) -> float | None:
    bytes_ = row["memory"]["training"]
    return None if bytes_ is None else bytes_ / 1e6


# -- several processes ----------------------------------------------------------------------------


def distributed_figure(record: Record) -> Figure:
    """One panel per point: the milliseconds per step of each tool as a bar."""
    points, tools = record["points"], record["tools"]
    figure, axes = new_figure(1.2 + 3.6 * len(points), 1.5 + 0.36 * len(tools), len(points), sharey=True)
    for ax, point in zip(axes, points, strict=True):
        for y, (name, tool) in enumerate(tools.items()):
            if name in point["tools"]:
                milliseconds = 1e3 * point["tools"][name]["per_step"]
                look: dict[str, Any] = {"alpha": 1.0 if tool["processes"] == 1 else 0.5}
                ax.barh(y, milliseconds, height=0.68, color=COLOURS.get(tool["framework"], GREY), **look)
                ax.text(milliseconds, y, f" {milliseconds:.3g}", va="center", fontsize=8.5)
        ax.set_yticks(range(len(tools)), [tool["title"] for tool in tools.values()])
        ax.margins(x=0.2)
        ax.set(title=f"batch {point['batch_size']}, density {point['density']:g}", xlabel="ms per step")
    axes[0].invert_yaxis()
    _footnote(figure, record)
    return figure


KINDS: dict[str, Callable[[Record], Figure]] = {
    "paper": paper_figure,
    "native": paper_figure,
    "cost": cost_figure,
    "sparse": sparse_figure,
    "sparse-methods": methods_figure,
    "distributed": distributed_figure,
    "gpu": gpu_figure,
}
