"""Verdicts on code as people write it, half of it wrong in ways that are not seen at once."""

from __future__ import annotations

import examined_functions
import examined_modules
import examined_repositories
import pytest

import matgrad as mg

CASES = [*examined_functions.CASES, *examined_modules.CASES, *examined_repositories.CASES]


FEW = {case[0] for case in CASES[::4]} | {
    *("CumsumExclusive", "Snake", "SmoothL1", "NTXentSym", "GroupedQuery", "PowerPool"),
    "AvgPool2x2",
    "PixelShuffle",
    "BatchNorm1d",
    "softcap",
    "ALiBi",
    "EmbeddingScatter",
}


@pytest.mark.parametrize(
    ("name", "f", "more", "right", "shapes"),
    [pytest.param(*case, id=case[0], marks=() if case[0] in FEW else pytest.mark.slow) for case in CASES],
)
def test_verdicts(name, f, more, right, shapes):
    verdict = mg.prove(f, shapes, **more)
    assert verdict.verdict == ("proved" if right else "refuted"), verdict
    assert right or verdict.witness


def test_a_size_that_code_halves_may_have_one_name():
    (function,) = (f for name, f, *_ in CASES if name == "GEGLU")
    verdict = mg.prove(function, x="N D")
    assert verdict.verdict == "proved"
    assert "D = 2·D_2" in verdict.assumptions
    (pooling,) = (f for name, f, *_ in CASES if name == "AvgPool2x2")
    assert mg.prove(pooling, x="B C H W").verdict == "proved"
