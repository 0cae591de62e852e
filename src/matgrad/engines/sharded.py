"""The training step of a rank: its rows of every batch, and what all ranks add up, by the program of a rank."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from itertools import zip_longest
from typing import Any

import numpy as np

from matgrad.backends.base import Matrix, Scalar
from matgrad.distributed.group import Collectives, Disagreement, Group
from matgrad.engines.engine import OwnRows, wrong_group
from matgrad.engines.exchange import Exchange
from matgrad.engines.kernels import Kernels
from matgrad.engines.program import ProgramStep, signature
from matgrad.layers.state import State, matrices_of, sized_by_supports, supports_of
from matgrad.program.computations import Step
from matgrad.program.description import value_as_dictionary
from matgrad.program.program import Program
from matgrad.program.schedule import executable
from matgrad.program.sharding import data_parallel, sharded
from matgrad.sparse.matrix import SparseMatrix
from matgrad.sparse.support import Support


class ShardedStep(OwnRows, ProgramStep):
    """A training step of which every rank of a group does its rows.

    It is given whole batches. One with fewer rows than there are ranks is not shared out: all ranks compute all of it.
    """

    def __init__(self, step: Step, kernels: Kernels, executor_class: Callable[..., Any], group: Group) -> None:
        super().__init__(step, kernels, executor_class)
        if not isinstance(group, Collectives):
            raise wrong_group(kernels.backend.name, group)
        self.group = group
        self.exchanges: list[Exchange] = []  # one for each program

    # -- the state, which all ranks have --------------------------------------------------------------
    def load(self, state: Mapping[str, Matrix], only_state: bool = False) -> None:
        """Go on from the state of rank 0."""
        self._compare_sizes(state)
        super().load(self._with_common_supports(state))
        for X in matrices_of(self.matrices).values():
            self.group.broadcast(X)

    def _compare_sizes(self, state: Mapping[str, Matrix]) -> None:
        """Refuse ranks whose models have other matrices."""
        of_elements = sized_by_supports(state)
        own = {
            name: "one value per element" if name in of_elements else " × ".join(map(str, X.shape))
            for name, X in state.items()
        }
        first, *others = self.group.exchange(own, "the start of an epoch")
        for rank, other in enumerate(others, 1):
            for name in [*first, *other]:
                found, expected = (sizes.get(name, "nothing") for sizes in (other, first))
                if found != expected:
                    raise Disagreement(f"rank {rank} has {found} for {name}, rank 0 has {expected}")

    def _with_common_supports(self, state: Mapping[str, Matrix]) -> State:
        """The state with the supports of rank 0, and matrices of their sizes."""
        supports, common = supports_of(state), dict(state)
        first, *others = self.group.exchange(
            {name: [S.nnz, _digest(S)] for name, S in supports.items()}, "the supports"
        )
        for name, S in supports.items():
            if any(other[name] != first[name] for other in others):
                starts, columns = S.starts.copy(), np.resize(S.columns, first[name][0])
                self.group.broadcast(starts)
                self.group.broadcast(columns)
                common[name] = Support(S.shape, starts, columns)
        for name, support in sized_by_supports(state).items():
            X, shape = state[name], (1, common[support].nnz)
            if tuple(X.shape) != shape:
                common[name] = self.kernels.empty(shape, self.kernels.backend.dtype(X), X)
        return common

    # -- batches ----------------------------------------------------------------------------------------
    def prepare(self, X: Matrix, T: Matrix, *s: Matrix) -> Any:
        return self._prepare(X.shape[0], *self.own_rows(X, T, *s))

    def rows(self, N: int) -> slice:
        return self.group.part(N) if N >= self.group.size else slice(0, N)

    def run(self, N: int, eta: Scalar, *own: Matrix) -> None:
        X, T, *s = own
        self._execute(self._prepare(N, X, T, *s), X, T, eta, *s)

    # -- the program of a rank ----------------------------------------------------------------------------
    def _prepare(self, N: int, X: Matrix, T: Matrix, *s: Matrix) -> Any:
        """The executor for these rows of a batch of N."""
        if self.is_shared:
            self.load(self._present())
        key = N, signature((X, T, *s))
        if key in self.current and key in self.executors:
            return self.executors[key]
        whole = [self._of_size(N, A) for A in (X, T, *s)]
        return self._executor(key, (*whole[:2], None, *whole[2:]))

    def _of_size(self, N: int, A: Matrix) -> Matrix:
        """A matrix like A with N rows, which only stands for its shape."""
        if isinstance(A, SparseMatrix):
            return SparseMatrix(Support((N, A.shape[1]), [0] * (N + 1), []), A.values[:, :0])
        return self.kernels.repeat(self.kernels.empty((1, 1), self.kernels.backend.dtype(A), A), (N, A.shape[1]))

    def _optimized(self, program: Program) -> Program:
        """The program of this rank, after a check that all ranks have recorded the same."""
        self._compare(program)
        own = sharded(program, data_parallel(program, self.group.size), self.group.rank, self.group.size)
        return executable(own)

    def _made(self, program: Program) -> Any:
        like = next(iter(self.matrices.values()))
        exchange = Exchange(program, self.group, lambda shape, dtype: self.kernels.empty(shape, dtype, like))
        self.exchanges.append(exchange)
        return self.executor_class(program, self.kernels, self.matrices, exchange)

    def _compare(self, program: Program) -> None:
        """Refuse ranks whose programs differ: they would not compute the same, or wait for one another for ever."""
        indices = {value: i for i, value in enumerate(program.values)}
        lines = [value_as_dictionary(value, indices) for value in program.values]
        found = self.group.exchange(hashlib.sha256(json.dumps(lines).encode()).hexdigest(), "a new program")
        if len(set(found)) == 1:
            return
        texts = self.group.exchange([" ".join(line.split()) for line in str(program).splitlines()])
        rank = next(rank for rank, text in enumerate(found) if text != found[0])
        pairs = zip_longest(texts[0], texts[rank], fillvalue="nothing")
        a, b = next(((a, b) for a, b in pairs if a != b), ("a number", "another one"))
        raise Disagreement(f"the model of rank {rank} computes {b!r}, where that of rank 0 has {a!r}")


def _digest(S: Support) -> str:
    """The hash of a support."""
    return hashlib.sha256(S.starts.tobytes() + S.columns.tobytes()).hexdigest()
