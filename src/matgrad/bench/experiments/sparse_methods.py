"""Methods of sparse training: test accuracy and training time against the density, for several seeds."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from matgrad import datasets
from matgrad.bench.measuring.method_worker import DENSE, FILES, Run
from matgrad.bench.measuring.processes import Process, ToolError
from matgrad.datasets import Dataset

WORKER = "matgrad.bench.measuring.method_worker"


@dataclass(frozen=True)
class Problem:
    """A data set, the sizes of the hidden layers, and a schedule and a weight decay that suit dense and sparse ones."""

    title: str
    read: Callable[[Path], Dataset]
    hidden: tuple[int, ...]
    learning_rate: str
    weight_decay: float


PROBLEMS = {
    "mnist": Problem("MNIST", datasets.mnist, (1000, 1000, 1000), "MultiStepLR(0.1; 10, 15; 0.2)", 5e-4),
    "fashion-mnist": Problem(
        "Fashion-MNIST", datasets.fashion_mnist, (1000, 1000, 1000), "MultiStepLR(0.1; 10, 15; 0.2)", 5e-4
    ),
    "cifar10": Problem("CIFAR-10", datasets.cifar10, (1024, 1024), "MultiStepLR(0.03; 10, 15; 0.2)", 1e-3),
}


@dataclass(frozen=True)
class Plan:
    """What is trained: every method at every density with every seed, in one setting."""

    methods: tuple[str, ...]
    densities: tuple[float, ...]
    seeds: int
    hidden: tuple[int, ...] | None  # instead of those of the data set
    epochs: int
    batch_size: int
    learning_rate: str | None  # likewise
    momentum: float
    weight_decay: float | None  # likewise
    normalize: str
    examples: int | None  # of the training data, from its beginning

    def setting(self) -> dict[str, Any]:
        """What all runs share, for a record."""
        return {
            "layers": "ReLU, the last Linear",
            "loss": "SoftmaxCrossEntropy",
            "optimizer": f"Nesterov({self.momentum})",
            "densities": "Erdős–Rényi",
            **{name: getattr(self, name) for name in ("epochs", "batch_size", "normalize")},
        }

    def runs(self, about: dict[str, Any]) -> Iterator[Run]:
        """All runs on a data set, seed by seed; what is dense has no density."""
        sizes, rate, decay = tuple(about["sizes"]), about["learning_rate"], about["weight_decay"]
        shared = (sizes, self.epochs, self.batch_size, rate, self.momentum, decay)
        for seed in range(self.seeds):
            for method in self.methods:
                for density in (1.0,) if method in DENSE else self.densities:
                    yield Run(method, density, seed, *shared)


def prepare(plan: Plan, name: str, place: Path, folder: Path) -> dict[str, Any]:
    """Read a data set and write it, normalized, for the processes; returns what the record says about it."""
    problem = PROBLEMS[name]
    data = problem.read(place)
    count = len(data.Xtrain) if plan.examples is None else plan.examples
    if count > len(data.Xtrain):
        raise ValueError(f"--examples {count}: {place} has only {len(data.Xtrain)} training examples")
    data = data.normalize(plan.normalize)
    arrays = data.Xtrain[:count], data.Ttrain[:count], data.Xtest, data.Ttest
    for file, A in zip(FILES, arrays, strict=True):
        np.save(folder / f"{file}.npy", A.astype(np.float32 if file[0] == "X" else np.int64))
    sizes = (data.input_size, *(plan.hidden or problem.hidden), data.output_size)
    counts = {"training_examples": count, "test_examples": len(data.Xtest)}
    schedule = {
        "learning_rate": plan.learning_rate or problem.learning_rate,
        "weight_decay": problem.weight_decay if plan.weight_decay is None else plan.weight_decay,
    }
    return {"title": problem.title, "source": str(place), "sizes": list(sizes), **schedule, **counts}


def key(run: dict[str, Any]) -> tuple:
    """What tells a run of a record from the others."""
    return run["data"], run["method"], run["density"], run["seed"]


def run_methods(
    plan: Plan,
    places: dict[str, Path],
    record: dict[str, Any],
    *,
    threads: int,
    jobs: int,
    report: Callable[[str], None],
    save: Callable[[], None],
) -> None:
    """Train what the record lacks, each run in its own process, and add it to the record, which is then saved."""
    for name, place in places.items():
        with tempfile.TemporaryDirectory(prefix="matgrad-bench-") as folder:
            report(f"reading {place}")
            about = prepare(plan, name, place, Path(folder))
            check_same(record["data"].setdefault(name, about), about, name)
            known = {key(run) for run in record["runs"]}
            heads = [(_head(name, run), run) for run in plan.runs(about)]
            todo = [(head, run) for head, run in heads if key(head) not in known]
            report(f"{about['title']}: {len(todo)} of {len(heads)} runs to do")
            _train(todo, Path(folder), record, threads, jobs, report, save)


def check_same(known: dict[str, Any], found: dict[str, Any], what: str) -> None:
    """Refuse to add runs to a record with another setting."""
    for name, value in found.items():
        if name != "source" and known.get(name) != value:
            raise ValueError(
                f"{what}: the record has {name.replace('_', ' ')} {known.get(name)}, and these runs {value}; "
                "expected another folder, or --overwrite"
            )


def _head(name: str, run: Run) -> dict[str, Any]:
    return {"data": name, "method": run.method, "density": run.density, "seed": run.seed}


def _train(
    todo: list[tuple[dict[str, Any], Run]],
    folder: Path,
    record: dict[str, Any],
    threads: int,
    jobs: int,
    report: Callable[[str], None],
    save: Callable[[], None],
) -> None:
    """Train so many runs at a time; one that fails is noted, and the others go on."""
    processes: list[Process] = []

    def train(number: int, run: Run) -> dict[str, Any]:
        process = Process(f"run{number}", folder, threads, "float32", WORKER)
        processes.append(process)
        try:
            return process.ask(do="train", folder=str(folder), **asdict(run))
        finally:
            process.close()

    with ThreadPoolExecutor(jobs) as pool:
        futures = {pool.submit(train, i, run): head for i, (head, run) in enumerate(todo)}
        try:
            for done, future in enumerate(as_completed(futures), start=1):
                head = futures[future]
                record["failures"].pop(in_words(head), None)
                try:
                    found = future.result()
                    record["runs"].append(head | {"threads": threads, "jobs": jobs} | found)
                    said = f": test accuracy {found['test_accuracy']:.4f}, {found['seconds']:.1f} s of training"
                except ToolError as error:
                    record["failures"][in_words(head)] = str(error)
                    said = f" {error}"
                save()
                report(f"{done} of {len(futures)}: {in_words(head)}{said}")
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in processes:
                process.process.kill()
            raise


def in_words(head: dict[str, Any]) -> str:
    """A run in words."""
    density = "" if head["method"] in DENSE else f" {head['density']:g}"
    return f"{head['data']} {head['method']}{density} seed {head['seed']}"
