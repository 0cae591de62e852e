"""`matgrad bench`: which backend, engine and number of threads is the fastest for a model on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import click
import numpy as np

import matgrad as mg
from matgrad.backends import BACKENDS
from matgrad.cli.files import READS
from matgrad.cli.groups import GroupedCommand, option
from matgrad.cli.options import COUNT, NUMERIC_BACKENDS, SEED, dtype_option, plugin_option
from matgrad.cli.program import new_model
from matgrad.cli.saved_models import make_sparse, rebuilt
from matgrad.cli.sparsity import density_options
from matgrad.foundation.files import as_json as json_text
from matgrad.foundation.machine import cores, set_threads
from matgrad.foundation.table import Table
from matgrad.loss_functions import create_loss
from matgrad.program.models import BATCH_SIZE
from matgrad.specifications.models import OPTIMIZER, WEIGHTS, set_optimizers
from matgrad.specifications.plugins import load_plugin
from matgrad.storage.models import SavedModel, load_model, save_model

MOVED = ("paper", "native", "sparse", "sparse-methods", "cost", "gpu", "distributed", "brain")
LEAST = 0.2  # seconds of a turn
BATCHES = 10  # that a turn repeats
ROW = tuple[str, bool, int]  # backend, whether the step is compiled, threads


class Bench(GroupedCommand):
    """A command that says where the benchmarks of earlier versions are."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Raise if a benchmark of the project is asked for."""
        if args and args[0] in MOVED:
            raise click.UsageError(f"`matgrad bench {args[0]}` is now `make bench-{args[0]}` in a checkout of matgrad")
        if args and args[0] == "plot":
            raise click.UsageError("`matgrad bench plot` is now `python benchmarks/report.py DIR` in a checkout")
        return super().parse_args(ctx, args)


def _threads(ctx: click.Context, parameter: click.Parameter, value: str | None) -> list[int]:
    """The numbers of threads to try: those given, or 1, 2, 4 … and all cores."""
    if value is None:
        return sorted({1, *(2**k for k in range(16) if 2**k < cores()), cores()})
    found = [item.strip() for item in value.split(",")]
    if not all(item.isdecimal() and 0 < int(item) <= 4096 for item in found):
        raise click.BadParameter(f"{value!r} is not a list of positive integers, separated by commas.", ctx, parameter)
    return [int(item) for item in found]


def _backends(ctx: click.Context, parameter: click.Parameter, value: str | None) -> list[str]:
    """The backends to try."""
    found = list(NUMERIC_BACKENDS) if value is None else [item.strip() for item in value.split(",")]
    for name in found:
        if name not in NUMERIC_BACKENDS:
            raise click.BadParameter(f"unknown backend {name!r}; known: {', '.join(NUMERIC_BACKENDS)}", ctx, parameter)
    return found


@click.command(cls=Bench, short_help="Find the fastest backend and number of threads for a model.")
@option("Model", "--layers", default="ReLU;ReLU;Linear", metavar="LIST", help="The layers.")
@option("Model", "--layer-sizes", default="784;1024;512;10", metavar="LIST", help="Layer sizes.")
@option("Model", "--layer-weights", default=WEIGHTS, metavar="LIST", help="Initial weights.")
@option("Model", "--dropouts", default="0", metavar="LIST", help="Dropout rates of the linear layers.")
@density_options
@option("Model", "--load-weights", type=READS, metavar="MODEL", help="A model file, instead of a new model.")
@option("Training", "--optimizers", default=OPTIMIZER, metavar="LIST", help="One, or one per layer.")
@option("Training", "--loss", metavar="NAME", help="The loss function.  [default: the one that fits the model]")
@option("Training", "--batch-size", type=COUNT, default=BATCH_SIZE, help="Examples per step.")
@option("Training", "--seed", type=SEED, default=0, help="Seed of the weights and of the data.")
@option("Engine", "--backends", metavar="LIST", callback=_backends, help="Those to try.  [default: all]")
@option("Engine", "--threads", metavar="LIST", callback=_threads, help="Those to try.  [default: 1, 2, 4 … all cores]")
@option("Engine", "--eager", is_flag=True, help="Also try steps that are not compiled.")
@dtype_option
@option("Engine", "--rounds", type=COUNT, default=5, help="How often each is measured.")
@plugin_option
@option("Output", "--json", "as_json", is_flag=True, help="Print as JSON, and nothing else.")
def bench(**options: Any) -> None:
    """Measure training steps of a model on generated data, and print the fastest way to train it first.

    Every backend with every number of threads has its own process. They take turns, so that a busy machine slows all
    of them down alike.
    """
    missing = {name: text for name in options["backends"] if (text := _missing(name)) is not None}
    found = [name for name in options["backends"] if name not in missing]
    rows = [
        (x, c, n) for x in found for c in ([True, False] if options["eager"] else [True]) for n in options["threads"]
    ]
    with tempfile.TemporaryDirectory(prefix="matgrad-bench-") as folder:
        seconds, failures = _measured(rows, _saved(options, Path(folder)), options["rounds"])
    best = sorted((median(values), row) for row, values in seconds.items())
    if not best:
        raise ValueError("; ".join(f"{name}: {reason}" for name, reason in (failures | missing).items()))
    if options["as_json"]:
        click.echo(json_text({"measured": [_entry(*item) for item in best], "failed": failures, "missing": missing}))
        return
    cells = [[_option_string(row), f"{1e3 * x:.3f}", f"{x / best[0][0]:.2f}"] for x, row in best]
    click.echo(Table(f"ms per step, batch {options['batch_size']}", ["options", "ms", "÷ fastest"], cells).text())
    for name, reason in (failures | missing).items():
        click.echo(f"{name}: {reason}", err=True)


def _missing(backend: str) -> str | None:
    """Why a backend cannot be measured, if it cannot."""
    framework = BACKENDS[backend][2][0]
    return None if find_spec(framework) else "not installed"


def _option_string(row: ROW) -> str:
    """The options of `matgrad train` that choose this."""
    backend, compiled, threads = row
    return f"--backend {backend} --threads {threads}" + ("" if compiled else " --eager")


def _entry(seconds: float, row: ROW) -> dict[str, Any]:
    backend, compiled, threads = row
    about = {"backend": backend, "compiled": compiled, "threads": threads, "options": _option_string(row)}
    return about | {"seconds_per_step": seconds}


def _saved(options: dict[str, Any], folder: Path) -> dict[str, Any]:
    """What the processes get: a file with the model, and how to train it."""
    mg.manual_seed(options["seed"])
    if options["load_weights"]:
        saved = rebuilt(options)
        make_sparse(saved.model, options)
    else:
        saved = SavedModel(new_model(options))
    loss = create_loss(options["loss"]) if options["loss"] else saved.loss
    M = saved.model if options["dtype"] is None else saved.model.to(dtype=options["dtype"])
    set_optimizers(M, options["optimizers"])  # raises here if there are no such optimizers
    save_model(M, folder / "model.npz")
    shared = {name: options[name] for name in ("optimizers", "batch_size", "seed")}
    plugins = [str(Path(file).absolute()) for file in options["plugin"]]
    return shared | {"model": str(folder / "model.npz"), "loss": loss.specification(), "plugins": plugins}


# -- processes --------------------------------------------------------------------------------------


def _measured(rows: list[ROW], problem: dict[str, Any], rounds: int) -> tuple[dict[ROW, list[float]], dict[str, str]]:
    """The seconds per step of every row in every round, and why others failed; one process works at a time."""
    command = [sys.executable, "-c", "from matgrad.cli.bench import work; work()"]
    seconds: dict[ROW, list[float]] = {}
    failures: dict[str, str] = {}
    processes: dict[ROW, subprocess.Popen[str]] = {}
    try:
        for row in rows:
            variables = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": str(row[2])}
            pipe = subprocess.PIPE
            process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, env=variables
            )
            processes[row], seconds[row] = process, []
            description = problem | dict(zip(("backend", "compiled", "threads"), row, strict=True))
            _ask(process, json.dumps(description), row, failures)
        for r in range(rounds):
            names = [row for row in rows if _option_string(row) not in failures]
            for row in names[r % max(len(names), 1) :] + names[: r % max(len(names), 1)]:
                if (found := _ask(processes[row], "", row, failures)) is not None:
                    seconds[row].append(found)
    finally:
        for process in processes.values():
            process.kill()
            process.communicate()
    return {row: values for row, values in seconds.items() if _option_string(row) not in failures}, failures


def _ask(process: subprocess.Popen[str], line: str, row: ROW, failures: dict[str, str]) -> float | None:
    """The number that a process answers with; None if it failed."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(line + "\n")
        process.stdin.flush()
        reply = json.loads(process.stdout.readline() or '"the process ended"')
    except BrokenPipeError:
        reply = "the process ended"
    if isinstance(reply, str):
        failures[_option_string(row)] = reply
        return None
    return reply


def work() -> None:
    """The process of a row: reads what to train, and answers every further line with the seconds per step of a turn."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a framework prints is not a reply
    try:
        turn = _turn(**json.loads(sys.stdin.readline()))
        print(json.dumps(0.0), file=replies, flush=True)
        for _ in sys.stdin:
            print(json.dumps(turn()), file=replies, flush=True)
    except Exception as error:
        print(json.dumps(f"{type(error).__name__}: {error}"), file=replies, flush=True)


def _turn(
    *, model: str, optimizers: str, loss: str, plugins: list[str], batch_size: int, seed: int,
    backend: str, compiled: bool, threads: int,
) -> Any:  # fmt: skip
    """A function that trains for a moment, and returns the seconds per step; the step is compiled, and warm."""
    set_threads(threads)
    for file in plugins:
        load_plugin(Path(file))
    M = load_model(Path(model)).model
    set_optimizers(M, optimizers)
    M = M.to(backend).train()
    D, K = M.layers[0].input_size, M.layers[-1].output_size
    rng, N = np.random.default_rng(seed), BATCHES * batch_size
    X, t = rng.random((N, D), dtype=np.float32), rng.integers(max(K, 2), size=N)
    T = np.eye(K, dtype=np.float32)[t] if K > 1 else t[:, None].astype(np.float32)
    loader = mg.DataLoader(X, T, batch_size).to(backend, dtype=M.dtype)
    if backend == "torch":
        sys.modules["torch"].set_num_threads(threads)
    from matgrad.engines.eager import EagerStep

    step = mg.compile_step(M, create_loss(loss)) if compiled else EagerStep(M, create_loss(loss))
    step.load(M.state())
    eta = M.scalar(0.0)  # the model stays as it is

    def train(times: int) -> float:
        start = time.perf_counter()
        for _ in range(times):
            step.train(loader, lambda i: eta)
        for A in step.state().values():
            if not isinstance(A, mg.Support):
                M.backend.wait(A)
        return (time.perf_counter() - start) / (times * BATCHES)

    train(3)
    times = max(1, round(LEAST / BATCHES / max(train(1), 1e-9)))
    return lambda: train(times)
