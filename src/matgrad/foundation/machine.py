"""What is known of the machine."""

from __future__ import annotations

import os


def cores() -> int:
    """The number of cores that this process may use; all of them where the system does not tell."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
