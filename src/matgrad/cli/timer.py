"""How long the steps of a model, or those of its layers, take."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from matgrad.cli.report import Report
from matgrad.multilayer_perceptron import MultilayerPerceptron

METHODS = ("feedforward", "backpropagate", "optimize")


class Timer:
    """Seconds spent in the three steps of the model (brief), or of each of its layers (full)."""

    def __init__(self, M: MultilayerPerceptron, kind: str) -> None:
        self.seconds: dict[str, float] = {}
        self._watched: list[tuple[Any, str]] = []  # things with the names they are shown under
        if kind == "brief":
            self._watched = [(M, "model")]
        if kind == "full":
            self._watched = [(layer, f"layer {i} {type(layer).__name__}") for i, layer in enumerate(M.layers, start=1)]

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count what is done inside."""
        for thing, name in self._watched:
            for method in METHODS:
                setattr(thing, method, self._timed(getattr(thing, method), f"{name}.{method}"))
        try:
            yield
        finally:
            self._stop()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Do not count what is done inside, where the timer is running."""
        stopped = [(thing, method, vars(thing)[method]) for thing, method in self._replaced()]
        self._stop()
        try:
            yield
        finally:
            for thing, method, timed in stopped:
                setattr(thing, method, timed)

    def show(self, report: Report) -> None:
        """Print the seconds and the share of each part."""
        total = sum(self.seconds.values())
        for name, seconds in self.seconds.items():
            report.say(f"{name:<50} {seconds:9.3f} s {100 * seconds / total:5.1f} %")

    def _replaced(self) -> list[tuple[Any, str]]:
        return [(thing, method) for thing, _ in self._watched for method in METHODS if method in vars(thing)]

    def _stop(self) -> None:
        for thing, method in self._replaced():
            delattr(thing, method)  # the method of the class shows again

    def _timed(self, method: Callable[..., Any], name: str) -> Callable[..., Any]:
        def timed(*arguments: Any) -> Any:
            start = time.perf_counter()
            result = method(*arguments)
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
            return result

        return timed
