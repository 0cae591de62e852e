"""The runner of the tests on a GPU, which does without pytest."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from support import PATIENCE

RUNNER = Path(__file__).parent / "gpu" / "run.py"

TESTS = """
from unittest import SkipTest
from gpu import DEVICE
from gpu.comparison import SEEDS

def test_a(tmp_path):
    (tmp_path / "file").write_text(DEVICE)

def test_b():
    raise SkipTest("no reason")
"""
FAILURE = """
def test_c():
    assert 1 + 1 == 3, "arithmetic"
"""


def run(*files: Path, device: str = "cpu") -> subprocess.CompletedProcess:
    """The runner, where pytest and the packages of the command line are missing."""
    (files[0].parent / "pytest.py").write_text("raise ImportError")
    environment = os.environ | {"MATGRAD_TEST_DEVICE": device, "PYTHONPATH": str(files[0].parent)}
    command = [sys.executable, str(RUNNER), *map(str, files)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE)


def files(folder: Path, **contents: str) -> list[Path]:
    for name, content in contents.items():
        (folder / f"{name}.py").write_text(content)
    return [folder / f"{name}.py" for name in contents]


def test_every_test_has_a_line(tmp_path: Path):
    result = run(*files(tmp_path, test_x=TESTS))
    assert result.returncode == 0, result.stdout + result.stderr
    first, second, last = result.stdout.splitlines()
    assert first.startswith("test_x.py test_a passed")
    assert second.startswith("test_x.py test_b skipped: no reason")
    assert last == "1 of 1 files passed"


def test_failures_are_told(tmp_path: Path):
    result = run(*files(tmp_path, test_x=TESTS, test_y=FAILURE, test_z="import missing", test_none=""))
    assert result.returncode == 1
    assert "AssertionError: arithmetic" in result.stdout
    assert "test_y.py test_c FAILED" in result.stdout
    assert "No module named 'missing'" in result.stdout
    assert "test_none.py: no tests" in result.stdout
    last = result.stdout.splitlines()[-1]
    assert last.startswith("1 of 4 files passed; ")
    assert all(f"test_{name}.py FAILED" in last for name in ("y", "z", "none"))


def test_without_a_gpu_it_says_so(tmp_path: Path):
    """As PyTorch tells."""
    (tmp_path / "torch.py").write_text("class cuda:\n    is_available = staticmethod(lambda: False)")
    result = run(*files(tmp_path, test_y=FAILURE), device="cuda")
    assert result.returncode == 0
    assert result.stdout == "the tests of tests/gpu are skipped: no GPU: PyTorch finds no CUDA device\n"
