"""What the tests with real processes share: small runs of the command line, and trouble at a given step."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np

from cli_support import arrays
from support import PATIENCE

RUN = ("train", "--epochs", 2, "--dtype", "float64", "--backend", "numpy", "--layers", "ReLU;Linear", "--quiet")

# a plugin: one rank gets a signal at a step of the first attempt, or fails when it is loaded
TROUBLE = """
import os, signal
from matgrad import Callback
from matgrad.callbacks.ending import Interruption

class Trouble(Callback):
    pass

def poll(self, run, known=Interruption.poll):
    if run.step >= STEP:
        Interruption.poll = known
        os.kill(os.getpid(), SIGNAL)
    known(self, run)

if os.environ.get("RANK") == "RANK_IN_TROUBLE" and os.environ.get("TORCHELASTIC_RESTART_COUNT") == "0":
    if not SIGNAL:
        raise ValueError("there is no such file on this machine")
    Interruption.poll = poll
"""


def trouble(folder: Path, rank: int, number: signal.Signals | None, step: int = 30) -> Path:
    """A plugin that sends a signal to a rank at a step or, if it is None, fails there from the start."""
    path = folder / f"trouble{rank}.py"
    value = str(int(number or 0))
    path.write_text(TROUBLE.replace("STEP", str(step)).replace("SIGNAL", value).replace("RANK_IN_TROUBLE", str(rank)))
    return path


def torchrun(*arguments: object, size: int = 2, restarts: int = 0) -> tuple[int, str, str]:
    """Exit status, standard output and standard error of ranks with one thread each."""
    variables = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    options = ["--standalone", "--nproc-per-node", size, "--max-restarts", restarts]
    command = [sys.executable, "-m", "torch.distributed.run", *options, *arguments]
    done = subprocess.run([*map(str, command)], env=variables, capture_output=True, text=True, timeout=PATIENCE)
    return done.returncode, done.stdout, done.stderr


def matgrad(*arguments: object, **options: int) -> tuple[int, str, str]:
    """The same of `matgrad ARGUMENTS`; after --, torchrun takes no option for its own."""
    return torchrun("-m", "--", "matgrad", *arguments, **options)


def free_port() -> int:
    """A port that nothing uses now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def largest_difference(one: Path, other: Path) -> float:
    """Between the matrices in two model files, which have the same names."""
    A, B = ({name: x for name, x in arrays(path).items() if x.dtype.kind == "f"} for path in (one, other))
    assert A.keys() == B.keys()
    return max(float(np.abs(A[name] - B[name]).max()) for name in A)
