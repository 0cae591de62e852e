"""What all plots share: their style, their colours, logarithmic scales, and how they are written."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matgrad.foundation.imports import check_matplotlib
from matgrad.foundation.writing import atomic_write

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GREY = "#555555"
COLOURS = (GREY, "#d9822b", "#3d8b5f", "#6a4c93", "#2e5eaa", "#b5495b", "#999999", "#c9a227", "#7aa6c2", "#a05195")
STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "svg.hashsalt": "matgrad",  # so that the same picture is the same file
}
METADATA: dict[str, dict[str, None]] = {  # which would make it another file, by the ending of its name
    ".png": {"Software": None},
    ".svg": {"Date": None, "Creator": None},
}


def write_figure(draw: Callable[[], Figure], paths: Iterable[Path]) -> None:
    """Write a figure, drawn in the common style, to files that end in .png or .svg."""
    check_matplotlib()
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    with mpl.rc_context(STYLE):
        figure = draw()
        FigureCanvasAgg(figure)
        for path in paths:
            with atomic_write(path) as file:
                metadata = METADATA[path.suffix]
                figure.savefig(file, format=path.suffix[1:], dpi=160, metadata=metadata, facecolor="white")


def new_figure(width: float, height: float, columns: int, rows: int = 1, **options: Any) -> tuple[Figure, list[Axes]]:
    """A new figure, so that matplotlib keeps nothing, with axes side by side in one or more rows."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, list(figure.subplots(rows, columns, squeeze=False, **options).flat)


def log_scale(ax: Axes) -> None:
    """A logarithmic scale of y, with ticks at 1, 2, 5, 10 …"""
    from matplotlib.ticker import LogLocator

    ax.set_yscale("log")
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_major_formatter("{x:g}")
    ax.minorticks_off()


def grid(ax: Axes) -> None:
    """Thin lines at the ticks of y."""
    ax.grid(axis="y", color="#dddddd", linewidth=0.6)
