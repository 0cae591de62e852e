"""Verdicts as SARIF 2.1.0, in which forges and editors show them beside the code."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matgrad
from matgrad.writers.verdicts import Verdict

RULES = {  # what is not proved: its level, and what it means
    "refuted": ("error", "The code computes another gradient than that of its output."),
    "undecided": ("warning", "The gradient is neither proved nor refuted."),
    "refused": ("warning", "The code uses what proofs do not know."),
}


def sarif_log(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """A log with one run, whose results are what is not proved."""
    rules = [
        {"id": name, "shortDescription": {"text": text}, "defaultConfiguration": {"level": level}}
        for name, (level, text) in RULES.items()
    ]
    driver = {"name": "matgrad", "version": matgrad.__version__, "rules": rules}
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": [result(v) for v in verdicts if v.verdict in RULES]}],
    }


def result(verdict: Verdict) -> dict[str, Any]:
    """What is not proved, at its line of code."""
    found: dict[str, Any] = {
        "ruleId": verdict.verdict,
        "level": RULES[verdict.verdict][0],
        "message": {"text": "\n".join([verdict.name, *verdict.details])},
    }
    if verdict.place is not None:
        file, line = verdict.place
        place = {"artifactLocation": {"uri": uri(file)}, "region": {"startLine": line}}
        found["locations"] = [{"physicalLocation": place}]
    return found


def uri(file: str) -> str:
    """A path, relative to the current folder if it is in it."""
    path = Path(file).resolve()
    is_inside = path.is_relative_to(Path.cwd())
    return Path(os.path.relpath(path)).as_posix() if is_inside else path.as_uri()
