"""Training steps of this checkout and of another one, in one run: python benchmarks/compare.py OTHER_CHECKOUT.

Dense models of the paper's sizes with both optimizers, and sparse ones, in the C++ core or on another backend; the
ratios are medians over interleaved rounds.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from harness.problems import Setting, generated
from harness.team import Record, measure
from harness.tools import matgrad

if __name__ != "__mp_main__":  # not in the processes that measure: the other checkout may lack what reports need
    from harness.reports import common_notes, difference_cell, finish, items, parser
    from matgrad.foundation.writing import Table

    notes = common_notes

TITLE = "This checkout and another one"
SHAPES = {"MNIST": (784, 1024, 512, 10), "CIFAR-10": (3072, 1024, 512, 10)}


def main() -> None:
    """Measure dense and sparse training in both checkouts."""
    found = parser(__doc__, rounds=9)
    found.add_argument("other", type=Path, help="the other checkout, with a built core")
    found.add_argument("--backend", default="native")
    found.add_argument("--cpu", action="store_true", help="measure processor time, for a busy machine")
    found.add_argument("--densities", type=items(float), default="0.001,0.01,0.05", metavar="LIST")
    found.add_argument(
        "--steps", type=int, default=100, help="batches of 100 per turn; of sparse models, five times as many"
    )
    options = found.parse_args()
    if options.cpu:
        os.environ["MATGRAD_CLOCK"] = "cpu"
    this = matgrad(options.backend, options.backend, "other")
    tools = {"this": this, "other": replace(this, title=str(options.other), checkout=options.other)}
    dense = [(name, sizes, m, 1.0) for name, sizes in SHAPES.items() for m in (0.0, 0.9)]
    cases = []
    for name, sizes, momentum, density in [
        *dense,
        *(("CIFAR-10", SHAPES["CIFAR-10"], 0.0, d) for d in options.densities),
    ]:
        setting = Setting(sizes, momentum=momentum, dtype=options.dtype)
        steps = options.steps if density == 1 else 5 * options.steps
        data = generated(sizes[0], sizes[-1], steps * setting.batch_size, seed=options.seed)
        title = f"{name}, {setting.optimizer if density == 1 else f'density {density:g}'}"
        cases.append(measure(title, tools, setting, data, options, density=density)[0])
    finish("compare", options, {"missing": {}, "cases": cases})


def tables(record: Record) -> list[Table]:
    """One row per case: milliseconds per step, and their ratio."""
    rows = []
    for case in record["cases"]:
        found = [case["tools"].get(name) for name in ("this", "other")]
        cells = ["" if row is None else f"{1e3 * row['per_step']:.3f}" for row in found]
        if all(found):
            this, other = found
            ratios = [this["ratios"]["other"]["median"], this["best"] / other["best"]]
            cells += [*(f"{x:.3f}" for x in ratios), difference_cell(this)]
        rows.append([case["title"], *cells, *[""] * (5 - len(cells))])
    columns = ["this checkout", record["options"]["other"], "÷", "best ÷ best", "difference of parameters"]
    return [Table("this checkout ÷ the other one", ["ms per step", *columns], rows)]


if __name__ == "__main__":
    main()
