"""Pictures: what their cells show, read back from PNG files and animations, and when they are written."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from PIL import Image

import matgrad as mg
from matgrad.callbacks import Callback, Pictures
from matgrad.inspection.figures import (
    LEFT,
    TOP,
    in_degrees,
    inputs_figure,
    magnification,
    parse_shape,
    snapshot,
    write_png,
)
from matgrad.sparse.matrix import SparseMatrix
from matgrad.specifications.models import create_model


def model(D: int = 36, densities: str = "0.2;0.5;1", engine: str = "numpy") -> mg.MultilayerPerceptron:
    mg.manual_seed(3)
    return create_model("ReLU;ReLU;Linear", (D, 10, 8, 3), densities=densities).to(engine)


def data(D: int = 36) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(4)
    return rng.normal(size=(40, D)), rng.integers(0, 3, 40)


def pixels(path: Path) -> np.ndarray:
    with Image.open(path) as picture:
        return np.asarray(picture.convert("RGB"))


def cells(picture: np.ndarray, m: int, n: int, left: int = LEFT) -> np.ndarray:
    """The colours in the middle of the cells of a panel of m × n, after a check that every cell has one colour."""
    size = magnification(np.empty((m, n)))
    panel = picture[TOP : TOP + m * size, left : left + n * size].reshape(m, size, n, size, 3)
    assert (panel == panel[:, :1, :, :1]).all()
    return panel[:, 0, :, 0]


def colours(name: str, values: np.ndarray) -> np.ndarray:
    """The colours of values from 0 to 1."""
    return mpl.colormaps[name](values, bytes=True)[..., :3]


def mask(W: SparseMatrix) -> np.ndarray:
    return W.with_values(np.ones_like(W.values)).to_dense() != 0


@pytest.mark.parametrize("engine", ["numpy", "torch", "native"])
def test_the_pictures_of_a_run_show_the_stored_weights(tmp_path, engine: str):
    M = model(engine=engine)
    M.fit(*data(), epochs=2, callbacks=[mg.callbacks.SET(0.5), Pictures(tmp_path, [0, 2])])
    names = ("connectivity", "inputs", "weights")
    expected = [f"epoch_00{i}_{name}.png" for i in (0, 2) for name in names] + [f"{name}.gif" for name in names]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(expected)

    W = M.layers[0].W
    stored = (M.backend.to_numpy(W.to_dense()) != 0) | mask(SparseMatrix(W.support, np.ones((1, W.support.nnz))))
    counts = stored.sum(axis=0).reshape(6, 6)
    picture = pixels(tmp_path / "epoch_002_inputs.png")
    np.testing.assert_array_equal(cells(picture, 6, 6), colours("inferno", counts / counts.max()))
    picture = pixels(tmp_path / "epoch_002_connectivity.png")
    np.testing.assert_array_equal(cells(picture, 10, 36), colours("binary", stored.astype(float)))
    before = pixels(tmp_path / "epoch_000_inputs.png")
    assert not np.array_equal(cells(before, 6, 6), colours("inferno", counts / counts.max()))


def test_animations_have_a_frame_per_epoch_on_one_scale(tmp_path):
    M = model()
    degrees = []

    class Note(Callback):
        def epoch(self, run) -> None:
            degrees.append(in_degrees(run.M.layers[0].W).reshape(6, 6))

    start = in_degrees(M.layers[0].W).reshape(6, 6)
    M.fit(*data(), epochs=3, callbacks=[mg.callbacks.SET(0.5), Note(), Pictures(tmp_path)])
    frames = [start, *degrees]
    largest = max(A.max() for A in frames)
    for name in ("inputs", "connectivity", "weights"):
        with Image.open(tmp_path / f"{name}.gif") as gif:
            assert gif.n_frames == 4, name
    with Image.open(tmp_path / "inputs.gif") as gif:
        for i, A in enumerate(frames):
            gif.seek(i)
            found = cells(np.asarray(gif.convert("RGB")), 6, 6).astype(int)
            assert np.abs(found - colours("inferno", A / largest)).max() <= 8, i  # a GIF has few colours


@pytest.mark.parametrize(("epochs", "expected"), [(3, 4), (20, 21), (45, 21)])
def test_by_default_pictures_are_spread_over_the_run(tmp_path, monkeypatch, epochs: int, expected: int):
    monkeypatch.setattr("matgrad.callbacks.debugging.FIGURES", {"inputs": inputs_figure})
    model().fit(*data(), epochs=epochs, callbacks=[Pictures(tmp_path)])
    names = sorted(path.name for path in tmp_path.glob("*.png"))
    assert len(names) == expected
    assert (names[0], names[-1]) == ("epoch_000_inputs.png", f"epoch_{epochs:03}_inputs.png")


def test_colour_images_have_a_panel_per_channel(tmp_path):
    M = model(D=75)
    counts = in_degrees(M.layers[0].W).reshape(3, 5, 5)
    np.testing.assert_array_equal(counts.reshape(-1), mask(M.layers[0].W).sum(axis=0))
    shot = snapshot(M, "colours")
    with (tmp_path / "a.png").open("wb") as file:
        write_png(inputs_figure(shot, [shot]), file)
    size = magnification(counts[0])
    for k, A in enumerate(counts):
        found = cells(pixels(tmp_path / "a.png"), 5, 5, LEFT + k * (5 * size + 16))
        np.testing.assert_array_equal(found, colours("inferno", A / counts.max()))


def test_histograms_count_every_stored_weight():
    M = model()
    for name, (counts, edges) in snapshot(M, "").histograms.items():
        values = M.layers[int(name) - 1].W
        A = values.values[0] if isinstance(values, SparseMatrix) else values.reshape(-1)
        assert counts.sum() == A.size
        assert counts[len(counts) // 2 :].sum() == (A >= 0).sum()
        assert edges[-1] == -edges[0] == pytest.approx(np.abs(A).max())


def test_shapes_are_checked(tmp_path):
    assert parse_shape("2x18") == (1, 2, 18)
    assert parse_shape("2×6x3") == (3, 2, 6)
    with pytest.raises(ValueError, match="shape: expected one with 36 pixels, the number of inputs, found 5x7"):
        model().fit(*data(), epochs=1, callbacks=[Pictures(tmp_path, shape=(1, 5, 7))])
    with pytest.raises(ValueError, match="pictures: expected epochs from 0 to 1, found 3"):
        model().fit(*data(), epochs=1, callbacks=[Pictures(tmp_path, [1, 3])])
    for text in ("28", "0x5", "axb", "2x2x2x2"):
        with pytest.raises(ValueError, match="shape: expected such as 28x28"):
            parse_shape(text)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_gone_does_not_end_training(tmp_path):
    folder = tmp_path / "pictures"

    class Remove(Callback):
        def start(self, run) -> None:
            for path in folder.iterdir():
                path.unlink()
            folder.rmdir()
            folder.write_text("a file")

    with pytest.warns(UserWarning, match="cannot be written"):
        history = model().fit(*data(), epochs=2, callbacks=[Pictures(folder, [0, 2]), Remove()])
    assert len(history["loss"]) == 2
