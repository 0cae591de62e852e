"""The command line changes what a process has once: each test gets it back as it was, and a folder of its own."""

from __future__ import annotations

import signal

import numpy as np
import pytest

from matgrad.foundation.machine import THREADS

# a shell ignores Ctrl-C in what it runs in the background, and so would the programs that the tests start
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty working directory; the environment and NumPy's printing are restored afterwards."""
    monkeypatch.chdir(tmp_path)
    for variable in THREADS:
        monkeypatch.setenv(variable, "1")
    monkeypatch.setenv("XLA_FLAGS", "")
    with np.printoptions():
        yield tmp_path
