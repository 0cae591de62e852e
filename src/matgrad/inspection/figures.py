"""Plots: what all of them share, and pictures of a model's weights: connections, connectivity and histograms."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from matgrad.backends import backend_of
from matgrad.foundation.imports import check_matplotlib
from matgrad.foundation.writing import atomic_write
from matgrad.layers.weights import WeightedLayer
from matgrad.sparse.matrix import SparseMatrix, values_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from matgrad.backends.base import Matrix
    from matgrad.multilayer_perceptron import MultilayerPerceptron

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


# -- pictures of weights --------------------------------------------------------------------------

Shape = tuple[int, int, int]  # channels, rows and columns of an image

PANEL = 256  # about as many pixels are the width and the height of a panel, if it has fewer cells
LARGEST = 2048  # rows or columns of cells; what has more is shown in blocks
BINS = 60
LEFT, TOP, GAP, BOTTOM, DPI = 12, 44, 16, 30, 100  # pixels, and those per inch


@dataclass(frozen=True)
class Snapshot:
    """What pictures show of a model."""

    title: str
    inputs: np.ndarray  # channels × rows × columns: the number of weights that are stored for each input
    connectivity: dict[str, np.ndarray]  # by layer: which part of each block of W is stored
    histograms: dict[str, tuple[np.ndarray, np.ndarray]]  # by layer: numbers of stored weights, and the edges between


def snapshot(M: MultilayerPerceptron, title: str, shape: Shape | None = None) -> Snapshot:
    """A snapshot of M, whose inputs are the pixels of an image of this shape, by default as square as possible."""
    weights = {name: layer.W for name, layer in M.walk() if isinstance(layer, WeightedLayer)}
    if not weights:
        raise ValueError("pictures: the model has no layer with weights")
    first = next(iter(weights.values()))
    counts = in_degrees(first)
    image = counts.reshape(checked_shape(shape, len(counts)))
    cells = {name: blocks(W, min(W.shape[0], PANEL), min(W.shape[1], PANEL)) for name, W in weights.items()}
    return Snapshot(title, image, cells, {name: _histogram(W) for name, W in weights.items()})


def in_degrees(W: Matrix) -> np.ndarray:
    """The number of stored elements of each column of W."""
    K, D = W.shape
    return np.diff(W.support.column_starts) if isinstance(W, SparseMatrix) else np.full(D, K)


def blocks(W: Matrix, m: int, n: int) -> np.ndarray:
    """m×n matrix: which part of the elements of each block is stored if W is cut into m × n blocks."""
    K, D = W.shape
    if not isinstance(W, SparseMatrix):
        return np.ones((m, n))
    rows, columns = np.arange(K) * m // K, np.arange(D) * n // D  # the block of each row and of each column
    places = rows[W.support.row_indices()] * n + columns[W.support.columns]
    sizes = np.outer(np.bincount(rows), np.bincount(columns))
    return np.bincount(places, minlength=m * n).reshape(m, n) / sizes


def _histogram(W: Matrix) -> tuple[np.ndarray, np.ndarray]:
    values = values_of(W)
    A = backend_of(values).to_numpy(values).reshape(-1)
    A = A[np.isfinite(A)]
    largest = float(np.abs(A).max(initial=0.0)) or 1.0
    return np.histogram(A, BINS, (-largest, largest))


# -- shapes of images ----------------------------------------------------------------------------


def parse_shape(text: str) -> Shape:
    """The shape that ``28x28``, or with channels ``32x32x3``, describes."""
    match = re.fullmatch(r"(\d+)[x×](\d+)(?:[x×](\d+))?", text.strip())
    shape = (int(match[3] or 1), int(match[1]), int(match[2])) if match else (0, 0, 0)
    if not all(shape):
        raise ValueError(f"shape: expected such as 28x28 or 32x32x3, found {text!r}")
    return shape


def checked_shape(shape: Shape | None, D: int) -> Shape:
    """The shape of an image with D pixels, after a check of their number.

    Without one it is a square, three squares (one per channel, as in CIFAR-10), or the rectangle nearest to a square.
    """
    if shape is None:
        side, third = math.isqrt(D), math.isqrt(D // 3)
        if side * side != D and 3 * third * third == D:
            return 3, third, third
        H = next(h for h in range(side, 0, -1) if D % h == 0)
        return 1, H, D // H
    if math.prod(shape) != D:
        C, H, W = shape
        found = f"{H}x{W}" + (f"x{C}" if C > 1 else "")
        raise ValueError(f"shape: expected one with {D} pixels, the number of inputs, found {found}")
    return shape


# -- drawing -------------------------------------------------------------------------------------


def inputs_figure(shot: Snapshot, all_shots: Sequence[Snapshot]) -> Figure:
    """How many weights each input has, as an image per channel; black is 0, and all pictures have the same scale."""
    largest = max(int(other.inputs.max()) for other in all_shots)
    names = ["red", "green", "blue"] if len(shot.inputs) == 3 else [""] * len(shot.inputs)
    panels = [(name, _shrunk(A), largest) for name, A in zip(names, shot.inputs, strict=True)]
    return _tiled(f"{shot.title}: weights per input, from 0 to {largest}", panels, "inferno")


def connectivity_figure(shot: Snapshot, all_shots: Sequence[Snapshot]) -> Figure:
    """Where the weights of each layer are: a row per output, a column per input; white is none."""
    panels = []
    for name, A in shot.connectivity.items():
        largest = max(float(other.connectivity[name].max()) for other in all_shots)
        panels.append((f"layer {name}: black is {largest:.2g}", A, largest))
    return _tiled(f"{shot.title}: part of the weights that is stored", panels, "binary")


def weights_figure(shot: Snapshot, all_shots: Sequence[Snapshot]) -> Figure:
    """A histogram of the stored weights of each layer, on the same scale in all pictures."""
    figure, axes = new_figure(3.2 * len(shot.histograms), 3.2, len(shot.histograms))
    figure.set_dpi(DPI)
    figure.suptitle(f"{shot.title}: stored weights", fontsize=10, x=0.02, ha="left")
    for ax, (name, (counts, edges)) in zip(axes, shot.histograms.items(), strict=True):
        others = [other.histograms[name] for other in all_shots]
        ax.stairs(counts / (edges[1] - edges[0]), edges, fill=True, color="#2e5eaa")
        largest = max(e[-1] for _, e in others)
        ax.set(xlim=(-largest, largest), ylim=(0, 1.05 * max(float((c / (e[1] - e[0])).max()) for c, e in others)))
        ax.set_title(f"layer {name}: {int(counts.sum())}", fontsize=9)
        ax.set_yticks([])
        ax.tick_params(labelsize=8)
    return figure


FIGURES: dict[str, Callable[[Snapshot, Sequence[Snapshot]], Figure]] = {
    "inputs": inputs_figure,
    "connectivity": connectivity_figure,
    "weights": weights_figure,
}


def _shrunk(A: np.ndarray) -> np.ndarray:
    """A, or means of its blocks if it is too large for a picture."""
    m, n = (-(-size // LARGEST) for size in A.shape)
    rows, columns = np.arange(0, A.shape[0], m), np.arange(0, A.shape[1], n)
    sums = np.add.reduceat(np.add.reduceat(A, rows, axis=0), columns, axis=1)
    sizes = np.outer(np.diff([*rows, A.shape[0]]), np.diff([*columns, A.shape[1]]))
    return sums / sizes


def magnification(A: np.ndarray) -> int:
    """The width and height, in pixels, of each cell of a panel."""
    return max(1, PANEL // max(A.shape))


def _tiled(title: str, panels: Sequence[tuple[str, np.ndarray, float]], colours: str) -> Figure:
    """Panels side by side, with names and the largest values; their cells are squares of whole pixels."""
    from matplotlib.figure import Figure

    images = [np.kron(A, np.ones([magnification(A)] * 2)) for _, A, _ in panels]
    width = max(320, LEFT + sum(max(B.shape[1], PANEL // 2) + GAP for B in images))
    height = TOP + max(B.shape[0] for B in images) + BOTTOM
    figure = Figure(figsize=(width / DPI, height / DPI), dpi=DPI)
    figure.text(LEFT / width, 1 - 8 / height, title, va="top", fontsize=9)
    x = LEFT
    for (name, _, largest), B in zip(panels, images, strict=True):
        figure.figimage(B, x, height - TOP - B.shape[0], cmap=colours, vmin=0, vmax=largest, origin="upper")
        figure.text(x / width, 1 - (TOP - 4) / height, name, va="bottom", fontsize=8, color="#555555")
        x += max(B.shape[1], PANEL // 2) + GAP
    return figure


# -- files ---------------------------------------------------------------------------------------


def image(figure: Figure) -> Any:
    """The figure as an image of Pillow, which matplotlib brings along."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")


def write_png(figure: Figure, file: IO[bytes]) -> None:
    """Write a figure."""
    image(figure).save(file, "PNG", optimize=True)


def write_animation(figures: Sequence[Figure], file: IO[bytes], seconds: float = 0.5) -> None:
    """Write figures of the same size as a looping GIF, `seconds` per frame."""
    first, *others = [image(figure) for figure in figures]
    first.save(file, "GIF", save_all=True, append_images=others, duration=int(1000 * seconds), loop=0)
