"""Training steps and evaluations in CUDA graphs; in whole epochs the device never waits for the host."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import torch

from matgrad.backends.base import Array
from matgrad.datasets.loader import DataLoader
from matgrad.engines.cuda.graphs import GraphExecutor, enough_memory, memory_of
from matgrad.engines.engine import Poll, throttled
from matgrad.engines.kernels import Executor
from matgrad.engines.program import ProgramEvaluation, Programs, ProgramStep
from matgrad.layers.state import State, matrices_of, supports_of
from matgrad.program.program import EXAMPLES, Program

AHEAD = 2  # replays that the device may be behind the host


class FixedMemory(Programs):
    """Programs in graphs: the state stays in the same memory as long as its sizes do, so that graphs stay valid."""

    what = "a program"  # in messages

    @property
    def device(self) -> torch.device:
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
    _labels: tuple[np.ndarray | None, torch.Tensor | None] = None, None  # of the last loader, and a copy on the device

    def state(self) -> State:
        """The present state in matrices of its own: those of the step stay where they are."""
        present = self._present()
        copies = {name: self.kernels.copied(X) for name, X in matrices_of(present).items()}
        return copies | supports_of(present)

    def takes_loader(self, loader: DataLoader) -> bool:
        """Whether it gathers the batches of a loader on the device, where the loader has a dense X."""
        X = loader.X
        return not self.is_timed and isinstance(X, torch.Tensor) and X.device == self.device

    def _rows(self, loader: DataLoader) -> dict[str, tuple[torch.Tensor, torch.Tensor | None]]:
        """The matrices X, T and maybe s, and which rows of each are in the order of one epoch; None for all of them.

        Labels are copied to the device once.
        """
        labels, order, device = loader.labels, loader.order(), loader.X.device
        if self._labels[0] is not labels:
            self._labels = labels, None if labels is None else torch.tensor(labels, device=device)
        rows, classes = None if order is None else torch.tensor(order[: loader.size], device=device), self._labels[1]
        of_T = rows if classes is None else classes if rows is None else classes[rows]
        found = {"X": (loader.X, rows), "T": (loader.T, of_T)}
        return found if loader.weights is None else found | {"s": (loader.weights, rows)}

    def train_epoch(self, loader: DataLoader, rates: list[float], poll: Poll) -> None:
        X, size, poll = loader.X, loader.batch_size, throttled(poll, len(rates))
        etas, replays = torch.tensor(rates, dtype=X.dtype, device=X.device), deque[torch.cuda.Event]()
        full, examples = loader.size // size, self._rows(loader)
        with self._products():
            for i, end, N in ((0, full, size), (full, len(rates), loader.size % size)):
                while i < end:
                    executor = self.prepare(*(A[:1].expand(N, A.shape[1]) for A, _ in examples.values()))
                    n = executor.most_runs(end - i)
                    slots = executor.slots(n)
                    for name, (A, rows) in examples.items():
                        _gather(A, rows, size * i, size * i + n * N, slots[name])
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


def _gather(A: torch.Tensor, rows: torch.Tensor | None, start: int, stop: int, out: torch.Tensor) -> None:
    """Write the rows from position `start` to `stop` to the matrices of several runs."""
    if rows is not None and out.is_contiguous():
        torch.index_select(A, 0, rows[start:stop], out=out.view(-1, A.shape[1]))
    else:
        out.copy_(A[slice(start, stop) if rows is None else rows[start:stop]].view(out.shape))
