"""What a user gets without asking: the backend `auto`, the same training as `M.fit`, and help in groups."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import click
import numpy as np
import pytest

import matgrad as mg
from cli_support import arrays, command_named, run, save_blobs, succeed
from matgrad.cli.commands import GROUPS, RENAMED, Command, GroupedOption

FAST = ("--load-dataset", "data.npz", "--layers", "ReLU;Linear", "--epochs", 2, "--batch-size", 8)


@pytest.fixture
def data(folder) -> dict[str, np.ndarray]:
    return save_blobs(folder / "data.npz")


# -- the library does what the command line does -----------------------------------------------


def test_fit_does_what_train_does_with_the_same_data():
    succeed("train", "--seed", 7, "--save-weights", "m.npz")

    X, t = mg.load_digits()
    is_train = np.arange(len(X)) % 5 != 0
    mg.manual_seed(7)
    M = mg.create_model("ReLU;ReLU;Linear", [64, 128, 64, 10])
    M.fit(X[is_train] / 16, t[is_train], seed=7)
    saved = arrays("m.npz")
    for k, layer in enumerate(M.layers, start=1):
        np.testing.assert_array_equal(layer.W, saved[f"W{k}"], err_msg=f"layer {k}")
        np.testing.assert_array_equal(layer.b, saved[f"b{k}"], err_msg=f"layer {k}")
    assert M.score(X[~is_train] / 16, t[~is_train]) >= 0.95


@pytest.mark.parametrize("kind", ["none", "standard"])
def test_a_loaded_model_takes_raw_examples(data, kind):
    """It measures them as `evaluate` does, and trains on as on examples that were normalized by hand."""
    succeed("train", *FAST, "--epochs", 10, "--normalize", kind, "--save-weights", "m.npz")
    expected = json.loads(succeed("evaluate", "m.npz", "--load-dataset", "data.npz", "--json"))["accuracy"]
    M, by_hand, content = mg.load("m.npz"), mg.load("m.npz"), arrays("m.npz")
    assert M.score(data["Xtest"], data["Ttest"]) == expected >= 0.9
    assert (f"inputs normalized ({kind})" in repr(M)) == (kind != "none")

    by_hand.normalization = None
    X = (data["Xtrain"] - content["extra.offset"]) / content["extra.scale"]
    M.fit(data["Xtrain"], data["Ttrain"], epochs=1, seed=0)
    by_hand.fit(X, data["Ttrain"], epochs=1, seed=0)
    assert not np.array_equal(M.layers[0].W, content["W1"])
    np.testing.assert_array_equal(M.layers[0].W, by_hand.layers[0].W)


# -- the backend auto --------------------------------------------------------------------------


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize("options", [(), ("--densities", "0.5;1", "--dtype", "float64"), ("--eager",)])
def test_auto_is_the_core_where_it_is_built(options):
    pytest.importorskip("matgrad._native")
    runs = {
        names: json.loads(succeed("train", *FAST, *options, *names, "--json"))
        for names in ((), ("--backend", "native"), ("--backend", "numpy"))
    }
    losses = {names: [row["loss"] for row in record["epochs"]] for names, record in runs.items()}

    assert [record["backend"] for record in runs.values()] == ["native", "native", "numpy"]
    assert losses[()] == losses["--backend", "native"]
    np.testing.assert_allclose(losses[()], losses["--backend", "numpy"], rtol=1e-5)


def test_auto_with_a_device_is_pytorch():
    pytest.importorskip("torch")
    assert json.loads(succeed("train", "--epochs", 1, "--device", "cpu", "--json"))["backend"] == "torch"


def test_auto_is_numpy_where_the_core_is_not_built():
    code = """
import sys
sys.modules["matgrad._native"] = None  # as where the package was installed without a C++ compiler
import matgrad as mg
from matgrad.cli import main
print(mg.create_model("Linear", "2;1").engine)
main(["info"], standalone_mode=False)
main(["train", "--epochs", "1", "--save-weights", "m.npz"], standalone_mode=False)
main(["evaluate", "m.npz"], standalone_mode=False)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("numpy\n")
    assert re.search(r"^backend auto +numpy$", result.stdout, re.MULTILINE)
    assert "MultilayerPerceptron on numpy, float32" in result.stdout
    assert "accuracy 0." in result.stdout.splitlines()[-1]


# -- help --------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["train", "evaluate", "predict", "program"])
def test_help_shows_every_option_once_under_the_heading_of_its_group(command):
    found = command_named(command)
    options = [option for option in found.params if isinstance(option, click.Option) and not option.hidden]
    without = [option.opts[0] for option in options if not isinstance(option, GroupedOption)]
    text = succeed(command, "--help")
    headings = re.findall(r"^(\w+):$", text, re.MULTILINE)
    sections = dict(zip(headings, re.split(r"^\w+:\n", text, flags=re.MULTILINE)[1:], strict=True))

    assert isinstance(found, Command)
    assert not without, f"options without a group: {without}"
    assert headings == [group for group in GROUPS if group in headings]
    for option in options:
        shown = [group for group, rows in sections.items() if re.search(rf"^  {option.opts[0]}\b(?!-)", rows, re.M)]
        assert shown == [option.group], option.opts[0]
    assert "-h, --help" in sections["Options"]


def test_help_is_readable():
    """On two screens, without ranges, and with the groups that people look for."""
    options = [option for option in command_named("train").params if not option.hidden]
    text = succeed("train", "--help")
    assert len(options) < 50
    assert len(text.splitlines()) <= 112
    assert "x<=" not in text
    groups = {option.opts[0]: option.group for option in options}
    expected = {"--layers": "Model", "--table": "Data", "--epochs": "Training", "--densities": "Sparsity"}
    assert expected.items() <= groups.items()


def test_an_old_spelling_names_the_new_one(tmp_path):
    flags = {option.opts[0] for option in command_named("train").params}
    file = tmp_path / "c.toml"
    for old, new in RENAMED.items():
        assert not new.startswith("--") or new.split()[0] in flags, new
        file.write_text(f'{old.removeprefix("--")} = "1"\n')
        for arguments in () if old in flags else ((old, "1"), ("--config", file)):
            result = run("train", *arguments)
            assert (result.exit_code, f"{old} is gone: use {new}" in result.stderr) == (2, True), old


def test_the_list_of_commands_imports_none_of_them():
    code = "import sys; from matgrad.cli import main; main(['--help'], standalone_mode=False); print(*sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
    assert "Check every equation" in shown
    assert not {"matgrad.cli.train", "matgrad.program", "matgrad.layers"} & set(shown.split())


def test_importing_matgrad_imports_what_is_asked_for():
    code = "import sys, matgrad; print('numpy' in sys.modules, matgrad.SET.__name__, 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False SET True\n"
