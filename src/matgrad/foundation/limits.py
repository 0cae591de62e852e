"""Limits on what readers build from files and options; each asks before it builds.

A file may become as many bytes as `file_limit` says: a hundred times its size, at least 128 MB, and never more than
the machine has. The environment variable MATGRAD_MEMORY_LIMIT, such as 8G, replaces these limits.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

VARIABLE = "MATGRAD_MEMORY_LIMIT"
HINT = f"set the environment variable {VARIABLE}, such as 8G, to allow more"
LEAST, RATIO = 128 << 20, 100  # bytes that any file may become, and how many times its size
LEAST_TEXT, RATIO_TEXT = 2 << 20, 20  # the same for compressed text, of which Python makes many small objects

JSON = 8 << 20  # bytes of a JSON file, or of a JSON string in a model or program file
CONFIGURATION = 1 << 17  # bytes of a YAML or TOML file, which take a second or more to read
DEPTH = 50  # lists and tables inside each other
HEADER = 16 << 20  # bytes of the header of a safetensors file
MEMBERS = 10_000  # arrays in an npz file, files in an archive
LOG = 16 << 20  # bytes of the log of a run
LOG_VALUES = 500_000  # of all of its epochs
LAYERS = 1000  # of a model that a string describes
NESTED = 8  # specifications inside each other
THREADS = 1024

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
FLOAT32 = 3.4028234663852886e38  # the largest float32 number
CGROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def memory_limit() -> int:
    """The bytes that may be asked for at once: what the user allows, else the memory of the machine or container."""
    if value := os.environ.get(VARIABLE, "").strip():
        match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?) ?([KMGT]?)B?", value, re.IGNORECASE | re.ASCII)
        if match is None:
            raise ValueError(f"{VARIABLE}: expected a number of bytes such as 500M or 8G, found {value!r}")
        return int(float(match[1]) * UNITS[match[2].upper()])
    sizes = [1 << 40]
    with suppress(OSError, ValueError, AttributeError):  # not on every system
        sizes.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for file in CGROUPS:
        with suppress(OSError, ValueError):  # no such file, or the word max
            sizes.append(int(Path(file).read_text()))
    return min(sizes)


def file_limit(path: str | Path, *, is_text: bool = False) -> int:
    """The bytes that may be built from a file: what the user allows, else by its size."""
    size = 0
    with suppress(OSError, ValueError):
        size = os.stat(path).st_size
    return limit_from(size, *((LEAST_TEXT, RATIO_TEXT) if is_text else (LEAST, RATIO)))


def limit_from(size: int, least: int = LEAST, ratio: int = RATIO) -> int:
    """The bytes that may be built from as many bytes as `size`."""
    largest = memory_limit()
    return largest if os.environ.get(VARIABLE, "").strip() else min(max(least, ratio * size), largest)


def check_bytes(wanted: int, what: str, limit: int | None = None) -> None:
    """Raise if more bytes are wanted than the limit, by default that of the machine; `what` begins the message."""
    limit = memory_limit() if limit is None else limit
    if wanted > limit:
        raise ValueError(f"{what}: asks for {in_words(wanted)}, expected at most {in_words(limit)}; {HINT}")


def check_count(found: int, largest: int, what: str, noun: str) -> None:
    """Raise if there are more bytes, layers or other things than the largest number; `what` begins the message."""
    if found > largest:
        raise ValueError(f"{what}: found {found} {noun}, expected at most {largest}")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error is that of a framework whose device has too little memory; the first line says how much."""
    return type(error).__name__ == "OutOfMemoryError" or str(error).startswith("RESOURCE_EXHAUSTED")


def in_words(size: int) -> str:
    """A number of bytes as a string, such as 1.5 GB."""
    if size >= 1000 << 30:
        return f"{size >> 30} GB"
    units = ((1 << 30, "GB"), (1 << 20, "MB"))
    return next((f"{size / unit:.3g} {name}" for unit, name in units if size >= unit), f"{size} bytes")
