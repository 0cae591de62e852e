"""`matgrad train --pictures` and `matgrad pictures`: files, checks before training, and bad input."""

from __future__ import annotations

import sys

import numpy as np
from PIL import Image

from cli_support import run, succeed

TRAIN = ("train", "--epochs", 3, "--densities", "ER(0.2)", "--sparse-training", "SET")


def test_a_run_with_pictures_at_chosen_epochs(tmp_path):
    options = ("--pictures", f"{tmp_path}/pictures, epochs=0,3, shape=4x16")
    succeed(*TRAIN, *options, "--output", tmp_path / "out")
    names = sorted(path.name for path in (tmp_path / "pictures").glob("*inputs*"))
    assert names == ["epoch_000_inputs.png", "epoch_003_inputs.png", "inputs.gif"]
    with Image.open(tmp_path / "pictures" / "inputs.gif") as gif:
        assert gif.n_frames == 2
    repeated = run("train", "--config", tmp_path / "out" / "run.json")  # which writes no pictures
    assert repeated.exit_code == 0, repeated.output
    refused = run(*TRAIN, "--pictures", tmp_path / "pictures")
    assert refused.exit_code == 2
    assert "has connectivity.gif already" in refused.stderr or "has inputs.gif already" in refused.stderr
    succeed(*TRAIN, "--pictures", tmp_path / "pictures", "--overwrite")


def test_pictures_of_a_saved_model_are_those_of_the_last_epoch(tmp_path):
    model, folder = tmp_path / "model.npz", tmp_path / "run"
    succeed(*TRAIN, "--pictures", f"{folder}, epochs=3", "--save-weights", model)
    output = succeed("pictures", model, tmp_path / "saved")
    assert output.split() == [str(tmp_path / "saved" / f"{name}.png") for name in ("inputs", "connectivity", "weights")]
    for name in ("inputs", "connectivity"):
        pictures = []
        for path in (tmp_path / "saved" / f"{name}.png", folder / f"epoch_003_{name}.png"):
            with Image.open(path) as picture:
                pictures.append(np.asarray(picture)[44:])  # below the title
        np.testing.assert_array_equal(*pictures)
    refused = run("pictures", model, tmp_path / "saved")
    assert refused.exit_code == 2
    assert "has inputs.png already" in refused.stderr
    succeed("pictures", model, tmp_path / "saved", "--overwrite", "--shape", "4x16")
    assert "expected one with 64 pixels" in run("pictures", model, tmp_path / "new", "--shape", "5x5").stderr


def test_without_matplotlib_training_does_not_start(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = run(*TRAIN, "--pictures", tmp_path / "p")
    assert result.exit_code == 2
    assert "matplotlib, which is not installed: pip install" in result.stderr
    assert "epoch" not in result.stdout
