"""The test run itself: it tells its peak memory, fails where that is above the limit, and leaves some for later."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from support import PATIENCE, spread

TESTS = Path(__file__).parent


@pytest.mark.parametrize(("limit", "status"), [(100_000, 0), (1, 1)])
def test_too_much_memory_fails_a_run(limit: int, status: int):
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--memory-limit", str(limit)]
    selected = f"{TESTS / 'test_learning_rate.py'}::test_constant"
    result = subprocess.run([*command, selected], cwd=TESTS.parent, capture_output=True, text=True, timeout=PATIENCE)

    assert result.returncode == status, result.stdout
    assert re.search(r"^peak memory \d+ MB$", result.stdout, re.M)
    assert ("ERROR: a test process may take 1 MB of memory" in result.stdout) == (status == 1)


def test_pairs_are_spread_over_runs_and_slow_tests():
    pairs = spread("abcd", (1, 2, 3), each=2)
    assert [pair.id for pair in pairs] == [f"{row}-{column}" for row in "abcd" for column in (1, 2, 3)]
    assert [pair.id for pair in pairs if not pair.marks] == ["a-1", "a-2", "b-1", "b-3", "c-2", "c-3", "d-1", "d-2"]
