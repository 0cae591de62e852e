"""Every part of the package once, from end to end and in seconds: with the table, this is `make test-smoke`."""

from __future__ import annotations

import json
import re

import pytest

import matgrad as mg
from cli_support import in_process_of_its_own, succeed

MODEL = ("--layers", "ReLU;BatchNormalization;Linear", "--layer-sizes", "5;4;3")


@pytest.mark.parametrize("densities", ["1", "0.3;0.5;1"])
@pytest.mark.parametrize("engine", ["numpy", "torch", "native"])
def test_training_on_digits_saves_what_was_trained(engine: str, densities: str):
    options = ("--backend", engine, "--densities", densities, "--epochs", 5, "--save-weights", "model.npz", "--json")
    trained = json.loads(succeed("train", *options))
    evaluated = json.loads(succeed("evaluate", "model.npz", "--json"))

    assert trained["results"]["test_accuracy"] > 0.9
    assert evaluated["accuracy"] == pytest.approx(trained["results"]["test_accuracy"])


def test_the_equations_train_what_the_program_trains():
    runs = [json.loads(succeed("train", "--epochs", 2, "--json", *option)) for option in ((), ("--eager",))]
    losses = [[epoch["loss"] for epoch in run["epochs"]] for run in runs]

    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    assert losses[0][1] < losses[0][0]


def test_the_library_trains():
    X, t = mg.load_digits()
    mg.manual_seed(1)
    M = mg.MultilayerPerceptron([mg.ActivationLayer(64, 32, mg.ReLUActivation()), mg.LinearLayer(32, 10)])
    M.set_optimizer("Momentum(0.9)")
    M.fit(X[:1400] / 16, t[:1400], learning_rate=0.05, epochs=5)

    assert (M.predict(X[1400:] / 16).argmax(axis=1) == t[1400:]).mean() > 0.8


def test_a_program_is_recorded_and_printed():
    lines = [" ".join(line.split()) for line in succeed("program", *MODEL).splitlines()]

    assert "Z1 = X W1ᵀ + 1_N b1" in lines
    assert "DZ1 = DX2 ⊙ [Z1 ≥ 0]" in lines


def test_gradients_are_checked_by_differences():
    assert json.loads(succeed("check", *MODEL, "--json"))["first_wrong"] is None


@pytest.mark.parametrize("name", ["Linear", "SquaredError", "Momentum"])
def test_equations_are_checked_by_sympy(name: str):
    assert re.search(r"numbers: (\d+) of \1 checks right", succeed("verify", "--layer", name))


def test_the_command_runs_in_a_process_of_its_own():
    status, output, errors = in_process_of_its_own("train", "--epochs", 1, "--quiet")

    assert (status, errors) == (0, "")
    assert output.startswith("test accuracy 0.")
