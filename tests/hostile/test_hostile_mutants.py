"""Mutants of good files are refused with an error that names the fault, or read: no other error, hang or blow-up."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hostile_readers import READERS
from hostile_worker import MEGABYTES, Outcome, fuzzed

from support import PATIENCE

SEED, COUNT = 1, 500  # mutants of each file
HERE = Path(__file__).parent


def python(*arguments: object) -> subprocess.CompletedProcess:
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, cwd=HERE, capture_output=True, text=True, timeout=PATIENCE)


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS)
def test_mutants(tmp_path, reader: str):
    (_, whole), *found = fuzzed(reader, tmp_path / READERS[reader].name, SEED, COUNT)
    assert whole.verdict == "read", whole
    wrong = []
    for i, (content, outcome) in enumerate(found):
        if outcome.is_fault:
            (tmp_path / f"fault{i}").write_bytes(content)
            wrong.append(f"{tmp_path}/fault{i}: {outcome}")
    assert not wrong, "\n".join(wrong)
    assert Counter(outcome.verdict for _, outcome in found)["refused"] > COUNT // 4


def test_faults_are_noticed(tmp_path):
    """A wrong error, an error without words, and what no file may make a reader do."""
    code = """
import os, sys
from pathlib import Path
from hostile_worker import _outcome, watch

def fail(error):
    raise error

sys.addaudithook(watch)
(path := Path(sys.argv[1]) / "x").touch()
for read in (
    Path.read_bytes, lambda path: fail(ValueError("wrong")), lambda path: fail(ValueError("")), lambda path: {}[3],
    lambda path: os.system("true"), Path.unlink,
):
    outcome = _outcome(read, path)
    print(outcome.verdict, outcome.is_fault, sep=": ")
"""
    done = python("-c", code, tmp_path)
    expected = [
        "read: False",
        "refused: False",
        "refused: True",
        "KeyError: True",
        *["did what no reader may: True"] * 2,
    ]
    assert done.stdout.splitlines() == expected, done.stderr
    assert Outcome("read", megabytes=MEGABYTES + 1).is_fault
    assert Outcome("died", "took too long").is_fault
