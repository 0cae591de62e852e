"""`matgrad explain`: the equations of a step in the terminal, of a new model or of a saved one on its data."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import matgrad as mg
from cli_support import run, save_blobs, succeed
from matgrad import datasets


@pytest.fixture
def model(tmp_path):
    """A model of the digits."""
    path = tmp_path / "model.npz"
    succeed("train", "--epochs", 1, "--layers", "ReLU;Linear", "--layer-sizes", "64;8;10", "--save-weights", path)
    return path


def matrix(text: str) -> np.ndarray:
    """The numbers at the end of what is printed of one equation."""
    rows = [line.split() for line in text.splitlines() if line.startswith("    ")]
    return np.array(rows, dtype=float)


def test_a_new_model_is_explained_in_the_order_of_execution():
    text = succeed("explain")
    titles = re.findall(r"^(?:layer \d )?\w+\.\S+$", text, re.MULTILINE)
    assert titles[:5] == [
        *("layer 1 ActivationLayer.Z", "layer 1 ActivationLayer.Y", "layer 2 LinearLayer.Y"),
        *("SoftmaxCrossEntropyLoss.ℒ", "SoftmaxCrossEntropyLoss.DY"),
    ]
    assert [line.split()[1] for line in text.splitlines() if line.startswith("──")] == [
        *("Given", "Feedforward", "Loss", "Backpropagation", "Optimization")
    ]
    assert text.count("verdict  right; central differences on this batch agree") == 8


def test_one_equation():
    text = succeed("explain", "--equation", "layer 2 DW", "--layer-sizes", "4;5;3")
    assert text.splitlines()[:3] == [
        "layer 2 LinearLayer.DW",
        "  DW2 = DYᵀ Y1",
        r"  LaTeX    \mathsf{D}W = \mathsf{D}Y^\top \cdot X",
    ]
    code, path, line = re.fullmatch(r"  source   (.*)   \(matgrad/(.*):(\d+)\)", text.splitlines()[3]).groups()
    assert (
        Path(mg.__file__)
        .parent.joinpath(path)
        .read_text(encoding="utf-8")
        .splitlines()[int(line) - 1]
        .lstrip()
        .startswith(code)
    )
    DY, Y1 = (matrix(succeed("explain", "--equation", name)) for name in ("DY", "layer 1 Y"))
    np.testing.assert_allclose(matrix(text), DY.T @ Y1, atol=1e-3)


def test_a_saved_model_is_explained_on_the_first_examples_of_its_data(model):
    X = datasets.digits().Xtest
    text = succeed("explain", model, "--examples", 2, "--equation", "layer 1 Z")
    M = mg.load(model)
    expected = (X[:2] / 16) @ M.layers[0].W.T + M.layers[0].b
    np.testing.assert_allclose(matrix(text), expected, atol=1e-3)


def test_the_examples_of_a_saved_model_are_of_all_classes(model):
    text = succeed("explain", model, "--examples", 10)
    T = matrix(text.partition("\nT\n")[2].partition("\n\n")[0])
    assert T.sum(axis=0).tolist() == 10 * [1]
    assert "--layer-sizes and " in run("explain", model, "--layer-sizes", "4;3").stderr  # it describes a new model


def test_data_that_do_not_fit_are_named(tmp_path):
    save_blobs(tmp_path / "blobs.npz")
    succeed("train", "--load-dataset", tmp_path / "blobs.npz", "--epochs", 1, "--save-weights", tmp_path / "m.npz",
            "--layers", "Linear", "--layer-sizes", "4;3")  # fmt: skip
    result = run("explain", tmp_path / "m.npz")
    assert "the model has 4 features, but digits has 64; name its data, such as with --table FILE" in result.stderr


def test_symbolic_checks_on_request():
    text = succeed("explain", "--layers", "Linear", "--layer-sizes", "2;2", "--loss", "SquaredError", "--verify")
    assert text.count("symbolic check") >= 6
