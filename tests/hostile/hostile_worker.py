"""A process that reads hostile files: each line of its input names a reader and a file, each of its output the outcome.

It may take LARGEST bytes and, for one file, SECONDS of the processor; then the system ends it. It tells which lines of
the package followed which for the first time, so that `fuzzed` can go on with mutants that reach something new.
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
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import numpy as np

import matgrad
from matgrad.foundation.machine import process_memory

PACKAGE = str(Path(matgrad.__file__).parent) + os.sep  # whose lines are traced
SECONDS, MEGABYTES = 5, 500  # that a file may take
LONGEST = 100_000  # bytes of a mutant that has mutants
FORBIDDEN = ("os.system", "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "subprocess.Popen", "pty.spawn",
             "socket.connect", "socket.bind", "os.remove", "os.rename", "os.rmdir", "os.symlink", "os.link", "os.chmod",
             "shutil.rmtree", "shutil.move", "shutil.copyfile")  # fmt: skip
LARGEST = 3 << 30  # bytes of address space in which the process lives


class Outcome(NamedTuple):
    """What became of a file: 'read', 'refused', or a fault; and the steps through the package that were new."""

    verdict: str
    message: str = ""
    megabytes: int = 0
    steps: Sequence[int] = ()

    @property
    def is_fault(self) -> bool:
        """Whether it is no clear error, or took too much."""
        is_clear = self.verdict == "read" or (self.verdict == "refused" and bool(self.message.strip()))
        return not is_clear or self.megabytes > MEGABYTES


def fuzzed(reader: str, path: Path, seed: int, count: int) -> Iterator[tuple[bytes, Outcome]]:
    """The good file of a reader and so many mutants, with their outcomes; mutants that reach new code have mutants."""
    from hostile_mutants import mutant
    from hostile_readers import READERS

    rng, steps, corpus = np.random.default_rng(seed), set(), [READERS[reader].good()]
    content = corpus[0]

    def files() -> Iterator[tuple[str, Path]]:
        nonlocal content
        path.write_bytes(content)
        yield reader, path
        for _ in range(count):
            k = rng.integers(len(corpus)) if rng.random() < 0.7 else 0  # often the good file
            content = mutant(corpus[k], rng, READERS[reader].inside)
            path.write_bytes(content)
            yield reader, path

    for outcome in outcomes(files(), is_traced=True):
        if not steps.issuperset(outcome.steps) and len(content) < LONGEST:
            corpus.append(content)
        steps.update(outcome.steps)
        yield content, outcome


def outcomes(cases: Iterable[tuple[str, Path]], *, is_traced: bool = False) -> Iterator[Outcome]:
    """The outcome of each case (reader, file), with the steps, if they are traced; a worker that dies is replaced."""
    remaining, is_done = iter(cases), False
    while not is_done:
        with _start(is_traced) as worker:
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


def _start(is_traced: bool) -> subprocess.Popen:
    here = Path(__file__).resolve()
    path = os.pathsep.join([str(here.parent), str(here.parents[2] / "src"), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    environment["PYTHONHASHSEED"] = "0"  # so that steps have the same numbers in every worker
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": environment}
    return subprocess.Popen([sys.executable, str(here), *(["traced"] if is_traced else [])], **pipes)


def _outcome(read: Callable[[Path], Any], path: Path) -> Outcome:
    """The outcome of reading a file in this process."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here
    forbidden.clear()
    try:
        sys.settrace(_trace if "traced" in sys.argv else None)
        read(path)
        outcome = Outcome("read")
    except Exception as error:
        import click

        is_clear = isinstance(error, ValueError | FloatingPointError | click.ClickException)
        message = error.format_message() if isinstance(error, click.ClickException) else str(error)
        outcome = Outcome("refused" if is_clear else type(error).__name__, message)
    finally:
        sys.settrace(None)
    if forbidden:
        outcome = Outcome("did what no reader may", ", ".join(forbidden))
    steps, _new[:] = list(_new), []
    return outcome._replace(megabytes=_peak() // 1_000_000, steps=steps)


def _peak() -> int:
    """The most bytes of memory since the last reset, without the files that are mapped into it."""
    status = process_memory()
    return status["VmHWM"] - status["RssFile"] - status["RssShmem"]


# -- what happens while a file is read ------------------------------------------------------------

_known: set[int] = set()  # steps from one line of the package to the next
_new: list[int] = []
forbidden: list[str] = []
_last = 0


def _trace(frame: FrameType, event: str, argument: Any) -> Any:
    return _line if frame.f_code.co_filename.startswith(PACKAGE) else None


def _line(frame: FrameType, event: str, argument: Any) -> Any:
    global _last
    line = hash((frame.f_code.co_filename, frame.f_lineno))
    if (step := line ^ (_last >> 1)) not in _known:
        _known.add(step)
        _new.append(step)
    _last = line
    return _line


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
