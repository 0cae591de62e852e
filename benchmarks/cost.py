"""The time per example against the batch size and the width of the hidden layers, on data of MNIST's shape."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from harness.problems import Setting, generated, initial_parameters
from harness.reports import (
    Record,
    by_point,
    common_notes,
    finish,
    footnote,
    head,
    installed,
    lines,
    numbers,
    parser,
    say,
    script,
    times,
)
from harness.team import Team
from matgrad.foundation.writing import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Time per example"
TOOLS = script("paper").TOOLS
FEATURES, CLASSES, BATCH_SIZE, WIDTH = 784, 10, 100, 1024
MIN_STEPS = 5
notes = common_notes


def main() -> None:
    """Measure one point per batch size and per width."""
    found = parser(__doc__, tools=list(TOOLS))
    found.add_argument("--batch-sizes", type=numbers(int), default="1,10,100,1000", metavar="LIST")
    found.add_argument("--widths", type=numbers(int), default="64,256,1024,4096", metavar="LIST")
    found.add_argument("--examples", type=int, default=5000, help="about how many, at each point")
    options, started = found.parse_args(), time.time()
    tools, missing = installed(options, TOOLS)
    axes = {
        "batch_size": [(B, Setting((FEATURES, WIDTH, WIDTH, CLASSES), B)) for B in options.batch_sizes],
        "width": [(K, Setting((FEATURES, K, K, CLASSES), BATCH_SIZE)) for K in options.widths],
    }
    fixed = {"batch_size": {"width": WIDTH}, "width": {"batch_size": BATCH_SIZE}}
    curves = []
    with Team(tools, threads=options.threads, dtype=options.dtype, report=say) as team:
        for axis, settings in axes.items():
            points = []
            for value, setting in settings:
                N = max(options.examples // setting.batch_size, MIN_STEPS) * setting.batch_size
                data, initial = generated(FEATURES, CLASSES, N), initial_parameters(setting, options.seed)
                turns = team.train(setting, data, initial, options.rounds)
                rows = {name: times(seconds) for name, seconds in turns.seconds.items()}
                rows = {name: row | {"per_example": row["median"] / N} for name, row in rows.items()}
                points.append({"value": value, "sizes": list(setting.sizes), "examples": N, "tools": rows})
            curves.append({"axis": axis, "title": axis.replace("_", " "), "fixed": fixed[axis], "points": points})
    about = {name: tool.about() for name, tool in tools.items()}
    record = {"missing": missing, "tools": about, "curves": curves, "failures": team.failures}
    finish(head("cost", started, options) | record, options.output)


def tables(record: Record) -> list[Table]:
    """Microseconds per example for each tool and each value of an axis."""
    return [
        by_point(
            record["tools"],
            curve["points"],
            "value",
            f"µs per example against {curve['title']} ({_fixed(curve)})",
            lambda row: f"{1e6 * row['per_example']:.2f}",
        )
        for curve in record["curves"]
    ]


def _fixed(curve: Record) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in curve["fixed"].items())


def figure(record: Record) -> Figure:
    """One panel per axis."""
    from matgrad.inspection.figures import legend, new_figure

    curves = record["curves"]
    drawn, axes = new_figure(1.5 + 5 * len(curves), 4.6, len(curves), sharey=True)
    for ax, curve in zip(axes, curves, strict=True):
        lines(ax, record["tools"], curve["points"], "value", lambda row: 1e6 * row["per_example"])
        ax.set(title=f"{curve['title']} ({_fixed(curve)})", xlabel=curve["title"])
    axes[0].set_ylabel("µs per example")
    footnote(drawn, record)
    legend(drawn, axes[:1])
    return drawn


if __name__ == "__main__":
    main()
