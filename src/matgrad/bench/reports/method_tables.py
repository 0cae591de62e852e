"""Tables of the methods of sparse training: means over the seeds, and their spread."""

from __future__ import annotations

from collections.abc import Callable
from statistics import mean, stdev

from matgrad.bench.reports.record import Record
from matgrad.foundation.table import Table

Value = Callable[[Record], float | None]  # what is shown of a run

# title, value and format of the tables of a data set
TABLES: dict[str, tuple[Value, str]] = {
    "test accuracy": (lambda run: run["test_accuracy"], ".4f"),
    "seconds of training": (lambda run: run["seconds"], ".1f"),
    "FLOPs ÷ those of dense training": (lambda run: relative_flops(run), ".4f"),
    "explored weights": (lambda run: run["explored"], ".4f"),
    "memory for model and training in MB": (lambda run: None if run["memory"] is None else run["memory"] / 1e6, ".1f"),
}


def relative_flops(run: Record) -> float | None:
    """The operations of all products, with those of topology updates, divided by those of dense training."""
    return (run["flops"] + run["update_flops"]) / run["dense_flops"] if run["dense_flops"] else None


def points(record: Record, data: str, value: Value) -> dict[str, dict[float, list[float]]]:
    """The values of all seeds, by method and by density, in increasing order."""
    found: dict[str, dict[float, list[float]]] = {}
    order = {method: i for i, method in enumerate(record["options"]["methods"])}
    runs = [run for run in record["runs"] if run["data"] == data]
    for run in sorted(runs, key=lambda run: (order.get(run["method"], len(order)), run["density"], run["seed"])):
        if (x := value(run)) is not None:
            found.setdefault(run["method"], {}).setdefault(run["density"], []).append(x)
    return found


def spread(values: list[float]) -> float:
    """The standard deviation of values, of a sample; 0 for one of them."""
    return stdev(values) if len(values) > 1 else 0.0


def method_tables(record: Record) -> list[Table]:
    """For each data set a table per quantity, with one row per method and one column per density."""
    tables = []
    for name, about in record["data"].items():
        sizes = ";".join(map(str, about["sizes"]))
        for title, (value, form) in TABLES.items():
            found = points(record, name, value)
            densities = sorted({d for row in found.values() for d in row})
            rows = [[m, *(_cell(row.get(d, []), form) for d in densities)] for m, row in found.items()]
            if rows:
                heading = f"{about['title']} ({sizes}): {title}, against density"
                tables.append(Table(heading, ["method", *(f"{d:g}" for d in densities)], rows))
    return tables


def _cell(values: list[float], form: str) -> str:
    """The mean and, of several values, ± their standard deviation."""
    if not values:
        return ""
    return f"{mean(values):{form}}" + (f" ± {spread(values):{form}}" if len(values) > 1 else "")


def method_notes(record: Record) -> list[str]:
    """What a reader of the tables must know."""
    accuracies = [points(record, name, TABLES["test accuracy"][0]) for name in record["data"]]
    counts = {len(values) for found in accuracies for row in found.values() for values in row.values()} or {0}
    seeds = " to ".join(map(str, sorted({min(counts), max(counts)})))
    lines = [
        f"means over {seeds} seeds, ± the standard deviation; the accuracy is that after the last epoch",
        "all methods start from the same seeds and have the same schedule; at density 1 nothing is sparse; masked: "
        "PyTorch with dense tensors and masks, whose products are all dense",
        "seconds: of training, with updates of the topology, without measuring; memory: how much the process grows, "
        "without data and libraries; FLOPs: of all products, with those of topology updates",
        *(
            f"{about['title']}: learning rate {about['learning_rate']}, weight decay {about['weight_decay']}"
            for about in record["data"].values()
        ),
        *(f"{name} was left out: {reason}" for name, reason in record["skipped"].items()),
    ]
    shared = sorted({(run["jobs"], run["threads"]) for run in record["runs"]})
    lines += [f"runs at a time: {jobs}; threads of each: {threads}" for jobs, threads in shared]
    if any(jobs > 1 for jobs, _ in shared):
        lines.append("runs at the same time slow each other down: THEIR SECONDS ARE NOT COMPARABLE")
    return lines
