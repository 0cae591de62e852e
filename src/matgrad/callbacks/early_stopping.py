"""Early stopping, which keeps the best model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matgrad.backends.conversion import convert
from matgrad.callbacks.callback import Callback
from matgrad.foundation.numbers import check_size
from matgrad.layers.state import State, matrices_of

if TYPE_CHECKING:
    from matgrad.multilayer_perceptron import MultilayerPerceptron
    from matgrad.training import Training


class EarlyStopping(Callback):
    """Stop when a measure has not decreased for `patience` epochs, and keep the model for which it was smallest."""

    def __init__(self, patience: int, measure: str = "validation_loss") -> None:
        self.patience, self.measure = check_size("patience", patience), measure
        self.best: float | None = None
        self.best_epoch = 0
        self._state: State = {}

    def start(self, run: Training) -> None:
        self.best = None

    def epoch(self, run: Training) -> None:
        if self.measure not in run.row:
            raise ValueError(f"early stopping: no {self.measure} is measured, only {', '.join(run.row)}")
        value = run.row[self.measure]
        if self.best is None or value < self.best:
            self.best, self.best_epoch, self._state = value, run.epoch, _copied(run.M)
        if run.epoch - self.best_epoch >= self.patience:
            run.stop()

    def end(self, run: Training) -> None:
        if self.best is not None:
            run.M.load_state(self._state)


def _copied(M: MultilayerPerceptron) -> State:
    """A copy of the state, safe from callbacks that change the matrices of M in place."""
    state = M.state()
    return state | {name: convert(X, M.backend, None, M.device) for name, X in matrices_of(state).items()}
