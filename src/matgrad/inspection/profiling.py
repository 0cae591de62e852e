"""Profiles: how long each equation of each layer takes while a model is trained.

>>> with profile(M) as p:
...     M.fit(X, T)
>>> print(p)

Programs, with which NumPy, PyTorch and the C++ core train, are timed value by value. Fused values count
for one equation: an update for the product it is fused into, elements that the core computes in one pass
for the first equation of that pass. In eager training, and if a compiled step cannot be timed, as on JAX
and TensorFlow, the equations run one by one, with a clock between them. The clock waits for results on
JAX and CUDA, but not for TensorFlow on a GPU. On JAX, clipping and what a layer computes outside its
equations may count for the next segment of the step, and the first batch includes the time in which JAX
compiles every operation.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from matgrad.backends.base import Array
from matgrad.foundation.writing import Table
from matgrad.inspection.equations import METHODS, equations
from matgrad.inspection.observing import observed, replaced
from matgrad.layers.layer import Layer
from matgrad.program.naming import CLIP, full_name
from matgrad.sparse.matrix import values_of

if TYPE_CHECKING:
    from matgrad.engines.engine import CompiledStep
    from matgrad.engines.fallback import TrainingStep
    from matgrad.multilayer_perceptron import MultilayerPerceptron
    from matgrad.program.models import Cost


BLOCKS = " ▏▎▍▌▋▊▉█"  # 0 to 8 eighths
SHORTEST, WIDTH = 10, 120  # the shortest bar, and the width of a table outside a terminal
HEADINGS = ("seconds", "share", "calls", "FLOP", "GFLOP/s", "bytes", "GB/s")
COLUMNS = ((0, 1, 2, 3, 4, 5, 6), (0, 1, 2, 4, 6), (0, 1, 2), (0, 1))  # those that are shown if there is room for them


def table(rows: list[Row], width: int | None = None) -> list[str]:
    """The lines of the table, each row with a bar at its end; the default width is that of the terminal."""
    if not rows:
        return []
    width = shutil.get_terminal_size((WIDTH, 24)).columns if width is None else width
    for columns in COLUMNS:
        cells = [[row.name, *(row.cells()[k] for k in columns)] for row in rows]
        texts = Table("", ["", *(HEADINGS[k] for k in columns)], cells).text().splitlines()[2:]
        size = max(map(len, texts))
        if (room := width - size - 2) >= SHORTEST:
            break
    unit = 8 * max(room, SHORTEST) / max(row.share for row in rows)
    for i, row in enumerate(rows, start=1):
        whole, eighths = divmod(round(unit * row.share), 8)
        texts[i] = f"{texts[i]:<{size}}  {BLOCKS[8] * whole}{BLOCKS[eighths]}".rstrip()
    return texts


def quantity(x: float | None) -> str:
    """A number with three digits, such as ``40.3 M``."""
    if x is None:
        return ""
    for prefix in ("", " k", " M", " G", " T"):
        if x < 999.5:
            return f"{x:.3g}{prefix}"
        x /= 1000
    return f"{x:.3g} P"


COMPILATION, REST = "compilation", "data and overhead"
PHASES = ("feedforward", "loss", "backpropagate", CLIP, "optimize", COMPILATION)


@dataclass
class Row:
    """What one segment of a training step took, such as an equation, a loss or an update; or one whole phase.

    `flops` and `bytes` are those of its products, None if it has none; see `program.models`.
    """

    equation: str  # such as ActivationLayer.DW
    layer: str | None  # '1' for the first layer, '1.2' for its second part
    seconds: float = 0.0
    share: float = 0.0  # of all seconds
    calls: int = 0
    flops: int | None = None
    bytes: int | None = None

    @property
    def name(self) -> str:
        """The equation with its layer: ``layer 1 ActivationLayer.DW``."""
        return self.equation if self.layer is None else f"layer {self.layer} {self.equation}"

    def cells(self) -> tuple[str, ...]:
        """The texts under the headings of a table."""
        cells = [f"{self.seconds:.4f}" if self.seconds else "–", f"{100 * self.share:.1f} %", str(self.calls)]
        for x in (self.flops, self.bytes):
            cells += [quantity(x), "" if x is None or not self.seconds else f"{x / self.seconds / 1e9:.1f}"]
        return tuple(cells)

    def add(self, seconds: float, calls: int, flops: int | None = None, bytes: int | None = None) -> None:
        """Add a number of calls, and what they cost together."""
        self.seconds += seconds
        self.calls += calls
        if flops is not None and bytes is not None:
            self.flops, self.bytes = (self.flops or 0) + flops, (self.bytes or 0) + bytes


class Profile:
    """The seconds that the training of M takes, by segments of the step; they can be read after the context."""

    def __init__(self, M: MultilayerPerceptron) -> None:
        self.M = M
        self.seconds = 0.0  # of all training, except what `paused` excludes
        self.batches = 0
        self.is_forced = False  # whether the equations ran one by one because the compiled step cannot be timed
        self._rows: dict[str, Row] = {}  # by segment, in the order in which they came
        self._timed_steps: list[Any] = []  # compiled steps
        self._costs: dict[tuple, dict[str, Cost | None]] = {}  # of the equations, by the step and the shapes of X and T
        self._last = 0.0  # when the last segment ended

    # -- reading ------------------------------------------------------------------------------
    def rows(self, kind: str = "full") -> list[Row]:
        """One row for every segment or, with kind 'brief', for every phase of training; in order of execution."""
        if not self.seconds:
            return []
        phases = self.phases()
        ordered = sorted(phases, key=lambda segment: PHASES.index(phases[segment]))
        rows = [self._rows[segment] for segment in ordered if segment in self._rows]
        if kind == "brief":
            sums: dict[str, Row] = {}
            for row in rows:
                total = sums.setdefault(phases[row.name], Row(phases[row.name], None))
                total.add(row.seconds, max(row.calls - total.calls, 0), row.flops, row.bytes)
            rows = [*sums.values()]
        rest = self.seconds - sum(row.seconds for row in rows)
        rows.append(Row(REST, None, max(rest, 0.0), calls=self.batches))
        for row in rows:
            row.share = row.seconds / self.seconds
        return rows

    def phases(self) -> dict[str, str]:
        """The phase of each segment, in order of the equations.

        A variable of a layer that has no equation comes before or after the loss.
        """
        layers = list(self.M.walk())
        phases: dict[str, str] = {}
        for method, ordered in zip(METHODS, (layers, layers[::-1]), strict=True):
            for i, layer in ordered:
                with suppress(ValueError):
                    for equation in equations(type(layer), method):
                        phases.setdefault(full_name(i, layer, equation.name), method)
                phases[full_name(i, layer, method)] = method
        owners = {type(layer).__name__ for _, layer in layers}
        method = "feedforward"
        for segment, row in self._rows.items():
            if row.layer is None:
                phases[segment] = segment if segment in PHASES else "loss"
                method = method if segment in PHASES else "backpropagate"
            else:
                owner, _, name = row.equation.partition(".")
                phases.setdefault(segment, method if owner in owners and name != "optimize" else "optimize")
        return phases

    def __str__(self) -> str:
        return self.text()

    def text(self, kind: str = "full") -> str:
        """The rows as a table, and what its reader should know."""
        rows, notes = self.rows(kind), []
        if any(not row.seconds for row in rows):
            notes.append("– was computed in one pass with an earlier equation, whose time covers both")
        if self.is_forced:
            notes.append(f"{self.M.backend.name} ran the equations one by one: its compiled step cannot be timed")
        return "\n".join([*table(rows), *notes])

    def trace(self) -> dict[str, Any]:
        """The mean step as a trace that Perfetto and Chrome show: each segment in its phase, one after the other."""
        phases, events, ends = self.phases(), list[dict[str, Any]](), dict[str, tuple[float, float]]()
        start = 0.0
        for row in self.rows()[:-1]:
            if (phase := phases[row.name]) != COMPILATION:
                end = start + 1e6 * row.seconds / self.batches  # in microseconds
                events.append({"name": row.name, "ts": start, "dur": end - start, "args": asdict(row)})
                ends[phase], start = (ends.get(phase, (start,))[0], end), end
        events += [{"name": phase, "ts": a, "dur": b - a} for phase, (a, b) in ends.items()]
        return {"traceEvents": [{"ph": "X", "pid": 1, "tid": 1, "cat": "step"} | event for event in events]}

    def _row(self, segment: str) -> Row:
        """The row of a segment, such as ``layer 1 ActivationLayer.DW``."""
        if segment not in self._rows:
            layer, _, equation = segment.removeprefix("layer ").rpartition(" ")
            self._rows[segment] = Row(equation, layer or None)
        return self._rows[segment]

    # -- programs -----------------------------------------------------------------------------
    def time(self, step: CompiledStep) -> bool:
        """Let a compiled step measure its seconds; False if it cannot."""
        step.is_timed = step.can_be_timed
        if step.is_timed:
            self._timed_steps.append(step)
        self.is_forced |= not step.is_timed
        return step.is_timed

    def _collect(self) -> None:
        """Count the values of the programs of compiled steps for the equations they belong to."""
        from matgrad.program.models import costs_of, equations_of

        for step in self._timed_steps:
            executors = [*step.retired, *step.executors.values()]
            if executors:
                self._row(COMPILATION).add(step.compilation_seconds, len(executors))
            for executor in executors:
                self.batches += executor.runs
                for segment, cost in costs_of(executor.program).items():
                    self._row(segment).add(0.0, executor.runs, *(executor.runs * x for x in cost or ()))
                seconds = executor.seconds
                for value, segment in equations_of(executor.program).items():
                    self._row(segment).seconds += seconds[value]
        self._timed_steps.clear()
        self._costs.clear()

    # -- equations, one by one ----------------------------------------------------------------
    @contextmanager
    def watching(self, step: TrainingStep, X: Array, T: Array, *s: Array) -> Iterator[None]:
        """Time the equations of one step that runs inside; the time that watching takes is not counted."""
        from matgrad.program.models import costs_by_equation

        backend, skipped = self.M.backend, {"", CLIP} if step.clip_norm is None else {""}
        key = step, *(tuple(A.shape) for A in (X, T, *s))

        def mark(segment: str, result: Any) -> None:
            backend.wait(values_of(result))
            if segment not in skipped:
                self._row(segment).add(time.perf_counter() - self._last, 1, *(costs.get(segment) or ()))
            self._last = time.perf_counter()

        self.batches += 1
        with self.paused():
            if key not in self._costs:
                self._costs[key] = costs_by_equation(step, X, T, *s)
            costs = self._costs[key]
            with _marked(self.M, step.loss, mark), self.running():
                self._last = time.perf_counter()
                yield

    # -- the clock ----------------------------------------------------------------------------
    @contextmanager
    def running(self, sign: int = 1) -> Iterator[None]:
        """Count the time that passes inside, with the sign."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds += sign * (time.perf_counter() - start)

    def paused(self) -> AbstractContextManager[None]:
        """Exclude the time that passes inside."""
        return self.running(-1)


# -- segments --------------------------------------------------------------------------------
# A segment is an equation of a layer (``layer 1 ActivationLayer.DW``), the rest of a method of a layer
# (``layer 1 ActivationLayer.feedforward``), the gradient of the loss (``SoftmaxCrossEntropyLoss.gradient``),
# ``clip_gradients``, or the update of a parameter (``layer 1 MomentumOptimizer.W``).


@contextmanager
def _marked(M: MultilayerPerceptron, loss: Any, mark: Callable[[str, Any], None]) -> Iterator[None]:
    """After each segment of a training step of M, ``mark(segment, result)`` is called while the context lasts.

    The segment is '' for what comes between two segments. Equations are marked if the source of a layer can be read.
    """
    names = {id(layer): name for name, layer in M.walk()}  # layers may compare equal

    def mark_equation(layer: Layer, equation: Any, X: Any) -> Any:
        mark(full_name(names[id(layer)], layer, equation.name), X)
        return X

    def marked(before: str, after: str, method: Callable[..., Any], *arguments: Any) -> Any:
        mark(before, arguments[-1])
        result = method(*arguments)
        mark(after, result)
        return result

    with ExitStack() as stack:
        stack.enter_context(observed((layer for _, layer in M.walk()), mark_equation))
        calls: list[tuple[Any, str, str, str]] = [(M, "optimize", CLIP, "")]
        calls.append((M, "backpropagate", full_name("", loss, "gradient"), ""))
        for i, layer in M.walk():
            calls += [(layer, method, "", full_name(i, layer, method)) for method in (*METHODS, "optimize")]
            calls += [(x, "apply", "", full_name(i, x, name)) for name, x in layer._optimizers.items()]
        for thing, method, before, after in calls:
            stack.enter_context(replaced(thing, method, partial(marked, before, after)))
        yield


# -- the active ones -------------------------------------------------------------------------

_profiles: list[Profile] = []  # the active ones, innermost last


@contextmanager
def profile(M: MultilayerPerceptron) -> Iterator[Profile]:
    """Time all training of M inside, by `fit` or `stochastic_gradient_descent`; evaluating M is not counted."""
    result = Profile(M)
    _profiles.append(result)
    try:
        yield result
    finally:
        _profiles.remove(result)
        result._collect()


def profile_of(M: MultilayerPerceptron) -> Profile | None:
    """The active profile of M, the innermost one; None if M is not profiled."""
    return next((p for p in reversed(_profiles) if p.M is M), None)


def counted(M: MultilayerPerceptron, sign: int = 1) -> AbstractContextManager[None]:
    """Count the time that passes inside, if M is profiled; with sign -1, exclude it in the middle of training."""
    p = profile_of(M)
    return nullcontext() if p is None else p.running(sign)
