"""A look at the matrices of training: a check of the gradients, and all matrices of every batch, printed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from matgrad.backends import backend_of
from matgrad.callbacks.callback import Callback
from matgrad.inspection.gradient_check import check_gradients, check_step, first_wrong
from matgrad.inspection.profiling import counted
from matgrad.sparse.matrix import SparseMatrix, values_of

if TYPE_CHECKING:
    from matgrad.training import Training


class GradientCheck(Callback):
    """Check all gradients by central differences of size h on examples of the first batch of each epoch."""

    def __init__(self, h: float = 1e-5, *, examples: int = 10, say: Callable[[str], None] = lambda line: None) -> None:
        self.h, self.examples, self.say = check_step(h), examples, say

    def batch(self, run: Training) -> None:
        if run.batch != 1:
            return
        N = min(self.examples, run.T.shape[0])
        X, T = (backend_of(A).rows(A, 0, N) for A in (run.X, run.T))
        X = X.to_dense() if isinstance(X, SparseMatrix) else X
        with counted(run.M, -1):
            results = check_gradients(run.M, run.loss, X, T, h=self.h)
        wrong = first_wrong(results)
        if wrong is not None:
            raise ArithmeticError(str(wrong))
        silent = [result.name for result in results if not result.tells]
        beside = f"; cannot be judged: {', '.join(silent)}" if silent else ""
        self.say(f"gradients agree with central differences: {len(results) - len(silent)} equations{beside}")


class Matrices(Callback):
    """Show all matrices of each batch, which exist in eager training only: those from which the update is computed.

    They belong together: the parameters are those from before the update, with which X became Y, and the
    gradients are those of the loss shown, the mean of the batch, clipped if that was asked for.
    """

    def __init__(self, say: Callable[[str], None] = print) -> None:
        self.say = say

    def start(self, run: Training) -> None:
        if run.compiled:
            raise ValueError("Matrices: a compiled step keeps no matrices; expected compiled=False")

    def batch(self, run: Training) -> None:
        for i, layer in run.M.walk():
            kept = layer.intermediates
            forward = [name for name in kept if name[0] != "D" or name[1:] not in kept]
            backward = [name for name in kept if name not in forward]
            gradients = (f"D{name}" for name in layer.parameters)
            names = "X", *layer.parameters, *forward, "Y", "DY", *backward, "DX", *gradients
            for name in names:
                X = run.state[f"{i}.{name}"] if name in layer.parameters else getattr(layer, name)
                self._show(run, f"layer {i} {name}", X)
        Y, T = vars(run.M.layers[-1])["_Y"], run.T  # the output, whatever else the layer calls Y
        self._show(run, "T", T)
        loss = float(run.loss(Y, T, *run.s)) / (1 if run.loss.is_mean else len(T))
        self.say(f"batch {run.batch} loss {loss:.6g}")

    def _show(self, run: Training, name: str, X: Any) -> None:
        if X is not None:
            self.say(f"batch {run.batch} {name}\n{run.M.backend.to_numpy(values_of(X))}")
