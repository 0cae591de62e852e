"""The processes of the tools, as their parent sees them: a team whose members take turns."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from harness.problems import Data, Parameters, Setting, read_parameters, write_problem
from harness.tools import Tool
from matgrad.foundation.machine import THREADS

FOLDER = Path(__file__).resolve().parents[1]
LINES = 5  # the last lines that a tool printed, shown with its error
PAUSE = 0.1  # seconds between two turns, in which the threads of the previous tool come to rest
Report = Callable[[str], None]


class ToolError(RuntimeError):
    """A tool failed: the message has the reason and the last lines that it printed."""


class Process:
    """A process that answers requests: `python -m MODULE ARGUMENT`."""

    def __init__(self, argument: str, log: Path, variables: Mapping[str, str], module: str = "harness.worker") -> None:
        self.log = log
        path = os.pathsep.join([str(FOLDER), *filter(None, [os.environ.get("PYTHONPATH")])])
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, argument],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
                env=os.environ | {"PYTHONPATH": path} | dict(variables),
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
            raise ToolError(f"ended with exit status {self.process.wait()}{self._last_lines()}")
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


class Ranks:
    """The processes of one tool that train together: all are asked at the same time, and rank 0 answers."""

    def __init__(self, argument: str, log: Path, variables: Mapping[str, str], size: int) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        shared = {**variables, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(size)}
        self.processes = [
            Process(argument, log.with_suffix(f".{r}.log"), shared | {"RANK": str(r), "LOCAL_RANK": str(r)})
            for r in range(size)
        ]

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


def environment_of(dtype: str, device: str | None, threads: int, folder: Path) -> dict[str, str]:
    """Variables for the frameworks: threads, 64 bits if they are asked for; without a device, the CPU alone.

    Processes that share a GPU take as much of its memory as they need, and those of JAX keep in the folder what XLA
    found to be fast.
    """
    only_cpu = {"CUDA_VISIBLE_DEVICES": "-1", "JAX_PLATFORMS": "cpu"}
    shared = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "JAX_COMPILATION_CACHE_DIR": str(folder)}
    one_thread = {"XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false".strip()}
    return {
        **(only_cpu if device in (None, "cpu") else shared),
        **dict.fromkeys(THREADS, str(threads)),
        **(one_thread if threads == 1 else {}),
        "JAX_ENABLE_X64": "1" if dtype == "float64" else "0",
        "KERAS_BACKEND": "tensorflow",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }


@dataclass(frozen=True)
class Turns:
    """What the tools did: the times of their start-ups and of every round, and the parameters they ended with."""

    startup: dict[str, dict[str, Any]]
    seconds: dict[str, list[float]]
    waiting: dict[str, list[float]]  # for other processes, in every round
    parameters: dict[str, Parameters]


class Team(AbstractContextManager):
    """The processes of several tools, of which one works at a time.

    A tool that fails leaves the team, and `failures` has the reason. `report` is called after every turn.
    """

    def __init__(
        self,
        tools: Mapping[str, Tool],
        *,
        threads: int,
        dtype: str = "float32",
        device: str | None = None,
        report: Report = lambda text: None,
    ) -> None:
        self.report, self.failures = report, dict[str, str]()
        self._folder = tempfile.TemporaryDirectory(prefix="matgrad-bench-")
        self.folder = Path(self._folder.name)
        self.processes: dict[str, Process | Ranks] = {}
        for name, tool in tools.items():
            count = tool.threads or max(threads // tool.processes, 1)
            description = {"class_name": tool.class_name, "arguments": tool.arguments, "threads": count}
            variables = environment_of(dtype, device, count, self.folder)
            if tool.checkout is not None:
                variables["MATGRAD_SOURCE"] = str(tool.checkout.resolve() / "src")
            common = json.dumps(description), self.folder / f"{name}.log", variables
            self.processes[name] = Process(*common) if tool.processes == 1 else Ranks(*common, tool.processes)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for process in self.processes.values():
            process.close()
        self._folder.cleanup()

    def train(
        self,
        setting: Setting,
        data: Data,
        initial: Parameters,
        rounds: int,
        *,
        rehearse: bool = False,
        compared: int | None = None,
    ) -> Turns:
        """Let the tools train one epoch per round, from the initial parameters; another tool begins each round.

        They rehearse if it matters how much memory they take. The parameters are those after the last epoch or, if
        `compared` is given, after so many batches.
        """
        write_problem(self.folder, data.Xtrain.astype(setting.dtype, copy=False), data.Ttrain, initial)
        startup = self._setup(setting, rehearse)
        seconds, waiting = self.rounds(rounds)
        if compared is not None:
            for name in list(self.processes):
                self._ask(name, do="epoch", batches=compared)
        parameters = {}
        for name in list(self.processes):
            path = self.folder / f"{name}.npz"
            if self._ask(name, do="save", path=str(path)) is not None:
                parameters[name] = read_parameters(path)
        names = list(parameters)  # those that have not failed
        return Turns(*({name: part[name] for name in names} for part in (startup, seconds, waiting)), parameters)

    def _setup(self, setting: Setting, rehearse: bool) -> dict[str, dict[str, Any]]:
        """Prepare every tool; returns the seconds of its parts and its memory."""
        found = {}
        for name in list(self.processes):
            request = {"setting": asdict(setting), "folder": str(self.folder), "rehearse": rehearse}
            reply = self._ask(name, do="setup", **request)
            if reply is not None:
                found[name] = reply
                self.report(f"{name} ready after {sum(reply[x] for x in ('import', 'load', 'prepare')):.1f} s")
        return found

    def rounds(self, number: int) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
        """The seconds of each tool for one epoch per round, and those of waiting; another tool begins each round."""
        seconds: dict[str, list[float]] = {name: [] for name in self.processes}
        waiting: dict[str, list[float]] = {name: [] for name in self.processes}
        for r in range(number):
            names = list(self.processes)
            first = r % max(len(names), 1)
            for name in names[first:] + names[:first]:
                time.sleep(PAUSE)
                reply = self._ask(name, do="epoch")
                if reply is not None:
                    seconds[name].append(reply["seconds"])
                    waiting[name].append(reply["waiting"])
                    self.report(f"round {r + 1} of {number}: {name} {reply['seconds']:.3f} s")
        return seconds, waiting

    def _ask(self, name: str, **request: Any) -> dict[str, Any] | None:
        """The reply of a tool; None if it failed and has left."""
        try:
            return self.processes[name].ask(**request)
        except ToolError as error:
            self.failures[name] = str(error)
            self.report(f"{name} {error}")
            self.processes.pop(name).close()
            return None
