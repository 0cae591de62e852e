"""How much memory the data and the training of a tool take."""

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
        self._base = self._now()

    def _now(self) -> int:
        trim()
        return resident() if is_known() else 0

    def after_load(self) -> None:
        """The data is there; the model comes next."""
        self._loaded = self._now()
        self.data = self._loaded - self._base if is_known() else None

    def before_training(self) -> None:
        """The model is there; memory that was needed only to make it does not count."""
        if is_known():
            trim()
            RESET.write_text("5")  # the largest size so far is now the present one

    def after_training(self) -> None:
        """Take the largest size since `before_training`."""
        self.training = max(peak() - self._loaded, 0) if is_known() else None


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


def total_memory() -> int:
    """The memory of the machine in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
