"""`matgrad bench`: which backend, engine and number of threads is the fastest for a model on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import click
import numpy as np

import matgrad as mg
from matgrad.backends import BACKENDS
from matgrad.cli.groups import GroupedCommand, option
from matgrad.cli.options import COUNT, NUMERIC_BACKENDS, SEED, dtype_option
from matgrad.cli.program import described_model, model_options
from matgrad.foundation.machine import cores, set_threads
from matgrad.foundation.writing import Table
from matgrad.foundation.writing import as_json as json_text
from matgrad.loss_functions import create_loss
from matgrad.program.models import BATCH_SIZE
from matgrad.specifications.models import OPTIMIZER, set_optimizers
from matgrad.specifications.plugins import load_plugin
from matgrad.storage.models import load_model, save_model

MOVED = {name: f"make bench-{name}" for name in ("paper", "native", "sparse", "cost", "gpu", "distributed", "brain")}
MOVED |= {"sparse-methods": "make bench-sparse-methods", "plot": "python benchmarks/report.py DIR"}
LEAST = 0.2  # seconds of a turn
BATCHES = 10  # that a turn repeats


class Bench(GroupedCommand):
    """A command that says where the benchmarks of earlier versions are."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Raise if a benchmark of the project is asked for."""
        if args and args[0] in MOVED:
            raise click.UsageError(f"`matgrad bench {args[0]}` is now `{MOVED[args[0]]}` in a checkout of matgrad")
        return super().parse_args(ctx, args)


def _threads(ctx: click.Context, parameter: click.Parameter, value: str | None) -> list[int]:
    """The numbers of threads to try: those given, or 1, 2, 4 … and all cores."""
    if value is None:
        return sorted({*(2**k for k in range(16) if 2**k < cores()), cores()})
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
@model_options
@option("Training", "--optimizers", default=OPTIMIZER, metavar="LIST", help="One, or one per layer.")
@option("Training", "--loss", metavar="NAME", help="The loss function.  [default: the one that fits the model]")
@option("Training", "--batch-size", type=COUNT, default=BATCH_SIZE, help="Examples per step.")
@option("Training", "--seed", type=SEED, default=0, help="Seed of the weights and of the data.")
@option("Engine", "--backends", metavar="LIST", callback=_backends, help="Those to try.  [default: all]")
@option("Engine", "--threads", metavar="LIST", callback=_threads, help="Those to try.  [default: 1, 2, 4 … all cores]")
@option("Engine", "--eager", is_flag=True, help="Also try steps that are not compiled.")
@dtype_option
@option("Engine", "--rounds", type=COUNT, default=5, help="How often each is measured.")
@option("Output", "--json", "as_json", is_flag=True, help="Print as JSON, and nothing else.")
def bench(**options: Any) -> None:
    """Measure training steps of a model on generated data, and print the fastest way to train it first.

    Every backend with every number of threads has its own process. They take turns, so that a busy machine slows all
    of them down alike.
    """
    saved, shared = described_model(options), {name: options[name] for name in ("optimizers", "batch_size", "seed")}
    shared["loss"] = (create_loss(options["loss"]) if options["loss"] else saved.loss).specification()
    shared["plugins"] = [str(Path(file).absolute()) for file in options["plugin"]]
    is_installed = {name: find_spec(BACKENDS[name][2][0]) is not None for name in options["backends"]}
    problems = {name: "not installed" for name in is_installed if not is_installed[name]}
    ways = {
        f"--backend {name} --threads {n}{'' if compiled else ' --eager'}": (name, compiled, n)
        for name in is_installed
        for compiled in ([True, False] if options["eager"] else [True])
        for n in options["threads"]
        if is_installed[name]
    }
    with tempfile.TemporaryDirectory(prefix="matgrad-bench-") as folder:
        shared["model"] = str(Path(folder) / "model.npz")
        save_model(saved.model, shared["model"])
        seconds = _measured(ways, shared, options["rounds"], problems)
    found = sorted((median(values), name) for name, values in seconds.items())
    if not found:
        raise ValueError("; ".join(f"{name}: {reason}" for name, reason in problems.items()))
    if options["as_json"]:
        keys = ("backend", "compiled", "threads")
        rows = [{"options": x, "seconds_per_step": s} | dict(zip(keys, ways[x], strict=True)) for s, x in found]
        click.echo(json_text({"measured": rows, "problems": problems}))
        return
    cells = [[name, f"{1e3 * s:.3f}", f"{s / found[0][0]:.2f}"] for s, name in found]
    click.echo(Table(f"ms per step, batch {options['batch_size']}", ["options", "ms", "÷ fastest"], cells).text())
    for name, reason in problems.items():
        click.echo(f"{name}: {reason}", err=True)


# -- processes --------------------------------------------------------------------------------------


def _measured(
    ways: dict[str, tuple[str, bool, int]], shared: dict[str, Any], rounds: int, problems: dict[str, str]
) -> dict[str, list[float]]:
    """The seconds per step of each way in every round; one process works at a time, and those that fail leave."""
    processes: dict[str, subprocess.Popen[str]] = {}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    command = [sys.executable, "-c", "from matgrad.cli.bench import work; work()"]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}

    def ask(name: str, line: str) -> None:
        process: Any = processes[name]
        try:
            process.stdin.write(f"{line}\n")
            process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended, and so has its output
        reply = json.loads(process.stdout.readline() or '"the process ended"')
        if isinstance(reply, str):
            problems[name] = reply
            del seconds[name]
        elif not line:
            seconds[name].append(reply)

    try:
        for name, (backend, compiled, threads) in ways.items():
            processes[name] = subprocess.Popen(command, **pipes, env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"})
            ask(name, json.dumps(shared | {"backend": backend, "compiled": compiled, "threads": threads}))
        for r in range(rounds):
            names = list(seconds)
            first = r % max(len(names), 1)
            for name in names[first:] + names[:first]:
                ask(name, "")
    finally:
        for process in processes.values():
            process.kill()
            process.communicate()
    return seconds


def work() -> None:
    """The process of a way: reads what to train, and answers every further line with the seconds per step of a turn."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a framework prints is not a reply
    try:
        turn = _turn(json.loads(sys.stdin.readline()))
        print(json.dumps(0.0), file=replies, flush=True)
        for _ in sys.stdin:
            print(json.dumps(turn()), file=replies, flush=True)
    except Exception as error:
        print(json.dumps(f"{type(error).__name__}: {error}"), file=replies, flush=True)


def _turn(way: dict[str, Any]) -> Callable[[], float]:
    """A function that trains for a moment, and returns the seconds per step; the step is compiled, and warm."""
    from matgrad.engines.fallback import TrainingStep

    set_threads(way["threads"])
    for file in way["plugins"]:
        load_plugin(Path(file))
    M, loss = load_model(Path(way["model"])).model, create_loss(way["loss"])
    set_optimizers(M, way["optimizers"])
    M = M.to(way["backend"]).train()
    set_threads(way["threads"])  # of the framework, too
    K, rng, N = M.layers[-1].output_size, np.random.default_rng(way["seed"]), BATCHES * way["batch_size"]
    X, t = rng.random((N, M.layers[0].input_size), dtype=np.float32), rng.integers(max(K, 2), size=N)
    T = np.eye(K, dtype=np.float32)[t] if K > 1 else t[:, None].astype(np.float32)
    loader = mg.DataLoader(X, T, way["batch_size"]).to(way["backend"], dtype=M.dtype)
    step = mg.compile_step(M, loss) if way["compiled"] else TrainingStep(M, loss, compiled=False)
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
