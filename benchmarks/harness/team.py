"""A team of tools, each in its own process, which take turns: what they measure together is a point of a record."""

from __future__ import annotations

import argparse
import os
import socket
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import FIRST_EXCEPTION, ProcessPoolExecutor, wait
from contextlib import ExitStack
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import numpy as np

from harness import worker
from harness.problems import Data, Parameters, Setting, initial_parameters, stored, values_of
from harness.tools import Tool
from matgrad.foundation.machine import THREADS

PAUSE = 0.1  # seconds between two turns, in which the threads of the previous tool come to rest
TINY = 1e-9  # seconds, for what took none
Record = dict[str, Any]


def say(text: str) -> None:
    """Show where a benchmark is."""
    print(text, file=sys.stderr, flush=True)


class Ranks:
    """The processes of a tool, of which rank 0 answers: several train together."""

    def __init__(self, tool: Tool, threads: int, variables: Mapping[str, str]) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
        self.pools = []
        for r in range(tool.processes):
            rank = {**address, "WORLD_SIZE": str(tool.processes), "RANK": str(r), "LOCAL_RANK": str(r)}
            self.pools.append(ProcessPoolExecutor(1, get_context("spawn"), worker.start, (tool, threads)))
            with patch.dict(os.environ, {**variables, **(rank if tool.processes > 1 else {})}):
                self.pools[-1].submit(int)  # starts the process

    def ask(self, *request: Any) -> Any:
        """The reply of rank 0 to a request; an error as soon as a rank fails, for which the others would wait."""
        futures = [pool.submit(worker.answer, *request) for pool in self.pools]
        for future in wait(futures, return_when=FIRST_EXCEPTION).done:
            future.result()
        return futures[0].result()

    def close(self) -> None:
        """End the processes."""
        for pool in self.pools:
            pool.shutdown(wait=False, cancel_futures=True)


def environment_of(setting: Setting, threads: int, folder: Path) -> dict[str, str]:
    """Variables for the frameworks: threads, 64 bits if they are asked for; without a device, the CPU alone.

    Processes that share a GPU take as much of its memory as they need, and those of JAX keep in the folder what XLA
    found to be fast.
    """
    only_cpu = {"CUDA_VISIBLE_DEVICES": "-1", "JAX_PLATFORMS": "cpu"}
    shared = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "JAX_COMPILATION_CACHE_DIR": str(folder)}
    one_thread = {"XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false".strip()}
    return {
        **(only_cpu if setting.device in (None, "cpu") else shared),
        **dict.fromkeys(THREADS, str(threads)),
        **(one_thread if threads == 1 else {}),
        "JAX_ENABLE_X64": "1" if setting.dtype == "float64" else "0",
        "KERAS_BACKEND": "tensorflow",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "TMPDIR": str(folder),
    }


class Team(ExitStack):
    """The tools in their processes, and a folder of theirs; a tool that fails leaves."""

    def __init__(self, tools: Mapping[str, Tool], setting: Setting, threads: int) -> None:
        super().__init__()
        self.failures = dict[str, str]()
        self.folder = Path(self.enter_context(tempfile.TemporaryDirectory(prefix="matgrad-bench-")))
        self.processes: dict[str, Any] = {}
        for name, tool in tools.items():
            own = tool.threads or max(threads // tool.processes, 1)
            self.processes[name] = Ranks(tool, own, environment_of(setting, own, self.folder))
            self.callback(self.processes[name].close)

    def ask(self, *request: Any) -> dict[str, Any]:
        """The replies of all tools."""
        return {name: self.ask_one(name, *request) for name in list(self.processes)}

    def ask_one(self, name: str, *request: Any) -> Any:
        """The reply of a tool; None if it failed and has left."""
        try:
            return self.processes[name].ask(*request)
        except Exception as error:
            self.failures[name] = f"failed: {type(error).__name__}: {error}"
            say(f"{name} {self.failures[name]}")
            self.processes.pop(name).close()
            return None

    def rounds(self, number: int) -> dict[str, list[tuple[float, float]]]:
        """The seconds of each tool for one epoch per round, and those of waiting; another tool begins each round."""
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in self.processes}
        for r in range(number):
            names = list(self.processes)
            first = r % max(len(names), 1)
            for name in names[first:] + names[:first]:
                time.sleep(PAUSE)
                if (reply := self.ask_one(name, "epoch")) is not None:
                    found[name].append(reply)
                    say(f"round {r + 1} of {number}: {name} {reply[0]:.3f} s")
        return found


def measure(
    title: str,
    tools: Mapping[str, Tool],
    setting: Setting,
    data: Data,
    options: argparse.Namespace,
    *,
    density: float = 1.0,
    rehearse: bool = False,
    compared: int | None = None,
) -> tuple[Record, dict[str, Parameters]]:
    """A point of a record, and the parameters of the tools: they train one epoch per round, from the same weights.

    They rehearse if it matters how much memory they take. The parameters are those after the last epoch or, if
    `compared` is given, after so many batches.
    """
    say(title)
    initial = initial_parameters(setting, options.seed, density)
    steps = len(data.Xtrain) // setting.batch_size
    with Team(tools, setting, options.threads) as team:
        np.save(team.folder / "X.npy", data.Xtrain.astype(setting.dtype, copy=False))
        np.save(team.folder / "t.npy", data.Ttrain)
        startup = team.ask("setup", setting, team.folder, initial, rehearse)
        rounds = team.rounds(options.rounds)
        if compared is not None:
            team.ask("epoch", min(compared, steps))
        replies = team.ask("parameters")
        parameters = {name: replies[name] for name in team.processes}
    seconds = {name: [t for t, _ in rounds[name]] for name in parameters}
    rows = {
        name: {
            **tools[name].about(),
            **times(seconds[name]),
            "per_step": median(seconds[name]) / steps,
            "per_example": median(seconds[name]) / steps / setting.batch_size,
            "waiting": median(waiting / max(t, TINY) for t, waiting in rounds[name]),
            "startup": startup[name],
            "ratios": {other: ratio(seconds, name, other) for other in seconds if other != name},
            "difference": difference(name, parameters, ("pytorch", *tools[name].baselines)),
        }
        for name in parameters
    }
    about = {"sizes": list(setting.sizes), "batch_size": setting.batch_size, "steps": steps}
    about |= {"optimizer": setting.optimizer, "density": density, "nnz": stored(initial), "data": data.about()}
    failures = {f"{title}: {name}": reason for name, reason in team.failures.items()}
    return {"title": title, **about, "tools": rows, "failures": failures}, parameters


def times(seconds: list[float]) -> Record:
    """The net seconds of the rounds, their median and their minimum."""
    return {"seconds": seconds, "median": median(seconds), "best": min(seconds)}


def ratio(seconds: Mapping[str, list[float]], name: str, other: str) -> Record:
    """The ratios of the rounds."""
    values = [a / max(b, TINY) for a, b in zip(seconds[name], seconds[other], strict=True)]
    return {"to": other, "values": values, "median": median(values), "best": min(values)}


def difference(name: str, parameters: Mapping[str, Parameters], baselines: Iterable[str]) -> Record | None:
    """The largest max|θ - θ'| / max|θ'| over the parameters θ, with θ' those of the first baseline that trains."""
    other = next((x for x in baselines if parameters.get(x)), None)
    if other is None or other == name or not parameters.get(name):
        return None
    found, expected = ([values_of(A) for pair in parameters[x] for A in pair] for x in (name, other))
    pairs = zip(found, expected, strict=True)
    return {"to": other, "relative": max(float(np.abs(A - B).max() / np.abs(B).max()) for A, B in pairs)}
