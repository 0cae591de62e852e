"""The record of the proofs for all sizes, docs/proved.json: how many equations are proved, and how often each.

matgrad verify --all-sizes --json | python docs/site/proved.py
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import matgrad as mg

RECORD = Path(__file__).parents[1] / "proved.json"


def summary(checks: list[dict[str, Any]]) -> dict[str, Any]:
    """The record: the number of equations, those that are not proved, and in how many modes each of them is."""
    judged = [check for check in checks if not check["note"]]
    return {
        "command": "matgrad verify --all-sizes --json",
        "versions": {"matgrad": mg.__version__},
        "checks": len(judged),
        "not_proved": Counter(check["name"] for check in judged if not check["ok"]),
        "equations": Counter(check["name"] for check in judged),
    }


if __name__ == "__main__":
    RECORD.write_text(json.dumps(summary(json.load(sys.stdin)["checks"]), indent=1, ensure_ascii=False) + "\n")
