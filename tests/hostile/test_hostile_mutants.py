"""Mutants of good files are refused with an error that names the fault, or read: no other error, hang or blow-up."""

from __future__ import annotations

from collections import Counter

import pytest
from hostile_readers import READERS
from hostile_worker import fuzzed

FEW, MANY = 20, 500  # mutants of each file, in every run of the tests and in the slow ones


@pytest.mark.parametrize(
    ("seed", "count"), [pytest.param(0, FEW, id="few"), pytest.param(1, MANY, id="many", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("reader", READERS)
def test_mutants(tmp_path, reader: str, seed: int, count: int):
    (_, whole), *found = fuzzed(reader, tmp_path / READERS[reader].name, seed, count)
    assert whole.verdict == "read", whole
    assert whole.steps, "there is no coverage to guide by"
    wrong = []
    for i, (content, outcome) in enumerate(found):
        if outcome.is_fault:
            (tmp_path / f"fault{i}").write_bytes(content)
            wrong.append(f"{tmp_path}/fault{i}: {outcome._replace(steps=())}")
    assert not wrong, "\n".join(wrong)
    assert Counter(outcome.verdict for _, outcome in found)["refused"] > count // 3


def test_the_slow_tests_have_ten_thousand():
    assert MANY * len(READERS) >= 10_000
