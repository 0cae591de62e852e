"""A stopwatch."""

from __future__ import annotations

import time


class Stopwatch:
    """Counts the seconds that pass inside its context, ``with watch: …``, which may be entered again and again."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __enter__(self) -> Stopwatch:
        self._start = time.perf_counter()
        return self

    def __exit__(self, *error: object) -> None:
        self.seconds += time.perf_counter() - self._start
