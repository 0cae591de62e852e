"""JAX on two devices, and in two processes, trains as one process does."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from cases import CASES, DENSE

from support import PATIENCE

FOLDER = Path(__file__).parent
QUICK = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"  # what XLA compiles is used once
PROCESSES = ("mlp", "batchnorm", "noise")


def ranks(function: str, *arguments: str, processes: int = 1, devices: int = 1) -> list[dict]:
    """What a function of jax_worker.py returns in each of some processes, which have some devices each."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(FOLDER.parent), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices} {QUICK}",
        "OMP_NUM_THREADS": "1",
    }
    started = [
        subprocess.Popen(
            [sys.executable, FOLDER / "jax_worker.py", function, str(rank), str(processes), port, *arguments],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(processes)
    ]
    try:
        outputs = [process.communicate(timeout=PATIENCE)[0] for process in started]
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in started] == [0] * processes
    return [json.loads(output.splitlines()[-1]) for output in outputs]


@pytest.fixture(scope="module")
def two_devices() -> dict:
    return ranks("same", *DENSE, devices=2)[0]


@pytest.fixture(scope="module")
def two_processes() -> list[dict]:
    return ranks("same", *PROCESSES, processes=2)


@pytest.mark.parametrize("name", DENSE)
def test_two_devices_train_as_one(two_devices: dict, name: str):
    error, _ = two_devices[name]
    assert error <= CASES[name].tolerance


@pytest.mark.parametrize("name", PROCESSES)
def test_two_processes_train_as_one_and_stay_equal(two_processes: list[dict], name: str):
    (error, first), (_, second) = (found[name] for found in two_processes)
    assert error <= CASES[name].tolerance
    assert first == second
