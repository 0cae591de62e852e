"""Programs in files: what is saved is loaded, and what is damaged or unsound is refused in one line."""

from __future__ import annotations

import copy
import json
import pickle
import re
import struct
from pathlib import Path

import numpy as np
import pytest

import matgrad as mg
from matgrad.program import Program, optimized, record_computation
from matgrad.program.computations import make_step
from matgrad.program.description import as_dictionary, from_dictionary
from matgrad.program.shapes import Size
from matgrad.storage.programs import load_program, save_program
from program_support import executed, outputs


def model() -> mg.MultilayerPerceptron:
    """With 0-d integers (dropout) and 0-d floats (Adam) in its state."""
    mg.manual_seed(2)
    M = mg.MultilayerPerceptron([mg.ActivationDropoutLayer(3, 4, "Sigmoid", dropout=0.3), mg.LinearLayer(4, 2)])
    M.set_optimizer("Adam")
    return M.to(dtype="float64")


def program(M: mg.MultilayerPerceptron, rules=optimized) -> Program:
    return rules(
        record_computation(make_step(M, mg.SoftmaxCrossEntropyLoss()), M.state(), np.zeros((5, 3)), np.zeros((5, 2)))
    )


@pytest.fixture
def file(tmp_path) -> Path:
    M = model()
    save_program(program(M), tmp_path / "step.safetensors", M.state())
    return tmp_path / "step.safetensors"


@pytest.mark.parametrize("rules", [optimized, lambda program: program])
def test_what_is_saved_is_loaded(tmp_path, rules):
    M = model()
    saved = program(M, rules)
    save_program(saved, tmp_path / "step", M.state())
    loaded, matrices = load_program(tmp_path / "step")

    assert as_dictionary(loaded) == as_dictionary(saved)
    assert loaded.text(is_opened=True) == saved.text(is_opened=True)
    assert isinstance(loaded.inputs["X"].shape[0], Size)
    assert matrices.keys() == M.state().keys()
    for name, A in M.state().items():
        assert matrices[name].shape == A.shape
        assert matrices[name].dtype == A.dtype
        np.testing.assert_array_equal(matrices[name], A, err_msg=name)
    rng = np.random.default_rng(0)
    batch = {"X": rng.normal(size=(5, 3)), "T": mg.one_hot(rng.integers(0, 2, 5), 2), "eta": np.array(0.1)}
    expected = outputs(saved, M.state() | batch)
    found = outputs(loaded, matrices | batch)
    for name, A in expected.items():
        np.testing.assert_array_equal(found[name], A, err_msg=name)


def test_a_loaded_program_trains(file):
    """As its model does."""
    M, (loaded, matrices) = model(), load_program(file)
    rng = np.random.default_rng(0)
    X, T, eta = rng.normal(size=(5, 3)), mg.one_hot(rng.integers(0, 2, 5), 2), np.array(0.1)
    state, step = M.state(), make_step(M, mg.SoftmaxCrossEntropyLoss())
    for _ in range(3):
        state = step(state, X, T, eta)
    actual = executed(loaded, matrices, {"X": X, "T": T, "eta": eta}, times=3)
    for name, A in state.items():
        np.testing.assert_allclose(actual[name], A, rtol=1e-12, err_msg=name)


@pytest.mark.parametrize("number", [np.inf, -np.inf, np.nan])
def test_numbers_that_are_not_finite_are_saved(tmp_path, number: float):
    class Shift(mg.Layer):
        def feedforward(self, X):
            return X + number

        def backpropagate(self, Y, DY):
            self.DX = DY

    M = model()
    M.layers.append(Shift(2, 2))
    save_program(program(M), tmp_path / "program.safetensors", M.state())
    loaded, _ = load_program(tmp_path / "program.safetensors")
    numbers = [value.number for value in loaded.values if value.operation == "number"]
    assert any(np.array_equal(x, number, equal_nan=True) for x in numbers)


def test_transposed_matrices_are_saved_as_they_are_seen(tmp_path):
    M = model()
    state = M.state() | {"1.W": np.asfortranarray(M.state()["1.W"])}
    save_program(program(M), tmp_path / "step", state)
    np.testing.assert_array_equal(load_program(tmp_path / "step")[1]["1.W"], M.state()["1.W"])


def test_there_is_nothing_pickled_in_a_file(file, monkeypatch):
    monkeypatch.setattr(pickle, "Unpickler", None)
    monkeypatch.setattr(pickle, "loads", None)
    load_program(file)
    size = struct.unpack("<Q", file.read_bytes()[:8])[0]
    assert json.loads(file.read_bytes()[8 : 8 + size])["__metadata__"].keys() == {"matgrad"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state.pop("1.W"), "no matrix for 1.W"),
        (lambda state: state.update({"9.W": np.zeros((2, 2))}), "9.W is not an input of the program"),
        (lambda state: state.update({"1.b": np.zeros((1, 3))}), r"1.b: expected \(1, 4\) float64, found \(1, 3\)"),
        (lambda state: state.update({"1.b": np.zeros((1, 4), "float32")}), r"found \(1, 4\) float32"),
    ],
)
def test_matrices_that_do_not_fit_are_not_saved(tmp_path, change, message: str):
    M = model()
    state = M.state()
    change(state)
    with pytest.raises(ValueError, match=message):
        save_program(program(M), tmp_path / "step", state)
    assert not list(tmp_path.iterdir())


# -- files that are refused --------------------------------------------------------------------


def write(path: Path, text: str | None, matrices: dict[str, np.ndarray]) -> None:
    from safetensors.numpy import save

    path.write_bytes(save(matrices, metadata=None if text is None else {"matgrad": text}))


def refused(path: Path) -> str:
    """The one line of the error, which names the file."""
    with pytest.raises(ValueError, match=f"^{re.escape(str(path))}: ") as caught:
        load_program(path)
    message = str(caught.value)
    assert "\n" not in message
    assert caught.value.__cause__ is None
    return message


def set_in(place: list, value):
    """A change that puts a value at a place of nested tables and lists."""

    def change(content):
        *path, last = place
        for key in path:
            content = content[key]
        content[last] = value

    return change


def first(content, operation: str) -> dict:
    return next(line for line in content["values"] if line["operation"] == operation)


def in_first(operation: str, key: str, value):
    return lambda content: first(content, operation).update({key: value})


UNSOUND = {
    "operand after use": (in_first("product_sum", "operands", [99, 99, 99, 99, 99]), "expected operands before it"),
    "negative operand": (in_first("matmul", "operands", [-1, -2]), "expected operands before it"),
    "wrong shape": (in_first("product_sum", "shape", [7, 7]), "product_sum cannot give"),
    "empty shape": (in_first("input", "shape", [0, 3]), "expected a size from 1 to 2147483647"),
    "unknown size": (in_first("input", "shape", ["M", 3]), "there is no 'M'"),
    "unknown operation": (in_first("product_sum", "operation", "sine"), "unknown operation 'sine'"),
    "unknown dtype": (in_first("product_sum", "dtype", "float16"), "cannot give float16"),
    "number that is a text": (in_first("number", "number", "abc"), "found 'abc'"),
    "number in a sum": (in_first("add", "number", 3), "a number belongs to the operation 'number'"),
    "name that is a number": (in_first("input", "name", 5), "expected a string, found 5"),
    "two inputs of one name": (in_first("input", "name", "X"), ""),
    "output of another shape": (lambda content: content["outputs"].update({"1.W": content["outputs"]["1.b"]}), "1.W"),
    "output that is no index": (set_in(["outputs", "1.W"], 10**6), "expected indices of values as outputs"),
    "output from the end": (set_in(["outputs", "1.W"], -1), "expected indices of values as outputs"),
    "negative size": (set_in(["sizes", "N"], -5), "expected a size from 1 to 2147483647, found -5"),
    "sizes as a list": (set_in(["sizes"], [5]), ""),
    "values as a text": (set_in(["values"], "abc"), ""),
    "another format": (set_in(["format"], 1), "format 1, expected 2"),
    "no format": (lambda content: content.pop("format"), "there is no 'format'"),
}


@pytest.mark.parametrize("name", UNSOUND)
def test_unsound_programs_are_refused(file, name: str):
    change, message = UNSOUND[name]
    content = as_dictionary(load_program(file)[0])
    content = json.loads(json.dumps(content))
    change(content)
    write(file, json.dumps(content), load_program(file)[1])
    assert message in refused(file)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "null", '"text"', "{}", "[" * 100_000, "NaN"])
def test_descriptions_that_are_none_are_refused(file, text: str):
    write(file, text, load_program(file)[1])
    assert "invalid program: " in refused(file)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"1.W": None}, "no matrix for 1.W"),
        ({"1.W": np.zeros((2, 2))}, r"1.W: expected (4, 3) float64, found (2, 2) float64"),
        ({"1.W": np.zeros((4, 3), "float32")}, "found (4, 3) float32"),
        ({"1.W": np.zeros((4, 3), "int64")}, "found (4, 3) int64"),
        ({"other": np.zeros((2, 2))}, "other is not an input"),
    ],
)
def test_matrices_that_do_not_fit_are_refused(file, change, message: str):
    loaded, matrices = load_program(file)
    matrices = {name: A for name, A in (matrices | change).items() if A is not None}
    write(file, json.dumps(as_dictionary(loaded)), matrices)
    assert message in refused(file)


def test_files_that_are_no_programs_are_refused(file, tmp_path):
    content = file.read_bytes()
    other = tmp_path / "other"
    assert "no such file" in refused(other)
    for damaged in (b"", b"hello", content[:100], content[:-1], content + b"x", bytes(len(content))):
        other.write_bytes(damaged)
        assert "safetensors" in refused(other)
    write(other, None, {"W": np.zeros((2, 2))})
    assert "there is no program in it" in refused(other)
    folder = tmp_path / "folder"
    folder.mkdir()
    refused(folder)


@pytest.mark.parametrize("kind", ["BF16", "F8_E4M3"])
def test_element_types_that_numpy_does_not_have_are_refused(tmp_path, kind: str):
    size = {"BF16": 2, "F8_E4M3": 1}[kind]
    header = json.dumps({"W": {"dtype": kind, "shape": [2, 2], "data_offsets": [0, 4 * size]}}).encode()
    path = tmp_path / "strange"
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(4 * size))
    refused(path)


def test_flipped_bits_are_refused_or_harmless(file):
    """Whatever byte of the header changes, there is one line or a sound program."""
    content = file.read_bytes()
    size = struct.unpack("<Q", content[:8])[0]
    rng = np.random.default_rng(0)
    for place in rng.integers(0, 8 + size, 200):
        damaged = bytearray(content)
        damaged[place] ^= 1 << int(rng.integers(8))
        file.write_bytes(damaged)
        try:
            load_program(file)
        except ValueError:
            refused(file)


def test_a_dictionary_is_not_changed_by_loading(file):
    content = as_dictionary(load_program(file)[0])
    before = copy.deepcopy(content)
    assert as_dictionary(from_dictionary(content)) == before
    assert content == before
