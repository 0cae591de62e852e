"""Program files that are model files too: read as models, whatever their names end in, or refused in one line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import matgrad as mg
from matgrad.datasets import Normalization
from matgrad.layers.state import matrices_of, supports_of
from matgrad.specifications.models import create_model
from matgrad.storage.models import load, load_weights, save_model
from matgrad.storage.programs import load_program, save_program

KINDS = {"dense": {}, "sparse": {"densities": "0.5;0.4;1"}}


def trained(kind: str) -> mg.MultilayerPerceptron:
    mg.manual_seed(1)
    rng = np.random.default_rng(2)
    options = {"dropouts": "0.3;0;0", "optimizers": "Adam"} | KINDS[kind]
    M = create_model("ReLU;BatchNormalization;SReLU;Linear", "5;7;6;3", **options)
    M.fit(rng.normal(size=(30, 5)), rng.integers(0, 3, 30), epochs=2, batch_size=10, seed=0)
    M.normalization = Normalization.of("standard", rng.normal(size=(9, 5)).astype(np.float32))
    M.information = {**M.information, "π": [1, None]}
    return M


def save(M: mg.MultilayerPerceptron, path: Path, **options) -> None:
    save_program(M.program(**options), path, M)


@pytest.mark.parametrize("feedforward", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_a_program_file_is_a_model_file(tmp_path: Path, kind: str, feedforward: bool):
    """As the npz file of the same model is, also where feedforward does not need all of the state."""
    M = trained(kind)
    save(M, tmp_path / "program.npz", feedforward=feedforward)  # the name does not matter
    save_model(M, tmp_path / "model")
    found, expected = load(tmp_path / "program.npz"), load(tmp_path / "model")

    assert found.information == expected.information == {**M.information, "normalize": "standard"}
    np.testing.assert_array_equal(found.normalization.scale, M.normalization.scale)
    assert {"1.seed", "2.running_mean"} < found.state().keys()
    assert found.state().keys() == expected.state().keys()
    for name, S in supports_of(expected.state()).items():
        assert S.is_same(found.state()[name]), name
    for name, A in matrices_of(expected.state()).items():
        np.testing.assert_array_equal(found.state()[name], A, err_msg=name)
    X = np.random.default_rng(3).normal(size=(4, 5))
    np.testing.assert_array_equal(found.predict(X), M.predict(X))
    other = create_model("ReLU;BatchNormalization;SReLU;Linear", "5;7;6;3", dropouts="0.3;0;0")
    load_weights(other, tmp_path / "program.npz")
    other.normalization = M.normalization
    np.testing.assert_array_equal(other.predict(X), M.predict(X))


@pytest.mark.parametrize("feedforward", [True, False])
def test_its_program_is_there_too(tmp_path: Path, feedforward: bool):
    M = trained("sparse")
    save(M, tmp_path / "program", feedforward=feedforward)
    program, matrices = load_program(tmp_path / "program")
    assert program.text(is_opened=True) == M.program(feedforward=feedforward).text(is_opened=True)
    assert matrices.keys() == {*program.inputs, *program.supports} - {"X", "T", "eta"}
    assert ("1.W.m" in matrices) != feedforward


def test_a_program_without_a_model_is_no_model(tmp_path: Path):
    M = trained("dense")
    save_program(M.program(), tmp_path / "bare", M.state())
    with pytest.raises(ValueError, match="no model description in it"):
        load(tmp_path / "bare")


def test_weights_in_safetensors_are_read_as_in_npz(tmp_path: Path):
    M = create_model("ReLU;Linear", "3;4;2")
    save_file({"W1": np.ones((4, 3)), "b1": np.ones(4), "W2": np.ones((2, 4)), "b2": np.ones(2)}, tmp_path / "weights")
    load_weights(M, tmp_path / "weights")
    assert (M.layers[1].W == 1).all()


DAMAGED = {
    "no JSON": (lambda content: "{", "the model description is damaged"),
    "deep": (lambda content: "[" * 100_000, "the model description is damaged"),
    "a list": (lambda content: "[]", "the model description is damaged"),
    "no tensors": (lambda content: content.pop("tensors"), "the model description is damaged"),
    "tensors as a list": (lambda content: content.update(tensors=["1.W"]), "the model description is damaged"),
    "tensor as a number": (lambda content: content["tensors"].update(W1=3), "the model description is damaged"),
    "tensor that is not there": (lambda content: content["tensors"].update(W1="9.W"), "no 9.W in it; found"),
    "tensor of another size": (lambda content: content["tensors"].update(W1="1.b"), "1.W is (1, 7), expected (1, 18)"),
    "array that is unknown": (lambda content: content["tensors"].update(W9="1.W"), "W9 in it"),
    "array that is missing": (lambda content: content["tensors"].pop("b1"), "there is no 'b1'"),
    "another format": (lambda content: content.update(format=99), "expected format 1, found 99"),
    "another layer": (lambda content: content["model"].update(layers="TReLUU"), "unknown layer 'TReLUU'"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_descriptions_are_refused(tmp_path: Path, name: str):
    change, message = DAMAGED[name]
    path = tmp_path / "program"
    save(trained("sparse"), path)
    with safe_open(path, "numpy") as file:
        metadata = file.metadata()
    content = json.loads(metadata["model"])
    text = change(content)
    text = text if isinstance(text, str) and text[0] in "{[" else json.dumps(content)
    save_file(load_file(path), path, metadata | {"model": text})
    with pytest.raises(ValueError, match=f"^{re.escape(str(path))}: .*{re.escape(message)}") as caught:
        load(path)
    assert "\n" not in str(caught.value)


def test_a_support_that_is_damaged_is_refused(tmp_path: Path):
    path = tmp_path / "program"
    save(trained("sparse"), path)
    with safe_open(path, "numpy") as file:
        metadata = file.metadata()
    tensors = load_file(path)
    tensors["1.W.support.columns"][0] = 99
    save_file(tensors, path, metadata)
    with pytest.raises(ValueError, match="W1: columns: expected numbers"):
        load(path)


def test_a_tensor_that_is_neither_of_the_program_nor_of_the_model_is_refused(tmp_path: Path):
    path = tmp_path / "program"
    save(trained("dense"), path, feedforward=True)
    with safe_open(path, "numpy") as file:
        metadata = file.metadata()
    save_file(load_file(path) | {"other": np.zeros(3)}, path, metadata)
    with pytest.raises(ValueError, match="other is not an input"):
        load_program(path)


def test_feedforward_needs_its_weights(tmp_path: Path):
    M = trained("dense")
    with pytest.raises(ValueError, match=r"no matrix for 1\.W"):
        save_program(M.program(feedforward=True), tmp_path / "program", {})
