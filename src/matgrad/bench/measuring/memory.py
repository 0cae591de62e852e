"""How much memory the machine has, and how much of it the data and the training of a tool take."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from pathlib import Path

from matgrad.foundation.machine import process_memory

RESET = Path("/proc/self/clear_refs")


class Growth:
    """Bytes by which a process grows: for its data, and for model and training on top of that.

    Only the memory of the process itself counts, not files that are mapped into it, such as libraries
    that are loaded at their first use. The numbers are None if the system does not tell.
    """

    def __init__(self) -> None:
        self.data: int | None = None
        self.training: int | None = None
        self._base = self._loaded = 0

    def before_load(self) -> None:
        """The data comes next."""
        if is_known():
            trim()
            self._base = resident()

    def after_load(self) -> None:
        """The data is there; the model comes next."""
        if is_known():
            trim()
            self._loaded = resident()
            self.data = self._loaded - self._base

    def before_training(self) -> None:
        """The model is there; memory that was needed only to make it does not count."""
        if is_known():
            trim()
            RESET.write_text("5")  # the largest size so far is now the present one

    def after_training(self) -> None:
        """Take the largest size since `before_training`."""
        if is_known():
            self.training = max(peak() - self._loaded, 0)

    def as_dictionary(self) -> dict[str, int | None]:
        """Both numbers."""
        return {"data": self.data, "training": self.training}


def is_known() -> bool:
    """Whether the system tells: Linux does."""
    return "RssAnon" in process_memory() and RESET.exists()


def resident() -> int:
    """The bytes of the process itself that are in memory now."""
    return process_memory()["RssAnon"]


def peak() -> int:
    """The largest `resident` since the last reset, provided that mapped files have not shrunk since."""
    status = process_memory()
    return status["VmHWM"] - status["RssFile"] - status["RssShmem"]


def trim() -> None:
    """Return freed memory, which the C library would keep, to the system."""
    gc.collect()
    if sys.platform == "linux":
        library = ctypes.CDLL(None)
        if hasattr(library, "malloc_trim"):  # glibc
            library.malloc_trim(0)


# -- the machine ----------------------------------------------------------------------------------


def total_memory() -> int:
    """The memory of the machine in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def available_memory() -> int:
    """The memory that processes can still get, in bytes; half of all memory if the system does not tell."""
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable"):
                return 1024 * int(line.split()[1])
    return total_memory() // 2
