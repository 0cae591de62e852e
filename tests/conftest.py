"""One pytest process per framework: `pytest` covers NumPy, PyTorch and the C++ core, `pytest --backend jax` JAX.

A file of tests with the fixture `backend` names its backends in a literal `BACKENDS = (…)`, which is read before
the file is imported: `--backend jax` imports only those with JAX. A test with fewer is marked `backends(…)`.
"""

from __future__ import annotations

import ast
import itertools
import os
import re
import resource
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_BACKEND", "torch")

import pytest

from matgrad.specifications.plugins import REGISTRIES
from support import Framework

DEFAULT_BACKENDS = ("numpy", "torch")
ALONE = ("jax", "tensorflow")  # in processes of their own
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
DECLARATION = re.compile(r"^BACKENDS = (\(.*?\))", re.MULTILINE | re.DOTALL)


def pytest_addoption(parser):
    parser.addoption(
        "--backend", help="run only the tests of a backend, on this one: numpy, torch, native, jax, tensorflow"
    )


def declared_backends(path: Path) -> Sequence[str]:
    """The backends that a file of tests names."""
    found = DECLARATION.search(path.read_text(encoding="utf-8"))
    return ast.literal_eval(found[1]) if found else DEFAULT_BACKENDS


def pytest_ignore_collect(collection_path, config):
    """Files of tests for other backends are not imported, since these would be: one framework per process."""
    chosen = config.getoption("--backend")
    if collection_path.suffix == ".py" and collection_path.name.startswith("test_"):
        declared = declared_backends(collection_path)
        return True if (chosen not in declared if chosen else {*declared} <= {*ALONE}) else None
    return None


def pytest_generate_tests(metafunc):
    if "backend" in metafunc.fixturenames:
        chosen = metafunc.config.getoption("--backend")
        marker = metafunc.definition.get_closest_marker("backends")
        names = marker.args if marker else getattr(metafunc.module, "BACKENDS", DEFAULT_BACKENDS)
        names = [name for name in names if (name == chosen if chosen else name not in ALONE)]
        metafunc.parametrize("backend", names, indirect=True, scope="session")


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out what is slow
def pytest_collection_modifyitems(config, items):
    """Nothing is left of tests for other backends; where XLA compiles for seconds, all but a few cases are slow."""
    chosen = config.getoption("--backend")

    def is_chosen(item) -> bool:
        name = item.callspec.params.get("backend") if hasattr(item, "callspec") else None
        return isinstance(name, str) if chosen or "backend" in item.fixturenames else True

    others = [item for item in items if not is_chosen(item)]
    config.hook.pytest_deselected(items=others)
    items[:] = [item for item in items if is_chosen(item)]
    if chosen in ALONE:
        for _, cases in itertools.groupby(items, key=lambda item: (item.path, item.originalname)):
            mark_most_as_slow(list(cases))


def mark_most_as_slow(cases: list[pytest.Item]) -> None:
    """Of a test that is marked `few(n)`, all but n cases, which are spread over the others."""
    marker = cases[0].get_closest_marker("few")
    if marker:
        n = min(marker.args[0], len(cases))
        kept = {len(cases) * i // n for i in range(n)}
        for i, case in enumerate(cases):
            if i not in kept:
                case.add_marker("slow")


@pytest.fixture(scope="session")
def backend(request) -> Framework:
    """The framework under test."""
    return Framework(request.param)


@pytest.fixture(scope="module", autouse=True)
def _compiled_functions_forgotten():
    """What JAX compiled for the tests of a file would stay in memory."""
    yield
    if "jax" in sys.modules:
        sys.modules["jax"].clear_caches()


@pytest.fixture(autouse=True)
def _plugins_forgotten():
    """What plugins define is known by name in the whole process: the next test does not know it."""
    registries = [(registry, dict(registry)) for _, registry, *_ in REGISTRIES]
    yield
    for registry, original in registries:
        registry.clear()
        registry.update(original)


def pytest_terminal_summary(terminalreporter):
    """The most memory that this process, or the largest that it waited for, has had at once."""
    peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    terminalreporter.write_line(f"peak memory {peak * (1 if sys.platform == 'darwin' else 1024) // 1_000_000} MB")


@pytest.fixture(scope="module")  # no longer: while Playwright runs, other tests cannot run an event loop
def browser():
    """Chromium; without one, the tests of the page are skipped, except in continuous integration."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        message = f"the page is tested in a browser: install one of {', '.join(BROWSERS)}"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(message)
    from playwright.sync_api import sync_playwright

    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=options)
        yield browser
        browser.close()
