"""The record of a benchmark: what it was run with (machine, versions, date, command), and how it is read again."""

from __future__ import annotations

import shlex
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from matgrad.bench.measuring.memory import total_memory
from matgrad.foundation.machine import machine, versions
from matgrad.foundation.plain_values import read_json

Record = dict[str, Any]

FORMAT = 1
KINDS = ("paper", "cost", "native", "sparse", "sparse-methods", "distributed", "gpu")


def record(kind: str, started: float, threads: int, options: dict[str, Any]) -> Record:
    """The head of a benchmark's record, to which the measurements are added."""
    return {
        "kind": kind,
        "format": FORMAT,
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(started)),
        "seconds": round(time.time() - started, 1),
        "command": shlex.join(["matgrad", *sys.argv[1:]]),
        "options": {key: str(value) if isinstance(value, Path) else value for key, value in options.items()},
        "versions": versions() | _version("keras"),
        "machine": machine() | {"memory_GB": round(total_memory() / 1e9, 1), "threads": threads, "blas": blas()},
    }


def blas() -> str:
    """The BLAS that NumPy was built with."""
    found = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return f"{found['name']} {found['version']}"


def _version(package: str) -> dict[str, str]:
    """The version of a package, if it is installed."""
    try:
        return {package: metadata.version(package)}
    except metadata.PackageNotFoundError:
        return {}


def read_record(path: Path) -> Record:
    """The record in a bench.json."""
    content = read_json(path)
    if not isinstance(content, dict) or content.get("kind") not in KINDS:
        raise ValueError(f"{path}: not a record of matgrad bench that has a plot")
    if content.get("format") != FORMAT:
        raise ValueError(f"{path}: expected format {FORMAT}, found {content.get('format')}")
    return content
