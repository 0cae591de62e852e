"""The programs of the C++ core."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from native_support import build

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "benchmarks"))


@pytest.fixture(scope="session")
def binaries() -> Path:
    """The programs, where the benchmarks build one of them too: nothing is compiled twice."""
    return build(ROOT / "build" / "bench", options=("-DCMAKE_DISABLE_FIND_PACKAGE_Eigen3=OFF",))
