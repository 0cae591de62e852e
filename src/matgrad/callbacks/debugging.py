"""A look at a model while it is trained: checked gradients, all matrices of a batch, and pictures of the weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matgrad.backends import backend_of
from matgrad.callbacks.callback import Callback, warned
from matgrad.foundation.files import conform
from matgrad.foundation.imports import check_matplotlib
from matgrad.foundation.writing import atomic_write
from matgrad.inspection.figures import FIGURES, Shape, Snapshot, checked_shape, snapshot, write_animation, write_png
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
        if (wrong := first_wrong(results)) is not None:
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
            backward = [name for name in layer.intermediates if name[0] == "D" and name[1:] in layer.intermediates]
            forward = [name for name in layer.intermediates if name not in backward]
            gradients = (f"D{name}" for name in layer.parameters)
            for name in ("X", *layer.parameters, *forward, "Y", "DY", *backward, "DX", *gradients):
                X = run.state[f"{i}.{name}"] if name in layer.parameters else getattr(layer, name)
                if X is not None:
                    self.say(f"batch {run.batch} layer {i} {name}\n{run.M.backend.to_numpy(values_of(X))}")
        Y, T = vars(run.M.layers[-1])["_Y"], run.T  # the output, whatever else the layer calls Y
        loss = float(run.loss(Y, T, *run.s)) / (1 if run.loss.is_mean else len(T))
        self.say(f"batch {run.batch} T\n{run.M.backend.to_numpy(T)}")
        self.say(f"batch {run.batch} loss {loss:.6g}")


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
