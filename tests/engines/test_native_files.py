"""Files that go from Python to C++ and back: what C++ predicts, what it has trained, and what it refuses."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from native_support import NATIVE, needs_compiler, run
from safetensors.numpy import load_file, save_file

import matgrad as mg
from matgrad.datasets import Normalization
from matgrad.layers.state import matrices_of
from matgrad.program.description import as_dictionary
from matgrad.specifications.models import create_model
from matgrad.storage.models import load, save_model
from matgrad.storage.programs import load_program, save_program
from support import PATIENCE

pytestmark = needs_compiler

D, K, N = 12, 5, 137  # N is not a whole number of batches
MODELS = {
    "dense": {"layers": "ReLU;GELU;Linear"},
    "sparse": {"layers": "ReLU;ReLU;Linear", "densities": "0.3;0.4;0.5"},
    "batch normalization": {"layers": "ReLU;BatchNormalization;SReLU;Linear"},
    "layer normalization": {"layers": "ReLU;LayerNormalization;ReLU;RMSNormalization;Linear"},
    "softmax": {"layers": "HyperbolicTangent;ReLU;Softmax"},
    "dropout": {"layers": "ReLU;ReLU;LogSoftmax", "dropouts": "0.3", "densities": "0.5;1;1"},
}


def model(kind: str, dtype: str = "float32", **options: str) -> mg.MultilayerPerceptron:
    mg.manual_seed(1)
    return create_model(sizes=f"{D};20;15;{K}", optimizers="Adam", **MODELS[kind], **options).to(dtype=dtype)


def data(size: int = N) -> tuple[np.ndarray, np.ndarray]:
    """Examples around a point for each class, far from mean 0 and deviation 1."""
    rng = np.random.default_rng(2)
    t = rng.integers(0, K, size)
    centres = np.random.default_rng(3).normal(size=(K, D))
    return (5 + 3 * (centres[t] + 0.7 * rng.normal(size=(size, D)))).astype(np.float32), t


def save(M: mg.MultilayerPerceptron, path: Path, batch_size: int = 20, **options) -> None:
    save_program(M.program(batch_size=batch_size, **options), path, M)


def matgrad(*words: object) -> str:
    return run([sys.executable, "-m", "matgrad", *words])


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    return {name: tmp_path / f"{name}.safetensors" for name in ("program", "data", "result", "again", "other")}


# -- predictions -------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "dtype"), [*zip(MODELS, ["float32", "float64"] * 3, strict=True)])
def test_predictions_are_those_of_python(binaries: Path, files, kind: str, dtype: str):
    """Of all examples, also of the last ones, which fill no batch, in evaluation mode."""
    M, (X, t) = model(kind, dtype), data()
    M.fit(X, t, epochs=2, batch_size=20, seed=0, learning_rate=0.01)
    save(M, files["program"], feedforward=True)
    save_file({"X": X, "t": t}, files["data"])
    output = run([binaries / "predict", files["program"], files["data"], files["result"], "--threads", 2])

    result, expected = load_file(files["result"]), M.predict(X)
    assert result["Y"].dtype == dtype
    np.testing.assert_allclose(result["Y"], expected, rtol=1e-4 if dtype == "float32" else 1e-9, atol=1e-5)
    np.testing.assert_array_equal(result["classes"], expected.argmax(axis=1))
    assert output.splitlines() == [f"wrote {N} predictions to {files['result']}", f"accuracy {M.score(X, t):.4f}"]


def test_predictions_are_in_the_units_of_the_data(binaries: Path, files):
    X, T = data()[0], 1000 + 100 * data()[0][:, :2]
    M = create_model("ReLU;Linear", f"{D};8;2")
    M.normalization, M.target_normalization = Normalization.of("standard", X), Normalization.of("standard", T)
    save(M, files["program"], feedforward=True)
    save_file({"X": X}, files["data"])
    run([binaries / "predict", files["program"], files["data"], files["result"]])
    np.testing.assert_allclose(load_file(files["result"])["Y"], M.predict(X), rtol=1e-5)
    save(M, files["program"])
    assert "expected a classifier, found a regression" in refused(
        binaries / "train", files["program"], files["data"], files["result"]
    )


# -- training ----------------------------------------------------------------------------------


def normalized(kind: str) -> mg.MultilayerPerceptron:
    """A model for scaled inputs, with all that `matgrad train` would save."""
    M = model(kind)
    M.normalization = Normalization.of("standard", data()[0])
    M.information = {"normalize": "standard", "loss": "SoftmaxCrossEntropy", "classes": K, "data": 'π "\\ \n 😀'}
    return M


@pytest.mark.parametrize("kind", ["sparse", pytest.param("batch normalization", marks=pytest.mark.slow)])
def test_what_was_trained_is_a_program_and_a_model(binaries: Path, files, kind: str):
    M, (X, t) = normalized(kind), data()
    save(M, files["program"], loss="SoftmaxCrossEntropy")
    save_file({"X": X, "t": t}, files["data"])
    rate = ("--rate", 0.01, "--epochs", 8)
    output = run([binaries / "train", files["program"], files["data"], files["result"], *rate])

    assert [line.split(" in ")[0] for line in output.splitlines()] == [
        *(f"epoch {i}: 6 batches of 20 examples" for i in range(1, 9)),
        "left out: the last 17 examples, which fill no batch",
        f"wrote {files['result']}",
    ]
    (program, state), (before, _) = load_program(files["result"]), load_program(files["program"])
    assert as_dictionary(program) == as_dictionary(before)
    M.load_state(state)
    found = load(files["result"])
    assert found.information == M.information
    np.testing.assert_array_equal(found.normalization.scale, M.normalization.scale)
    np.testing.assert_allclose(found.predict(X), M.predict(X), rtol=1e-5, atol=1e-6)

    np.savez(files["other"].with_suffix(".npz"), Xtrain=X, Ttrain=t, Xtest=X, Ttest=t)
    options = ("--load-dataset", files["other"].with_suffix(".npz"), "--json")
    accuracy = M.score(X, t)
    assert accuracy > 0.6
    again = files["again"].with_suffix(".npz")
    save_model(M, again)
    for file in (files["result"], again):
        assert json.loads(matgrad("evaluate", file, *options))["accuracy"] == pytest.approx(accuracy, abs=1e-6)


@pytest.mark.parametrize("kind", MODELS)
def test_a_second_run_continues_the_first(binaries: Path, files, kind: str):
    """Two runs of an epoch are one run of two, bit for bit, and two epochs of Python, to rounding."""
    M, (X, t) = model(kind, "float64"), data(120)
    save(M, files["program"])
    save_file({"X": X, "t": t}, files["data"])
    options = ("--rate", 0.01, "--threads", 2)
    run([binaries / "train", files["program"], files["data"], files["result"], *options])
    run([binaries / "train", files["result"], files["data"], files["result"], *options])
    run([binaries / "train", files["program"], files["data"], files["again"], *options, "--epochs", 2])
    assert files["result"].read_bytes() == files["again"].read_bytes()

    M.fit(X, t, learning_rate=0.01, epochs=2, batch_size=20, shuffle=False)
    result = load_file(files["result"])
    for name, A in matrices_of(M.state()).items():
        scale = max(np.abs(A).max(), 1e-6)
        np.testing.assert_allclose(result[name], A, rtol=0, atol=1e-9 * scale, err_msg=f"{kind} {name}")


def test_one_output_tells_two_classes_apart(binaries: Path, files):
    mg.manual_seed(1)
    M = create_model("ReLU;Linear", f"{D};8;1", optimizers="Momentum(0.9)").to(dtype="float64")
    X, t = data(120)
    t = (t > 1).astype(np.int64)
    save(M, files["program"], loss="BinaryCrossEntropy")
    save_file({"X": X, "t": t}, files["data"])
    run([binaries / "train", files["program"], files["data"], files["result"], "--rate", 0.01])
    M.fit(X, t, loss="BinaryCrossEntropy", learning_rate=0.01, epochs=1, batch_size=20, shuffle=False)
    np.testing.assert_allclose(load_file(files["result"])["2.W"], M.layers[1].W, rtol=1e-9)


# -- bad input ---------------------------------------------------------------------------------


def refused(program: Path, *words: object) -> str:
    """The one line of the error."""
    result = subprocess.run([program, *map(str, words)], capture_output=True, text=True, timeout=PATIENCE)
    assert result.returncode == 2, result.stdout
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    return line


@pytest.fixture
def ready(files) -> dict[str, Path]:
    """A training step, data for it, and feedforward."""
    saved = normalized("sparse")
    save(saved, files["program"])
    save(saved, files["again"], feedforward=True)
    X, t = data()
    save_file({"X": X, "t": t}, files["data"])
    return files


def test_bad_data_is_named(binaries: Path, ready):
    X, t = data()
    cases = {
        "no tensor X in it; found t": {"t": t},
        "no tensor t in it; found X": {"X": X},
        "X is 137 × 3 float32, expected N × 12": {"X": np.ascontiguousarray(X[:, :3]), "t": t},
        "t is 137 int32, expected 137 int64": {"X": X, "t": t.astype(np.int32)},
        "t has the class 5, expected 0 to 4": {"X": X, "t": t + (t == 4)},
        "expected at least one batch of 20 examples, found 7": {"X": X[:7], "t": t[:7]},
    }
    for message, tensors in cases.items():
        save_file(tensors, ready["other"])
        assert refused(binaries / "train", ready["program"], ready["other"], ready["result"]) == (
            f"error: {ready['other']}: {message}"
        )
    assert not ready["result"].exists()


def test_bad_programs_are_named(binaries: Path, ready, tmp_path: Path):
    program, data_file, result, feedforward = (ready[x] for x in ("program", "data", "result", "again"))
    assert refused(binaries / "train", feedforward, data_file, result).endswith(
        "found one without a matrix T of float32"
    )
    assert refused(binaries / "predict", program, data_file, result).endswith("found one without a matrix Y of float32")
    assert "there is no program in it" in refused(binaries / "predict", data_file, data_file, result)
    missing = tmp_path / "missing"
    assert f"{missing}: no such file" in refused(binaries / "train", missing, data_file, result)
    assert f"{tmp_path}: cannot be read" in refused(binaries / "train", program, tmp_path, result)
    ready["other"].write_bytes(program.read_bytes()[:200])
    assert "not a safetensors file, or a damaged one" in refused(binaries / "train", ready["other"], data_file, result)
    from safetensors import safe_open

    with safe_open(program, "numpy") as file:
        metadata = file.metadata()
    for name in ("1.W", "1.W.support.starts", "extra.scale"):
        tensors = load_file(program)
        tensors.pop(name)
        save_file(tensors, ready["other"], metadata)
        assert f"no tensor {name} in it; found 1." in refused(binaries / "train", ready["other"], data_file, result)
    save_file(load_file(program) | {"1.b": np.zeros((1, 3), np.float32)}, ready["other"], metadata)
    assert "1.b is 1 × 3 float32, expected 1 × 20 float32" in refused(
        binaries / "train", ready["other"], data_file, result
    )
    assert "nowhere/x: cannot be written" in refused(binaries / "predict", feedforward, data_file, "nowhere/x")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--rate", "0.1x"), "--rate: expected a number, found '0.1x'"),
        (("--rate", "nan"), "--rate: expected a number, found 'nan'"),
        (("--epochs", "0"), "--epochs: expected a whole number from 1 to 1000000, found 0"),
        (("--threads", "1.5"), "--threads: expected a whole number from 1 to 1024, found 1.5"),
        (("--speed", "9"), "unknown option --speed"),
        (("one", "more"), "usage: train PROGRAM DATA RESULT"),
    ],
)
def test_bad_options_are_named(binaries: Path, ready, words, message: str):
    files = ready["program"], ready["data"], ready["result"]
    assert message in refused(binaries / "train", *files, *words)


def test_dropout_that_is_renewed_every_epoch_is_refused(binaries: Path, ready):
    save(model("dropout", renew="epoch"), ready["program"])
    message = refused(binaries / "train", ready["program"], ready["data"], ready["result"])
    assert "expected dropout that is renewed every step" in message


# -- the README --------------------------------------------------------------------------------


def without_figures(text: str) -> str:
    return re.sub(r"\d+\.\d+", "#", text)


def test_the_readme_works_as_printed(binaries: Path, tmp_path: Path):
    """But for where it is built: nothing is compiled twice. What embeds the core has a test of its own."""
    (tmp_path / "build").symlink_to(binaries)
    source, build = shlex.quote(str(NATIVE)), shlex.quote(str(binaries))
    folders = {"-S native -B build ": f"-S {source} -B {build} ", "--build build ": f"--build {build} "}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    output = ""
    blocks = re.findall(
        r"```(\w+)\n(.*?)```", (NATIVE / "README.md").read_text().partition("## In your own")[0], re.DOTALL
    )
    for language, text in blocks:
        if language == "text":
            assert without_figures(output) == without_figures(text)
            continue
        (tmp_path / "example.py").write_text(text)
        for printed, meant in folders.items():
            text = text.replace(printed, meant)
        script = "python example.py" if language == "python" else f'matgrad() {{ python -m matgrad "$@"; }}\n{text}'
        done = subprocess.run(
            ["bash", "-ec", script],
            cwd=tmp_path,
            env=os.environ | {"PATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE,
        )
        output = done.stdout
        assert (done.returncode == 2) == output.startswith("error: "), output
        assert done.returncode in (0, 2), output
    assert [language for language, _ in blocks].count("text") == 3
    assert json.loads(matgrad("evaluate", tmp_path / "trained.safetensors", "--json"))["accuracy"] > 0.8
