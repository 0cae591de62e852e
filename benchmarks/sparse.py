"""Sparse training: time and memory against the density, and time against the batch size, on generated data."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from harness import reports
from harness.problems import Setting, generated
from harness.reports import DIFFERENCE, by_point, difference_cell, items, lines, ratio_cell
from harness.team import Record, measure
from harness.tools import NATIVE, baseline, matgrad
from matgrad.foundation.writing import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Sparse training"

# all are compared with masked PyTorch, except dense training from the same weights
SPARSE, DENSE, MASKED = "matgrad-native", "matgrad-native-dense", "pytorch-masked"
TOOLS = {
    SPARSE: replace(NATIVE, baselines=(MASKED,)),
    "matgrad-native-1": replace(NATIVE, title="matgrad C++, 1 thread", threads=1, baselines=(MASKED,)),
    DENSE: replace(NATIVE, title="matgrad C++, dense", arguments=("native", True, True), baselines=()),
    "pytorch-csr": baseline("PyTorch CSR", "pytorch.CSRPyTorch", "PyTorch", "torch", baselines=(MASKED,)),
    MASKED: baseline("PyTorch masked", "pytorch.MaskedPyTorch", "PyTorch", "torch"),
    "matgrad-torch": matgrad("torch", "PyTorch", MASKED),
    "matgrad-numpy": matgrad("numpy", "NumPy", MASKED),
}
DEFAULT = list(TOOLS)[:5]
DESCRIPTION = {
    "layers": "ReLU;ReLU;Linear",
    "loss": "SoftmaxCrossEntropy",
    "optimizer": "GradientDescent",
    "densities": "Erdős–Rényi",
    "weights": "XavierNormalized",
    "biases": "Xavier",
    "learning_rate": 0.01,
}
BATCH_SIZE = 100
DENSITY = 0.05  # where the batch size varies
EXAMPLES = 10000  # the most that are trained on per batch size
MIN_STEPS = 5


def main() -> None:
    """Measure one point per density and per batch size."""
    found = reports.parser(__doc__, tools=DEFAULT)
    found.add_argument("--densities", type=items(float), default="0.001,0.01,0.05,0.1,0.3", metavar="LIST")
    found.add_argument("--batch-sizes", type=items(int), default="1,10,100,1000", metavar="LIST")
    found.add_argument("--sizes", type=items(int), default="3072,1024,512,10", metavar="LIST", help="of the layers")
    found.add_argument("--steps", type=int, default=500, help=f"batches of {BATCH_SIZE} per epoch")
    options = found.parse_args()
    tools, about = reports.installed(options, TOOLS)

    def point(density: float, B: int, steps: int) -> Record:
        setting = Setting(tuple(options.sizes), B, momentum=0.0, dtype=options.dtype)
        data = generated(setting.sizes[0], setting.sizes[-1], steps * B, seed=options.seed)
        title = f"density {density:g}, batch size {B}"
        return measure(title, tools, setting, data, options, density=density, rehearse=True)[0]

    points = [point(density, BATCH_SIZE, options.steps) for density in options.densities]
    examples = min(options.steps * BATCH_SIZE, EXAMPLES)
    batches = [point(DENSITY, B, max(examples // B, MIN_STEPS)) for B in options.batch_sizes]
    about |= {"setting": DESCRIPTION, "sizes": options.sizes, "batch_size": BATCH_SIZE, "steps": options.steps}
    about |= {"points": points, "batches": batches, "fit": fit(points), "break_even": break_even(points)}
    reports.finish("sparse", options, about)


def fit(points: list[Record]) -> dict[str, float] | None:
    """a and b such that a step takes about a + b·nnz seconds at best, by least squares of relative errors."""
    known = [p for p in points if SPARSE in p["tools"]]
    nnz = np.array([p["nnz"] for p in known], dtype=float)
    if len(set(nnz)) < 2:
        return None
    y = np.array([p["tools"][SPARSE]["best"] / p["steps"] for p in known])
    A = np.column_stack([np.ones_like(nnz), nnz]) / y[:, None]
    (a, b), *_ = np.linalg.lstsq(A, np.ones_like(y), rcond=None)
    return {"step": float(a), "weight": float(b), "largest_error": float(np.abs(A @ (a, b) - 1).max())}


def break_even(points: list[Record]) -> float | None:
    """The density at which sparse training takes as long as dense training; None if there is none.

    Between two densities, the logarithm of the ratio is taken as linear in that of the density.
    """
    known = [
        (math.log(p["density"]), math.log(p["tools"][SPARSE]["ratios"][DENSE]["median"]))
        for p in sorted(points, key=lambda p: p["density"])
        if {SPARSE, DENSE} <= p["tools"].keys()
    ]
    for (x, y), (u, v) in pairwise(known):
        if y < 0 <= v:
            return math.exp(x - y * (u - x) / (v - y))
    return None


# -- tables and plot --------------------------------------------------------------------------------

# what the time of matgrad's sparse training is divided by
RATIOS = {MASKED: "masked", "pytorch-csr": "CSR", DENSE: "dense", "matgrad-native-1": "1 thread"}


def tables(record: Record) -> list[Table]:
    """Seconds, ratios, memory, and microseconds per example against the batch size."""
    tools, points, batches = record["tools"], record["points"], record["batches"]
    what = f"{record['steps']} steps of batch {record['batch_size']}, layers {';'.join(map(str, record['sizes']))}"
    cells = {
        f"seconds against density, {what}": lambda row: f"{row['median']:.3f}",
        "memory for model and training in MB, against density": lambda row: f"{megabytes(row):.1f}",
        "largest difference from masked PyTorch's parameters, against density": difference_cell,
    }
    found = [by_point(tools, points, "density", title, cell) for title, cell in cells.items()]
    columns = {"density": lambda p: f"{p['density']:g}", "weights": lambda p: f"{p['nnz']:,}"} | {
        f"÷ {title} (best)": lambda p, name=name: ratio_cell(p["tools"].get(SPARSE), name, ".3f")
        for name, title in RATIOS.items()
    }
    found.insert(1, reports.listed(f"seconds of {TOOLS[SPARSE].title} ÷ those of the others", points, columns))
    if batches:
        title = f"µs per example against batch size, density {batches[0]['density']:g}"
        found.append(by_point(tools, batches, "batch_size", title, lambda row: f"{1e6 * row['per_example']:.2f}"))
    return found


def megabytes(row: Record) -> float:
    """What model and training take, where the system tells."""
    memory = row["startup"]["memory"] or {}
    return (memory.get("training") or math.nan) / 1e6


def notes(record: Record) -> list[str]:
    """What a reader of the tables must know."""
    found, fitted, density = reports.common_notes(record), record["fit"], record["break_even"]
    if fitted is not None:
        found.append(
            f"a step of {TOOLS[SPARSE].title} takes at best about {1e6 * fitted['step']:.0f} µs + "
            f"{1e9 * fitted['weight']:.2f} ns per stored weight (off by at most {100 * fitted['largest_error']:.0f} %)"
        )
    if density is not None:
        found.append(f"sparse training is as fast as dense training at density {density:.2g}")
    return [
        *found,
        "÷: medians of the rounds' ratios; memory: how much the process grows for model and training, without data "
        f"and libraries; {DIFFERENCE}",
    ]


def figure(record: Record) -> Figure:
    """Panels for the seconds, the memory and the batch size."""
    from matgrad.inspection.figures import new_figure

    drawn, axes = new_figure(14, 4.2, 3)
    tools, points, batches = record["tools"], record["points"], record["batches"]
    lines(axes[0], tools, points, "density", lambda row: row["median"], f"seconds for {record['steps']} steps")
    lines(axes[1], tools, points, "density", megabytes, "memory for model and training, MB")
    title = f"µs per example (density {DENSITY:g})"
    lines(axes[2], tools, batches, "batch_size", lambda row: 1e6 * row["per_example"], title)
    reports.footnote(drawn, record)
    reports.legend(drawn, axes[:1])
    return drawn


if __name__ == "__main__":
    main()
