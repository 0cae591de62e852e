"""Profiles: how long each equation of each layer takes while a model is trained.

>>> with profile(M) as p:
...     M.fit(X, T)
>>> print(p)

Programs, which NumPy, PyTorch and the C++ core train with, are timed value by value. What they fuse
counts for one equation: an update for the product it is fused into, elements that the core computes
in one pass for the first equation of that pass. Where a compiled step cannot be timed, on JAX and
TensorFlow, and in eager training the equations run one by one, with a clock between them. The clock
waits for a result on JAX and CUDA, not for TensorFlow on a GPU; on JAX, what a layer computes outside
its equations, and clipped gradients, may count for the next part of the step, and the first batch has
the time in which JAX compiles every operation.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from matgrad.backends.base import Matrix
from matgrad.inspection.profile_table import table
from matgrad.inspection.watching import CLIP, steps_of_parts, watched
from matgrad.sparse.matrix import values_of

if TYPE_CHECKING:
    from matgrad.engines.eager import EagerStep
    from matgrad.engines.engine import CompiledStep
    from matgrad.multilayer_perceptron import MultilayerPerceptron
    from matgrad.program.costs import Cost

COMPILATION, REST = "compilation", "data and overhead"
STEPS = ("feedforward", "loss", "backpropagate", CLIP, "optimize", COMPILATION)


@dataclass
class Row:
    """What one part of training took: an equation, a loss, an update, or one of the steps they belong to.

    `flops` and `bytes` are those of its products, None where it has none; see `program.costs`.
    """

    equation: str  # such as ActivationLayer.DW
    layer: str | None  # '1' for the first, '1.2' for its second part
    seconds: float = 0.0
    share: float = 0.0  # of all seconds
    calls: int = 0
    flops: int | None = None
    bytes: int | None = None

    @property
    def name(self) -> str:
        """The equation with its layer: ``layer 1 ActivationLayer.DW``."""
        return self.equation if self.layer is None else f"layer {self.layer} {self.equation}"

    def add(self, seconds: float, calls: int, cost: Cost | None = None) -> None:
        """Count so many calls more; the cost is that of one call."""
        self.seconds += seconds
        self.calls += calls
        if cost is not None:
            self.flops = (self.flops or 0) + calls * cost.flops
            self.bytes = (self.bytes or 0) + calls * cost.bytes


class Profile:
    """The seconds that the training of M takes, by its parts; they can be read when the context has ended."""

    def __init__(self, M: MultilayerPerceptron) -> None:
        self.M = M
        self.seconds = 0.0  # of all training, without what `paused` leaves out
        self.batches = 0
        self.is_forced = False  # whether the equations ran one by one because the compiled step cannot be timed
        self._parts: dict[str, Row] = {}
        self._order: dict[str, str] = {}  # the parts of M in their order, with the steps they belong to
        self._steps: list[Any] = []  # compiled, and timed
        self._costs: dict[tuple, dict[str, Cost | None]] = {}  # of the equations, by the step and the shapes of X and T
        self._last = 0.0  # when the last part ended

    # -- reading ------------------------------------------------------------------------------
    def rows(self, kind: str = "full") -> list[Row]:
        """One row for every part, or, with kind 'brief', for every step of training; in order of execution."""
        if not self.seconds:
            return []
        rows = self._brief() if kind == "brief" else self._full()
        rest = self.seconds - sum(row.seconds for row in rows)
        rows.append(Row(REST, None, max(rest, 0.0), calls=self.batches))
        for row in rows:
            row.share = row.seconds / self.seconds
        return rows

    def __str__(self) -> str:
        lines = [(text + bar).rstrip() for text, bar in table(self.rows())]
        return "\n".join([*lines, *self.notes()])

    def notes(self, kind: str = "full") -> list[str]:
        """What a reader of the rows should know."""
        notes = []
        if any(not row.seconds for row in self.rows(kind)):
            notes.append("– is computed in one pass with an equation before it, which has the time of both")
        if self.is_forced:
            notes.append(f"{self.M.backend.name} is timed by its equations, one by one: a compiled step has no parts")
        return notes

    def _full(self) -> list[Row]:
        """The parts in the order of the equations."""
        places = {part: i for i, part in enumerate(self._order)}
        return sorted(self._parts.values(), key=lambda row: (self._step(row), places.get(row.name, len(places))))

    def _brief(self) -> list[Row]:
        """The steps, each with the sums of its parts."""
        sums: dict[int, Row] = {}
        for row in self._parts.values():
            i = self._step(row)
            total = sums.setdefault(i, Row(STEPS[i], None))
            total.seconds += row.seconds
            total.calls = max(total.calls, row.calls)
            if row.flops is not None and row.bytes is not None:
                total.flops, total.bytes = (total.flops or 0) + row.flops, (total.bytes or 0) + row.bytes
        return [sums[i] for i in sorted(sums)]

    def _step(self, row: Row) -> int:
        """The place of the step that a part belongs to; what M does not have any more was an optimizer."""
        if row.layer is not None:
            return STEPS.index(self._order.get(row.name, "optimize"))
        return STEPS.index(row.name if row.name in STEPS else "loss")

    def _part(self, name: str) -> Row:
        """The row of a part, such as ``layer 1 ActivationLayer.DW``."""
        if name not in self._parts:
            number, equation = re.fullmatch(r"(?:layer ([\d.]+) )?(.*)", name).groups()  # type: ignore[union-attr]
            self._parts[name] = Row(equation, number)
            if number and name not in self._order:
                self._order |= steps_of_parts(self.M)
        return self._parts[name]

    # -- programs -----------------------------------------------------------------------------
    def time(self, step: CompiledStep) -> bool:
        """Let a compiled step count its seconds; False where it cannot."""
        step.is_timed = step.can_be_timed
        if step.can_be_timed:
            self._steps.append(step)
        else:
            self.is_forced = True
        return step.can_be_timed

    def _collect(self) -> None:
        """Take over the seconds of the compiled steps."""
        for step in self._steps:
            if step.executors:
                self._part(COMPILATION).add(step.seconds, len(step.executors))
            for executor in step.executors.values():
                self._add_program(executor)
        self._steps.clear()
        self._costs.clear()

    def _add_program(self, executor: Any) -> None:
        """Count the values of a program for the equations they belong to."""
        from matgrad.program.costs import costs_of, equations_of

        self.batches += executor.runs
        for part, cost in costs_of(executor.program).items():
            self._part(part).add(0.0, executor.runs, cost)
        equations, seconds = equations_of(executor.program), executor.seconds
        for value, part in equations.items():
            self._part(part).seconds += seconds[value]

    # -- equations, one by one ----------------------------------------------------------------
    @contextmanager
    def watching(self, step: EagerStep, X: Matrix, T: Matrix) -> Iterator[None]:
        """Count the equations of one step that is done inside; what this takes itself is left out."""
        backend, skipped = self.M.backend, {"", CLIP} if step.clip_norm is None else {""}

        def mark(part: str, result: Any, name: str) -> None:
            backend.wait(values_of(result))
            if part not in skipped:
                self._part(part).add(time.perf_counter() - self._last, 1, costs.get(part))
            self._last = time.perf_counter()

        self.batches += 1
        with self.paused():
            costs = self._costs_of(step, X, T)
            with watched(self.M, step.loss, mark), self.running():
                self._last = time.perf_counter()
                yield

    def _costs_of(self, step: EagerStep, X: Matrix, T: Matrix) -> dict[str, Cost | None]:
        """The costs of the equations for such a batch, where the step can be recorded."""
        from matgrad.program.costs import costs_by_equation

        key = step, tuple(X.shape), tuple(T.shape)
        if key not in self._costs:
            self._costs[key] = costs_by_equation(step, X, T)
        return self._costs[key]

    # -- the clock ----------------------------------------------------------------------------
    @contextmanager
    def running(self) -> Iterator[None]:
        """Count the time that passes inside."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - start

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave out the time that passes inside."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds -= time.perf_counter() - start


_profiles: list[Profile] = []  # those at work


@contextmanager
def profile(M: MultilayerPerceptron) -> Iterator[Profile]:
    """Time M wherever it is trained inside, by `fit` or `stochastic_gradient_descent`; measuring M is not counted."""
    result = Profile(M)
    _profiles.append(result)
    try:
        yield result
    finally:
        _profiles.remove(result)
        result._collect()


def profile_of(M: MultilayerPerceptron) -> Profile | None:
    """The profile of M that is at work, the innermost one."""
    return next((p for p in reversed(_profiles) if p.M is M), None)


@contextmanager
def counted(M: MultilayerPerceptron) -> Iterator[None]:
    """Count the time that passes inside, where M is profiled."""
    p = profile_of(M)
    with nullcontext() if p is None else p.running():
        yield


@contextmanager
def paused(M: MultilayerPerceptron) -> Iterator[None]:
    """Do not count the time that passes inside, in the middle of training, where M is profiled."""
    p = profile_of(M)
    with nullcontext() if p is None else p.paused():
        yield
