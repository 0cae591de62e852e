"""The board of a group: a store, such as that of torch.distributed, in which ranks leave notes for the others.

What ends a run is told there, since a broken connection tells neither who is gone nor why.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from threading import Thread
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

PATIENCE = 2.0  # seconds in which a rank that is alive has noticed that another one is not
LATE = 60.0  # seconds after which a rank that has nothing left to do has left
PAUSE = 0.02  # between two looks


class Store(Protocol):
    """Values under keys, which all ranks reach; rank 0 may have it, and then it ends with rank 0."""

    def set(self, key: str, value: str, /) -> None:
        """Keep a value."""

    def get(self, key: str, /) -> bytes:
        """The value of a key that is there."""

    def check(self, keys: list[str], /) -> bool:
        """Whether all of these keys are there."""


class Board:
    """The notes of `size` ranks, of which this is number `rank`.

    They are 'here', 'noticed' (that another one is gone), 'ended' (with the reason, if it is the rank's own) and 'left'
    (it will not look at the store again).
    """

    def __init__(self, store: Store, rank: int, size: int) -> None:
        self.store, self.rank, self.size = store, rank, size
        self._lost: set[int] = set()
        self._is_gone = False  # the store

    def arrive(self, timeout: float) -> None:
        """Wait until all ranks have come; a ConnectionError says who has failed before, or who is missing."""
        self._write("here")
        if missing := self._missing(range(self.size), timeout, "here", is_enough=self._reason):
            raise ConnectionError(self._reason() or f"{ranks(missing)} did not come within {timeout:g} s")

    def why(self) -> str:
        """What has ended the run, as soon as it is known: a rank's own reason, or who is lost."""
        return self._answer(self._why) or "rank 0 is lost"

    def _why(self) -> str:
        self._write("noticed")
        self._lost = self._missing(range(self.size), PATIENCE, "noticed", "ended", is_enough=self._reason)
        be = "is" if len(self._lost) == 1 else "are"
        return self._reason() or (f"{ranks(self._lost)} {be} lost" if self._lost else "the ranks lost one another")

    def end(self, reason: str) -> bool:
        """Say why this rank ends, or nothing if another one is the reason; returns whether rank 0 has said it too.

        A store that is rank 0's must outlive those who still look at it: rank 0 leaves last.
        """
        return bool(self._answer(lambda: self._end(reason)))

    def _end(self, reason: str) -> bool:
        self._write("ended", reason)
        if self.rank == 0:
            self._missing({*range(1, self.size)} - self._lost, PATIENCE, "left")
            return True
        is_told = not self._missing([0], PATIENCE, "ended")
        self._write("left")
        return is_told

    def leave(self) -> None:
        """Look at the store no more, because all is done; rank 0, whose store it may be, waits for the others."""
        if self.rank:
            self._write("left")
        else:
            self._missing(range(1, self.size), LATE, "left")

    def _reason(self) -> str:
        """The reason of the first rank that has left one; else nothing."""
        reasons = {r: self._read("ended", r) for r in range(self.size) if r != self.rank}
        return next((f"rank {r} ended: {reason}" for r, reason in reasons.items() if reason), "")

    def _missing(
        self, expected: Iterable[int], seconds: float, *notes: str, is_enough: Callable[[], Any] = lambda: False
    ) -> set[int]:
        """The ranks that have left none of these notes when the time is over, or when it `is_enough`."""
        missing, end = set(expected), time.monotonic() + seconds
        while True:
            missing = {r for r in missing if not any(self._has(note, r) for note in notes)}
            if not missing or time.monotonic() > end or is_enough():
                return missing
            time.sleep(PAUSE)

    def _write(self, note: str, value: str = "") -> None:
        self.store.set(f"{note}/{self.rank}", value)

    def _has(self, note: str, rank: int) -> bool:
        return self.store.check([f"{note}/{rank}"])

    def _read(self, note: str, rank: int) -> str:
        return self.store.get(f"{note}/{rank}").decode() if self._has(note, rank) else ""

    def _answer(self, look: Callable[[], T]) -> T | None:
        """What a look at the board gives; None if the store is gone."""
        answer = None if self._is_gone else limited(look, 2 * PATIENCE)
        self._is_gone = answer is None
        return answer


def ranks(numbers: Iterable[int]) -> str:
    """``rank 1``, or ``ranks 1, 2 and 4``."""
    *most, last = map(str, sorted(numbers))
    return f"ranks {', '.join(most)} and {last}" if most else f"rank {last}"


def limited(function: Callable[[], T], seconds: float) -> T | None:
    """What a function gives; None if it takes longer, or fails because a connection is broken."""
    answers: list[T] = []

    def call() -> None:
        with suppress(RuntimeError):  # as torch raises
            answers.append(function())

    thread = Thread(target=call, daemon=True)  # one that waits for ever must not keep the process
    thread.start()
    thread.join(seconds)
    return answers[0] if answers else None
