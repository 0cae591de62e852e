"""One pytest process a framework: `pytest` covers NumPy and PyTorch, `pytest --backend jax` JAX."""

from __future__ import annotations

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_BACKEND", "torch")

import pytest

from support import Framework

DEFAULT_BACKENDS = ("numpy", "torch")


def pytest_addoption(parser):
    parser.addoption("--backend", help="run only the tests of a backend, on this one: numpy, torch, jax, tensorflow")


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
