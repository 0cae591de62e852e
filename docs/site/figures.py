"""Writes the figures of benchmarks/gpu/bench.json into docs/gpu.md: python docs/site/figures.py.

A table stands between the lines <!-- figures: NAME --> and <!-- end -->; a test compares it with the record.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "benchmarks"))

from harness.reports import read, script  # noqa: E402 (from the folder of the benchmarks)

PAGE, RECORD = ROOT / "docs/gpu.md", ROOT / "benchmarks/gpu/bench.json"
PLACE = re.compile(r"<!-- figures: (\w+) -->\n.*?<!-- end -->", re.DOTALL)
FILES = "../benchmarks/gpu"
PLOT = f"![Time per step on a GPU, and of a sparse layer]({FILES}/plot.svg)"
LINKS = f"[All tables]({FILES}/table.md), [the record]({FILES}/bench.json)"
MISSING = "*Not measured yet: `make bench-gpu`.*"


def with_figures(page: str, record: dict[str, Any] | None) -> str:
    """The page with the tables of the record."""
    found: dict[str, list[str]] = {}
    if record is not None:
        found["plot"] = [PLOT, "", LINKS]
        found |= {
            name: table.markdown().splitlines()[2:] for name, table in script("gpu").named_tables(record).items()
        }  # no heading

    def place(match: re.Match[str]) -> str:
        name = match[1]
        return "\n".join([f"<!-- figures: {name} -->", "", *found.get(name, [MISSING]), "", "<!-- end -->"])

    return PLACE.sub(place, page)


def gpu_record() -> dict[str, Any] | None:
    """The record, if there is one."""
    return read(RECORD.parent) if RECORD.exists() else None


if __name__ == "__main__":
    PAGE.write_text(with_figures(PAGE.read_text(), gpu_record()))
