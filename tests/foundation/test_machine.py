"""The machine: a limit of threads reaches the frameworks that are loaded after it."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import pytest

from support import PATIENCE

COUNTS = {  # what a framework says of its threads when it has computed something
    "jax": """
from pathlib import Path
jax.numpy.ones(3).block_until_ready()
names = [Path(task, "comm").read_text() for task in Path("/proc/self/task").iterdir()]
print(sum("XLAEigen" in name for name in names))
""",
    "torch": "print(torch.get_num_threads())",
}


@pytest.mark.skipif(sys.platform != "linux", reason="the threads are counted in /proc")
@pytest.mark.parametrize(
    ("framework", "threads"), [("jax", 1), ("jax", 3), ("torch", 1)]
)  # torch has one per core at most
def test_threads_of_a_framework_are_limited(framework: str, threads: int):
    if find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")
    limit = f"from matgrad.foundation.machine import set_threads\nset_threads({threads})\nimport {framework}\n"
    command = [sys.executable, "-c", limit + COUNTS[framework]]
    output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE).stdout
    assert int(output) == threads
