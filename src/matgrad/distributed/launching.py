"""Several processes on this machine that train together: started, watched, ended and started again as one."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import IO

from matgrad.foundation.machine import THREADS, cores

LOST = 75  # the exit status of a rank that ends because another one has ended
INTERRUPTED = 130
FINAL = (2, INTERRUPTED)  # bad input, and an interruption, would only happen again
GRACE = 5.0  # seconds in which ranks find out by themselves that one has ended, or obey a signal
PAUSE = 0.05  # between two looks


def launch(command: Sequence[str], size: int, *, restarts: int = 0, say: Callable[[str], None]) -> int:
    """Run a command as `size` ranks, again after a failure if there are restarts left; returns the exit status.

    It is that of the first rank that failed. Rank 0 has the terminal. What the others print is kept, and shown for the
    one that failed first.
    """
    name = uuid.uuid4().hex
    for attempt in range(restarts + 1):
        with ExitStack() as at_end:
            ranks = Ranks(command, size, {"TORCHELASTIC_RUN_ID": name, "TORCHELASTIC_RESTART_COUNT": str(attempt)})
            at_end.callback(ranks.end)
            at_end.enter_context(ranks.forwarding())
            ranks.wait()
        if (failed := ranks.failed()) is None:
            return 0 if ranks.signals < 2 else INTERRUPTED
        for line in ranks.account(failed):
            say(line)
        status = ranks.status(failed)
        if ranks.signals and status == 1:  # a signal came before they could obey it
            return INTERRUPTED
        if status in FINAL or ranks.signals or attempt == restarts:
            break
        say(f"the run starts again ({attempt + 1} of {restarts})")
    return status


class Ranks:
    """The processes of one attempt, which must come to an `end`."""

    def __init__(self, command: Sequence[str], size: int, variables: Mapping[str, str]) -> None:
        common = {**dict.fromkeys(THREADS, str(max(1, cores() // size))), **os.environ, **variables}
        common |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        common |= {"WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size)}
        self.signals = 0  # that were handed on
        self._outputs: list[IO[bytes] | None] = [None, *(tempfile.TemporaryFile() for _ in range(1, size))]  # noqa: SIM115
        self._processes = [
            _start(command, common | {"RANK": str(rank), "LOCAL_RANK": str(rank)}, output)
            for rank, output in enumerate(self._outputs)
        ]

    def wait(self) -> None:
        """Wait until all ranks are done, one has failed, or there was a second signal."""
        while self.signals < 2 and not self._failures() and any(process.poll() is None for process in self._processes):
            time.sleep(PAUSE)

    def end(self) -> None:
        """Wait for those who end by themselves, and end the others."""
        first = self._failures()
        is_over = self._are_gone(GRACE)
        self._failed = [*first, *(rank for rank in self._failures() if rank not in first)]
        for number in (signal.SIGTERM, signal.SIGKILL):
            if not is_over:
                self._send(number)
                is_over = self._are_gone(GRACE)
        self._printed = [_content(output) for output in self._outputs]

    def failed(self) -> int | None:
        """The first rank that has failed by itself, not because another one had."""
        return min(self._failed, key=lambda rank: self.status(rank) == LOST, default=None)

    def _failures(self) -> list[int]:
        return [rank for rank, process in enumerate(self._processes) if process.poll()]

    @contextmanager
    def forwarding(self) -> Iterator[None]:
        """Hand signals that would end this process on to the ranks; it ends after them."""
        numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
        before = {number: signal.signal(number, self._forward) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def status(self, rank: int) -> int:
        """The exit status of a rank, as a shell has it."""
        code = self._processes[rank].returncode
        return 128 - code if code < 0 else code

    def account(self, rank: int) -> Iterator[str]:
        """What there is to say about a rank that failed: its signal, and what it has printed."""
        if (code := self._processes[rank].returncode) < 0:
            yield f"rank {rank} was ended by {signal.Signals(-code).name}"
        yield from (f"rank {rank}: {line}" for line in self._printed[rank].splitlines())

    def _forward(self, number: int, frame: FrameType | None) -> None:
        self.signals += 1
        self._send(number)

    def _send(self, number: int) -> None:
        for process in self._processes:
            process.send_signal(number)  # does nothing if it has ended

    def _are_gone(self, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while any(process.poll() is None for process in self._processes):
            if time.monotonic() > end:
                return False
            time.sleep(PAUSE)
        return True


def _start(command: Sequence[str], variables: dict[str, str], output: IO[bytes] | None) -> subprocess.Popen[bytes]:
    """A rank in a process group of its own: Ctrl-C in the terminal reaches it once, from its parent."""
    errors = None if output is None else subprocess.STDOUT
    is_linux = sys.platform == "linux"
    return subprocess.Popen(
        command,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=errors,
        process_group=0,
        preexec_fn=_end_with_parent if is_linux else None,
    )


def _content(output: IO[bytes] | None) -> str:
    """What was printed to a file, which is closed; nothing if it was printed to the terminal."""
    if output is None:
        return ""
    with output:
        output.seek(0)
        return output.read().decode(errors="replace")


def _end_with_parent() -> None:
    """Let the system end this process when its parent does, even if that is killed."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def free_port() -> int:
    """A port that nobody uses now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]
