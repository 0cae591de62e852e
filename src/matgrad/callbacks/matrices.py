"""The matrices of every batch, printed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from matgrad.callbacks.callback import Callback
from matgrad.sparse.matrix import values_of

if TYPE_CHECKING:
    from matgrad.training import Training


class Matrices(Callback):
    """Show all matrices of all layers after each batch; they exist in eager training only."""

    wants_batches = True

    def __init__(self, say: Callable[[str], None] = print) -> None:
        self.say = say

    def batch(self, run: Training) -> None:
        for i, layer in run.M.walk():
            names = ["X", "DX", *layer.intermediates, *layer.parameters, *(f"D{name}" for name in layer.parameters)]
            for name in names:
                X = values_of(getattr(layer, name))
                if X is not None:
                    self.say(f"batch {run.batch} layer {i} {name}\n{run.M.backend.to_numpy(X)}")
