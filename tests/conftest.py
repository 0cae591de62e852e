"""One pytest process per framework: `pytest` covers NumPy and PyTorch, `pytest --backend jax` JAX.

Every run tells its peak memory, and can be made to fail above a limit.
"""

from __future__ import annotations

import os
import resource
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_BACKEND", "torch")

import pytest

from matgrad.bench.measuring import memory
from matgrad.specifications.plugins import REGISTRIES
from support import Framework

DEFAULT_BACKENDS = ("numpy", "torch")
MB = 1_000_000
ENOUGH = 1200 * MB  # of a process before it forgets what JAX has compiled, and how much more before it does so again
GROWTH = 150 * MB


def pytest_addoption(parser):
    parser.addoption("--backend", help="run only the tests of a backend, on this one: numpy, torch, jax, tensorflow")
    parser.addoption("--memory-limit", type=int, metavar="MB", help="peak memory above which a run fails")


def pytest_generate_tests(metafunc):
    if "backend" in metafunc.fixturenames:
        chosen = metafunc.config.getoption("--backend")
        backends = getattr(metafunc.module, "BACKENDS", DEFAULT_BACKENDS)  # the C++ core where steps are compiled
        metafunc.parametrize("backend", [chosen] if chosen else backends, indirect=True, scope="session")


def pytest_collection_modifyitems(config, items):
    if config.getoption("--backend"):
        others = [item for item in items if "backend" not in item.fixturenames]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if "backend" in item.fixturenames]


@pytest.fixture(scope="session")
def backend(request) -> Framework:
    """The framework under test."""
    return Framework(request.param)


@pytest.fixture(autouse=True)
def _plugins_forgotten():
    """What plugins define is known by name in the whole process: the next test does not know it."""
    registries = [(registry, dict(registry)) for _, registry, _ in REGISTRIES]
    yield
    for registry, original in registries:
        registry.clear()
        registry.update(original)


_limit = ENOUGH


@pytest.fixture(autouse=True)
def _bounded_memory():
    """Functions that JAX compiled for some tests are of little use for the next; compiling them again takes time."""
    global _limit
    yield
    if memory.is_known() and memory.resident() > _limit:
        if "jax" in sys.modules:
            sys.modules["jax"].clear_caches()
        memory.trim()
        _limit = max(ENOUGH, memory.resident() + GROWTH)


def peak_memory() -> int:
    """The megabytes that this process, or the largest that it waited for, has had in memory at once."""
    peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return peak * (1 if sys.platform == "darwin" else 1024) // MB


def pytest_sessionfinish(session, exitstatus):
    limit = session.config.getoption("--memory-limit")
    if exitstatus == pytest.ExitCode.OK and limit is not None and peak_memory() > limit:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter, config):
    peak, limit = peak_memory(), config.getoption("--memory-limit")
    terminalreporter.write_line(f"peak memory {peak} MB")
    if limit is not None and peak > limit:
        terminalreporter.write_line(f"ERROR: a test process may take {limit} MB of memory", red=True)
