"""Pictures of the weights at chosen epochs, and animations of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matgrad.callbacks.callback import Callback, warned
from matgrad.foundation.files import conform
from matgrad.foundation.imports import check_matplotlib
from matgrad.foundation.writing import atomic_write
from matgrad.inspection.pictures import FIGURES, Shape, Snapshot, checked_shape, snapshot, write_animation, write_png

if TYPE_CHECKING:
    from matgrad.training import Training

MOST = 20  # epochs with pictures, besides the start, if none are chosen


class Pictures(Callback):
    """Writes pictures of the weights to a folder: inputs, connectivity of the layers and histograms; needs matplotlib.

    After each of the chosen `epochs`, of which 0 is the start, there are files such as ``epoch_005_inputs.png``, and at
    the end ``inputs.gif`` and so on. By default there are up to 21, evenly spread over the run. `shape` says how the
    inputs form an image: (channels, rows, columns). A callback that changes supports belongs before it.
    """

    only_first = True
    _shots: list[Snapshot]

    def __init__(self, folder: str | Path, epochs: Iterable[int] | None = None, shape: Shape | None = None) -> None:
        check_matplotlib()
        self.folder, self.shape = Path(folder), shape
        self.epochs = None if epochs is None else sorted(set(epochs))

    def start(self, run: Training) -> None:
        self._prepare(run)
        self.epoch(run)

    def state(self, run: Training) -> dict[str, Any]:
        return {"shots": [vars(shot) for shot in self._shots]}

    def resume(self, run: Training, state: Mapping[str, Any]) -> None:
        self._prepare(run)
        self._shots = conform(state.get("shots"), list[Snapshot])

    def _prepare(self, run: Training) -> None:
        """Check what the pictures are to be of, and make the folder."""
        parts = min(run.epochs, MOST)
        default = [round(i * run.epochs / max(parts, 1)) for i in range(parts + 1)]
        self._epochs, self._shots = default if self.epochs is None else self.epochs, []
        if wrong := [i for i in self._epochs if not 0 <= i <= run.epochs]:
            raise ValueError(f"pictures: expected epochs from 0 to {run.epochs}, found {wrong[0]}")
        checked_shape(self.shape, run.M.layers[0].input_size)
        self.folder.mkdir(exist_ok=True)
        self._digits = max(3, len(str(run.epochs)))

    def epoch(self, run: Training) -> None:
        if run.epoch not in self._epochs:
            return
        shot = snapshot(run.M, f"epoch {run.epoch}", self.shape)
        self._shots.append(shot)
        for name, draw in FIGURES.items():
            path = self.folder / f"epoch_{run.epoch:0{self._digits}}_{name}.png"
            with warned(path), atomic_write(path) as file:
                write_png(draw(shot, [shot]), file)

    def end(self, run: Training) -> None:
        """Write the animations, in which all pictures have the same scale."""
        for name, draw in FIGURES.items() if self._shots else ():
            path = self.folder / f"{name}.gif"
            with warned(path), atomic_write(path) as file:
                write_animation([draw(shot, self._shots) for shot in self._shots], file)
