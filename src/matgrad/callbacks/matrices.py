"""The matrices of every batch, printed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from matgrad.callbacks.callback import Callback
from matgrad.layers.layer import KEPT
from matgrad.sparse.matrix import values_of

if TYPE_CHECKING:
    from matgrad.training import Training


class Matrices(Callback):
    """Show all matrices of each batch, which exist in eager training only: those from which the update is computed.

    They belong together: the parameters are those from before the update, with which X became Y, and the
    gradients are those of the loss shown, the mean of the batch, clipped if that was asked for.
    """

    wants_batches = True

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
        Y, T = vars(run.M.layers[-1])[KEPT]["Y"], run.T  # the output, whatever else the layer calls Y
        self._show(run, "T", T)
        loss = float(run.loss(Y, T, *run.s)) / (1 if run.loss.is_mean else len(T))
        self.say(f"batch {run.batch} loss {loss:.6g}")

    def _show(self, run: Training, name: str, X: Any) -> None:
        if X is not None:
            self.say(f"batch {run.batch} {name}\n{run.M.backend.to_numpy(values_of(X))}")
