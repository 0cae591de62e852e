"""What the tests with real processes share: small runs of the command line, and trouble at a given step."""

from __future__ import annotations

import os
import signal
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
from matgrad.callbacks.interruption import Interruption

class Trouble(Callback):
    pass

def poll(self, run, known=Interruption.poll):
    if run.step >= STEP:
        Interruption.poll = known
        os.kill(os.getpid(), SIGNAL)
    known(self, run)

if os.environ.get("RANK") == "RANK_IN_TROUBLE" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
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


def started(*arguments: object, program: tuple[str, ...] = ("-m", "matgrad")) -> subprocess.Popen:
    """A program of this Python, alone with its thread."""
    variables = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, *program, *map(str, arguments)]
    return subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen) -> tuple[int, str, str]:
    """Exit status, standard output and standard error."""
    output, errors = process.communicate(timeout=PATIENCE)
    return process.returncode, output, errors


def matgrad(*arguments: object) -> tuple[int, str, str]:
    """Exit status, standard output and standard error of `matgrad ARGUMENTS`."""
    return ended(started(*arguments))


def largest_difference(one: Path, other: Path) -> float:
    """Between the matrices in two model files, which have the same names."""
    A, B = ({name: x for name, x in arrays(path).items() if x.dtype.kind == "f"} for path in (one, other))
    assert A.keys() == B.keys()
    return max(float(np.abs(A[name] - B[name]).max()) for name in A)
