"""Mutants of good files are refused with an error that names the fault, or read: no other error, hang or blow-up."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hostile_mutants import mutant
from hostile_readers import READERS
from hostile_worker import MEGABYTES, outcomes

FEW, MANY = 20, 1200  # mutants of each file, in every run of the tests and in the slow ones


@pytest.mark.parametrize(
    ("first", "count"), [pytest.param(0, FEW, id="few"), pytest.param(FEW, MANY, id="many", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("reader", READERS)
def test_mutants(tmp_path, reader: str, first: int, count: int):
    path, good, seeds = tmp_path / READERS[reader].name, READERS[reader].good(), range(first, first + count)

    def files():
        path.write_bytes(good)
        yield reader, path
        for seed in seeds:
            path.write_bytes(mutant(reader, good, np.random.default_rng(seed)))
            yield reader, path

    (_, whole), *found = zip((None, *seeds), outcomes(files()), strict=True)
    assert whole.verdict == "read", whole
    wrong = [
        f"seed {seed}: {outcome}"
        for seed, outcome in found
        if outcome.verdict not in ("read", "refused")
        or (outcome.verdict == "refused" and not outcome.message.strip())
        or outcome.megabytes > MEGABYTES
    ]
    assert not wrong, "\n".join(wrong)
    assert Counter(outcome.verdict for _, outcome in found)["refused"] > count // 3
