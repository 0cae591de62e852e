"""The processes of the tools, as their parent sees them: a team whose members take turns."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

from matgrad.bench.measuring.files import read_parameters
from matgrad.bench.measuring.memory import available_memory
from matgrad.bench.tools.registry import ALL_TOOLS
from matgrad.bench.tools.training_tool import Parameters, Setting

LINES = 5  # the last lines that a tool printed, shown with its error
PAUSE = 0.1  # seconds between two turns, in which the threads of the previous tool come to rest


class ToolError(RuntimeError):
    """A tool failed: the message has the reason and the last lines that it printed."""


WORKER = "matgrad.bench.measuring.worker"


class Process:
    """The process of one tool, or of another worker."""

    def __init__(
        self,
        name: str,
        folder: Path,
        threads: int,
        dtype: str,
        worker: str = WORKER,
        variables: Mapping[str, str] | None = None,
        device: str | None = None,
    ) -> None:
        self.name = name
        self.log = folder / f"{name}{(variables or {}).get('RANK', '')}.log"
        on_gpu = device not in (None, "cpu")
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", worker, name, str(threads)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=os.environ | _environment(dtype, folder if on_gpu else None) | dict(variables or {}),
            )

    def ask(self, **request: Any) -> dict[str, Any]:
        """The reply to a request."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended, and so has its output
        line = self.process.stdout.readline()
        if not line:
            status = self.process.wait()
            raise ToolError(f"ended with exit status {status}{self._last_lines()}")
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            raise ToolError(f"failed: {reply['error']}{self._last_lines()}")
        return reply

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.communicate()

    def _last_lines(self) -> str:
        lines = [line.strip() for line in self.log.read_text(errors="replace").splitlines()]
        said = [line for line in lines if line.strip("^~")][-LINES:]  # without the marks of a traceback
        return f"; it printed last: {' | '.join(said)}" if said else ""


def free_port() -> int:
    """A port that nothing uses now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Ranks:
    """The processes of one tool that train together: all are asked at the same time, and rank 0 answers."""

    def __init__(self, name: str, folder: Path, threads: int, dtype: str, size: int) -> None:
        shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(size)}
        places = [shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(size)]
        self.processes = [Process(name, folder, threads, dtype, variables=place) for place in places]

    def ask(self, **request: Any) -> dict[str, Any]:
        """The reply of rank 0 to a request; if a rank fails, all are ended, which would wait for it."""
        with ThreadPoolExecutor(len(self.processes)) as pool:
            replies = [pool.submit(process.ask, **request) for process in self.processes]
            for reply in as_completed(replies):
                if error := reply.exception():
                    for process in self.processes:
                        process.process.kill()
                    raise error
        return replies[0].result()

    def close(self) -> None:
        """End the processes."""
        for process in self.processes:
            process.close()


def _environment(dtype: str, folder: Path | None) -> dict[str, str]:
    """Environment variables for the frameworks: 64 bits if they are asked for; without a folder, the CPU alone.

    Processes that share a GPU take as much of its memory as they need, and those of JAX what XLA found to be fast,
    which they keep in the folder.
    """
    only_cpu = {"CUDA_VISIBLE_DEVICES": "-1", "JAX_PLATFORMS": "cpu"}
    shared = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "JAX_COMPILATION_CACHE_DIR": str(folder)}
    return {
        **(only_cpu if folder is None else shared),
        "JAX_ENABLE_X64": "1" if dtype == "float64" else "0",
        "KERAS_BACKEND": "tensorflow",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }


class Team(AbstractContextManager):
    """The processes of several tools, of which one works at a time.

    A tool that fails leaves the team, and `failures` has the reason. `report` is called after every turn.
    """

    pause = PAUSE

    def __init__(
        self,
        names: list[str],
        folder: Path,
        threads: int,
        dtype: str,
        report: Callable[[str], None],
        device: str | None = None,
    ) -> None:
        self.folder, self.report = folder, report
        self.failures: dict[str, str] = {}
        self.waiting: dict[str, list[float]] = {}  # the seconds of each tool, in every round
        self._processes: dict[str, Process | Ranks] = {}
        for name in names:
            size = ALL_TOOLS[name].processes
            common = name, folder, threads, dtype
            self._processes[name] = Process(*common, device=device) if size == 1 else Ranks(*common, size)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for process in self._processes.values():
            process.close()

    def imports(self) -> None:
        """Let all tools import their frameworks at the same time."""
        with ThreadPoolExecutor(max(len(self._processes), 1)) as pool:
            list(pool.map(lambda name: self._ask(name, do="imports"), list(self._processes)))

    def setup(self, setting: Setting, problem: Path, rehearse: bool = False) -> dict[str, dict[str, Any]]:
        """Prepare every tool, after a rehearsal if asked for; returns the seconds of its parts and its memory.

        Those that need not be alone are prepared while the others are, one after another.
        """
        size = (problem / "X.npy").stat().st_size
        self._keep = 2 * size * len(self._processes) < available_memory()  # else it is loaded again in every round
        request = {"setting": asdict(setting), "folder": str(problem), "keep": self._keep, "rehearse": rehearse}

        def prepare(name: str) -> dict[str, Any] | None:
            reply = self._ask(name, do="setup", **request)
            if reply is not None:
                self.report(f"{name} ready after {sum(reply[part] for part in ('import', 'load', 'prepare')):.1f} s")
            return reply

        with ThreadPoolExecutor(max(len(self._processes), 1)) as pool:
            others = {x: pool.submit(prepare, x) for x in list(self._processes) if not ALL_TOOLS[x].is_alone}
            found = {name: prepare(name) for name in list(self._processes) if name not in others}
            found |= {name: reply.result() for name, reply in others.items()}
        return {name: reply for name in self._processes if (reply := found[name]) is not None}

    def rounds(self, number: int) -> dict[str, list[float]]:
        """The seconds of each tool for one epoch per round; another tool begins each round."""
        seconds: dict[str, list[float]] = {name: [] for name in self._processes}
        self.waiting = {name: [] for name in self._processes}
        for r in range(number):
            names = list(self._processes)
            first = r % max(len(names), 1)
            for name in names[first:] + names[:first]:
                time.sleep(self.pause)
                reply = self._ask(name, do="epoch", keep=self._keep)
                if reply is not None:
                    seconds[name].append(reply["seconds"])
                    self.waiting[name].append(reply["waiting"])
                    self.report(f"round {r + 1} of {number}: {name} {reply['seconds']:.3f} s")
        return {name: seconds[name] for name in self._processes}

    def parameters(self, after: int | None = None) -> dict[str, Parameters]:
        """The present parameters of each tool, or those after so many batches from the initial ones."""
        found = {}
        for name in list(self._processes):
            path = self.folder / f"{name}.npz"
            if after is not None and self._ask(name, do="epoch", keep=self._keep, batches=after) is None:
                continue
            if self._ask(name, do="save", path=str(path)) is not None:
                found[name] = read_parameters(path)
        return found

    def _ask(self, name: str, **request: Any) -> dict[str, Any] | None:
        """The reply of a tool; None if it failed and has left."""
        try:
            return self._processes[name].ask(**request)
        except ToolError as error:
            self.failures[name] = str(error)
            self.report(f"{name} {error}")
            self._processes.pop(name).close()
            return None
