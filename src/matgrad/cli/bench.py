"""`matgrad bench`: which backend, engine and number of threads is the fastest for a model on this machine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from functools import partial
from importlib.util import find_spec
from itertools import cycle, islice, product
from multiprocessing import get_context
from statistics import median
from typing import Any

import click
import numpy as np

import matgrad as mg
from matgrad.backends import BACKENDS
from matgrad.cli.commands import Command, echo, echo_json, json_option, option
from matgrad.cli.examples import random_examples
from matgrad.cli.options import COUNT, LOADED, NUMERIC_BACKENDS, step_options
from matgrad.cli.saved_models import chosen_loss, described_model
from matgrad.engines.fallback import TrainingStep
from matgrad.foundation.limits import THREADS
from matgrad.foundation.machine import cores, set_threads
from matgrad.foundation.writing import Table
from matgrad.specifications.origins import Plugin
from matgrad.specifications.parsing import lookup, parse_numbers, split_items

LEAST = 0.2  # seconds of a turn
BATCHES = 10  # that a turn repeats


@click.command(cls=Command)
@step_options
@option("Engine", "--backends", default=",".join(NUMERIC_BACKENDS), metavar="LIST", help="Those to try.")
@option("Engine", "--threads", metavar="LIST", help="Those to try.  [default: 1, 2, 4 … all cores]")
@option("Engine", "--eager", is_flag=True, help="Also try steps that are not compiled.")
@option("Engine", "--rounds", type=COUNT, default=5, help="How often each is measured.")
@json_option
def bench(as_json: bool, **options: Any) -> None:
    """Measure training steps of a model on generated data, and print the fastest way to train it first.

    Every backend with every number of threads has its own process. They take turns, so that a busy machine slows all
    of them down alike.
    """
    by_default = {*(2**k for k in range(16) if 2**k < cores()), cores()}
    threads = sorted(by_default if options["threads"] is None else parse_numbers(options["threads"], "--threads"))
    if not all(0 < n <= THREADS for n in threads):
        raise ValueError(f"--threads: expected numbers from 1 to {THREADS}, found {options['threads']}")
    known = {name: BACKENDS[name][2] for name in NUMERIC_BACKENDS}
    modules = {name: lookup(name, known, "backend") for name in split_items(options["backends"], "backend")}
    problems = {name: "not installed" for name, (module, *_) in modules.items() if find_spec(module) is None}
    M = described_model(options)
    loss = chosen_loss(options, M)
    ways = {
        f"--backend {name} --threads {n}{'' if compiled else ' --eager'}": (name, compiled, n)
        for name, compiled, n in product(modules, [True, False] if options["eager"] else [True], threads)
        if name not in problems
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    plugins = click.get_current_context().meta.get(LOADED, [])
    with ExitStack() as stack:  # one process works at a time, and those that fail leave
        new = partial(ProcessPoolExecutor, 1, get_context("spawn"), _load_plugins, (plugins,))
        workers = {name: stack.enter_context(new()) for name in ways}
        for r in range(options["rounds"]):
            for name in islice(cycle([*seconds]), r, r + len(seconds)):
                try:
                    turn = workers[name].submit(_turn, M, loss, options["batch_size"], options["seed"], *ways[name])
                    seconds[name].append(turn.result())
                except Exception as error:
                    problems[name] = f"{type(error).__name__}: {error}"
                    del seconds[name]
    found = sorted((median(values), name) for name, values in seconds.items())
    if not found:
        raise ValueError("; ".join(f"{name}: {reason}" for name, reason in problems.items()))
    if as_json:
        keys = ("options", "seconds_per_step", "backend", "compiled", "threads")
        rows = [dict(zip(keys, (name, s, *ways[name]), strict=True)) for s, name in found]
        echo_json({"measured": rows, "problems": problems})
        return
    cells = [[name, f"{1e3 * s:.3f}", f"{s / found[0][0]:.2f}"] for s, name in found]
    echo(Table(f"ms per step, batch {options['batch_size']}", ["options", "ms", "÷ fastest"], cells).text())
    for name, reason in problems.items():
        echo(f"{name}: {reason}", err=True)


# -- in the process of one way ----------------------------------------------------------------------

_train: Callable[[int], float] | None = None  # trains for a number of epochs, and returns the seconds per step
_times = 0  # as many make a turn


def _load_plugins(plugins: list[Plugin]) -> None:
    """Make plugins known before a model with their layers arrives."""
    for plugin in plugins:
        mg.load_plugin(plugin.path, changed=plugin.may_differ)


def _turn(
    M: mg.MultilayerPerceptron, loss: mg.LossFunction, batch_size: int, seed: int, backend: str, compiled: bool, n: int
) -> float:
    """The seconds per step of a way; its first turn compiles the step, with n threads, and runs it until it is warm."""
    global _train, _times
    if _train is not None:
        return _train(_times)
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what a framework prints is no result
    os.dup2(1, 2)
    set_threads(n)
    M = M.to(backend).train()
    set_threads(n)  # of the framework, too
    X, T = random_examples(M, loss, BATCHES * batch_size, np.random.default_rng(seed))
    loader = mg.DataLoader(X.astype(np.float32), T.astype(np.float32), batch_size).to(backend, dtype=M.dtype)
    step = mg.compile_step(M, loss) if compiled else TrainingStep(M, loss, compiled=False)
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
    _train, _times = train, max(1, round(LEAST / BATCHES / max(train(1), 1e-9)))
    return train(_times)
