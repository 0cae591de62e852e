"""A check of the gradients against central differences during training."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from matgrad.backends import backend_of
from matgrad.callbacks.callback import Callback
from matgrad.inspection.gradient_check import check_gradients, check_step, first_wrong
from matgrad.inspection.profiling import paused
from matgrad.sparse.matrix import SparseMatrix

if TYPE_CHECKING:
    from matgrad.training import Training


class GradientCheck(Callback):
    """Check all gradients by central differences of size h on examples of the first batch of each epoch."""

    wants_batches = True

    def __init__(self, h: float = 1e-5, *, examples: int = 10, say: Callable[[str], None] = lambda line: None) -> None:
        self.h, self.examples, self.say = check_step(h), examples, say

    def batch(self, run: Training) -> None:
        if run.batch != 1:
            return
        N = min(self.examples, run.T.shape[0])
        X, T = (backend_of(A).rows(A, 0, N) for A in (run.X, run.T))
        X = X.to_dense() if isinstance(X, SparseMatrix) else X
        with paused(run.M):
            results = check_gradients(run.M, run.loss, X, T, h=self.h)
        wrong = first_wrong(results)
        if wrong is not None:
            raise ArithmeticError(str(wrong))
        silent = [result.name for result in results if not result.tells]
        beside = f"; cannot be judged: {', '.join(silent)}" if silent else ""
        self.say(f"gradients agree with central differences: {len(results) - len(silent)} equations{beside}")
