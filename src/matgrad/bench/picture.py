"""What the pictures share: colours, figures with panels side by side, and logarithmic scales."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from matgrad.bench.table import Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {"PyTorch": "#d1495b", "NumPy": "#2e5eaa", "JAX": "#3d8b5f", "TensorFlow": "#d9822b", "C++": "#6a4c93"}
GREY = "#555555"


def new_figure(width: float, height: float, columns: int, rows: int = 1, **options: Any) -> tuple[Figure, list[Axes]]:
    """A figure of its own, so that nothing is kept, with axes side by side, in one or more rows."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, list(figure.subplots(rows, columns, squeeze=False, **options).flat)


def footnote(figure: Figure, record: Record, more: str = "") -> None:
    """What it was measured on, below the panels."""
    machine, options = record["machine"], record["options"]
    text = f"{machine['processor']}, {machine['threads']} threads, {options['dtype']}; "
    figure.supxlabel(f"{text}medians of {options['rounds']} interleaved rounds{more}", fontsize=8, color=GREY)


def log_scales(ax: Axes, values: Sequence[float]) -> None:
    """Logarithmic scales, with a tick at each of the values."""
    from matplotlib.ticker import LogLocator

    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xticks(values, [f"{value:g}" for value in values])
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_major_formatter("{x:g}")
    ax.minorticks_off()
    ax.grid(axis="y", color="#dddddd", linewidth=0.6)
