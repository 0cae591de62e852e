"""Runs tests from the source tree with Python alone: python tests/gpu/run.py [FILE …], by default all of this folder.

Every file has a process of its own, so that frameworks do not share one; they run at the same time. One line is printed
per test; the exit status is 1 if one fails.
"""

from __future__ import annotations

import inspect
import os
import runpy
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from unittest import SkipTest

FOLDER = Path(__file__).resolve().parent
TESTS, SOURCE = FOLDER.parent, FOLDER.parents[1] / "src"
FILE = "--file"  # before the path: run it in this process


def run_test(test: Callable[..., None]) -> str:
    """'passed', 'skipped: …' or 'FAILED', after the traceback."""
    try:
        if "tmp_path" in inspect.signature(test).parameters:
            with tempfile.TemporaryDirectory() as folder:
                test(tmp_path=Path(folder))
        else:
            test()
    except SkipTest as reason:
        return f"skipped: {reason}"
    except Exception:
        traceback.print_exc(file=sys.stdout)
        return "FAILED"
    return "passed"


def run_file(path: Path) -> int:
    """Run the tests of a file in this process; the exit status."""
    namespace = runpy.run_path(str(path))
    tests = {name: thing for name, thing in namespace.items() if name.startswith("test_") and callable(thing)}
    results = []
    for name, test in tests.items():
        start = time.perf_counter()
        results.append(run_test(test))
        print(f"{path.name} {name} {results[-1]} ({time.perf_counter() - start:.1f} s)", flush=True)
    if not results:
        print(f"{path.name}: no tests")
    return int(not results or "FAILED" in results)


def run_process(path: Path) -> tuple[int, str]:
    """The exit status of a process that runs the tests of a file, and what it printed."""
    places = [str(SOURCE), str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(places), "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    command = [sys.executable, str(Path(__file__).resolve()), FILE, str(path)]
    result = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return result.returncode, result.stdout


def main(arguments: list[str]) -> int:
    """Run the files, or all of this folder; the exit status."""
    if arguments[:1] == [FILE]:
        return run_file(Path(arguments[1]))
    sys.path[:0] = [str(SOURCE), str(TESTS)]
    from gpu import why_not

    if reason := why_not():
        print(f"the tests of tests/gpu are skipped: {reason}")
        return 0
    paths = [Path(name) for name in arguments] or sorted(FOLDER.glob("test_*.py"))
    failed = []
    with ThreadPoolExecutor(len(paths)) as pool:
        runs = {pool.submit(run_process, path): path for path in paths}
        for run in as_completed(runs):
            status, output = run.result()
            print(output, end="", flush=True)
            if status != 0:
                failed.append(runs[run].name)
    print(f"{len(paths) - len(failed)} of {len(paths)} files passed" + "".join(f"; {name} FAILED" for name in failed))
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
