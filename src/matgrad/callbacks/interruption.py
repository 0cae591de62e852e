"""Ctrl-C and other signals, which end training between two batches."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import TYPE_CHECKING, Any

from matgrad.callbacks.callback import Callback

if TYPE_CHECKING:
    from matgrad.training import Training


class Interruption(Callback):
    """Lets Ctrl-C, or another signal, end training between two batches; a second one ends it at once."""

    place = 2

    def __init__(self, number: int = signal.SIGINT) -> None:
        self.number = number
        self.is_requested = False
        self._previous: Any = None

    def start(self, run: Training) -> None:
        in_main_thread = threading.current_thread() is threading.main_thread()  # others get no signals
        if in_main_thread and signal.getsignal(self.number) not in (None, signal.SIG_IGN):
            self._previous = signal.signal(self.number, self._request)

    def poll(self, run: Training) -> None:
        if self.is_requested:
            run.interrupt()

    epoch = poll

    def end(self, run: Training) -> None:
        if self._previous is not None:
            signal.signal(self.number, self._previous)
            self._previous = None

    def _request(self, number: int, frame: FrameType | None) -> None:
        if self.is_requested:
            raise KeyboardInterrupt
        self.is_requested = True
