"""The time per example against the batch size and the width of the hidden layers, on data of MNIST's shape."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness import reports
from harness.problems import Setting, generated
from harness.reports import common_notes as notes  # noqa: F401 (of the script)
from harness.reports import items
from harness.team import Record, measure
from matgrad.foundation.writing import Table
from paper import TOOLS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Time per example"
FEATURES, CLASSES, BATCH_SIZE, WIDTH = 784, 10, 100, 1024
MIN_STEPS = 5


def main() -> None:
    """Measure one point per batch size and per width."""
    found = reports.parser(__doc__, tools=list(TOOLS))
    found.add_argument("--batch-sizes", type=items(int), default="1,10,100,1000", metavar="LIST")
    found.add_argument("--widths", type=items(int), default="64,256,1024,4096", metavar="LIST")
    found.add_argument("--examples", type=int, default=5000, help="about how many, at each point")
    options = found.parse_args()
    tools, about = reports.installed(options, TOOLS)

    def point(value: int, width: int, B: int) -> Record:
        setting = Setting((FEATURES, width, width, CLASSES), B, dtype=options.dtype)
        data = generated(FEATURES, CLASSES, max(options.examples // B, MIN_STEPS) * B)
        return measure(f"width {width}, batch size {B}", tools, setting, data, options)[0] | {"value": value}

    batches = [point(B, WIDTH, B) for B in options.batch_sizes]
    widths = [point(K, K, BATCH_SIZE) for K in options.widths]
    curves = [
        {"title": "batch size", "fixed": {"width": WIDTH}, "points": batches},
        {"title": "width", "fixed": {"batch_size": BATCH_SIZE}, "points": widths},
    ]
    reports.finish("cost", options, about | {"curves": curves})


def _per_example(row: Record) -> float:
    return 1e6 * row["per_example"]


def _title(curve: Record) -> str:
    """What varies and, in parentheses, what is fixed."""
    fixed = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in curve["fixed"].items())
    return f"µs per example against {curve['title']} ({fixed})"


def tables(record: Record) -> list[Table]:
    """Microseconds per example for each tool and each value of an axis."""
    tools, curves = record["tools"], record["curves"]
    form = "{:.2f}".format
    return [
        reports.by_point(tools, c["points"], "value", _title(c), lambda row: form(_per_example(row))) for c in curves
    ]


def figure(record: Record) -> Figure:
    """One panel per axis."""
    from matgrad.inspection.figures import new_figure

    drawn, axes = new_figure(1.5 + 5 * len(record["curves"]), 4.6, len(record["curves"]), sharey=True)
    for ax, curve in zip(axes, record["curves"], strict=True):
        reports.lines(ax, record["tools"], curve["points"], "value", _per_example, _title(curve))
        ax.set_xlabel(curve["title"])
    reports.footnote(drawn, record)
    reports.legend(drawn, axes[:1])
    return drawn


if __name__ == "__main__":
    main()
