"""Training steps of this checkout and of another one, in one run: python benchmarks/compare.py OTHER_CHECKOUT.

Dense models of the paper's sizes with both optimizers, and sparse ones, in the C++ core or on another backend; the
ratios are medians over interleaved rounds.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

from harness.problems import Setting, generated, initial_parameters
from harness.reports import (
    Record,
    common_notes,
    difference,
    finish,
    head,
    numbers,
    parser,
    ratio,
    say,
    times,
)
from harness.team import Team
from harness.tools import matgrad
from matgrad.foundation.writing import Table

TITLE = "This checkout and another one"
notes = common_notes
SHAPES = {"MNIST": (784, 1024, 512, 10), "CIFAR-10": (3072, 1024, 512, 10)}
SPARSE = (3072, 1024, 512, 10)


def main() -> None:
    """Measure dense and sparse training in both checkouts."""
    found = parser(__doc__, rounds=9)
    found.add_argument("--dtype", choices=("float32", "float64"), default="float32", help="element type")
    found.add_argument("other", type=Path, help="the other checkout, with a built core")
    found.add_argument("--backend", default="native")
    found.add_argument("--cpu", action="store_true", help="measure processor time, for a busy machine")
    found.add_argument("--densities", type=numbers(float), default="0.001,0.01,0.05", metavar="LIST")
    found.add_argument(
        "--steps", type=int, default=100, help="batches of 100 per turn; of sparse models, five times as many"
    )
    options, started = found.parse_args(), time.time()
    if options.cpu:
        os.environ["MATGRAD_CLOCK"] = "cpu"
    this = matgrad(options.backend, options.backend)
    tools = {"this": this, "other": replace(this, title=str(options.other), checkout=options.other)}
    cases = [(f"{name}, {x.optimizer}", x, 1.0, options.steps) for name, x in _dense(options.dtype)]
    sparse = Setting(SPARSE, momentum=0.0, dtype=options.dtype)
    cases += [(f"CIFAR-10, density {d:g}", sparse, d, 5 * options.steps) for d in options.densities]
    rows = []
    with Team(tools, threads=options.threads, dtype=options.dtype, report=say) as team:
        for title, setting, density, steps in cases:
            say(title)
            data = generated(setting.sizes[0], setting.sizes[-1], steps * setting.batch_size, seed=options.seed)
            turns = team.train(setting, data, initial_parameters(setting, options.seed, density), options.rounds)
            row: Record = {"title": title, "steps": steps, **{x: times(turns.seconds[x]) for x in turns.seconds}}
            row |= {"ratio": ratio(turns.seconds, "this", "other") if len(turns.seconds) == 2 else None}
            rows.append(row | {"difference": difference("this", turns.parameters, ["other"])})
    finish(head("compare", started, options) | {"cases": rows, "failures": team.failures}, options.output)


def _dense(dtype: str) -> list[tuple[str, Setting]]:
    return [(name, Setting(x, momentum=m, dtype=dtype)) for name, x in SHAPES.items() for m in (0.0, 0.9)]


def tables(record: Record) -> list[Table]:
    """One row per case: milliseconds per step, and their ratio."""
    rows = []
    for row in record["cases"]:
        cells = [f"{1e3 * row[x]['median'] / row['steps']:.3f}" if x in row else "" for x in ("this", "other")]
        parameters = "" if row["difference"] is None else f"{row['difference']['relative']:.1e}"
        ratios = ["", ""]
        if row["ratio"] is not None:
            ratios = [f"{row['ratio']['median']:.3f}", f"{row['this']['best'] / row['other']['best']:.3f}"]
        rows.append([row["title"], *cells, *ratios, parameters])
    headings = [
        "ms per step",
        "this checkout",
        record["options"]["other"],
        "÷",
        "best ÷ best",
        "difference of parameters",
    ]
    return [Table("this checkout ÷ the other one", headings, rows)]


if __name__ == "__main__":
    main()
