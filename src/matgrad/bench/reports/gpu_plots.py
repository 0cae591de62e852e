"""Training on a GPU as a picture: the time per step of the tools, and that of a sparse layer against the density."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matgrad.bench.reports.record import Record
from matgrad.inspection.figures import GREY, grid, log_scale, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {"matgrad": "#6a4c93", "masked": "#d1495b", "masked-tf32": "#d9822b", "csr": "#2e5eaa"}
FRAMEWORKS = {"PyTorch": "#d1495b", "JAX": "#3d8b5f"}


def gpu_figure(record: Record) -> Figure:
    """One panel per experiment, in float32 with momentum, and one for the sparse layer."""
    rows: dict[str, list[Record]] = {}  # of the tools, by the title of the experiment
    for part in (*record.get("steps", []), *record.get("jax", [])):
        if (part["matmul"], part["optimizer"]) == CHOSEN:
            rows[part["title"]] = [*rows.get(part["title"], []), *part["tools"].values()]
    panels: list[tuple[Any, Record]] = [(_bars, {"title": title, "rows": rows[title]}) for title in rows]
    panels += [(_curves, record["sparse"])] if "sparse" in record else []
    if not panels:
        raise ValueError("the record has neither steps nor sparse layers: there is nothing to draw")
    figure, axes = new_figure(1.2 + 4.6 * len(panels), 3.8, len(panels))
    for ax, (draw, part) in zip(axes, panels, strict=True):
        draw(ax, part)
    rounds = record["options"]["rounds"]
    text = f"{record['gpu']['name']}, float32 unless TF32 is named; medians of {rounds} interleaved rounds"
    figure.supxlabel(text, fontsize=8, color=GREY)
    return figure


CHOSEN = ("float32", "Momentum(0.9)")


def _bars(ax: Axes, part: Record) -> None:
    """The time per step of every tool."""
    rows = part["rows"]
    longest = max(row["per_step"] for row in rows)
    for y, row in enumerate(rows):
        colour = FRAMEWORKS[row["framework"]]
        look: dict[str, Any] = {"facecolor": colour}
        if row["kind"] == "baseline":
            look = {"facecolor": "white", "hatch": "////"}
        ax.barh(y, 1e6 * row["per_step"], height=0.68, edgecolor=colour, linewidth=1, **look)
        label = f"{1e6 * row['per_step']:.0f}"
        ax.text(1e6 * (row["per_step"] + 0.02 * longest), y, label, va="center", fontsize=8.5)
    ax.set_yticks(range(len(rows)), [row["title"] for row in rows])
    ax.invert_yaxis()
    ax.tick_params(axis="y", length=0)
    ax.set_xlim(0, 1.2e6 * longest)
    ax.set_xlabel("µs per step")
    ax.set_title(f"{part['title']}, {CHOSEN[1]}")


def _curves(ax: Axes, part: Record) -> None:
    """The time of all phases of a layer against the density, for every way."""
    for name, colour in COLOURS.items():
        points = [point for point in part["points"] if name in point["ways"]]
        if points:
            x = [point["density"] for point in points]
            y = [1e3 * point["ways"][name]["medians"]["whole"] for point in points]
            ax.plot(x, y, "o-", color=colour, markersize=4, label=points[0]["ways"][name]["title"])
    ax.set_xscale("log")
    densities = [point["density"] for point in part["points"]]
    ax.set_xticks(densities, [f"{density:g}" for density in densities])
    log_scale(ax)
    grid(ax)
    ax.set_xlabel("density")
    ax.set_ylabel("ms for feedforward, DW, DX and update")
    ax.set_title(f"{part['neurons']} → {part['neurons']}, batch {part['batch_size']}")
    ax.legend(fontsize=8, frameon=False)
