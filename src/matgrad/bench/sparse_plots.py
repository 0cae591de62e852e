"""The record of sparse training as a picture."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from matgrad.bench.picture import COLOURS, GREY, footnote, log_scales, new_figure
from matgrad.bench.table import Record
from matgrad.bench.tools import SPARSE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LOOKS = ("o-", "s--", "^:", "D-.", "v-")  # of the tools of one framework
Value = Callable[[Record, Record], float | None]  # what is shown of a point, for the row of a tool


def sparse_figure(record: Record) -> Figure:
    """Panels for the seconds, the memory, the cost of a weight and the batch size."""
    figure, axes = new_figure(11.5, 7.5, 2, rows=2)
    points, batches = record["points"], record["batches"]
    densities = [point["density"] for point in points]
    _panel(axes[0], record, "points", "density", lambda point, row: row["median"])
    log_scales(axes[0], densities)
    axes[0].set(title=f"seconds for {record['steps']} steps", xlabel="density")
    _panel(axes[1], record, "points", "density", lambda point, row: _megabytes(row))
    log_scales(axes[1], densities)
    axes[1].set(title="memory for model and training, MB", xlabel="density")
    _fit(axes[2], record)
    _panel(axes[3], record, "batches", "batch_size", lambda point, row: 1e6 * row["per_example"])
    log_scales(axes[3], [point["batch_size"] for point in batches])
    axes[3].set(title=f"µs an example (density {batches[0]['density']:g})", xlabel="batch size")
    footnote(figure, record)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper", frameon=False, fontsize=8.5)
    return figure


def _panel(ax: Axes, record: Record, key: str, x: str, value: Value) -> None:
    """A line for every tool."""
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
    """Microseconds that a step of matgrad takes at best against the number of weights, and the line through them."""
    points, fit = [p for p in record["points"] if SPARSE in p["tools"]], record["fit"]
    nnz = sorted(p["nnz"] for p in points)
    pairs = [(p["nnz"], 1e6 * p["tools"][SPARSE]["best"] / p["steps"]) for p in points]
    ax.plot([x for x, _ in pairs], [y for _, y in pairs], "o", color=COLOURS["C++"], markersize=5)
    title = "µs a step at best"
    if fit is not None:
        steps = [nnz[0] * (nnz[-1] / nnz[0]) ** (i / 50) for i in range(51)]
        ax.plot(steps, [1e6 * (fit["step"] + fit["weight"] * n) for n in steps], "-", color=GREY, linewidth=1)
        title += f" ≈ {1e6 * fit['step']:.0f} + {1e3 * fit['weight'] * 1e6:.2f}·weights/1000"
    log_scales(ax, nnz)
    ax.set_xticks(nnz, [f"{n / 1000:,.{0 if n >= 1e5 else 1}f}" for n in nnz])
    ax.set(title=title, xlabel="stored weights of matgrad C++, in thousands")


def _megabytes(row: Record) -> float | None:
    bytes_ = row["memory"]["training"]
    return None if bytes_ is None else bytes_ / 1e6
