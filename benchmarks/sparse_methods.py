"""Methods of sparse training: test accuracy, time, operations and memory against the density, for several seeds.

MNIST, Fashion-MNIST and CIFAR-10 with each method, and dense training. The record is written after every run: if the
command is repeated, it goes on where it was, and adds more methods, densities, seeds or data sets.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import matgrad as mg
from harness import reports
from harness.reports import items
from harness.team import Record, say
from matgrad import datasets
from matgrad.callbacks import Accounting
from matgrad.callbacks.methods import FROM_DENSE, create_method
from matgrad.foundation.machine import set_threads
from matgrad.foundation.writing import Table
from matgrad.sparse.densities import erdos_renyi_densities
from matgrad.specifications.parsing import parse_call

TITLE = "Methods of sparse training"
METHODS = "dense,static,SET,RigL,SNIP,GMP"
SETTING = {"loss": "SoftmaxCrossEntropy", "optimizer": "Nesterov(0.9)", "densities": "Erdős–Rényi"}
SUMS = ("seconds", "flops", "update_flops", "dense_flops")  # over the epochs

# title, hidden layers, learning rate and weight decay, which suit dense and sparse models
DATA: dict[str, tuple[str, tuple[int, ...], str, float]] = {
    "mnist": ("MNIST", (1000, 1000, 1000), "MultiStepLR(0.1; 10, 15; 0.2)", 5e-4),
    "fashion-mnist": ("Fashion-MNIST", (1000, 1000, 1000), "MultiStepLR(0.1; 10, 15; 0.2)", 5e-4),
    "cifar10": ("CIFAR-10", (1024, 1024), "MultiStepLR(0.03; 10, 15; 0.2)", 1e-3),
}


def methods(text: str) -> list[str]:
    """Methods separated by commas, which may have arguments: SET,RigL(0.5, every=50)."""
    return [item.strip() for item in re.split(r",(?![^(]*\))", text)]


def train(name: str, method: str, density: float, seed: int, options: argparse.Namespace) -> Record:
    """One run, in a process of its own: the accuracy and seconds of every epoch, and what it took in all."""
    _, hidden, rate, decay = DATA[name]
    set_threads(options.threads)
    mg.manual_seed(seed)
    data = getattr(datasets, name.replace("-", "_"))(options.data / name).normalize("standard")
    sizes = [data.input_size, *(options.hidden or hidden), data.output_size]
    kind, densities = parse_call(method).name, erdos_renyi_densities(sizes, density)
    is_sparse = method != "dense" and kind not in FROM_DENSE
    optimizer = f"Nesterov(0.9, weight_decay={decay})"
    layers = ["ReLU"] * (len(sizes) - 2) + ["Linear"]
    M = mg.create_model(layers, sizes, densities=densities if is_sparse else None, optimizers=optimizer)
    # SNIP divides the density of the whole model among the layers itself
    wanted: Any = {"density": density if kind == "SNIP" else densities} if kind in FROM_DENSE else {}
    callbacks = [] if method == "dense" else [create_method(method, **wanted)]
    history = M.fit(
        *(data.Xtrain, data.Ttrain),
        test=(data.Xtest, data.Ttest),
        epochs=options.epochs,
        batch_size=options.batch_size,
        learning_rate=rate,
        seed=seed,
        callbacks=callbacks if is_sparse else [*callbacks, Accounting()],
    )
    return {
        **{"data": name, "method": method, "density": density, "seed": seed},
        **{"threads": options.threads, "jobs": options.jobs, "sizes": sizes},
        **{x: history[x][-1] for x in ("test_accuracy", "explored", "peak_memory")},
        "stored": history["density"][-1],  # which is the density asked for, up to rounding
        **{x: sum(history.get(x, [0])) for x in SUMS},
        "accuracies": history["test_accuracy"],
    }


def main() -> None:
    """Train what the record lacks."""
    found = reports.parser(__doc__)
    found.add_argument("--data", type=Path, required=True, metavar="DIR", help=f"a folder with {', '.join(DATA)}")
    found.add_argument("--only", type=items(), default=list(DATA), metavar="LIST")
    found.add_argument("--methods", type=methods, default=METHODS, metavar="LIST", help="with arguments, as RigL(0.5)")
    found.add_argument("--densities", type=items(float), default="0.01,0.02,0.05,0.1,0.2", metavar="LIST")
    found.add_argument("--seeds", type=int, default=3, help="runs of each method")
    found.add_argument("--epochs", type=int, default=20)
    found.add_argument("--batch-size", type=int, default=100)
    found.add_argument("--hidden", type=items(int), metavar="LIST", help="sizes of the hidden layers, for all data")
    found.add_argument("--jobs", type=int, default=1, help="runs at a time; their seconds are then not comparable")
    options = found.parse_args()
    setting = SETTING | {x: getattr(options, x) for x in ("epochs", "batch_size", "hidden")}
    record: Record = {"setting": setting, "missing": {}, "runs": [], "failures": {}, "earlier": []}
    if options.output is not None and (options.output / "bench.json").exists():
        old = reports.read(options.output)  # whose runs stay
        if old["setting"] != setting:
            raise SystemExit(f"the record has {old['setting']}, and these runs {setting}: choose another --output")
        record["runs"] = old["runs"]
        record["earlier"] = [*old["earlier"], {name: old[name] for name in ("started", "command", "machine")}]
    record["missing"] = {x: f"there is no {options.data / x}" for x in options.only if not (options.data / x).exists()}
    known = {tuple(run[key] for key in ("data", "method", "density", "seed")) for run in record["runs"]}
    todo = {
        (name, method, density, seed): None
        for name in options.only
        for seed in range(options.seeds)
        for method in options.methods
        for density in ([1.0] if method == "dense" else options.densities)
        if name not in record["missing"]
    }
    with ProcessPoolExecutor(options.jobs, get_context("spawn"), max_tasks_per_child=1) as pool:
        futures = {pool.submit(train, *run, options): " ".join(map(str, run)) for run in todo if run not in known}
        for future in as_completed(futures):
            if error := future.exception():
                record["failures"][futures[future]] = f"failed: {type(error).__name__}: {error}"
            else:
                record["runs"].append(future.result())
            say(f"{futures[future]}: {error or future.result()['test_accuracy']}")
            if options.output is not None:
                reports.write(reports.head("sparse-methods", options) | record, options.output)
    reports.finish("sparse-methods", options, record)


# -- tables -----------------------------------------------------------------------------------------

# what is shown of a run, and its format
QUANTITIES: dict[str, tuple[Callable[[Record], float | None], str]] = {
    "test accuracy": (lambda run: run["test_accuracy"], ".4f"),
    "seconds of training": (lambda run: run["seconds"], ".1f"),
    # of all products, with those of topology updates
    "FLOPs ÷ those of dense training": (
        lambda run: (run["flops"] + run["update_flops"]) / run["dense_flops"] if run["dense_flops"] else None,
        ".4f",
    ),
    "explored weights": (lambda run: run["explored"], ".4f"),
    "peak memory of the process in MB": (lambda run: run.get("peak_memory") and run["peak_memory"] / 1e6, ".1f"),
}


def tables(record: Record) -> list[Table]:
    """For each data set a table per quantity, with one row per method and one column per density."""
    shown = []
    for name in dict.fromkeys(run["data"] for run in record["runs"]):
        for title, (quantity, form) in QUANTITIES.items():
            found: dict[str, dict[float, list[float]]] = {}
            for run in (run for run in record["runs"] if run["data"] == name):
                if (x := quantity(run)) is not None:
                    found.setdefault(run["method"], {}).setdefault(run["density"], []).append(x)
            densities = sorted({d for row in found.values() for d in row})
            rows = [[method, *(_cell(row.get(d, []), form) for d in densities)] for method, row in found.items()]
            if rows:
                heading = f"{DATA[name][0]}: {title}, against density"
                shown.append(Table(heading, ["method", *(f"{d:g}" for d in densities)], rows))
    return shown


def _cell(values: list[float], form: str) -> str:
    """The mean and, of several values, ± their standard deviation."""
    spread = f" ± {stdev(values):{form}}" if len(values) > 1 else ""
    return f"{mean(values):{form}}{spread}" if values else ""


def notes(record: Record) -> list[str]:
    """What a reader of the tables must know."""
    shared = sorted({(run["jobs"], run["threads"]) for run in record["runs"]})
    is_crowded = any(jobs > 1 for jobs, _ in shared)
    return [
        *reports.absent(record),
        "means over the seeds, ± the standard deviation; the accuracy is that after the last epoch",
        "all methods start from the same seeds and have the same schedule; at density 1 nothing is sparse",
        "seconds: of training, with updates of the topology, without measuring",
        *(f"runs at a time: {jobs}; threads of each: {threads}" for jobs, threads in shared),
        *(["runs at the same time slow each other down: THEIR SECONDS ARE NOT COMPARABLE"] if is_crowded else []),
    ]


if __name__ == "__main__":
    main()
