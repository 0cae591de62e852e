"""`matgrad convert`: from a trained model to every format and back, with equal predictions."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from exchange_support import run_onnx

import matgrad as mg
from cli_support import arrays, forward, run, save_blobs, succeed

TARGETS = ("m.onnx", "m.keras", "m.safetensors")


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    """A folder with a trained model in model.npz, and its data in data.npz."""
    folder = tmp_path_factory.mktemp("convert")
    save_blobs(folder / "data.npz")
    files = ("--load-dataset", folder / "data.npz", "--save-weights", folder / "model.npz")
    options = ("--layers", "ReLU;Linear", "--layer-sizes", "4;8;3", "--densities", "0.5;1", "--epochs", 2, "--quiet")
    succeed("train", *files, *options)
    return folder


@pytest.fixture
def data(source, tmp_path, monkeypatch) -> dict[str, np.ndarray]:
    """The data, in a working directory with copies of the files."""
    monkeypatch.chdir(tmp_path)
    for name in ("data.npz", "model.npz"):
        shutil.copy(source / name, name)
    return arrays("data.npz")


@pytest.mark.parametrize("target", TARGETS)
def test_there_and_back(data, target: str):
    succeed("convert", "model.npz", target)
    succeed("convert", target, "back.npz")
    expected, found = mg.load("model.npz"), mg.load("back.npz")

    np.testing.assert_allclose(found.predict(data["Xtest"]), expected.predict(data["Xtest"]), rtol=1e-5, atol=1e-6)
    assert found.normalization is not None
    if target != "m.keras":  # which has no place for it
        assert found.information == expected.information
        assert found.normalization.kind == expected.normalization.kind
    score = succeed("evaluate", "back.npz", "--load-dataset", "data.npz")
    assert score.splitlines()[-1] == succeed("evaluate", "model.npz", "--load-dataset", "data.npz").splitlines()[-1]


def test_checkpoints_are_converted(data):
    succeed("train", "--load-dataset", "data.npz", "--epochs", 1, "--checkpoint", "ck", "--validation", 0.2, "--quiet")
    succeed("convert", "ck/best.safetensors", "best.onnx")
    X = data["Xtest"]
    np.testing.assert_allclose(
        run_onnx("best.onnx", X), mg.load("ck/best.safetensors").predict(X), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("target", TARGETS)
def test_files_of_other_tools_are_told_from_our_own(data, target: str):
    succeed("convert", "model.npz", target)
    for command in (("evaluate", target), ("predict", target, "p.csv"), ("train", "--load-weights", target)):
        result = run(*command, "--load-dataset", "data.npz")
        assert (result.exit_code, "`matgrad convert` makes" in result.output) == (2, True), result.output
    with pytest.raises(ValueError, match=r"expected a name that ends in \.npz"):
        mg.load("model.npz").save(target)
    assert "expected a name that ends in .npz" in run("train", "--save-weights", target).output


def test_sparse_onnx(data):
    succeed("convert", "model.npz", "m.onnx", "--sparse")
    M = mg.load("model.npz")
    assert mg.from_onnx("m.onnx").layers[0].W.support.is_same(M.layers[0].W.support)
    X = data["Xtest"]
    np.testing.assert_allclose(run_onnx("m.onnx", X), M.predict(X), rtol=1e-5, atol=1e-6)


def test_weights_of_the_original_library(data):
    """It has them in dictionaries of tensors; with its normalized inputs they give the same outputs."""
    result = run("convert", "model.npz", "weights.npz", "--only-weights")
    assert result.exit_code == 0
    assert "the unit normalization of the inputs is not in weights.npz" in result.stderr
    weights = {name: torch.tensor(A) for name, A in arrays("weights.npz").items()}
    assert weights.keys() == {"W1", "b1", "W2", "b2"}

    M = mg.load("model.npz")
    X = M.normalize(data["Xtest"])
    np.testing.assert_allclose(forward(arrays("weights.npz"), X), M.predict(data["Xtest"]), rtol=1e-4, atol=1e-5)
    again = mg.create_model("ReLU;Linear", "4;8;3")
    mg.load_weights(again, "weights.npz")
    np.testing.assert_allclose(again.predict(X), M.predict(data["Xtest"]), rtol=1e-4, atol=1e-5)


def test_bad_arguments_are_refused(data):
    for arguments, message in (
        (("model.npz", "m.txt"), "m.txt: expected a name that ends in .npz, .safetensors, .onnx, .keras"),
        (("data.npz", "m.onnx"), "data.npz: no model description in it"),
        (("none.onnx", "m.npz"), "none.onnx: no such file"),
        (("model.npz", "model.npz"), "the same file as source model.npz, which is read"),
        (("model.npz", "m.keras", "--sparse"), "--sparse: expected a target that ends in .onnx"),
        (("model.npz", "m.onnx", "--only-weights"), "--only-weights: expected a target that ends in .npz"),
        (("model.npz", "folder/m.onnx"), "the folder"),
    ):
        result = run("convert", *arguments)
        assert result.exit_code == 2, arguments
        assert message.lower() in result.stderr.lower(), arguments


def test_what_cannot_be_converted_leaves_no_file(data, tmp_path):
    mg.create_model("ReLU;SReLU", "4;8;3").save("srelu.npz")
    mg.create_model("ReLU;BatchNormalization;Linear", "4;8;3").save("normalizing.npz")
    for arguments, message in (
        *(
            (("srelu.npz", target), "layer 2, SReLU(shared=False): other tools have no such layer")
            for target in TARGETS
        ),
        (("normalizing.npz", "w.npz", "--only-weights"), "layer 2, BatchNormalization"),
    ):
        result = run("convert", *arguments)
        assert (result.exit_code, message in result.stderr) == (2, True), result.stderr
        assert not (tmp_path / arguments[1]).exists()
    assert not list(tmp_path.glob(".matgrad-*"))
