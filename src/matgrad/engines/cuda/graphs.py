"""CUDA graphs: what a function, or the run of a program, launches on a device is captured once and replayed.

Kernels that need nothing from one another are launched on several streams, and become branches of a graph.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

import torch

from matgrad.backends import get_backend
from matgrad.engines.kernels import Executor
from matgrad.foundation.limits import in_words
from matgrad.foundation.machine import Stopwatch
from matgrad.layers.state import State, matrices_of
from matgrad.program.buffers import Plan
from matgrad.program.models import product_cost
from matgrad.program.program import Program, Value

# what one replay does at most: so the inputs stay in the cache, and the host hears an interrupt in time
MOST_RUNS, MOST_BYTES, MOST_FLOPS = 8, 1 << 24, 5 * 10**10
ALIGNMENT = 4  # elements: the inputs of each run begin at multiples of 16 bytes
STREAMS = 4  # for kernels side by side


class Graph:
    """A function that works on fixed memory: the first call runs it, the second captures and replays what it launches.

    So what is called once is not captured, and what a function compiles is there before it is captured. On the CPU
    every call calls the function, as does one on a device, after a warning, if the function cannot be captured.
    """

    def __init__(self, function: Callable[[], None], device: torch.device, pool: Any = None) -> None:
        self.function, self.device, self.pool = function, device, pool
        self.has_run = False
        self._replay: Callable[[], None] | None = None

    @property
    def is_captured(self) -> bool:
        """Whether the next call does nothing but replay."""
        return self._replay is not None

    def __call__(self) -> None:
        if self._replay is None and self.has_run:
            self._replay = self._captured()
        (self._replay or self._run)()
        self.has_run = True

    def _run(self) -> None:
        """Launch on the stream of captures, between what was launched before and what comes after."""
        if self.device.type != "cuda":
            return self.function()
        side, current = _stream(self.device), torch.cuda.current_stream(self.device)
        side.wait_stream(current)
        with torch.cuda.stream(side):
            self.function()
        current.wait_stream(side)

    def _captured(self) -> Callable[[], None]:
        """What replays the function."""
        if self.device.type != "cuda":
            return self.function
        graph = torch.cuda.CUDAGraph()
        # thread_local: other threads may use the device meanwhile
        options = {"pool": self.pool, "stream": _stream(self.device), "capture_error_mode": "thread_local"}
        try:
            with torch.cuda.device(self.device), torch.cuda.graph(graph, **options):
                self.function()
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            reason = str(error).partition("\n")[0]
            warnings.warn(f"a computation on {self.device} runs without a CUDA graph: {reason}", stacklevel=2)
            index = torch.cuda.current_device() if self.device.index is None else self.device.index
            generator = torch.cuda.default_generators[index]
            generator.graphsafe_set_state(generator.clone_state())  # the failed capture has left it registered
            return self._run
        return graph.replay


@cache
def _stream(device: torch.device) -> torch.cuda.Stream:
    """The stream on which graphs are captured."""
    return torch.cuda.Stream(device)


class GraphExecutor:
    """An executor with memory for the inputs of several runs, each number of which is a graph.

    ``execute(X=X, T=T, eta=eta)`` runs the program once, as the executor itself does. ``replay(n)`` runs it n times, on
    the inputs that were written to ``slots(n)``.
    """

    def __init__(self, executor: Executor, what: str, compilation: Stopwatch) -> None:
        self.executor, self.kernels, self.program = executor, executor.kernels, executor.program
        self.what, self.compilation = what, compilation
        self.outputs: State = {}
        self.inputs: dict[str, torch.Tensor] = {}  # for every input, its matrices or numbers for several runs
        self._like: torch.Tensor = next(iter(matrices_of(executor.state).values()))
        self._given = {name: value for name, value in self.program.inputs.items() if name not in executor.state}
        size = sum(value.nbytes for value in self._given.values())
        flops = sum(cost.flops for value in self.program.values if (cost := product_cost(value)))
        self.most = max(1, min(MOST_RUNS, MOST_BYTES // max(size, 1), MOST_FLOPS // max(flops, 1)))
        self._forget()

    def _forget(self) -> None:
        """Give up the graphs, and their memory."""
        self.graphs: dict[int, Graph] = {}  # by the number of runs
        self._pool = torch.cuda.graph_pool_handle() if self._like.is_cuda else None

    # -- as an executor ---------------------------------------------------------------------------
    def execute(self, **inputs: Any) -> State:
        """Run the program once; the outputs are in memory that the next run overwrites."""
        for name, slots in self.slots(1).items():
            slots[0].copy_(inputs[name])
        return self.replay(1)

    def bind(self, state: State) -> None:
        """Go on with other matrices and supports of the same sizes; graphs stay if they are in the same memory."""
        if any(state[name] is not X for name, X in self.executor.state.items()):
            self._forget()
            self.executor.bind(state)

    # -- several runs -----------------------------------------------------------------------------
    def most_runs(self, left: int) -> int:
        """How many of the runs that are left go into one replay: a power of two, so that there are few graphs."""
        return 1 << (min(left, self.most).bit_length() - 1)

    def slots(self, n: int) -> dict[str, torch.Tensor]:
        """Where the inputs of n runs are: of each input n matrices, one below the other, or n numbers."""
        if not self.inputs or len(next(iter(self.inputs.values()))) < n:
            self._forget()
            inputs: dict[str, torch.Tensor] = {}
            for name, value in self._given.items():
                strides = self.executor.plan.homes[name].strides
                last = sum((size - 1) * stride for size, stride in zip(value.shape, strides, strict=True))
                span = (last // ALIGNMENT + 1) * ALIGNMENT
                memory = self.kernels.empty((n * span,), value.dtype, self._like)
                inputs[name] = memory.as_strided((n, *value.shape), (span, *strides))
            self.inputs = inputs
        return {name: slots[:n] for name, slots in self.inputs.items()}

    def replay(self, n: int) -> State:
        """Run the program n times; the outputs are those of the last."""
        if n not in self.graphs:
            self.graphs[n] = Graph(lambda: self._execute(n), self._like.device, self._pool)
        graph = self.graphs[n]
        if graph.is_captured:
            graph()
        else:  # it runs for the first or second time
            with self.compilation, enough_memory(self.what, lambda: memory_of(self.program), self._like.device):
                graph()
                self.kernels.backend.wait(self._like)
        return self.outputs

    def _execute(self, n: int) -> None:
        """Run the program on the first n of the inputs."""
        for i in range(n):
            self.outputs = self.executor.execute(**{name: slots[i] for name, slots in self.inputs.items()})


def memory_of(program: Program) -> int:
    """The bytes of the matrices that a program needs besides its inputs."""
    own = {buffer for buffer in Plan(program).buffers.values() if buffer.name not in program.inputs}
    return sum(Value("input", (), buffer.shape, buffer.dtype).nbytes for buffer in own)


@contextmanager
def enough_memory(what: str, needed: Callable[[], int], device: torch.device) -> Iterator[None]:
    """Raise MemoryError, with the bytes that are needed and those that are free, if a device has too few of them."""
    try:
        yield
    except torch.OutOfMemoryError:
        free = get_backend("torch").free_memory(str(device)) or 0
        found = f"needs about {in_words(needed())} on {device}, found {in_words(free)} free"
        raise MemoryError(f"{what}: {found}; smaller batches, or a smaller or sparser model, may help") from None


# -- kernels side by side ------------------------------------------------------------------------------------


class Launch(NamedTuple):
    """A call that launches a kernel, the addresses of the memory that it reads and writes, and whether it may move."""

    run: Callable[[], None]
    read: frozenset[int]
    written: frozenset[int]
    may_move: bool  # to another stream than the present one


def needed(launches: Sequence[Launch]) -> list[list[int]]:
    """The numbers of the launches that each one has to wait for, without those that these wait for themselves."""
    needs: list[list[int]] = []
    before: list[set[int]] = []  # all that come before
    for k, launch in enumerate(launches):
        used = launch.read | launch.written
        conflicts = [i for i, x in enumerate(launches[:k]) if x.written & used or x.read & launch.written]
        implied = set().union(*(before[i] for i in conflicts))
        needs.append([i for i in conflicts if i not in implied])
        before.append(implied | set(conflicts))
    return needs


def placed(launches: Sequence[Launch], needs: Sequence[Sequence[int]]) -> list[int]:
    """The stream of each launch: that of one it waits for if nothing came after that one, else one that is free."""
    last: dict[int, int] = {}  # the last launch on a stream
    streams: list[int] = []
    for k, launch in enumerate(launches):
        following = [streams[i] for i in reversed(needs[k]) if last[streams[i]] == i]
        oldest = min(range(STREAMS), key=lambda s: last.get(s, -1))  # the first unused one, if there is one
        own = [*following, oldest][0] if launch.may_move else 0
        streams.append(own)
        last[own] = k
    return streams


def run_side_by_side(launches: Sequence[Launch]) -> None:
    """Launch everything, on several streams that begin and end with the present one."""
    needs = needed(launches)
    streams = placed(launches, needs)
    main = torch.cuda.current_stream()
    used = [main, *(torch.cuda.Stream() for _ in range(max(streams, default=0)))]
    awaited = {i for k, before in enumerate(needs) for i in before if streams[i] != streams[k]}
    start = main.record_event()
    events: dict[int, torch.cuda.Event] = {}
    for stream in used[1:]:
        stream.wait_event(start)
    for k, launch in enumerate(launches):
        own = used[streams[k]]
        for i in needs[k]:
            if streams[i] != streams[k]:
                own.wait_event(events[i])
        with torch.cuda.stream(own):
            launch.run()
            if k in awaited:
                events[k] = own.record_event()
    for stream in used[1:]:
        main.wait_stream(stream)
