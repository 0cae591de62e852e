"""A process that reads hostile files: each line of its input names a reader and a file, each of its output the outcome.

It may take LARGEST bytes and, for one file, SECONDS of the processor; then the system ends it.
"""

from __future__ import annotations

import io
import json
import os
import resource
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

SECONDS, MEGABYTES = 5, 500  # that a file may take
LARGEST = 3 << 30  # bytes of address space in which the process lives


class Outcome(NamedTuple):
    """What became of a file: 'read', 'refused', or a fault."""

    verdict: str
    message: str = ""
    megabytes: int = 0


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


def _outcome(read, path: Path) -> Outcome:
    """The outcome of reading a file in this process."""
    from matgrad.bench.measuring import memory

    memory.trim()
    memory.RESET.write_text("5")
    try:
        read(path)
        outcome = Outcome("read")
    except Exception as error:
        import click

        is_clear = isinstance(error, ValueError | click.ClickException)
        message = error.format_message() if isinstance(error, click.ClickException) else str(error)
        outcome = Outcome("refused" if is_clear else type(error).__name__, message)
    return outcome._replace(megabytes=memory.peak() // 1_000_000)


def main() -> None:
    """Read the cases from standard input; what readers print goes nowhere."""
    replies, sys.stdout = sys.stdout, io.StringIO()
    warnings.simplefilter("ignore")
    from hostile_readers import READERS

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
