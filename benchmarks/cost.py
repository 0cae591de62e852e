"""The time per example against the batch size and the width of the hidden layers, on data of MNIST's shape."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.problems import Setting, generated
from harness.reports import by_point, common_notes, finish, footnote, installed, items, legend, lines, parser
from harness.team import Record, measure
from matgrad.foundation.writing import Table
from paper import TOOLS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Time per example"
FEATURES, CLASSES, BATCH_SIZE, WIDTH = 784, 10, 100, 1024
MIN_STEPS = 5
notes = common_notes


def main() -> None:
    """Measure one point per batch size and per width."""
    found = parser(__doc__, tools=list(TOOLS))
    found.add_argument("--batch-sizes", type=items(int), default="1,10,100,1000", metavar="LIST")
    found.add_argument("--widths", type=items(int), default="64,256,1024,4096", metavar="LIST")
    found.add_argument("--examples", type=int, default=5000, help="about how many, at each point")
    options = found.parse_args()
    tools, about = installed(options, TOOLS)

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
    finish("cost", options, about | {"curves": curves})


def _per_example(row: Record) -> float:
    return 1e6 * row["per_example"]


def _title(curve: Record, form: str) -> str:
    """What varies and, in parentheses, what is fixed."""
    fixed = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in curve["fixed"].items())
    return f"{form.format(curve['title'])} ({fixed})"


def tables(record: Record) -> list[Table]:
    """Microseconds per example for each tool and each value of an axis."""
    return [
        by_point(
            record["tools"],
            curve["points"],
            "value",
            _title(curve, "µs per example against {}"),
            lambda row: f"{_per_example(row):.2f}",
        )
        for curve in record["curves"]
    ]


def figure(record: Record) -> Figure:
    """One panel per axis."""
    from matgrad.inspection.figures import new_figure

    curves = record["curves"]
    drawn, axes = new_figure(1.5 + 5 * len(curves), 4.6, len(curves), sharey=True)
    for ax, curve in zip(axes, curves, strict=True):
        lines(ax, record["tools"], curve["points"], "value", _per_example)
        ax.set(title=_title(curve, "{}"), xlabel=curve["title"])
    axes[0].set_ylabel("µs per example")
    footnote(drawn, record)
    legend(drawn, axes[:1])
    return drawn


if __name__ == "__main__":
    main()
