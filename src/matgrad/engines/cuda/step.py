"""Training steps and evaluations in CUDA graphs; in whole epochs the device never waits for the host."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from matgrad.backends.base import Array
from matgrad.datasets.loader import DataLoader
from matgrad.engines.cuda.graphs import GraphExecutor, enough_memory, memory_of
from matgrad.engines.engine import Batches, Poll, is_plain, throttled
from matgrad.engines.executor import Executor
from matgrad.engines.program import ProgramEvaluation, Programs, ProgramStep
from matgrad.layers.state import State, matrices_of, supports_of
from matgrad.program.program import EXAMPLES, Program

AHEAD = 2  # replays that the device may be behind the host


class FixedMemory(Programs):
    """Programs in graphs: the state stays in the same memory as long as its sizes do, so that graphs stay valid."""

    what = "a program"  # in messages

    @property
    def device(self) -> torch.device:
        """Where the state is."""
        return next(iter(matrices_of(self.matrices).values())).device

    def _own(self, name: str, X: Array) -> Array:
        """X in the memory of the present matrix of that name, if it has the same size."""
        kept = self.matrices.get(name)
        if kept is None or kept.shape != X.shape or kept.dtype != X.dtype:
            with enough_memory(f"{self.what} with a copy of {name}", lambda: X.nbytes, X.device):
                return self.kernels.copied(X)
        self.kernels.copy(kept, X)
        return kept

    def _made(self, program: Program) -> Any:
        """A graph, or an executor of one instruction after the other if they are timed, or examples are sparse."""
        if self.is_timed or EXAMPLES in program.supports:
            return Executor(program, self.kernels, self.matrices)
        with enough_memory(self.what, lambda: memory_of(program), self.device):
            executor = super()._made(program)
        return GraphExecutor(executor, self.what, self.compilation)


class GraphEvaluation(FixedMemory, ProgramEvaluation):
    """Feedforward, or an evaluation, as a captured program."""

    what = "the evaluation"


class GraphStep(FixedMemory, ProgramStep):
    """A training step as a captured program, which can run whole epochs by itself."""

    what = "the training step"
    _labels: tuple[np.ndarray, torch.Tensor] | None = None  # of the last loader, and a copy on the device

    def state(self) -> State:
        """The present state in matrices of its own: those of the step stay where they are."""
        present = self._present()
        copies = {name: self.kernels.copied(X) for name, X in matrices_of(present).items()}
        return copies | supports_of(present)

    def takes(self, batches: Batches) -> bool:
        """Whether it gathers the batches of a loader on the device, where the loader has a dense X."""
        X = getattr(batches, "X", None)
        return is_plain(batches) and not self.is_timed and isinstance(X, torch.Tensor) and X.device == self.device

    def _labels_of(self, loader: DataLoader) -> torch.Tensor | None:
        """The classes of the examples on the device, to which they are copied once."""
        if loader.labels is None:
            return None
        if self._labels is None or self._labels[0] is not loader.labels:
            self._labels = loader.labels, torch.tensor(loader.labels, device=loader.X.device)
        return self._labels[1]

    def train_epoch(self, loader: DataLoader, rates: list[float], poll: Poll) -> None:
        examples = Examples(loader, self._labels_of(loader))
        X, size, poll = loader.X, loader.batch_size, throttled(poll, len(rates))
        etas, replays = torch.tensor(rates, dtype=X.dtype, device=X.device), deque[torch.cuda.Event]()
        full = loader.size // size
        with self._products():
            for i, end, N in ((0, full, size), (full, len(rates), loader.size % size)):
                while i < end:
                    executor = self.prepare(*examples.like(N))
                    n = executor.most_runs(end - i)
                    slots = executor.slots(n)
                    examples.gather(slots, size * i, size * i + n * N)
                    slots["eta"].copy_(etas[i : i + n])
                    executor.replay(n)
                    i += n
                    if X.is_cuda:
                        replays.append(torch.cuda.current_stream(X.device).record_event())
                    if len(replays) > AHEAD:
                        replays.popleft().synchronize()
                    if i == len(rates):
                        self.kernels.backend.wait(X)
                    poll(i)


class Examples:
    """The examples of a plain loader in the order of one epoch, gathered on its device, where `labels` are too."""

    def __init__(self, loader: DataLoader, labels: torch.Tensor | None) -> None:
        self.X = loader.X
        self.matrices = {"X": loader.X, "T": loader.T} | ({} if loader.weights is None else {"s": loader.weights})
        order = loader.order()
        rows = None if order is None else torch.tensor(order[: loader.size], device=self.X.device)
        self.rows = dict.fromkeys(self.matrices, rows)  # of each matrix, in order; None for all of them as they are
        if labels is not None:
            self.rows["T"] = labels if rows is None else labels[rows]

    def like(self, N: int) -> list[torch.Tensor]:
        """Matrices of the sizes of N examples: X, T and maybe s."""
        return [A[:1].expand(N, A.shape[1]) for A in self.matrices.values()]

    def gather(self, slots: Mapping[str, torch.Tensor], start: int, stop: int) -> None:
        """Write the examples from position `start` to `stop` to the inputs X, T and maybe s of several runs."""
        for name, A in self.matrices.items():
            rows, out = self.rows[name], slots[name]
            if rows is not None and out.is_contiguous():
                torch.index_select(A, 0, rows[start:stop], out=out.view(-1, A.shape[1]))
            else:
                out.copy_(A[slice(start, stop) if rows is None else rows[start:stop]].view(out.shape))
