"""Methods of sparse training: test accuracy and training time against the density, for several seeds.

MNIST, Fashion-MNIST and CIFAR-10 with each method, beside dense training and masked PyTorch. The record is written
after every run: a benchmark that was interrupted resumes if the command is repeated, and more methods, densities,
seeds or data sets are added to it.
"""

from __future__ import annotations

import argparse
import os
import re
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from statistics import mean, stdev
from typing import TYPE_CHECKING, Any

import numpy as np

from baselines.methods import DENSE, FILES, PYTORCH, Run, train
from harness.problems import Setting
from harness.reports import absent, finish, head, items, legend, parser, read, write
from harness.team import Record, environment_of, say
from matgrad import datasets
from matgrad.foundation.writing import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Methods of sparse training"
METHODS = "dense,static,SET,RigL,SNIP,GMP,masked-static,masked-RigL"

# title, hidden layers, learning rate and weight decay, which suit dense and sparse models
DATA: dict[str, tuple[str, tuple[int, ...], str, float]] = {
    "mnist": ("MNIST", (1000, 1000, 1000), "MultiStepLR(0.1; 10, 15; 0.2)", 5e-4),
    "fashion-mnist": ("Fashion-MNIST", (1000, 1000, 1000), "MultiStepLR(0.1; 10, 15; 0.2)", 5e-4),
    "cifar10": ("CIFAR-10", (1024, 1024), "MultiStepLR(0.03; 10, 15; 0.2)", 1e-3),
}


def methods(text: str) -> list[str]:
    """Methods separated by commas, which may have arguments: SET,RigL(0.5, every=50)."""
    return [item.strip() for item in re.split(r",(?![^(]*\))", text)]


def main() -> None:
    """Train what the record lacks."""
    found = parser(__doc__)
    found.add_argument("--data", type=Path, required=True, metavar="DIR", help=f"a folder with {', '.join(DATA)}")
    found.add_argument("--only", type=items(), default=list(DATA), metavar="LIST")
    found.add_argument("--methods", type=methods, default=METHODS, metavar="LIST", help="with arguments, as RigL(0.5)")
    found.add_argument("--densities", type=items(float), default="0.01,0.02,0.05,0.1,0.2", metavar="LIST")
    found.add_argument("--seeds", type=int, default=3, help="runs of each method")
    found.add_argument("--epochs", type=int, default=20)
    found.add_argument("--batch-size", type=int, default=100)
    found.add_argument("--hidden", type=items(int), metavar="LIST", help="sizes of the hidden layers, for all data")
    found.add_argument("--learning-rate", metavar="RATE", help="a number or a schedule, for all data")
    found.add_argument("--weight-decay", type=float, metavar="λ", help="for all data")
    found.add_argument("--examples", type=int, metavar="N", help="only the first N training examples")
    found.add_argument("--jobs", type=int, default=1, help="runs at a time; their seconds are then not comparable")
    options = found.parse_args()
    setting = {
        "layers": "ReLU, the last Linear",
        "loss": "SoftmaxCrossEntropy",
        "optimizer": "Nesterov(0.9)",
        "densities": "Erdős–Rényi",
        "epochs": options.epochs,
        "batch_size": options.batch_size,
        "normalize": "standard",
    }
    record: Record = {"setting": setting, "missing": {}, "skipped": {}, "data": {}, "runs": [], "failures": {}}
    record |= {"earlier": [], "methods": options.methods}
    if options.output is not None and (options.output / "bench.json").exists():
        old = read(options.output)  # whose runs stay
        check_same(old["setting"], setting, "the record")
        record |= {name: old[name] for name in ("data", "runs")}
        record["earlier"] = [*old["earlier"], {name: old[name] for name in ("started", "command", "machine")}]
        record["methods"] = list(dict.fromkeys([*options.methods, *_methods(old)]))
    for name in options.only:
        if (options.data / name).exists():
            train_on(name, record, options)
        else:
            record["skipped"][name] = f"there is no {options.data / name}"
    finish("sparse-methods", options, record)


def check_same(known: Record, found: Record, what: str) -> None:
    """Raise if runs of another setting would be added to a record."""
    for name, value in found.items():
        if name != "source" and known.get(name) != value:
            raise SystemExit(f"{what} has {name} {known.get(name)}, and these runs {value}: choose another --output")


def train_on(name: str, record: Record, options: argparse.Namespace) -> None:
    """Train the runs on a data set that the record lacks, so many at a time; one that fails is noted."""
    with tempfile.TemporaryDirectory(prefix="matgrad-bench-") as folder:
        about = _prepare(name, Path(folder), options)
        check_same(record["data"].setdefault(name, about), about, name)
        known = {tuple(run[key] for key in ("data", "method", "density", "seed")) for run in record["runs"]}
        shared = (
            tuple(about["sizes"]),
            options.epochs,
            options.batch_size,
            about["learning_rate"],
            about["weight_decay"],
        )
        todo = [
            Run(method, density, seed, *shared)
            for seed in range(options.seeds)
            for method in options.methods
            for density in ([1.0] if method in DENSE else options.densities)
            if (name, method, density, seed) not in known
        ]
        say(f"{about['title']}: {len(todo)} runs")
        os.environ.update(environment_of(Setting(()), options.threads, Path(folder)))
        with ProcessPoolExecutor(options.jobs, get_context("spawn"), max_tasks_per_child=1) as pool:
            futures = {pool.submit(train, run, Path(folder)): run for run in todo}
            for future in as_completed(futures):
                run = futures[future]
                title = f"{name} {run.method}{'' if run.method in DENSE else f' {run.density:g}'} seed {run.seed}"
                about_run = {"data": name, "method": run.method, "density": run.density, "seed": run.seed}
                about_run |= {"threads": options.threads, "jobs": options.jobs}
                if error := future.exception():
                    record["failures"][title] = f"failed: {type(error).__name__}: {error}"
                    say(f"{title} {record['failures'][title]}")
                else:
                    record["runs"].append(about_run | future.result())
                    say(f"{title}: test accuracy {record['runs'][-1]['test_accuracy']:.4f}")
                if options.output is not None:
                    write(head("sparse-methods", options) | record, options.output)


def _prepare(name: str, folder: Path, options: argparse.Namespace) -> Record:
    """Read a data set and write it, normalized, for the processes; returns what the record says about it."""
    title, hidden, rate, decay = DATA[name]
    data = getattr(datasets, name.replace("-", "_"))(options.data / name).normalize("standard")
    count = options.examples or len(data.Xtrain)
    arrays = data.Xtrain[:count], data.Ttrain[:count], data.Xtest, data.Ttest
    for file, A in zip(FILES, arrays, strict=True):
        np.save(folder / f"{file}.npy", A.astype(np.float32 if file[0] == "X" else np.int64))
    return {
        "title": title,
        "source": str(options.data / name),
        "sizes": [data.input_size, *(options.hidden or hidden), data.output_size],
        "learning_rate": options.learning_rate or rate,
        "weight_decay": decay if options.weight_decay is None else options.weight_decay,
        "training_examples": len(arrays[0]),
        "test_examples": len(data.Xtest),
    }


# -- tables and plot --------------------------------------------------------------------------------

# what is shown of a run, and its format
QUANTITIES: dict[str, tuple[Callable[[Record], float | None], str]] = {
    "test accuracy": (lambda run: run["test_accuracy"], ".4f"),
    "seconds of training": (lambda run: run["seconds"], ".1f"),
    "FLOPs ÷ those of dense training": (lambda run: _relative_flops(run), ".4f"),
    "explored weights": (lambda run: run["explored"], ".4f"),
    "memory for model and training in MB": (lambda run: run["memory"] and run["memory"] / 1e6, ".1f"),
}


def _methods(record: Record) -> list[str]:
    """The methods of a record; those of earlier versions had them in the options alone."""
    return record.get("methods", record["options"]["methods"])


def _relative_flops(run: Record) -> float | None:
    """The operations of all products, with those of topology updates, divided by those of dense training."""
    return (run["flops"] + run["update_flops"]) / run["dense_flops"] if run["dense_flops"] else None


def points(record: Record, data: str, quantity: str) -> dict[str, dict[float, list[float]]]:
    """The values of all seeds, by method and by density, in increasing order."""
    found: dict[str, dict[float, list[float]]] = {}
    order = {method: i for i, method in enumerate(_methods(record))}
    runs = [run for run in record["runs"] if run["data"] == data]
    for run in sorted(runs, key=lambda run: (order.get(run["method"], len(order)), run["density"], run["seed"])):
        if (x := QUANTITIES[quantity][0](run)) is not None:
            found.setdefault(run["method"], {}).setdefault(run["density"], []).append(x)
    return found


def tables(record: Record) -> list[Table]:
    """For each data set a table per quantity, with one row per method and one column per density."""
    shown = []
    for name, about in record["data"].items():
        for title, (_, form) in QUANTITIES.items():
            found = points(record, name, title)
            densities = sorted({d for row in found.values() for d in row})
            rows = [[method, *(_cell(row.get(d, []), form) for d in densities)] for method, row in found.items()]
            if rows:
                heading = f"{about['title']} ({';'.join(map(str, about['sizes']))}): {title}, against density"
                shown.append(Table(heading, ["method", *(f"{d:g}" for d in densities)], rows))
    return shown


def _cell(values: list[float], form: str) -> str:
    """The mean and, of several values, ± their standard deviation."""
    if not values:
        return ""
    return f"{mean(values):{form}}" + (f" ± {stdev(values):{form}}" if len(values) > 1 else "")


def notes(record: Record) -> list[str]:
    """What a reader of the tables must know."""
    found = [points(record, name, "test accuracy") for name in record["data"]]
    counts = {len(values) for rows in found for row in rows.values() for values in row.values()} or {0}
    seeds = " to ".join(map(str, sorted({min(counts), max(counts)})))
    shared = sorted({(run["jobs"], run["threads"]) for run in record["runs"]})
    is_crowded = any(jobs > 1 for jobs, _ in shared)
    return [
        *absent(record),
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
        *(f"runs at a time: {jobs}; threads of each: {threads}" for jobs, threads in shared),
        *(["runs at the same time slow each other down: THEIR SECONDS ARE NOT COMPARABLE"] if is_crowded else []),
    ]


def figure(record: Record) -> Figure:
    """A column per data set; rows for accuracy, seconds and operations: means, and shaded from smallest to largest."""
    from matgrad.inspection.figures import COLOURS, grid, new_figure

    names = [name for name in record["data"] if points(record, name, "test accuracy")] or ["mnist"]
    rows = list(QUANTITIES)[:3]
    drawn, axes = new_figure(1.8 + 4.4 * len(names), 9, len(names), rows=len(rows))
    places = [(quantity, name) for quantity in rows for name in names]
    for ax, (quantity, name) in zip(axes, places, strict=True):
        found = points(record, name, quantity)
        densities = sorted({d for row in found.values() for d in row if d < 1}) or [0.5]
        for i, (method, row) in enumerate(found.items()):
            is_dense = set(row) == {1.0}  # which is drawn across
            xs = [densities[0], densities[-1]] if is_dense else sorted(row)
            values: list[Any] = [row[1.0]] * 2 if is_dense else [row[x] for x in xs]
            colour, look = COLOURS[i % len(COLOURS)], "--" if method in PYTORCH else "-"
            marker = "" if is_dense else "o"
            ax.plot(xs, list(map(mean, values)), look, marker=marker, color=colour, label=method, markersize=4)
            ax.fill_between(xs, list(map(min, values)), list(map(max, values)), color=colour, alpha=0.15, linewidth=0)
        ax.set_xscale("log")
        ax.set_xticks(densities, [f"{d:g}" for d in densities])
        ax.set(title=DATA[name][0], xlabel="density", ylabel=quantity)
        grid(ax)
    legend(drawn, axes)
    return drawn


if __name__ == "__main__":
    main()
