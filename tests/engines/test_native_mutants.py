"""Damaged programs: the C++ core refuses them or runs them right, and what it accepts Python accepts too."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from engine_support import POOL
from native_seeds import MODELS, D, K, save_seeds
from native_support import needs_compiler, run

import matgrad as mg
from matgrad import _native
from matgrad.program.description import as_dictionary, from_dictionary
from matgrad.program.program import Program
from matgrad.specifications.models import create_model

ODD = (0, -1, 1, 2, 3, 1.5, 2**31 - 1, 2**31, 2**63, 1e308, None, True, "N", "X", "float32", "int64", [], [3, 3], {})


@needs_compiler
def test_damaged_files_are_refused_or_run(binaries: Path, tmp_path: Path):
    """The slow tests have more of them, under sanitizers."""
    save_seeds(tmp_path)
    run([binaries / "fuzz_test", tmp_path, 0, 400])


# -- the two checkers agree ----------------------------------------------------------------------


def places(content: Any) -> Iterator[tuple[Any, Any]]:
    """All (container, key) in a description, without the memory that Python plans anew."""
    items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, item in items:
        if key not in ("buffers", "copies", "buffer"):
            yield content, key
            yield from places(item)


def change(content: dict[str, Any], rng: np.random.Generator) -> None:
    """Put something else in one place, or in all places that have the same there."""
    found = list(places(content))
    container, key = found[rng.integers(len(found))]
    before, (donor, other) = container[key], found[rng.integers(len(found))]
    after = json.loads(json.dumps(donor[other])) if rng.random() < 0.6 else ODD[rng.integers(len(ODD))]
    if isinstance(container, list) and rng.random() < 0.2:
        del container[key]
    elif rng.random() < 0.5:
        container[key] = after
    else:
        for container, key in found:
            if type(container[key]) is type(before) and container[key] == before:
                container[key] = after


def accepted(content: dict[str, Any]) -> bool:
    """Whether the core accepts a description."""
    try:
        _native.Executor(json.dumps(content), POOL)
    except ValueError:
        return False
    return True


def read(content: dict[str, Any]) -> Program | None:
    """The program, if Python accepts it."""
    try:
        return from_dictionary(content)
    except (ValueError, KeyError, TypeError, AttributeError):  # as `load_program` does
        return None


def descriptions() -> Iterator[dict[str, Any]]:
    for options in MODELS.values():
        mg.manual_seed(1)
        M = create_model(**{"sizes": f"{D};4;{K};{K}"} | options).to(dtype="float64")
        yield as_dictionary(M.program(batch_size=5))
        yield as_dictionary(M.program(batch_size=5, feedforward=True))


def test_what_the_core_accepts_python_accepts(monkeypatch):
    """And what Python accepts, and plans, the core accepts, unless it is too large."""
    monkeypatch.setenv("MATGRAD_MEMORY_LIMIT", "16M")
    monkeypatch.setenv("MATGRAD_WORK_LIMIT", "10M")
    rng = np.random.default_rng(0)
    texts = [json.dumps(content) for content in descriptions()]
    verdicts: dict[tuple[bool, bool], int] = {}
    for i in range(1500):
        content = json.loads(texts[i % len(texts)])
        for _ in range(rng.integers(1, 3)):
            change(content, rng)
        program, is_accepted = read(content), accepted(content)
        assert program is not None or not is_accepted, f"mutant {i}: {json.dumps(content)}"
        if program is not None and program.values:
            verdict = accepted(as_dictionary(program))
            verdicts[is_accepted, verdict] = verdicts.get((is_accepted, verdict), 0) + 1
    assert verdicts[True, True] > 20, verdicts
