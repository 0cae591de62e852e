"""A process that reads hostile files: each line of its input names a reader and a file, each of its output the outcome.

It may take LARGEST bytes and, for one file, SECONDS of the processor; then the system ends it.
"""

from __future__ import annotations

import gc
import io
import json
import os
import platform
import resource
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from matgrad.foundation.machine import process_memory

SECONDS, MEGABYTES = 5, 500  # that a file may take
FORBIDDEN = ("os.system", "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "subprocess.Popen", "pty.spawn",
             "socket.connect", "socket.bind", "os.remove", "os.rename", "os.rmdir", "os.symlink", "os.link", "os.chmod",
             "shutil.rmtree", "shutil.move", "shutil.copyfile")  # fmt: skip
LARGEST = 3 << 30  # bytes of address space in which the process lives


class Outcome(NamedTuple):
    """What became of a file: 'read', 'refused', or a fault."""

    verdict: str
    message: str = ""
    megabytes: int = 0

    @property
    def is_fault(self) -> bool:
        """Whether it is no clear error, or took too much."""
        is_clear = self.verdict == "read" or (self.verdict == "refused" and bool(self.message.strip()))
        return not is_clear or self.megabytes > MEGABYTES


def fuzzed(reader: str, path: Path, seed: int, count: int) -> Iterator[tuple[bytes, Outcome]]:
    """The good file of a reader and so many mutants, with their outcomes."""
    from hostile_mutants import mutant
    from hostile_readers import READERS

    rng, good = np.random.default_rng(seed), READERS[reader].good()
    contents = [good, *(mutant(good, rng, READERS[reader].inside) for _ in range(count))]

    def files() -> Iterator[tuple[str, Path]]:
        for content in contents:
            path.write_bytes(content)
            yield reader, path

    yield from zip(contents, outcomes(files()), strict=True)


def outcomes(cases: Iterable[tuple[str, Path]]) -> Iterator[Outcome]:
    """The outcome of each case (reader, file); a worker that dies is replaced."""
    remaining, is_done = iter(cases), False
    while not is_done:
        with _start() as worker:
            for reader, path in remaining:
                worker.stdin.write(json.dumps([reader, str(path)]) + "\n")
                worker.stdin.flush()
                if not (line := worker.stdout.readline()):
                    break
                yield Outcome(*json.loads(line))
            else:
                is_done = True
        if not is_done:
            is_slow = worker.returncode == -signal.SIGPROF
            yield Outcome("died", "took too long" if is_slow else f"ended with status {worker.returncode}")


def _start() -> subprocess.Popen:
    here = Path(__file__).resolve()
    path = os.pathsep.join([str(here.parent), str(here.parents[2] / "src"), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": environment}
    return subprocess.Popen([sys.executable, str(here)], **pipes)


def _outcome(read: Callable[[Path], Any], path: Path) -> Outcome:
    """The outcome of reading a file in this process."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here
    forbidden.clear()
    try:
        read(path)
        outcome = Outcome("read")
    except Exception as error:
        import click

        is_clear = isinstance(error, ValueError | FloatingPointError | click.ClickException)
        message = error.format_message() if isinstance(error, click.ClickException) else str(error)
        outcome = Outcome("refused" if is_clear else type(error).__name__, message)
    if forbidden:
        outcome = Outcome("did what no reader may", ", ".join(forbidden))
    return outcome._replace(megabytes=_peak() // 1_000_000)


def _peak() -> int:
    """The most bytes of memory since the last reset, without the files that are mapped into it."""
    status = process_memory()
    return status["VmHWM"] - status["RssFile"] - status["RssShmem"]


# -- what happens while a file is read ------------------------------------------------------------

forbidden: list[str] = []


def watch(event: str, arguments: tuple) -> None:
    """Note what a file must not make a reader do."""
    if event in FORBIDDEN:
        forbidden.append(f"{event}{arguments!r:.100}")


def main() -> None:
    """Read the cases from standard input; what readers print goes nowhere."""
    replies, sys.stdout = sys.stdout, io.StringIO()
    warnings.simplefilter("ignore")
    sys.modules["keras"] = None  # a .keras file is read without it, and then not compared
    from hostile_readers import READERS

    platform.processor()  # which libraries ask for when they are imported, and which starts a process the first time
    sys.addaudithook(watch)
    resource.setrlimit(resource.RLIMIT_AS, (LARGEST, LARGEST))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for line in sys.stdin:
        name, path = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, SECONDS)  # its signal ends the process
        outcome = _outcome(READERS[name].read, Path(path))
        signal.setitimer(signal.ITIMER_PROF, 0)
        replies.write(json.dumps(outcome) + "\n")
        replies.flush()


if __name__ == "__main__":
    main()
