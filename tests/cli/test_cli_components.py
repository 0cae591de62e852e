"""The command line with dropout of neurons, L1, Huber and hinge losses, and schedules inside each other."""

from __future__ import annotations

from pathlib import Path

import pytest

import matgrad as mg
from cli_support import run, succeed

HOUSES = Path(__file__).parents[2] / "docs" / "houses.csv"
TRAIN = ("train", "--epochs", 2, "--seed", 1)
DROPOUT = ("--layers", "Dropout(0.1);ReLU;Dropout(0.5);Linear", "--layer-sizes", "64;16;10")


@pytest.mark.parametrize("options", [("--backend", "native"), ("--backend", "torch", "--eager")])
def test_dropout_of_neurons_is_trained_and_evaluated(tmp_path, options):
    file = tmp_path / "m.npz"
    output = succeed(*TRAIN, *DROPOUT, *options, "--gradient-step", 1e-5, "--dtype", "float64", "--save-weights", file)
    assert "DropoutLayer(16, 16, 0.5)" in output
    accuracy = float(succeed("evaluate", file).split()[-1])
    assert output.splitlines()[-1] == f"test accuracy {accuracy:.3f}"
    assert "layers: Dropout(0.1);ReLU;Dropout(0.5);Linear" in succeed("inspect", file)
    assert "layer 3 DropoutLayer.DX " in succeed("check", file)


def test_hinges_learn_the_digits_and_are_known_from_the_file(tmp_path):
    loss = "MultiMargin(margin=0.5)"
    output = succeed("train", "--epochs", 5, "--loss", loss, "--save-weights", tmp_path / "m.npz")
    assert float(output.split()[-1]) > 0.9
    assert f"loss: {loss}" in succeed("inspect", tmp_path / "m.npz")


def test_huber_is_for_regressions_whose_targets_are_normalized(tmp_path):
    options = ("--table", HOUSES, "--features", "categorical=auto; missing=median", "--loss", "Huber(0.5)")
    output = succeed("train", *options, "--epochs", 20, "--save-weights", tmp_path / "m.npz")
    assert "targets standard" in output
    rmse = float(output.split()[-1])
    outputs = mg.load(tmp_path / "m.npz").target_normalization
    assert rmse < float(outputs.scale.max())


def test_a_sparse_input_before_dropout_is_refused(tmp_path):
    (tmp_path / "a.svm").write_text("".join(f"{i % 2} {i % 5 + 1}:1\n" for i in range(40)))
    result = run("train", "--svmlight", tmp_path / "a.svm", "--layers", "Dropout(0.5);Linear")
    assert result.exit_code
    assert "layer 1, DropoutLayer" in result.stderr
    assert "cannot take a sparse X" in result.stderr
