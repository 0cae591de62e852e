"""The programs of the C++ core."""

from __future__ import annotations

from pathlib import Path

import pytest
from matgrad.bench.tools import standalone
from native_support import build


@pytest.fixture(scope="session")
def binaries() -> Path:
    """The programs, where `matgrad bench` builds one of them too: nothing is compiled twice."""
    return build(standalone.BUILD, options=("-DCMAKE_DISABLE_FIND_PACKAGE_Eigen3=OFF",))
