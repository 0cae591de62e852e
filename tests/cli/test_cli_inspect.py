"""`matgrad inspect`, `info`, `check`, `completion`, and the command itself."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

from cli_support import run, save_blobs, succeed
from matgrad.specifications.models import create_model
from matgrad.storage.models import save_model

# -- inspect -----------------------------------------------------------------------------------


def test_inspect_shows_names_shapes_and_ranges(folder):
    A = np.array([[1.5, -2.0, 0.25]], np.float32)
    np.savez("some.npz", alpha=A, beta=np.arange(6).reshape(2, 3), word=np.array("text"), empty=np.zeros((0, 3)))
    lines = {line.split()[0]: line for line in succeed("inspect", "some.npz").splitlines()}

    assert lines["alpha"].split() == ["alpha", "1", "×", "3", "float32", "-2", "1.5", f"{A.mean():.6g}"]
    assert "2 × 3" in lines["beta"]
    assert "0 × 3" in lines["empty"]
    assert "scalar" in lines["word"]


def test_inspect_shows_how_a_model_is_made(folder):
    save_blobs(folder / "data.npz")
    succeed("train", "--load-dataset", "data.npz", "--epochs", 1, "--layers", "SReLU;Linear", "--save-weights", "m.npz")
    output = succeed("inspect", "m.npz")

    for text in ("layers: SReLU", "sizes: 4;128;3", "normalize: unit", "loss: SoftmaxCrossEntropy", "128 × 4", "1.al"):
        assert text in output, text


def test_inspect_as_json():
    np.savez("some.npz", A=np.eye(2), B=np.full((1, 2), np.nan))
    found = json.loads(
        succeed("inspect", "some.npz", "--json"), parse_constant=lambda c: pytest.fail(f"{c} is not JSON")
    )

    assert found["model"] is None
    assert found["arrays"][0] == {"name": "A", "shape": [2, 2], "dtype": "float64", "min": 0, "max": 1, "mean": 0.5}


def test_inspect_shows_programs(folder):
    """The model, what the program computes, and all tensors."""
    save_blobs(folder / "data.npz")
    layers = ("--layers", "ReLU;Linear", "--layer-sizes", "4;5;3", "--densities", "0.5;1")
    succeed("train", "--load-dataset", "data.npz", *layers, "--epochs", 1, "--save-weights", "m.npz")
    succeed("program", "--load-weights", "m.npz", "--save", "step")
    succeed("program", "--load-weights", "m.npz", "--feedforward", "--batch-size", 7, "--save", "feedforward")
    step, feedforward = (succeed("inspect", name, "--shapes-only").splitlines() for name in ("step", "feedforward"))

    for lines in (step, feedforward):
        assert {"layers: ReLU;Linear", "sizes: 4;5;3", "normalize: unit", "loss: SoftmaxCrossEntropy"} < set(lines)
        rows = {line.split()[0]: line.split()[1:] for line in lines}
        assert rows["1.W"] == ["1", "×", "10", "float32"]
        assert rows["1.W.support.columns"] == ["10", "int32"]
        assert rows["extra.scale"] == ["1", "×", "4", "float32"]
    assert {"inputs: X 100 × 4, T 100 × 3, eta scalar", "outputs: the state after a training step"} < set(step)
    assert {"inputs: X 7 × 4", "outputs: Y 7 × 3"} < set(feedforward)
    found = json.loads(succeed("inspect", "feedforward", "--json"))
    assert found["program"]["operations"] > 3
    assert found["model"]["sizes"] == "4;5;3"


# -- info --------------------------------------------------------------------------------------


def test_info():
    found = json.loads(succeed("info", "--json"))

    assert found["versions"]["numpy"] == version("numpy")
    assert found["versions"]["python"] == platform.python_version()
    assert set(found["backends"]) == {"numpy", "torch", "jax", "tensorflow", "native", "sympy"}
    assert found["backends"]["numpy"] is True
    assert found["auto"] == ("native" if found["backends"]["native"] else "numpy")
    assert found["machine"]["cores"] == len(os.sched_getaffinity(0))
    assert found["instruction_sets"]
    assert all(isinstance(number, int) and number > 0 for number in found["threads"].values())
    text = succeed("info")
    assert re.search(rf"^numpy +{re.escape(version('numpy'))}$", text, re.MULTILINE)
    assert re.search(r"^backend numpy +installed$", text, re.MULTILINE)


def test_info_where_the_system_does_not_tell_which_cores(monkeypatch):
    """As on macOS and Windows."""
    monkeypatch.delattr(os, "sched_getaffinity")
    assert json.loads(succeed("info", "--json"))["machine"]["cores"] >= 1


# -- check -------------------------------------------------------------------------------------


def test_check_agrees_with_right_models():
    options = ("--layer-sizes", "5;6;4;4", "--dropouts", "0.3;0;0", "--loss", "CrossEntropy", "--seed", 4)
    layers = ("--layers", "ReLU;BatchNormalization;SReLU;Softmax")
    assert succeed("check", *layers, *options).splitlines()[-1].endswith("equations agree with central differences")
    found = json.loads(succeed("check", *layers, *options, "--json"))
    assert found["first_wrong"] is None
    assert all(row["ok"] and row["relative_error"] < 1e-5 for row in found["equations"])


def test_check_of_a_saved_model(folder):
    save_blobs(folder / "data.npz")
    succeed("train", "--load-dataset", "data.npz", "--epochs", 1, "--save-weights", "m.npz")
    assert "SoftmaxCrossEntropyLoss.gradient" in succeed("check", "m.npz")
    save_model(create_model("ReLU;Linear", "3;4;2"), "bare.npz")
    assert "SquaredErrorLoss.gradient" in succeed("check", "bare.npz")


WRONG_LAYER = """
import matgrad as mg

class HalfLayer(mg.Layer):
    keeps_size = True
    def feedforward(self, X):
        Y = X / 2
        self.X = X
        return Y
    def backpropagate(self, Y, DY):
        DX = DY / 3
        self.DX = DX
"""


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_check_names_the_first_wrong_equation(folder, form):
    (folder / "wrong.py").write_text(WRONG_LAYER)
    result = run("check", "--plugin", "wrong.py", "--layers", "ReLU;Half;Linear", "--layer-sizes", "5;6;4", *form)

    assert result.exit_code == 1
    if form:
        assert json.loads(result.stdout)["first_wrong"] == "layer 2 HalfLayer.DX"
    else:
        assert result.stdout.splitlines()[-1].startswith("layer 2 HalfLayer.DX is wrong at row ")
        assert "wrong.py:11: DX = DY / 3" in result.stdout.splitlines()[-1]


# -- completion --------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell):
    assert f"_MATGRAD_COMPLETE={shell}_complete" in succeed("completion", shell)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("matgrad tr", {"train"}),
        ("matgrad train --backend t", {"torch", "tensorflow"}),
        ("matgrad data get ", {"mnist", "fashion-mnist", "cifar10"}),
    ],
)
@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes(words, expected):
    script = f"""
        eval "$(matgrad completion bash)"
        COMP_WORDS=({words.rstrip()}{' ""' if words.endswith(" ") else ""})
        COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
        _matgrad_completion matgrad
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    found = subprocess.run(["bash", "-c", script], env=os.environ | {"PATH": path}, capture_output=True, text=True)

    assert set(found.stdout.split()) == expected, found.stderr


# -- the command itself ------------------------------------------------------------------------


def test_version_and_help():
    assert succeed("--version").strip() == f"matgrad, version {version('matgrad')}"
    text = succeed("--help")
    for command in ("train", "evaluate", "predict", "inspect", "info", "check", "data", "completion"):
        assert f"\n  {command} " in text
    assert "..." not in text.partition("Commands:")[2], "summaries of commands are cut off"
    assert succeed("-h") == text
