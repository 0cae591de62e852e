"""The machine: its cores, the number of threads, and a limit that reaches the frameworks that are loaded after it."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from matgrad.foundation.machine import cores, threads
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


# -- cores -------------------------------------------------------------------------------------

V2, V1 = "0::/a/b\n", "3:memory:/\n2:cpuacct,cpu:/a/b\n1:cpuset:/\n"
QUOTAS = {  # the groups of the process, the files of the groups, and the quota that they set
    "no groups": ("", {}, math.inf),
    "none": (V2, {"a/b/cpu.max": "max 100000\n"}, math.inf),
    "version 2": (V2, {"a/b/cpu.max": "50000 100000\n"}, 0.5),
    "version 2, a group around it": (V2, {"a/cpu.max": "30000 20000\n", "a/b/cpu.max": "400000 100000\n"}, 1.5),
    "version 2, in a container": ("0::/\n", {"cpu.max": "100000 100000\n"}, 1),
    "version 1": (V1, {"cpu/a/b/cpu.cfs_quota_us": "25000\n", "cpu/a/b/cpu.cfs_period_us": "100000\n"}, 0.25),
    "version 1, at the top": (V1, {"cpu/cpu.cfs_quota_us": "100000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 1),
    "another controller": (
        "1:cpuset:/a\n",
        {"cpu/a/cpu.cfs_quota_us": "1\n", "cpu/a/cpu.cfs_period_us": "1\n"},
        math.inf,
    ),
    "nonsense": (V2, {"a/b/cpu.max": "many\n", "a/cpu.max": "0 0\n", "cpu.max": ""}, math.inf),
}


@pytest.fixture(params=QUOTAS)
def limited(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, float]:
    """A folder with the files of Linux that tell a quota, and the quota."""
    groups, files, expected = QUOTAS[request.param]
    for name, text in {"proc/self/cgroup": groups, **{f"sys/fs/cgroup/{k}": v for k, v in files.items()}}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path, expected


def test_a_cpu_quota_limits_the_cores(limited: tuple[Path, float]):
    native = pytest.importorskip("matgrad._native")
    root, expected = limited
    assert native.cores(str(root)) == min(native.cores(str(root / "nowhere")), math.ceil(min(expected, 1000)))
    assert native.cores() == cores()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity")
def test_cores_that_a_process_may_not_use_are_not_counted():
    code = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
    code += "from matgrad.foundation.machine import cores; print(cores())\n"
    if find_spec("matgrad._native"):
        code += "import matgrad._native; print(matgrad._native.cores())"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=PATIENCE)
    assert set(output.stdout.split()) == {"1"}


@pytest.mark.parametrize(
    ("value", "expected"), [("3", 3), (" 3 ", 3), ("2,1", 2), ("2, 1,4", 2), ("", 4), (" ", 4), ("16", 4)]
)
def test_the_number_of_threads(monkeypatch: pytest.MonkeyPatch, value: str, expected: int):
    """On a machine with 4 cores."""
    monkeypatch.setattr("matgrad.foundation.machine.cores", lambda: 4)
    monkeypatch.setenv("OMP_NUM_THREADS", value)
    assert threads() == expected


@pytest.mark.parametrize("value", ["0", "-1", "two", "1.5", ",2", "2x", "²", "１"])
def test_a_number_of_threads_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, value: str):
    monkeypatch.setenv("OMP_NUM_THREADS", value)
    with pytest.raises(ValueError, match="OMP_NUM_THREADS: expected a positive integer"):
        threads()
