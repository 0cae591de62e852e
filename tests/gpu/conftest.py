"""Under pytest the tests of this folder are skipped where there is no GPU."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from gpu import why_not

FOLDER = Path(__file__).parent
collect_ignore = [] if find_spec("triton") else ["test_sparse.py"]  # which imports it


def pytest_collection_modifyitems(items):
    own = [item for item in items if FOLDER in item.path.parents]
    reason = why_not() if own else None
    for item in own if reason else ():
        item.add_marker(pytest.mark.skip(reason=reason))
