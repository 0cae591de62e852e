"""The base class of callbacks."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matgrad.foundation.files import conform, naming
from matgrad.specifications.parsing import describe

if TYPE_CHECKING:
    from matgrad.training import Training


class Callback:
    """Watches or steers a run of training; each method does nothing unless it is overridden.

    The run has the model ``M``, the ``loss``, the ``row`` of the last epoch and the ``history`` of all, the
    numbers ``epoch`` (of epochs so far), ``batch`` (of batches of this epoch so far) and ``step`` (of all
    batches so far), the ``seconds`` of training without callbacks, and ``stop()``, which ends training after the batch.
    """

    wants_batches = False  # whether `batch` is called
    place = 0  # where it is called: 0, 1 (the row of the epoch is complete), 2 or 3 (after the check for divergence)
    is_training = False  # whether its time counts as time of training
    # the attributes that a checkpoint has: plain values, matrices, lists and tables; with types, which are then checked
    state_names: Collection[str] = ()
    only_first = False  # whether it only prints or writes, so that of several ranks only the first calls it
    interval = 1  # after how many steps it is called; the engine trains on the batches between by itself

    def __init_subclass__(cls) -> None:
        """A class with a method `batch` wants batches, unless it says otherwise."""
        if "batch" in vars(cls) and "wants_batches" not in vars(cls):
            cls.wants_batches = True

    def __repr__(self) -> str:
        return describe(self)

    def start(self, run: Training) -> None:
        """Before the first epoch."""

    def state(self, run: Training) -> dict[str, Any]:
        """What a checkpoint has of this callback: by default the attributes in `state_names`."""
        return {name: getattr(self, name) for name in self.state_names}

    def resume(self, run: Training, state: Mapping[str, Any]) -> None:
        """In place of `start`, where the run is resumed with this state; its matrices are NumPy's."""
        self.start(run)
        self.restore(state)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Set the attributes in `state_names`, after a check of those with types."""
        types = self.state_names if isinstance(self.state_names, Mapping) else {}
        for name in self.state_names:
            with naming(f"the checkpoint has a damaged state of {type(self).__name__}", f"{name}: "):
                setattr(self, name, conform(state[name], types.get(name, Any)))

    def batch(self, run: Training) -> None:
        """After each batch, ``run.X`` with targets ``run.T``, for a callback that `wants_batches`.

        ``run.s`` is [s] if the examples have weights s, else []. ``run.state`` is the state of M before it.
        M has the parameters after it, and whatever is changed counts from the next batch on: the model, ``run.loss``,
        ``run.clip_norm`` and ``run.learning_rate``. With
        an `interval` above 1 it is called after every `interval` steps of the run, without X, T and state.
        """

    def poll(self, run: Training) -> None:
        """Between two batches: after each or, if the engine trains whole epochs, ten times per second.

        It looks at how far the run is, and changes nothing but whether it stops; M may have earlier parameters.
        """

    def epoch(self, run: Training) -> None:
        """After each epoch; what it adds to ``run.row`` becomes part of the history."""

    def end(self, run: Training) -> None:
        """After the last epoch, also if training was stopped, was interrupted or failed."""


@contextmanager
def warned(path: Path) -> Iterator[None]:
    """A warning says why a file cannot be written, and training continues."""
    try:
        yield
    except OSError as error:
        warnings.warn(f"{path}: cannot be written ({error.strerror or error})", stacklevel=3)
