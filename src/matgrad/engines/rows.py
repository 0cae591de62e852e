"""Training steps of a rank, which are given whole batches and compute their own rows of them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from matgrad.backends.base import Matrix, Scalar
from matgrad.datasets.loader import rows_of
from matgrad.engines.engine import Batches, CompiledStep, Poll


class OwnRows(CompiledStep):
    """A training step that computes the rows of one rank; the order of the examples is that of one process."""

    takes_epochs = True

    @abstractmethod
    def rows(self, N: int) -> slice:
        """The rows of this rank of a batch of N."""

    @abstractmethod
    def run(self, N: int, eta: Scalar, *own: Matrix) -> None:
        """Train on these rows of a batch of N: X, T and maybe s."""

    def own_rows(self, *batch: Matrix) -> list[Matrix]:
        """The rows of this rank of a whole batch."""
        return [rows_of(A, self.rows(A.shape[0])) for A in batch]

    def __call__(self, X: Matrix, T: Matrix, eta: Scalar, *s: Matrix) -> None:
        self.run(X.shape[0], eta, *self.own_rows(X, T, *s))

    def train(
        self,
        batches: Batches,
        rate: Callable[[int], Scalar],
        poll: Poll = lambda done: None,
        first: int = 0,
    ) -> None:
        """Train on every batch, of which only the own rows are read if they come from a plain `DataLoader`."""
        loader: Any = batches
        if not getattr(loader, "is_plain", False):
            return super().train(batches, rate, poll, first)
        order = loader.order()
        for i, start in enumerate(range(0, loader.size, loader.batch_size), first):
            N = min(loader.batch_size, loader.size - start)
            rows = self.rows(N)
            self.run(N, rate(i), *loader.examples(start + rows.start, start + rows.stop, order))
            poll(i + 1)
