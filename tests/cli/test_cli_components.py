"""The command line with dropout of neurons, L1, Huber and hinge losses, and schedules inside each other."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import matgrad as mg
from cli_support import run, succeed
from matgrad.learning_rate import create_scheduler

HOUSES = Path(__file__).parents[2] / "docs" / "houses.csv"
TRAIN = ("train", "--epochs", 2, "--seed", 1)
DROPOUT = ("--layers", "Dropout(0.1);ReLU;Dropout(0.5);Linear", "--layer-sizes", "64;16;10")


@pytest.mark.parametrize(
    "options", [("--backend", "numpy"), ("--backend", "native"), ("--backend", "torch", "--eager")]
)
def test_dropout_of_neurons_is_trained_and_evaluated(tmp_path, options):
    file = tmp_path / "m.npz"
    output = succeed(*TRAIN, *DROPOUT, *options, "--gradient-step", 1e-5, "--dtype", "float64", "--save-weights", file)
    assert "DropoutLayer(16, 16, 0.5)" in output
    accuracy = float(succeed("evaluate", file).split()[-1])
    assert output.splitlines()[-1] == f"test accuracy {accuracy:.3f}"
    assert "layers: Dropout(0.1);ReLU;Dropout(0.5);Linear" in succeed("inspect", file)
    assert "layer 3 DropoutLayer.DX " in succeed("check", file)


def test_a_program_and_its_latex_have_dropout(tmp_path):
    text = succeed("program", *DROPOUT, "--latex", tmp_path / "p.tex")
    assert ["Y3", "=", "Y2", "⊙", "R3"] in [line.split() for line in text.splitlines()]
    assert r"Y_3 &= Y_2 \odot R_3" in (tmp_path / "p.tex").read_text()


def test_l1_is_the_argument_of_every_optimizer(tmp_path):
    """Without it, the weights are others."""
    found = []
    for options in (
        ("--optimizers", "Adam(l1=0.01)"),
        ("--optimizers", "Adam(l1=0.01)"),
        ("--optimizers", "Adam"),
    ):
        succeed(*TRAIN, "--learning-rate", 0.001, *options, "--save-weights", tmp_path / "m.npz")
        found.append(mg.load(tmp_path / "m.npz").layers[0].W)
    np.testing.assert_array_equal(found[1], found[0])
    assert np.abs(found[0]).sum() < np.abs(found[2]).sum()


def test_a_schedule_inside_another(tmp_path):
    schedule = "WarmUp(2; Cosine(0.1; 3; 0.01))"
    succeed("train", "--epochs", 6, "--learning-rate", schedule, "--output", tmp_path / "r")
    record = json.loads((tmp_path / "r" / "run.json").read_text())
    rates = [row["learning_rate"] for row in record["epochs"]]
    assert rates == pytest.approx([create_scheduler(schedule)(i) for i in range(6)], rel=1e-6)
    assert record["configuration"]["learning_rate"] == schedule


@pytest.mark.parametrize("loss", ["Hinge", "MultiMargin(margin=0.5)"])
def test_hinges_learn_the_digits_and_are_known_from_the_file(tmp_path, loss):
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
